"""The arrays of a battle, the constants of a map, and predicates on units.

Inside the game loops every array is [N, B]: units first, allies before enemies, copies of the environment last.
A computation over all pairs of units is a loop over units, each step of which is a few operations on [N, B] that fuse
into one kernel: the N² B pairs are never stored, and no reduction runs along the fast axis.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.envs.skirmish.unit_stats import Unit

FIRST_TARGET = 6
"""The action that attacks target 0, after no-op, stop and the four moves."""
STOP, MOVE, ATTACK, SCRIPT = range(4)
"""Orders: stand without shooting; move to a point; attack or heal one unit; act by the enemy's script."""


class Rules(NamedTuple):
    """The constants of all battles on a map."""

    num_allies: int
    num_units: int
    generated: bool
    """Whether teams are generated, as on SMACv2's map: it has no inner walls, and an enemy attacks the nearest ally at
    any distance."""
    shields: bool
    healers: tuple[int, ...]
    """Indices of units that may be healers."""
    layers: bool
    """Whether some units fly or walk over others."""
    sweeps: bool
    """Whether some units damage a rectangle (colossi)."""
    explodes: bool
    """Whether some units explode (banelings)."""
    hits: int
    """The largest number of hits of one attack."""
    size: float
    """The side of the square map."""
    low: float
    """The lower wall: ground units stay above it."""
    high: float
    """The upper wall."""
    rally: tuple[tuple[float, float], tuple[float, float]]
    """Where scripted units without a target go: the allies', the enemies'."""
    scripted: tuple[bool, bool] = (False, True)
    """Whether allies and enemies act by script."""
    smaclite: bool = False
    enemy: str = "attack"
    win_worth: float | None = None
    """The unscaled reward that is scaled to 20. None: what this battle's enemies are worth."""


class Battle(NamedTuple):
    """What changes during a battle. A target is the index of a unit, or -1."""

    x: Float[Array, "N *B"]
    y: Float[Array, "N *B"]
    hp: Float[Array, "N *B"]
    """0 if dead."""
    shield: Float[Array, "N *B"]
    energy: Float[Array, "N *B"]
    cooldown: Float[Array, "N *B"]
    calm: Float[Array, "N *B"]
    """Game loops since the unit was last hit."""
    order: Int[Array, "N *B"]
    target: Int[Array, "N *B"]
    goal_x: Float[Array, "N *B"]
    goal_y: Float[Array, "N *B"]
    healing: Int[Array, "N *B"]
    """The unit that a healer healed in the last loop, or -1."""
    bursting: Bool[Array, "N *B"]
    """Whether the unit was killed in the last loop and will explode."""


def row(values: Array, index: Int[Array, ""]) -> Array:
    """One unit's values, [1, B], to compare with those of all units."""
    return jax.lax.dynamic_slice_in_dim(values, index, 1, 0)


UNROLL = 2
"""Unrolled steps of a loop over units. One or two are fastest; with more the compiler computes parts twice."""


def each(units: tuple[int, int], body: Callable[[Array, Any], Any], start: Any) -> Any:
    """A loop over the units from the first index to before the last."""
    return jax.lax.fori_loop(*units, body, start, unroll=min(UNROLL, units[1] - units[0]))


def at(values: Array, indices: Int[Array, "M B"]) -> Array:
    """The values of the units with these indices; those of unit 0 where the index is -1, for the caller to mask."""
    return jnp.take_along_axis(values, jnp.maximum(indices, 0), 0)


def distance(x: Array, y: Array, other_x: Array, other_y: Array) -> Array:
    return jnp.sqrt((other_x - x) ** 2 + (other_y - y) ** 2)


def can_hit(unit: Unit, other: Unit) -> Bool[Array, "M B"]:
    """Whether a unit's weapon can hit the other on its plane, ground or air. Tall units are on both."""
    flies, ground = other.flies > 0, other.flies == 0
    return ((unit.hits_ground > 0) & ground) | ((unit.hits_air > 0) & (flies | (other.tall > 0)))


def sides(rules: Rules) -> Bool[Array, "N 1"]:
    """True for enemies."""
    return (jnp.arange(rules.num_units) >= rules.num_allies)[:, None]


def gap(unit: Unit, battle: Battle) -> Float[Array, "N B"]:
    """The distance from each unit's edge to that of its target."""
    far = distance(battle.x, battle.y, at(battle.x, battle.target), at(battle.y, battle.target))
    return far - unit.radius - at(unit.radius, battle.target)


def can_act(unit: Unit, battle: Battle) -> Bool[Array, "N B"]:
    """Whether a unit can act on its target: always true, except for allies of the profile smaclite."""
    return can_hit(unit, jax.tree.map(lambda v: at(v, battle.target), unit)) | (unit.heals > 0)


def is_acting(battle: Battle) -> Bool[Array, "N *B"]:
    """Whether a unit is alive and has a target that it attacks or heals."""
    return (battle.hp > 0) & (battle.target >= 0) & ((battle.order == ATTACK) | (battle.order == SCRIPT))
