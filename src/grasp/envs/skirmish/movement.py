"""Movement towards goals, with collisions and walls.

A unit moves towards its goal and is pushed out of the units that it overlaps, which leads it around them. It never
moves faster than its speed or through walls. Walking units do not push standing ones.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.envs.skirmish.state import (
    MOVE,
    SCRIPT,
    Battle,
    Rules,
    at,
    can_act,
    distance,
    each,
    gap,
    is_acting,
    row,
    sides,
)
from grasp.envs.skirmish.unit_stats import Unit

ARRIVED = 0.5
"""The distance at which a scripted unit stops before a point."""
PUSHES = 3
"""Rounds of pushing per loop."""
STANDING_PUSH = 0.25
"""The largest push of a standing unit per loop, as a fraction of its speed."""
ASIDE = 0.002
"""The tangent of the small angle by which a push is turned aside, so that two units that meet head-on pass each other.
It is as small as that allows: ten times as much leads whole teams around each other, so that more units fire at
once."""
CLEAR = 0.5
"""A walking unit keeps an extra distance: this fraction of its radius minus its separation."""
HAIR = 1e-4
"""Units nearer to each other than this count as at the same position."""
SETTLE = 20
"""Rounds of pushing before a battle starts. With 20 units per side, one side inside the other, ten are too few."""


def move(rules: Rules, unit: Unit, battle: Battle) -> Battle:
    """The movement of all living units in one loop."""
    goal_x, goal_y, step = goals(rules, unit, battle)
    remaining = distance(battle.x, battle.y, goal_x, goal_y)
    walks = (step > 0) & (remaining > 1e-4)
    step = jnp.where(walks, jnp.minimum(step, remaining), 0.0)
    to_x, to_y = (goal_x - battle.x) / jnp.maximum(remaining, 1e-4), (goal_y - battle.y) / jnp.maximum(remaining, 1e-4)
    wanted_x, wanted_y = battle.x + step * to_x, battle.y + step * to_y
    x, y = resolve_overlaps(rules, unit, battle, wanted_x, wanted_y, walks)
    x, y = keep_within_walls(rules, unit, x, y)
    alive = battle.hp > 0
    return battle._replace(x=jnp.where(alive, x, battle.x), y=jnp.where(alive, y, battle.y))


def goals(rules: Rules, unit: Unit, battle: Battle) -> tuple[Array, Array, Array]:
    """The goal of every unit and the length of its step in this loop, 0 if it stands."""
    acting = is_acting(battle)
    chases = acting & (gap(unit, battle) > unit.reach)
    if rules.smaclite:
        chases |= acting & ~can_act(unit, battle)
    if rules.generated and rules.healers:  # SMACv2's map orders healers to attack, which they cannot, so they stay
        chases &= (unit.heals == 0) | (battle.order != SCRIPT)
    ordered = battle.order == MOVE
    goal_x = jnp.where(acting, at(battle.x, battle.target), battle.goal_x)
    goal_y = jnp.where(acting, at(battle.y, battle.target), battle.goal_y)
    goes = chases | ordered
    speed = unit.speed
    if not rules.generated:
        idle = (battle.order == SCRIPT) & (battle.target < 0)
        enemy = sides(rules)
        rally_x, rally_y = (jnp.where(enemy, rules.rally[1][k], rules.rally[0][k]) for k in range(2))
        goal_x, goal_y = jnp.where(idle, rally_x, goal_x), jnp.where(idle, rally_y, goal_y)
        marching = idle & (distance(battle.x, battle.y, goal_x, goal_y) > ARRIVED)
        goes |= marching
        if rules.healers:  # healers march no faster than the slowest fighter of their side
            others = (battle.hp > 0) & (unit.heals == 0)
            slowest = [
                jnp.where(others & (enemy == side), speed, jnp.inf).min(0, keepdims=True) for side in (False, True)
            ]
            speed = jnp.where(
                marching & (unit.heals > 0), jnp.minimum(speed, jnp.where(enemy, slowest[1], slowest[0])), speed
            )
    if rules.enemy == "hold":  # a script that holds neither marches nor chases
        goes &= battle.order != SCRIPT
    return goal_x, goal_y, jnp.where(goes & (battle.hp > 0), speed, 0.0)


def layer(unit: Unit) -> Float[Array, "N B"]:
    """The collision layer: 0 ground, 1 air, 2 units that walk over others. Only units of one layer collide."""
    return unit.flies + 2.0 * unit.tall


def resolve_overlaps(
    rules: Rules, unit: Unit, battle: Battle, wanted_x: Array, wanted_y: Array, walks: Bool[Array, "N B"]
) -> tuple[Array, Array]:
    """The positions after pushing overlapping units apart, no further than each unit can move in a loop."""
    x, y = wanted_x, wanted_y
    wish = wanted_x - battle.x, wanted_y - battle.y
    for _ in range(PUSHES):
        x, y = push(rules, unit, battle, walks, wish, x, y)
    shift_x, shift_y = x - battle.x, y - battle.y
    limit = unit.speed * jnp.where(walks, 1.0, STANDING_PUSH)
    scale = jnp.minimum(1.0, limit * jax.lax.rsqrt(jnp.maximum(shift_x**2 + shift_y**2, 1e-12)))
    return battle.x + scale * shift_x, battle.y + scale * shift_y


def push(
    rules: Rules,
    unit: Unit,
    battle: Battle,
    walks: Bool[Array, "N B"],
    wish: tuple[Float[Array, "N B"], Float[Array, "N B"]],
    x: Array,
    y: Array,
) -> tuple[Array, Array]:
    """One round of pushing each unit out of all units that it overlaps.

    If both walk or both stand, each moves half of the overlap; a walking unit moves all of it from a standing one.
    Walking units keep the extra distance CLEAR; standing units only need their separation, so that a crowd stands
    closer than it walks.

    This loop takes most of a battle's time, so it has as few operations as possible. The turn aside is applied once, to
    the sum. Units that cannot collide (dead, or of another layer) are placed far away instead of masked. And the
    relative overlap, room / far - 1, is approximated to second order by 8/3 room² / (room² + 3 far²) - 2/3, because a
    square root would be a kernel of its own, written to memory and read again.
    """
    away = jnp.where(battle.hp > 0, 100.0 * layer(unit), 100.0 * (3.0 + jnp.arange(rules.num_units)[:, None]))
    up = y + away if rules.layers else jnp.where(battle.hp > 0, y, away)
    room = unit.separation + jnp.where(walks, CLEAR, 0.0) * jnp.maximum(unit.radius - unit.separation, 0.0)
    room = jnp.broadcast_to(room, x.shape)
    mine, theirs = 8 / 3 * jnp.where(walks, 0.5, 0.0), 8 / 3 * jnp.where(walks, 0.0, 0.5)

    def add_push(other: Int[Array, ""], moved: tuple[Array, Array]) -> tuple[Array, Array]:
        dx, dy = x - row(x, other), up - row(up, other)
        touching = (room + row(room, other)) ** 2
        strength = jnp.maximum(touching / (touching + 3.0 * (dx * dx + dy * dy)) - 0.25, 0.0)
        strength = strength * (mine + row(theirs, other))
        return moved[0] + strength * dx, moved[1] + strength * dy

    dx, dy = each((0, rules.num_units), add_push, (jnp.zeros_like(x), jnp.zeros_like(y)))
    turn = aside(wish, dx, dy)
    return x + dx - turn * dy, y + dy + turn * dx


def aside(wish: tuple[Array, Array], dx: Array, dy: Array) -> Float[Array, "N B"]:
    """The turn of each push, positive to the left: towards the side of the wish (the desired step) to which it leads.

    In a mirrored battle that side and the turn are mirrored too, so a mirrored battle is the battle's mirror image. A
    push exactly opposite to the wish is turned left, in the mirrored battle too, so that two units that meet head-on
    turn to different sides. A unit without a wish gets no turn.
    """
    leads_left = wish[0] * dy - wish[1] * dx > 0
    wishes = (wish[0] != 0) | (wish[1] != 0)
    return jnp.where(wishes, jnp.where(leads_left, -ASIDE, ASIDE), 0.0)


def separate(rules: Rules, battle: Battle) -> Battle:
    """Move units at the same position apart by HAIR, in their order: between them a push has no direction."""
    indices = jnp.arange(rules.num_units)[:, None]

    def add_shift(other: Int[Array, ""], moved: Array) -> Array:
        squared = (battle.x - row(battle.x, other)) ** 2 + (battle.y - row(battle.y, other)) ** 2
        return moved + jnp.where(squared < HAIR**2, HAIR * jnp.sign(indices - other), 0.0)

    alive = battle.hp > 0
    return battle._replace(
        x=battle.x + jnp.where(alive, each((0, rules.num_units), add_shift, jnp.zeros_like(battle.x)), 0.0)
    )


def settle(rules: Rules, unit: Unit, battle: Battle) -> Battle:
    """Start positions with all units on the map and out of each other."""
    x, y = keep_within_walls(rules, unit, battle.x, battle.y)
    battle = separate(rules, battle._replace(x=x, y=y))  # the walls may have moved some to the same position
    all_walk, no_wish = jnp.ones(x.shape, bool), (jnp.zeros_like(x), jnp.zeros_like(y))

    def push_round(_: Int[Array, ""], position: tuple[Array, Array]) -> tuple[Array, Array]:
        return keep_within_walls(rules, unit, *push(rules, unit, battle, all_walk, no_wish, *position))

    x, y = jax.lax.fori_loop(0, SETTLE, push_round, (battle.x, battle.y))
    return battle._replace(x=x, y=y)


def keep_within_walls(rules: Rules, unit: Unit, x: Array, y: Array) -> tuple[Array, Array]:
    """Clip positions: ground units to within the walls by their inner radius, flying ones to the map."""
    edge = jnp.where(unit.flies > 0, 0.0, unit.inner)
    low = jnp.where(unit.flies > 0, 0.0, rules.low + edge)
    high = jnp.where(unit.flies > 0, rules.size, rules.high - edge)
    return jnp.clip(x, edge, rules.size - edge), jnp.clip(y, low, high)
