"""SMACv2's record of which enemies are known, and the observation rows that it hides because of it.

In SMACv2 agents observe one after another in random order. An agent that sees an unknown enemy makes it known, and the
rows of all enemies before it in the list are lost from that agent's observation. `observe` in the benchmark does this
as a side effect; here it is `look`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from grasp.envs.skirmish.observation import between
from grasp.envs.skirmish.state import Battle, Rules
from grasp.envs.skirmish.unit_stats import Unit
from grasp.types import Key

UNKNOWN = -1
"""The holder of an enemy that is not known."""


def forget(rules: Rules, battle: Battle, holder: Int[Array, " E"]) -> Int[Array, " E"]:
    """An enemy stays known while it and its holder, the agent that first saw it, are alive."""
    alive = battle.hp > 0
    held = (holder != UNKNOWN) & alive[jnp.maximum(holder, 0)]
    return jnp.where(held & alive[rules.num_allies :], holder, UNKNOWN)


def look(
    rules: Rules, unit: Unit, battle: Battle, holder: Int[Array, " E"], key: Key
) -> tuple[Int[Array, " E"], Bool[Array, "A E"]]:
    """The holder of each enemy after all agents have observed, in random order, and which rows each agent is shown.

    An agent keeps row e only if all later enemies are known when its turn comes. Dead enemies count like living ones.
    """
    num_allies = rules.num_allies
    turn = jax.random.permutation(key, num_allies)
    seen = between(battle, num_allies)[2][:, num_allies:] < unit.sight[:num_allies, None]
    seen &= (battle.hp[:num_allies] > 0)[:, None]
    turns = jnp.where(seen, turn[:, None], num_allies)
    first, finder = turns.min(0), turns.argmin(0)
    known_before = holder != UNKNOWN
    known = known_before[None] | (first[None] <= turn[:, None])
    unknown_later = jnp.flip(jnp.cumsum(jnp.flip(~known, 1), 1), 1) - ~known
    holder = jnp.where(~known_before & (first < num_allies), finder, holder)
    return holder, unknown_later == 0
