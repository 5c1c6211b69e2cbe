"""Family `matrix`: one-step games of two agents with a known payoff table, so that every gradient is known exactly.

The games are those of Claus and Boutilier (1998). Rows are agent 0's actions, columns agent 1's.

climbing: the best joint action, (0, 0), pays 11; the penalties beside it drive learners to 7 or 5::

     11  -30    0
    -30    7    6
      0    0    5

penalty with k = -100: (0, 0) and (2, 2) pay 10, the safe (1, 1) pays 2, and mixing the two best ones pays k::

     10    0 -100
      0    2    0
   -100    0   10

The one step terminates. Both agents observe `[1.]`, which is also the state. All actions are legal; there are no wins.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from grasp.types import Env, EnvSpec, Key, Observation, Step, Table

PAYOFFS: dict[str, Float[np.ndarray, "a a"]] = {
    "climbing": np.array([[11, -30, 0], [-30, 7, 6], [0, 0, 5]], np.float32),
    "penalty": np.array([[10, 0, -100], [0, 2, 0], [-100, 0, 10]], np.float32),
}
"""The team's payoff by (agent 0's action, agent 1's action)."""


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
