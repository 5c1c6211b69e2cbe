"""A battle: what is fixed on a map, what changes, and how units are compared.

Inside the loops every array is [N, B]: units first, allies before enemies, copies of the environment last. What all
units do to each other is a loop over units, each step of which is a few operations on [N, B] that fuse into one: the
pairs, N² B of them, are never stored, and no reduction runs along the fast axis.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.envs.skirmish.unit_stats import Unit

FIRST_TARGET = 6
"""The action that names target 0; before it no-op, stop and the four moves."""
STOP, MOVE, ATTACK, SCRIPT = range(4)
"""Orders: stand and do not shoot; go to a point; attack, or heal, one unit; act as the computer does."""


class Rules(NamedTuple):
    """What is the same for every battle on a map."""

    num_allies: int
    num_units: int
    drawn: bool
    """SMACv2's map: no walls within, and an enemy attacks the nearest ally wherever it is."""
    shields: bool
    healers: tuple[int, ...]
    """Places that may hold a healer."""
    layers: bool
    """Whether some fly or walk over others."""
    sweeps: bool
    explodes: bool
    hits: int
    """The most of one volley."""
    size: float
    """Of the map, both ways."""
    low: float
    """Walls: ground units stay above and below."""
    high: float
    rally: tuple[tuple[float, float], tuple[float, float]]
    """Where a side's script goes while it has no target: allies', enemies'."""
    scripted: tuple[bool, bool] = (False, True)
    """Which sides act by script."""
    smaclite: bool = False
    enemy: str = "attack"
    most: float | None = None
    """The unscaled reward that counts as 20; None: what this battle's enemies are worth."""


class Battle(NamedTuple):
    """What changes. A target is a unit's place, -1 for none."""

    x: Float[Array, "N *B"]
    y: Float[Array, "N *B"]
    hp: Float[Array, "N *B"]
    """0 for the dead."""
    shield: Float[Array, "N *B"]
    energy: Float[Array, "N *B"]
    cooldown: Float[Array, "N *B"]
    calm: Float[Array, "N *B"]
    """Loops since it was last hit."""
    order: Int[Array, "N *B"]
    target: Int[Array, "N *B"]
    goal_x: Float[Array, "N *B"]
    goal_y: Float[Array, "N *B"]
    healing: Int[Array, "N *B"]
    """Whom a healer has just healed."""
    bursting: Bool[Array, "N *B"]
    """Killed in the last loop, and about to explode."""


def row(values: Array, place: Int[Array, ""]) -> Array:
    """One unit's values, to be compared with everyone's."""
    return jax.lax.dynamic_slice_in_dim(values, place, 1, 0)


UNROLL = 2
"""Units that a loop over units takes at once. One or two are fastest; of more the compiler computes parts again."""


def each(places: tuple[int, int], body: Callable[[Array, Any], Any], start: Any) -> Any:
    """A loop over units."""
    return jax.lax.fori_loop(*places, body, start, unroll=min(UNROLL, places[1] - places[0]))


def at(values: Array, places: Int[Array, "M B"]) -> Array:
    """The values of the named units; of unit 0 where there is none, for the caller to ignore."""
    return jnp.take_along_axis(values, jnp.maximum(places, 0), 0)


def distance(x: Array, y: Array, other_x: Array, other_y: Array) -> Array:
    return jnp.sqrt((other_x - x) ** 2 + (other_y - y) ** 2)


def can_hit(unit: Unit, other: Unit) -> Bool[Array, "M B"]:
    """Whether a weapon reaches the other's plane; what is tall is in both."""
    flies, ground = other.flies > 0, other.flies == 0
    return ((unit.hits_ground > 0) & ground) | ((unit.hits_air > 0) & (flies | (other.tall > 0)))


def sides(rules: Rules) -> Bool[Array, "N 1"]:
    """Who is an enemy."""
    return (jnp.arange(rules.num_units) >= rules.num_allies)[:, None]


def gap(unit: Unit, battle: Battle) -> Float[Array, "N B"]:
    """From everyone's edge to its target's."""
    far = distance(battle.x, battle.y, at(battle.x, battle.target), at(battle.y, battle.target))
    return far - unit.radius - at(unit.radius, battle.target)


def can_act(unit: Unit, battle: Battle) -> Bool[Array, "N B"]:
    """Whose target is one that its weapon can hit: always, but for smaclite's allies."""
    return can_hit(unit, jax.tree.map(lambda v: at(v, battle.target), unit)) | (unit.heals > 0)


def is_acting(battle: Battle) -> Bool[Array, "N *B"]:
    """Who is alive and has a target to act on."""
    return (battle.hp > 0) & (battle.target >= 0) & ((battle.order == ATTACK) | (battle.order == SCRIPT))
