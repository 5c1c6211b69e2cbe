"""Shots, explosions and healing. All damage of a loop falls at once; on one target, in the order of the attackers."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.envs.skirmish.state import Battle, Rules, at, can_act, distance, each, gap, is_acting, row
from grasp.envs.skirmish.unit_stats import Unit

SWEEP = (1.4, 0.15)
"""Half of what a colossus' beams cover: across the line of fire, and along it."""
BLAST = 2.2
"""How far a baneling's explosion reaches: to another's edge from its own centre."""
HEAL = 9.0 / 16
HEAL_COST = 1.0 / 3
"""Energy for each hit point."""
HEAL_START = 5.0
"""Energy without which a healer does not begin on someone new."""


def shoot(rules: Rules, unit: Unit, battle: Battle, delay: Float[Array, "N B"]) -> Battle:
    """Everyone who can fires; then the dead are known."""
    alive = battle.hp > 0
    ready = is_acting(battle) & (unit.damage > 0) & (battle.cooldown <= 0) & (gap(unit, battle) <= unit.reach)
    if rules.smaclite:
        ready &= can_act(unit, battle)
    suicide = ready & (unit.explodes > 0)
    bursts = suicide | battle.bursting
    allies, enemies = (0, rules.num_allies), (rules.num_allies, rules.num_units)
    sides = [struck(rules, unit, battle, ready, bursts, *pair) for pair in ((enemies, allies), (allies, enemies))]
    hp, shield, hit = (jnp.concatenate(both) for both in zip(*sides, strict=True))
    killed = alive & (hp <= 0) & ~suicide & (unit.explodes > 0)
    return battle._replace(
        hp=jnp.where(suicide, 0.0, hp),
        shield=shield,
        cooldown=jnp.where(ready, unit.period + delay, battle.cooldown),
        calm=jnp.where(hit, 0.0, battle.calm),
        bursting=jnp.zeros_like(killed) if rules.smaclite else killed,
    )


def struck(
    rules: Rules,
    unit: Unit,
    battle: Battle,
    ready: Bool[Array, "N B"],
    bursts: Bool[Array, "N B"],
    attackers: tuple[int, int],
    targets: tuple[int, int],
) -> tuple[Float[Array, "M B"], Float[Array, "M B"], Bool[Array, "M B"]]:
    """What one side's fire leaves of the other: hit points and shields, and who was hit."""
    their, them = (jax.tree.map(lambda v: v[slice(*targets)], tree) for tree in (unit, battle))
    on_ground = (them.hp > 0) & (their.flies == 0)
    living = jnp.where(them.hp > 0, jnp.arange(*targets)[:, None], -2)
    fired_at = jnp.where(ready, battle.target, -1)
    least = 0.0 if rules.smaclite else 0.5

    def strike(place: Int[Array, ""], carry: tuple) -> tuple:
        hp, shield, hit_at_all = carry
        my = jax.tree.map(lambda v: row(v, place), unit)
        hit = living == row(fired_at, place)
        if rules.sweeps:
            target = row(battle.target, place)
            hit |= row(ready, place) & (my.sweeps > 0) & on_ground & swept(their, them, battle, place, target)
        if rules.explodes:
            far = distance(row(battle.x, place), row(battle.y, place), them.x, them.y)
            hit = jnp.where(my.explodes > 0, row(bursts, place) & on_ground & (far <= BLAST + their.radius), hit)
        raw = my.damage + my.bonus_light * their.light + my.bonus_armoured * their.armoured
        for number in range(rules.hits):
            dealt = jnp.where(hit & (my.hits > number), raw, 0.0)
            if rules.shields:
                absorbed = jnp.minimum(dealt, shield)
                dealt, shield = dealt - absorbed, shield - absorbed
            hp = hp - jnp.where(dealt > 0, jnp.maximum(dealt - their.armour, least), 0.0)
        return hp, shield, hit_at_all | hit if rules.shields else hit_at_all  # only a shield asks

    start = (them.hp, them.shield, jnp.zeros(them.hp.shape, bool))
    hp, shield, hit = each(attackers, strike, start)
    return jnp.maximum(hp, 0.0), shield, hit


def swept(
    their: Unit, them: Battle, battle: Battle, place: Int[Array, ""], target: Int[Array, "1 B"]
) -> Bool[Array, "M B"]:
    """Whose circle touches the rectangle that a unit's beams sweep across its target."""
    target_x, target_y = at(battle.x, target), at(battle.y, target)
    along_x, along_y = target_x - row(battle.x, place), target_y - row(battle.y, place)
    length = jnp.maximum(jnp.sqrt(along_x**2 + along_y**2), 1e-6)
    along_x, along_y = along_x / length, along_y / length
    dx, dy = them.x - target_x, them.y - target_y
    across, along = jnp.abs(dx * along_y - dy * along_x), jnp.abs(dx * along_x + dy * along_y)
    outside = jnp.maximum(across - SWEEP[0], 0.0) ** 2 + jnp.maximum(along - SWEEP[1], 0.0) ** 2
    return outside <= their.radius**2


def heal(rules: Rules, unit: Unit, battle: Battle) -> Battle:
    """Healers in turn; whom one has healed in this loop the next leaves alone (smaclite lets them add up)."""
    target = battle.target
    hurt = (
        (at(battle.hp, target) > 0) & (at(battle.hp, target) < at(unit.hp, target)) & (at(unit.biological, target) > 0)
    )
    enough = battle.energy >= jnp.where(battle.healing == target, 1e-6, HEAL_START)
    able = is_acting(battle) & (unit.heals > 0) & hurt & enough & (gap(unit, battle) <= unit.reach)
    everyone = jnp.arange(rules.num_units)[:, None]
    places = jnp.array(rules.healers)

    def one(index: Int[Array, ""], carry: tuple) -> tuple:
        hp, energy, healing, healed = carry
        place = places[index]
        helped = row(able, place) & (everyone == row(target, place))
        if not rules.smaclite:
            helped &= ~healed
        given = jnp.where(helped, jnp.minimum(jnp.minimum(HEAL, row(energy, place) / HEAL_COST), unit.hp - hp), 0.0)
        used = given.sum(0, keepdims=True)
        done = (everyone == place) & (used > 0)
        healing = jnp.where(done, row(target, place), healing)
        return hp + given, energy - done * used * HEAL_COST, healing, healed | helped

    start = (battle.hp, battle.energy, jnp.full(battle.healing.shape, -1), jnp.zeros(battle.hp.shape, bool))
    hp, energy, healing, _ = jax.lax.fori_loop(0, len(rules.healers), one, start)
    return battle._replace(hp=hp, energy=energy, healing=healing)
