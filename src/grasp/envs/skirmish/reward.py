"""SMAC's shaped reward, scaled so that a win without regeneration returns 20; and when a battle is over."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from grasp.envs.skirmish.combat import HEAL_COST
from grasp.envs.skirmish.game_loop import ENERGY, MOST_ENERGY
from grasp.envs.skirmish.maps import RACES, Map
from grasp.envs.skirmish.spawns import kinds
from grasp.envs.skirmish.state import Battle, Rules
from grasp.envs.skirmish.unit_stats import LOOPS_A_STEP, Unit, table

DEATH, WIN, SCALE = 10.0, 200.0, 20.0


def strength(battle: Battle) -> Float[Array, " N"]:
    """Hit points and shield."""
    return jnp.where(battle.hp > 0, battle.hp + battle.shield, 0.0)


def most(rules: Rules, unit: Unit) -> Float[Array, ""]:
    """The reward of killing every enemy and winning, unscaled."""
    if rules.most is not None:
        return jnp.asarray(rules.most)
    enemies = slice(rules.num_allies, None)
    return (unit.hp + unit.shield + DEATH)[enemies].sum() + WIN


def expected(battlefield: Map) -> float:
    """The average of `most` over the teams that a SMACv2 map draws, as if it drew none again."""
    race, unit = RACES[battlefield.race], table("sc2")
    worth = (unit.hp + unit.shield)[1, kinds(race.types)]
    return len(battlefield.enemies) * (float(np.dot(race.weights, worth)) + DEATH) + WIN


def earned(rules: Rules, unit: Unit, before: Battle, after: Battle, won: Bool[Array, ""]) -> Float[Array, ""]:
    """Enemy strength lost, 10 for each enemy killed, 200 for winning. SMAC takes the absolute value, so that an enemy's
    regeneration pays; SMACv2 takes nothing below zero; smaclite pays for all damage, also what is healed again."""
    enemies = slice(rules.num_allies, None)
    lost = (strength(before) - strength(after))[enemies].sum()
    if rules.smaclite and rules.healers:
        lost += healed(unit, before, after)[enemies].sum()
    died = ((before.hp > 0) & (after.hp <= 0))[enemies].sum()
    gained = lost + DEATH * died
    gained = jnp.maximum(gained, 0.0) if rules.drawn else jnp.abs(gained)
    return (gained + WIN * won) * SCALE / most(rules, unit)


def healed(unit: Unit, before: Battle, after: Battle) -> Float[Array, " N"]:
    """What a unit has healed in a step, by the energy that it has less than if it had not."""
    unspent = jnp.minimum(before.energy + LOOPS_A_STEP * ENERGY, MOST_ENERGY)
    return jnp.where(unit.heals > 0, unspent - after.energy, 0.0) / HEAL_COST


def outcome(rules: Rules, unit: Unit, battle: Battle) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether the battle is over, and whether it is won. Healers alone do not hold a field; who is left with them has
    lost, and if nobody is left there is no winner. In smaclite they do hold it."""
    fights = (battle.hp > 0) & ((unit.heals == 0) | rules.smaclite)
    allies, enemies = fights[: rules.num_allies].any(), fights[rules.num_allies :].any()
    return ~allies | ~enemies, allies & ~enemies
