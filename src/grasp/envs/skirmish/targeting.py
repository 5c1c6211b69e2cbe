"""The targets of units: orders that became impossible, and the choice of targets by the enemy's script."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from grasp.envs.skirmish.state import ATTACK, STOP, Battle, Rules, at, can_hit, distance, each, row
from grasp.envs.skirmish.unit_stats import Unit

LATER = 10_000.0
"""Added to the cost of targets that are taken only if there is no other: more than any cost."""


def aim(rules: Rules, unit: Unit, battle: Battle, first: Bool[Array, ""]) -> Battle:
    """The targets for this loop. `first`: the first loop of a step, in which SMACv2's map gives idle enemies a
    target."""
    if not rules.smaclite:  # whose allies keep targets that are dead or out of the weapon's plane
        battle = obey(unit, battle)
    allies, enemies = (0, rules.num_allies), (rules.num_allies, rules.num_units)
    chosen = [
        acquire(rules, unit, battle, mine, theirs, first) if scripted else battle.target[slice(*mine)]
        for mine, theirs, scripted in zip((allies, enemies), (enemies, allies), rules.scripted, strict=True)
    ]
    return battle._replace(target=jnp.concatenate(chosen))


def obey(unit: Unit, battle: Battle) -> Battle:
    """Turn an order to attack or heal a unit that is dead or out of the weapon's plane into an order to stop."""
    target = battle.target
    mine = jax.tree.map(lambda stat: at(stat, target), unit)
    possible = jnp.where(unit.heals > 0, mine.biological > 0, can_hit(unit, mine)) & (at(battle.hp, target) > 0)
    return battle._replace(order=jnp.where((battle.order == ATTACK) & ~possible, STOP, battle.order))


def acquire(
    rules: Rules, unit: Unit, battle: Battle, mine: tuple[int, int], theirs: tuple[int, int], first: Bool[Array, ""]
) -> Int[Array, "M B"]:
    """The targets of one side by the game's rules: the current target, else the nearest unit within the scan range,
    else one that attacks the unit. On SMACv2's map an idle unit gets the nearest of all once per step and keeps it
    until it dies."""
    here = slice(*mine)
    my, me = jax.tree.map(lambda v: v[here], unit), jax.tree.map(lambda v: v[here], battle)
    self = jnp.arange(*mine)[:, None]
    scan = jnp.maximum(5.0, my.reach + 0.5) + my.radius
    aimed_at = jnp.where(battle.order >= ATTACK, battle.target, -1)
    none = (jnp.full(me.x.shape, jnp.inf), jnp.full(me.x.shape, -1))
    assigns = first & (rules.enemy != "hold")

    def consider(index: Int[Array, ""], best: tuple) -> tuple:
        them = jax.tree.map(lambda v: row(v, index), battle)
        their = jax.tree.map(lambda v: row(v, index), unit)
        # squared: a square root here costs more than all the rest
        squared = (me.x - them.x) ** 2 + (me.y - them.y) ** 2
        valid = (them.hp > 0) & can_hit(my, their)
        if rules.smaclite:  # smaclite measures from the centre and prefers healers
            noticed, cost = squared < (5.0 + their.radius) ** 2, squared - LATER * their.heals
        else:
            noticed, cost = squared <= (scan + their.radius) ** 2, squared
        if rules.enemy == "focus":
            cost = them.hp + them.shield
        otherwise = assigns if rules.generated else row(aimed_at, index) == self
        return better_of(best, valid & (noticed | otherwise), jnp.where(noticed, cost, squared + LATER), index)

    cost, chosen = each(theirs, consider, none)
    kept = keeps_target(rules, unit, battle, my, me, self)
    # while an enemy healer lives, units with another target choose again in every loop
    if rules.smaclite and rules.healers:
        other = jax.tree.map(lambda v: v[slice(*theirs)], (battle.hp > 0, unit.heals > 0))
        kept &= ~((other[0] & other[1]).any(0, keepdims=True) & (at(unit.heals, me.target) == 0) & (cost < LATER))
    chosen = jnp.where(kept, me.target, chosen)
    return heal_target(rules, my, me, mine, chosen) if rules.healers else chosen


def better_of(best: tuple[Array, Array], valid: Array, cost: Array, index: Int[Array, ""]) -> tuple[Array, Array]:
    """The better of the best candidate so far and one more; the first of equals."""
    better = valid & (cost < best[0])
    return jnp.where(better, cost, best[0]), jnp.where(better, index, best[1])


def keeps_target(
    rules: Rules, unit: Unit, battle: Battle, my: Unit, me: Battle, self: Int[Array, "M 1"]
) -> Bool[Array, "M B"]:
    """Whether a unit keeps its target. Where units do not pursue, a target out of reach is dropped."""
    them = jax.tree.map(lambda v: at(v, me.target), battle)
    their = jax.tree.map(lambda v: at(v, me.target), unit)
    valid = (me.target >= 0) & (them.hp > 0) & can_hit(my, their)
    holds = rules.enemy == "hold"
    if rules.generated and not holds:
        return valid
    in_reach = distance(me.x, me.y, them.x, them.y) - my.radius - their.radius <= my.reach
    attacks_me = (them.order >= ATTACK) & (them.target == self)
    return valid & (in_reach if holds else in_reach | attacks_me)


def heal_target(
    rules: Rules, my: Unit, me: Battle, mine: tuple[int, int], chosen: Int[Array, "M B"]
) -> Int[Array, "M B"]:
    """The targets with those of healers replaced by the nearest hurt ally within the scan range; in smaclite by the
    weakest ally that is hurt or fights, until it has full health or is out of reach."""
    none = (jnp.full(me.x.shape, jnp.inf), jnp.full(me.x.shape, -1))

    def consider(index: Int[Array, ""], best: tuple) -> tuple:
        them, their = jax.tree.map(lambda v: row(v, index), me), jax.tree.map(lambda v: row(v, index), my)
        far = distance(me.x, me.y, them.x, them.y)
        hurt = (them.hp > 0) & (them.hp < their.hp) & (their.biological > 0)
        if rules.smaclite:
            needs = hurt | ((them.hp > 0) & (their.biological > 0) & (them.target >= 0))
            return better_of(best, needs & (far < 5.0 + their.radius), them.hp, index + mine[0])
        return better_of(best, hurt & (far - my.radius - their.radius <= 5.0), far, index + mine[0])

    ally = each((0, mine[1] - mine[0]), consider, none)[1]
    if rules.smaclite:
        index = me.target - mine[0]
        them, their = (jax.tree.map(lambda v: at(v, index), tree) for tree in (me, my))
        near = distance(me.x, me.y, them.x, them.y) - my.radius - their.radius <= my.reach
        ally = jnp.where((me.target >= 0) & (them.hp > 0) & (them.hp < their.hp) & near, me.target, ally)
    return jnp.where(my.heals > 0, ally, chosen)
