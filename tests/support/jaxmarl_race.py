"""An environment in the style of jaxmarl, and factories that `make("jaxmarl_race:race")` finds by name."""

import jax.numpy as jnp


class Discrete:
    def __init__(self, n):
        self.n = n


class Box:
    pass


class Race:
    """Two agents with different spaces. An episode ends when the slow agent has chosen action 1 three times, and by the
    environment's own clock after `max_steps`."""

    agents = ("fast", "slow")
    max_steps = 6

    def __init__(self, masks=True, world_state=True):
        self.world_state = world_state
        if masks:
            self.get_avail_actions = lambda state: {"fast": jnp.array([1, 1, state[0] % 2]), "slow": jnp.array([1, 1])}

    def action_space(self, agent):
        return Discrete(3 if agent == "fast" else 2)

    def observe(self, state):
        obs = {"fast": jnp.concatenate([state, state]).astype(jnp.float32), "slow": state[1:].astype(jnp.float32)}
        return obs | ({"world_state": 10.0 * state.astype(jnp.float32)} if self.world_state else {})

    def reset(self, key):
        state = jnp.zeros(2, jnp.int32)
        return self.observe(state), state

    def step_env(self, key, state, actions):
        state = state + jnp.array([1, 0]) + jnp.array([0, 1]) * (actions["slow"] == 1)
        done = (state[1] >= 3) | (state[0] >= self.max_steps)
        rewards = {"fast": actions["fast"].astype(jnp.float32), "slow": 10.0 * actions["slow"]}
        return self.observe(state), state, rewards, {"fast": done, "slow": done, "__all__": done}, {}


def race(masks=True):
    return Race(masks)


def without_limit():
    env = Race()
    env.max_steps = 0
    return env


def with_boxes():
    env = Race()
    env.action_space = lambda agent: Box()
    return env
