"""SMAC's shaped reward, scaled so that a win without regeneration returns 20; and when a battle is over."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grasp.envs.skirmish.battle import Battle, Rules
from grasp.envs.skirmish.units import Unit

DEATH, WIN, SCALE = 10.0, 200.0, 20.0


def strength(battle: Battle) -> Float[Array, " N"]:
    """Hit points and shield."""
    return jnp.where(battle.hp > 0, battle.hp + battle.shield, 0.0)


def most(rules: Rules, unit: Unit) -> Float[Array, ""]:
    """The reward of killing every enemy and winning, unscaled."""
    enemies = slice(rules.num_allies, None)
    return (unit.hp + unit.shield + DEATH)[enemies].sum() + WIN


def earned(rules: Rules, unit: Unit, before: Battle, after: Battle, won: Bool[Array, ""]) -> Float[Array, ""]:
    """Enemy strength lost, 10 for each enemy killed, 200 for winning. SMAC takes the absolute value, so that an enemy's
    regeneration pays; SMACv2 takes nothing below zero."""
    enemies = slice(rules.num_allies, None)
    lost = (strength(before) - strength(after))[enemies].sum()
    died = ((before.hp > 0) & (after.hp <= 0))[enemies].sum()
    gained = lost + DEATH * died
    gained = jnp.maximum(gained, 0.0) if rules.drawn else jnp.abs(gained)
    return (gained + WIN * won) * SCALE / most(rules, unit)


def outcome(rules: Rules, unit: Unit, battle: Battle) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """Whether the battle is over, and whether it is won. Healers alone do not hold a field; who is left with them has
    lost, and if nobody is left there is no winner."""
    fights = (battle.hp > 0) & (unit.heals == 0)
    allies, enemies = fights[: rules.num_allies].any(), fights[rules.num_allies :].any()
    return ~allies | ~enemies, allies & ~enemies
