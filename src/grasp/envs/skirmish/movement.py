"""Where everyone goes: towards its goal, and out of those whom it runs into, which leads it along them; never through
walls, and never faster than it walks. Who stands is not moved by who walks."""

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
"""A script that goes to a point stops so near it."""
PUSHES = 3
"""Rounds of pushing apart in a loop."""
STANDING_PUSH = 0.25
"""How far a unit that stands is pushed at most in a loop, in its own steps."""
ASIDE = 0.002
"""A push also turns a little to the side on which it leads past the other, so that two that meet head-on pass each
other. No more than that needs: ten times as much would lead whole teams around each other, and more of them to bear at
once."""
CLEAR = 0.5
"""Who walks keeps clear of others by this share of what its radius is more than its separation."""
HAIR = 1e-4
"""Units nearer than this stand on one spot."""
SETTLE = 20
"""Rounds of pushing before a battle begins: twenty a side, one in the middle of the other, still overlap after ten."""


def move(rules: Rules, unit: Unit, battle: Battle) -> Battle:
    """One loop's movement of everyone alive."""
    goal_x, goal_y, step = wishes(rules, unit, battle)
    far = distance(battle.x, battle.y, goal_x, goal_y)
    walks = (step > 0) & (far > 1e-4)
    step = jnp.where(walks, jnp.minimum(step, far), 0.0)
    to_x, to_y = (goal_x - battle.x) / jnp.maximum(far, 1e-4), (goal_y - battle.y) / jnp.maximum(far, 1e-4)
    wanted_x, wanted_y = battle.x + step * to_x, battle.y + step * to_y
    x, y = pushed(rules, unit, battle, wanted_x, wanted_y, walks)
    x, y = walled(rules, unit, x, y)
    alive = battle.hp > 0
    return battle._replace(x=jnp.where(alive, x, battle.x), y=jnp.where(alive, y, battle.y))


def wishes(rules: Rules, unit: Unit, battle: Battle) -> tuple[Array, Array, Array]:
    """Everyone's goal, and how far it would go in this loop: 0 for those who stand."""
    acting = is_acting(battle)
    chases = acting & (gap(unit, battle) > unit.reach)
    if rules.smaclite:
        chases |= acting & ~can_act(unit, battle)
    if rules.drawn and rules.healers:  # SMACv2's map orders healers to attack, which they cannot
        chases &= (unit.heals == 0) | (battle.order != SCRIPT)
    ordered = battle.order == MOVE
    goal_x = jnp.where(acting, at(battle.x, battle.target), battle.goal_x)
    goal_y = jnp.where(acting, at(battle.y, battle.target), battle.goal_y)
    goes = chases | ordered
    speed = unit.speed
    if not rules.drawn:
        idle = (battle.order == SCRIPT) & (battle.target < 0)
        enemy = sides(rules)
        rally_x, rally_y = (jnp.where(enemy, rules.rally[1][k], rules.rally[0][k]) for k in range(2))
        goal_x, goal_y = jnp.where(idle, rally_x, goal_x), jnp.where(idle, rally_y, goal_y)
        marching = idle & (distance(battle.x, battle.y, goal_x, goal_y) > ARRIVED)
        goes |= marching
        if rules.healers:  # healers march no faster than the slowest of their side
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
    """Units of one layer are in each other's way: ground, air, and those who walk over others."""
    return unit.flies + 2.0 * unit.tall


