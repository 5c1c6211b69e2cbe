"""The order of things within a game loop, and the loops of an environment step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grasp.envs.skirmish import combat, movement, targeting
from grasp.envs.skirmish.state import Battle, Rules
from grasp.envs.skirmish.unit_stats import LOOPS_A_SECOND, LOOPS_A_STEP, Unit

ENERGY, MOST_ENERGY = 0.5625 / LOOPS_A_SECOND, 200.0
"""What a healer's energy grows by in a loop, and to."""
SHIELD, CALM = 2.0 / LOOPS_A_SECOND, 160
"""What a shield grows by in a loop, from so many after the last hit on."""


def age(unit: Unit, battle: Battle, shields: bool) -> Battle:
    """Timers and what grows back; the dead keep nothing that grows."""
    alive = battle.hp > 0
    hp = jnp.where(alive, jnp.minimum(unit.hp, battle.hp + unit.regenerates), 0.0)
    energy = jnp.where(unit.heals > 0, jnp.minimum(MOST_ENERGY, battle.energy + ENERGY), 0.0)
    battle = battle._replace(hp=hp, energy=energy, cooldown=jnp.maximum(battle.cooldown - 1.0, 0.0))
    if not shields:
        return battle
    calm = battle.calm + 1.0
    grown = jnp.minimum(unit.shield, battle.shield + SHIELD)
    return battle._replace(calm=calm, shield=jnp.where(alive & (calm >= CALM), grown, battle.shield))


def fight(rules: Rules, unit: Unit, battle: Battle, delay: Float[Array, "N B"]) -> Battle:
    """The loops of one environment step. `delay` is what a weapon takes longer, or less, after its next shot."""

    def loop(index: Int[Array, ""], battle: Battle) -> Battle:
        battle = age(unit, battle, rules.shields)
        battle = targeting.aim(rules, unit, battle, index == 0)
        battle = combat.shoot(rules, unit, battle, delay)
        if rules.healers:
            battle = combat.heal(rules, unit, battle)
        return movement.move(rules, unit, battle)

    return jax.lax.fori_loop(0, LOOPS_A_STEP, loop, movement.parted(rules, battle))
