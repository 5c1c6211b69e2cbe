"""The smallest environment, for tests of what surrounds it."""

import jax.numpy as jnp

from grasp.types import Env, EnvSpec, Observation, Step


def one_step_env() -> Env:
    """Episodes of one step, whose reward is the action."""
    spec = EnvSpec("test/one_step", num_agents=1, obs_dim=1, state_dim=1, num_actions=2, horizon=1)
    seen = Observation(jnp.zeros((1, 1)), jnp.zeros(1), jnp.ones((1, 2), bool), jnp.ones(1, bool))

    def step(env_state, action, key):
        over = jnp.array(True)
        return env_state, Step(seen, action[0].astype(jnp.float32), over, ~over, ~over)

    return Env(spec, lambda key: ((), seen), step)
