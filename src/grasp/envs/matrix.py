"""Family `matrix`: two agents, one joint choice, a known payoff; every gradient can be written down exactly.

The games are those of Claus and Boutilier (1998), rows agent 0's action and columns agent 1's:

climbing, best 11 at (0, 0), beside it the fines that make a learner climb down to 7 or 5::

     11  -30    0
    -30    7    6
      0    0    5

penalty with k = -100, best 10 at (0, 0) and (2, 2), 2 for the safe (1, 1), k where the two best are confused::

     10    0 -100
      0    2    0
   -100    0   10

One step, which terminates. Both agents see `[1.]`, which is also the state; every action is legal; nothing is won.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from grasp.types import Env, EnvSpec, Key, Observation, Step, Table

PAYOFFS: dict[str, Float[np.ndarray, "a a"]] = {
    "climbing": np.array([[11, -30, 0], [-30, 7, 6], [0, 0, 5]], np.float32),
    "penalty": np.array([[10, 0, -100], [0, 2, 0], [-100, 0, 10]], np.float32),
}
"""The payoff to the team by (agent 0's action, agent 1's action)."""


def names() -> list[str]:
    """The games with a payoff table."""
    return list(PAYOFFS)


def make(task: str) -> Env:
    """The game as an `Env`."""
    payoff = jnp.asarray(PAYOFFS[task])
    num_actions = payoff.shape[0]
    spec = EnvSpec(name=f"matrix/{task}", num_agents=2, obs_dim=1, state_dim=1, num_actions=num_actions, horizon=1)
    view = Observation(
        obs=jnp.ones((2, 1), jnp.float32),
        state=jnp.ones(1, jnp.float32),
        avail=jnp.ones((2, num_actions), bool),
        alive=jnp.ones(2, bool),
    )
    unplayed = jnp.full(2, -1, jnp.int32)

    def reset(key: Key) -> tuple[Int[Array, " N"], Observation]:
        return unplayed, view

    def step(env_state: Int[Array, " N"], action: Int[Array, " N"], key: Key) -> tuple[Int[Array, " N"], Step]:
        reward = payoff[action[0], action[1]]
        return action.astype(jnp.int32), Step(view, reward, jnp.array(True), jnp.array(False), jnp.array(False))

    return Env(spec, reset, step, scene=lambda env_state: Table(payoff, env_state))
