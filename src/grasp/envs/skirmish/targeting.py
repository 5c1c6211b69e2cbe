"""Who aims at whom: orders that can no longer be carried out, and the computer's choice of targets."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from grasp.envs.skirmish.state import ATTACK, STOP, Battle, Rules, at, can_hit, distance, each, row
from grasp.envs.skirmish.unit_stats import Unit

LATER = 10_000.0
"""Added to the squared distance of those whom one would take only if there were nobody else: more than any wish."""


def aim(rules: Rules, unit: Unit, battle: Battle, first: Bool[Array, ""]) -> Battle:
    """Everyone's target for this loop; `first` is the first loop of a step, in which SMACv2's map wakes the idle."""
    battle = battle if rules.smaclite else obey(unit, battle)  # its allies go for who is dead or out of their plane
    allies, enemies = (0, rules.num_allies), (rules.num_allies, rules.num_units)
    chosen = [
        acquire(rules, unit, battle, mine, theirs, first) if scripted else battle.target[slice(*mine)]
        for mine, theirs, scripted in zip((allies, enemies), (enemies, allies), rules.scripted, strict=True)
    ]
    return battle._replace(target=jnp.concatenate(chosen))


def obey(unit: Unit, battle: Battle) -> Battle:
    """An order to attack, or heal, someone who is dead or out of the weapon's plane is void."""
    target = battle.target
    mine = jax.tree.map(lambda stat: at(stat, target), unit)
    possible = jnp.where(unit.heals > 0, mine.biological > 0, can_hit(unit, mine)) & (at(battle.hp, target) > 0)
    return battle._replace(order=jnp.where((battle.order == ATTACK) & ~possible, STOP, battle.order))


def acquire(
    rules: Rules, unit: Unit, battle: Battle, mine: tuple[int, int], theirs: tuple[int, int], first: Bool[Array, ""]
) -> Int[Array, "M B"]:
    """One side's targets by the game's rules: the one you have, else the nearest that you notice, else one that attacks
    you. On SMACv2's map the idle get the nearest of all once a step, and keep it until it dies."""
    here = slice(*mine)
    my, me = jax.tree.map(lambda v: v[here], unit), jax.tree.map(lambda v: v[here], battle)
    self = jnp.arange(*mine)[:, None]
    scan = jnp.maximum(5.0, my.reach + 0.5) + my.radius
    aimed_at = jnp.where(battle.order >= ATTACK, battle.target, -1)
    nothing = (jnp.full(me.x.shape, jnp.inf), jnp.full(me.x.shape, -1))
    wakes = first & (rules.enemy != "hold")

    def look(place: Int[Array, ""], best: tuple) -> tuple:
        them = jax.tree.map(lambda v: row(v, place), battle)
        their = jax.tree.map(lambda v: row(v, place), unit)
        squared = (me.x - them.x) ** 2 + (me.y - them.y) ** 2  # a square root here costs more than all the rest
        valid = (them.hp > 0) & can_hit(my, their)
        if rules.smaclite:  # it measures from the centre, and likes healers best
            noticed, wish = squared < (5.0 + their.radius) ** 2, squared - LATER * their.heals
        else:
            noticed, wish = squared <= (scan + their.radius) ** 2, squared
        if rules.enemy == "focus":
            wish = them.hp + them.shield
        otherwise = wakes if rules.drawn else row(aimed_at, place) == self
        return closer(best, valid & (noticed | otherwise), jnp.where(noticed, wish, squared + LATER), place)

    wish, chosen = each(theirs, look, nothing)
    kept = keeps(rules, unit, battle, my, me, self)
    if rules.smaclite and rules.healers:  # while a healer lives, who aims at anyone else looks again in every loop
        other = jax.tree.map(lambda v: v[slice(*theirs)], (battle.hp > 0, unit.heals > 0))
        kept &= ~((other[0] & other[1]).any(0, keepdims=True) & (at(unit.heals, me.target) == 0) & (wish < LATER))
    chosen = jnp.where(kept, me.target, chosen)
    return heal_target(rules, my, me, mine, chosen) if rules.healers else chosen


def closer(best: tuple[Array, Array], valid: Array, wish: Array, place: Int[Array, ""]) -> tuple[Array, Array]:
    """The better of the best so far and one more; the first of equals."""
    better = valid & (wish < best[0])
    return jnp.where(better, wish, best[0]), jnp.where(better, place, best[1])


def keeps(
    rules: Rules, unit: Unit, battle: Battle, my: Unit, me: Battle, self: Int[Array, "M 1"]
) -> Bool[Array, "M B"]:
    """Whether a unit stays with the target it has. Who does not go after it lets it go when it is out of reach."""
    them = jax.tree.map(lambda v: at(v, me.target), battle)
    their = jax.tree.map(lambda v: at(v, me.target), unit)
    valid = (me.target >= 0) & (them.hp > 0) & can_hit(my, their)
    holds = rules.enemy == "hold"
    if rules.drawn and not holds:
        return valid
    in_reach = distance(me.x, me.y, them.x, them.y) - my.radius - their.radius <= my.reach
    attacks_me = (them.order >= ATTACK) & (them.target == self)
    return valid & (in_reach if holds else in_reach | attacks_me)


def heal_target(
    rules: Rules, my: Unit, me: Battle, mine: tuple[int, int], chosen: Int[Array, "M B"]
) -> Int[Array, "M B"]:
    """A healer takes the nearest hurt friend whom it notices instead; in smaclite the weakest of those who are hurt or
    fight, until it is whole or out of reach."""
    nothing = (jnp.full(me.x.shape, jnp.inf), jnp.full(me.x.shape, -1))

    def look(place: Int[Array, ""], best: tuple) -> tuple:
        them, their = jax.tree.map(lambda v: row(v, place), me), jax.tree.map(lambda v: row(v, place), my)
        far = distance(me.x, me.y, them.x, them.y)
        hurt = (them.hp > 0) & (them.hp < their.hp) & (their.biological > 0)
        if rules.smaclite:
            needs = hurt | ((them.hp > 0) & (their.biological > 0) & (them.target >= 0))
            return closer(best, needs & (far < 5.0 + their.radius), them.hp, place + mine[0])
        return closer(best, hurt & (far - my.radius - their.radius <= 5.0), far, place + mine[0])

    friend = each((0, mine[1] - mine[0]), look, nothing)[1]
    if rules.smaclite:
        place = me.target - mine[0]
        them, their = (jax.tree.map(lambda v: at(v, place), tree) for tree in (me, my))
        near = distance(me.x, me.y, them.x, them.y) - my.radius - their.radius <= my.reach
        friend = jnp.where((me.target >= 0) & (them.hp > 0) & (them.hp < their.hp) & near, me.target, friend)
    return jnp.where(my.heals > 0, friend, chosen)
