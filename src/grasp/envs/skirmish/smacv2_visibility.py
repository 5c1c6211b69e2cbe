"""SMACv2's bookkeeping of which enemies have been seen, with the rows that it hides."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from grasp.envs.skirmish.observation import between
from grasp.envs.skirmish.state import Battle, Rules
from grasp.envs.skirmish.unit_stats import Unit
from grasp.types import Key

NOBODY = -1


def forget(rules: Rules, battle: Battle, holder: Int[Array, " E"]) -> Int[Array, " E"]:
    """An enemy is known while it lives and so does the agent that first saw it."""
    alive = battle.hp > 0
    held = (holder != NOBODY) & alive[jnp.maximum(holder, 0)]
    return jnp.where(held & alive[rules.num_allies :], holder, NOBODY)


def look(
    rules: Rules, unit: Unit, battle: Battle, holder: Int[Array, " E"], key: Key
) -> tuple[Int[Array, " E"], Bool[Array, "A E"]]:
    """Who holds each enemy after all agents have looked, in random order; and whose rows each agent is shown.

    An agent that comes upon an unknown enemy loses the rows of all enemies before it in the list: it keeps row e only
    if every later enemy is known by the time it looks. Corpses are come upon like the living.
    """
    num_allies = rules.num_allies
    turn = jax.random.permutation(key, num_allies)
    seen = between(battle, num_allies)[2][:, num_allies:] < unit.sight[:num_allies, None]
    seen &= (battle.hp[:num_allies] > 0)[:, None]
    turns = jnp.where(seen, turn[:, None], num_allies)
    first, finder = turns.min(0), turns.argmin(0)
    known_before = holder != NOBODY
    known = known_before[None] | (first[None] <= turn[:, None])
    unknown_later = jnp.flip(jnp.cumsum(jnp.flip(~known, 1), 1), 1) - ~known
    holder = jnp.where(~known_before & (first < num_allies), finder, holder)
    return holder, unknown_later == 0
