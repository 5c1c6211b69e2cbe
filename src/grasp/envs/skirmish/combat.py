"""Shots, explosions and healing. All damage of a loop is simultaneous; on one target it applies in attackers' order."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.envs.skirmish.state import Battle, Rules, at, can_act, distance, each, gap, is_acting, row
from grasp.envs.skirmish.unit_stats import Unit

SWEEP = (1.4, 0.15)
"""Half the sides of the rectangle that a colossus damages: across the line of fire, and along it."""
BLAST = 2.2
"""The reach of a baneling's explosion, from its centre to another unit's edge."""
HEAL = 9.0 / 16
"""Hit points healed per loop."""
HEAL_COST = 1.0 / 3
"""Energy per hit point."""
HEAL_START = 5.0
"""The energy that a healer needs to start healing another unit."""


def shoot(rules: Rules, unit: Unit, battle: Battle, delay: Float[Array, "N B"]) -> Battle:
    """All units that can fire do so; then deaths are determined."""
    alive = battle.hp > 0
    ready = is_acting(battle) & (unit.damage > 0) & (battle.cooldown <= 0) & (gap(unit, battle) <= unit.reach)
    if rules.smaclite:
        ready &= can_act(unit, battle)
    suicide = ready & (unit.explodes > 0)
    bursts = suicide | battle.bursting
    allies, enemies = (0, rules.num_allies), (rules.num_allies, rules.num_units)
    sides = [damaged(rules, unit, battle, ready, bursts, *pair) for pair in ((enemies, allies), (allies, enemies))]
    hp, shield, hit = (jnp.concatenate(both) for both in zip(*sides, strict=True))
    killed = alive & (hp <= 0) & ~suicide & (unit.explodes > 0)
    return battle._replace(
        hp=jnp.where(suicide, 0.0, hp),
        shield=shield,
        cooldown=jnp.where(ready, unit.period + delay, battle.cooldown),
        calm=jnp.where(hit, 0.0, battle.calm),
        bursting=jnp.zeros_like(killed) if rules.smaclite else killed,
    )


def damaged(
    rules: Rules,
    unit: Unit,
    battle: Battle,
    ready: Bool[Array, "N B"],
    bursts: Bool[Array, "N B"],
    attackers: tuple[int, int],
    targets: tuple[int, int],
) -> tuple[Float[Array, "M B"], Float[Array, "M B"], Bool[Array, "M B"]]:
    """The targets' hit points and shields after the attackers' fire, and which targets were hit."""
    their, them = (jax.tree.map(lambda v: v[slice(*targets)], tree) for tree in (unit, battle))
    on_ground = (them.hp > 0) & (their.flies == 0)
    living = jnp.where(them.hp > 0, jnp.arange(*targets)[:, None], -2)
    fired_at = jnp.where(ready, battle.target, -1)
    min_damage = 0.0 if rules.smaclite else 0.5

    def strike(index: Int[Array, ""], carry: tuple) -> tuple:
        hp, shield, was_hit = carry
        my = jax.tree.map(lambda v: row(v, index), unit)
        hit = living == row(fired_at, index)
        if rules.sweeps:
            target = row(battle.target, index)
            hit |= row(ready, index) & (my.sweeps > 0) & on_ground & swept(their, them, battle, index, target)
        if rules.explodes:
            far = distance(row(battle.x, index), row(battle.y, index), them.x, them.y)
            hit = jnp.where(my.explodes > 0, row(bursts, index) & on_ground & (far <= BLAST + their.radius), hit)
        raw = my.damage + my.bonus_light * their.light + my.bonus_armoured * their.armoured
        for number in range(rules.hits):
            dealt = jnp.where(hit & (my.hits > number), raw, 0.0)
            if rules.shields:
                absorbed = jnp.minimum(dealt, shield)
                dealt, shield = dealt - absorbed, shield - absorbed
            hp = hp - jnp.where(dealt > 0, jnp.maximum(dealt - their.armour, min_damage), 0.0)
        return hp, shield, was_hit | hit if rules.shields else was_hit  # only shields use it

    start = (them.hp, them.shield, jnp.zeros(them.hp.shape, bool))
    hp, shield, hit = each(attackers, strike, start)
    return jnp.maximum(hp, 0.0), shield, hit


def swept(
    their: Unit, them: Battle, battle: Battle, index: Int[Array, ""], target: Int[Array, "1 B"]
) -> Bool[Array, "M B"]:
    """Which units touch the rectangle that a colossus damages across its target."""
    target_x, target_y = at(battle.x, target), at(battle.y, target)
    along_x, along_y = target_x - row(battle.x, index), target_y - row(battle.y, index)
    length = jnp.maximum(jnp.sqrt(along_x**2 + along_y**2), 1e-6)
    along_x, along_y = along_x / length, along_y / length
    dx, dy = them.x - target_x, them.y - target_y
    across, along = jnp.abs(dx * along_y - dy * along_x), jnp.abs(dx * along_x + dy * along_y)
    outside = jnp.maximum(across - SWEEP[0], 0.0) ** 2 + jnp.maximum(along - SWEEP[1], 0.0) ** 2
    return outside <= their.radius**2


def heal(rules: Rules, unit: Unit, battle: Battle) -> Battle:
    """Heal, one healer after another. A unit is healed by one healer per loop; in smaclite by all."""
    target = battle.target
    hurt = (
        (at(battle.hp, target) > 0) & (at(battle.hp, target) < at(unit.hp, target)) & (at(unit.biological, target) > 0)
    )
    enough = battle.energy >= jnp.where(battle.healing == target, 1e-6, HEAL_START)
    able = is_acting(battle) & (unit.heals > 0) & hurt & enough & (gap(unit, battle) <= unit.reach)
    units = jnp.arange(rules.num_units)[:, None]
    healers = jnp.array(rules.healers)

    def heal_by(turn: Int[Array, ""], carry: tuple) -> tuple:
        hp, energy, healing, healed = carry
        index = healers[turn]
        helped = row(able, index) & (units == row(target, index))
        if not rules.smaclite:
            helped &= ~healed
        given = jnp.where(helped, jnp.minimum(jnp.minimum(HEAL, row(energy, index) / HEAL_COST), unit.hp - hp), 0.0)
        used = given.sum(0, keepdims=True)
        done = (units == index) & (used > 0)
        healing = jnp.where(done, row(target, index), healing)
        return hp + given, energy - done * used * HEAL_COST, healing, healed | helped

    start = (battle.hp, battle.energy, jnp.full(battle.healing.shape, -1), jnp.zeros(battle.hp.shape, bool))
    hp, energy, healing, _ = jax.lax.fori_loop(0, len(rules.healers), heal_by, start)
    return battle._replace(hp=hp, energy=energy, healing=healing)