def pushed(
    rules: Rules, unit: Unit, battle: Battle, wanted_x: Array, wanted_y: Array, walks: Bool[Array, "N B"]
) -> tuple[Array, Array]:
    """Everyone moved apart from whom it overlaps, no further than it could walk: who walks gives way to who stands."""
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
    """One round of pushing: out of everyone whom a unit overlaps. Of two that walk, or stand, each takes half; who
    walks takes all of it from who stands. Who walks keeps clear of others; who stands takes up only what it lets nobody
    else into, so that a crowd fights closer than it walks.

    The loop is most of the time that a battle takes, so it has as few operations as it can: the turn aside is made
    once, of the sum; who is in nobody's way, dead or of another layer, is put far away instead of being asked for; and
    the share of their distance by which two must part, room / far - 1, is to the second order of their overlap
    8/3 room² / (room² + 3 far²) - 2/3. A square root would be a kernel of its own, written to memory and read again.
    """
    away = jnp.where(battle.hp > 0, 100.0 * layer(unit), 100.0 * (3.0 + jnp.arange(rules.num_units)[:, None]))
    up = y + away if rules.layers else jnp.where(battle.hp > 0, y, away)
    room = unit.separation + jnp.where(walks, CLEAR, 0.0) * jnp.maximum(unit.radius - unit.separation, 0.0)
    room = jnp.broadcast_to(room, x.shape)
    mine, theirs = 8 / 3 * jnp.where(walks, 0.5, 0.0), 8 / 3 * jnp.where(walks, 0.0, 0.5)

    def by(place: Int[Array, ""], moved: tuple[Array, Array]) -> tuple[Array, Array]:
        dx, dy = x - row(x, place), up - row(up, place)
        touching = (room + row(room, place)) ** 2
        strength = jnp.maximum(touching / (touching + 3.0 * (dx * dx + dy * dy)) - 0.25, 0.0)
        strength = strength * (mine + row(theirs, place))
        return moved[0] + strength * dx, moved[1] + strength * dy

    dx, dy = each((0, rules.num_units), by, (jnp.zeros_like(x), jnp.zeros_like(y)))
    turn = aside(wish, dx, dy)
    return x + dx - turn * dy, y + dy + turn * dx


def aside(wish: tuple[Array, Array], dx: Array, dy: Array) -> Float[Array, "N B"]:
    """How far a push is turned, to the left if positive: towards the side of its wish to which it leads already.

    Mirrored, that side is the other one, and so is the turn: a mirrored battle is the battle's mirror image. But where
    a push is straight against the wish no side is the better one, and it is turned to the left, also in the mirror:
    only by that do two exactly head-on go to different sides. Who has no wish need not pass anyone, and is not turned.
    """
    leads_left = wish[0] * dy - wish[1] * dx > 0
    wishes = (wish[0] != 0) | (wish[1] != 0)
    return jnp.where(wishes, jnp.where(leads_left, -ASIDE, ASIDE), 0.0)


def parted(rules: Rules, battle: Battle) -> Battle:
    """Nobody on another's spot, where no push would know which way: by a hair, in their order."""
    everyone = jnp.arange(rules.num_units)[:, None]

    def by(place: Int[Array, ""], moved: Array) -> Array:
        squared = (battle.x - row(battle.x, place)) ** 2 + (battle.y - row(battle.y, place)) ** 2
        return moved + jnp.where(squared < HAIR**2, HAIR * jnp.sign(everyone - place), 0.0)

    alive = battle.hp > 0
    return battle._replace(x=battle.x + jnp.where(alive, each((0, rules.num_units), by, jnp.zeros_like(battle.x)), 0.0))


def settled(rules: Rules, unit: Unit, battle: Battle) -> Battle:
    """The start of a battle with nobody off the map or inside another."""
    x, y = walled(rules, unit, battle.x, battle.y)
    battle = parted(rules, battle._replace(x=x, y=y))  # the walls may have put some on one spot
    everyone, nowhere = jnp.ones(x.shape, bool), (jnp.zeros_like(x), jnp.zeros_like(y))

    def round_of_pushes(_: Int[Array, ""], place: tuple[Array, Array]) -> tuple[Array, Array]:
        return walled(rules, unit, *push(rules, unit, battle, everyone, nowhere, *place))

    x, y = jax.lax.fori_loop(0, SETTLE, round_of_pushes, (battle.x, battle.y))
    return battle._replace(x=x, y=y)


def walled(rules: Rules, unit: Unit, x: Array, y: Array) -> tuple[Array, Array]:
    """Ground units stay within the walls by their inner radius, flying ones on the map."""
    edge = jnp.where(unit.flies > 0, 0.0, unit.inner)
    low = jnp.where(unit.flies > 0, 0.0, rules.low + edge)
    high = jnp.where(unit.flies > 0, rules.size, rules.high - edge)
    return jnp.clip(x, edge, rules.size - edge), jnp.clip(y, low, high)
