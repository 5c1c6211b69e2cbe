"""SMAC's shaped reward, scaled so that a win without regeneration returns 20, and the rule of termination."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from grasp.envs.skirmish.combat import HEAL_COST
from grasp.envs.skirmish.game_loop import ENERGY, MAX_ENERGY
from grasp.envs.skirmish.maps import RACES, Map
from grasp.envs.skirmish.spawns import kinds
from grasp.envs.skirmish.state import Battle, Rules
from grasp.envs.skirmish.unit_stats import LOOPS_A_STEP, Unit, table

DEATH, WIN, SCALE = 10.0, 200.0, 20.0


def strength(battle: Battle) -> Float[Array, " N"]:
    """Hit points and shield of each living unit."""
    return jnp.where(battle.hp > 0, battle.hp + battle.shield, 0.0)


def max_reward(rules: Rules, unit: Unit) -> Float[Array, ""]:
    """The unscaled reward of killing all enemies and winning."""
    if rules.win_worth is not None:
        return jnp.asarray(rules.win_worth)
    enemies = slice(rules.num_allies, None)
    return (unit.hp + unit.shield + DEATH)[enemies].sum() + WIN


def expected(battlefield: Map) -> float:
    """The mean of `max_reward` over the teams that a SMACv2 map generates, ignoring that some draws are rejected."""
    race, unit = RACES[battlefield.race], table("sc2")
    worth = (unit.hp + unit.shield)[1, kinds(race.types)]
    return len(battlefield.enemies) * (float(np.dot(race.weights, worth)) + DEATH) + WIN


def earned(rules: Rules, unit: Unit, before: Battle, after: Battle, won: Bool[Array, ""]) -> Float[Array, ""]:
    """The scaled reward of a step: enemy strength lost, 10 per enemy killed, 200 for a win. SMAC takes the absolute
    value, so regeneration of enemies counts as damage; SMACv2 clips at zero; smaclite counts damage that was healed
    again."""
    enemies = slice(rules.num_allies, None)
    lost = (strength(before) - strength(after))[enemies].sum()
    if rules.smaclite and rules.healers:
        lost += healed(unit, before, after)[enemies].sum()
    died = ((before.hp > 0) & (after.hp <= 0))[enemies].sum()
    gained = lost + DEATH * died
    gained = jnp.maximum(gained, 0.0) if rules.generated else jnp.abs(gained)
    return (gained + WIN * won) * SCALE / max_reward(rules, unit)


def healed(unit: Unit, before: Battle, after: Battle) -> Float[Array, " N"]:
    """The hit points that each healer restored in a step, from the energy it used."""
    unspent = jnp.minimum(before.energy + LOOPS_A_STEP * ENERGY, MAX_ENERGY)
    return jnp.where(unit.heals > 0, unspent - after.energy, 0.0) / HEAL_COST


def outcome(rules: Rules, unit: Unit, battle: Battle) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """(terminated, won). A side with only healers left has lost, except in smaclite; if both sides have, it is a
    draw."""
    fights = (battle.hp > 0) & ((unit.heals == 0) | rules.smaclite)
    allies, enemies = fights[: rules.num_allies].any(), fights[rules.num_allies :].any()
    return ~allies | ~enemies, allies & ~enemies
