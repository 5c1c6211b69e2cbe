"""One environment step: eight game loops of regeneration, targeting, shots, healing and movement, in this order."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

from grasp.envs.skirmish import combat, movement, targeting
from grasp.envs.skirmish.state import Battle, Rules
from grasp.envs.skirmish.unit_stats import LOOPS_A_SECOND, LOOPS_A_STEP, Unit

ENERGY, MAX_ENERGY = 0.5625 / LOOPS_A_SECOND, 200.0
"""A healer's energy per loop, and its maximum."""
SHIELD, SHIELD_DELAY = 2.0 / LOOPS_A_SECOND, 160
"""A shield's regeneration per loop, and the loops after the last hit before it starts."""


def age(unit: Unit, battle: Battle, shields: bool) -> Battle:
    """Count down timers and regenerate health, shields and energy of the living."""
    alive = battle.hp > 0
    hp = jnp.where(alive, jnp.minimum(unit.hp, battle.hp + unit.regenerates), 0.0)
    energy = jnp.where(unit.heals > 0, jnp.minimum(MAX_ENERGY, battle.energy + ENERGY), 0.0)
    battle = battle._replace(hp=hp, energy=energy, cooldown=jnp.maximum(battle.cooldown - 1.0, 0.0))
    if not shields:
        return battle
    calm = battle.calm + 1.0
    regenerated = jnp.minimum(unit.shield, battle.shield + SHIELD)
    return battle._replace(calm=calm, shield=jnp.where(alive & (calm >= SHIELD_DELAY), regenerated, battle.shield))


def fight(rules: Rules, unit: Unit, battle: Battle, delay: Float[Array, "N B"]) -> Battle:
    """The loops of one environment step. `delay` is added to the cooldown after each weapon's next shot."""

    def loop(index: Int[Array, ""], battle: Battle) -> Battle:
        battle = age(unit, battle, rules.shields)
        battle = targeting.aim(rules, unit, battle, index == 0)
        battle = combat.shoot(rules, unit, battle, delay)
        if rules.healers:
            battle = combat.heal(rules, unit, battle)
        return movement.move(rules, unit, battle)

    return jax.lax.fori_loop(0, LOOPS_A_STEP, loop, movement.separate(rules, battle))


def for_one_copy(rules: Rules) -> Callable[[Unit, Battle, Array], Battle]:
    """`fight` for one copy. Under `vmap` it runs on all copies at once, with the copies' axis last."""

    @custom_vmap
    def one(unit: Unit, battle: Battle, delay: Array) -> Battle:
        single = jax.tree.map(lambda v: v[:, None], (unit, battle, delay))
        return jax.tree.map(lambda v: v[:, 0], fight(rules, *single))

    @one.def_vmap
    def _(axis_size: int, is_batched: list, unit: Unit, battle: Battle, delay: Array):
        def last(v: Array, batched: bool) -> Array:
            return jnp.moveaxis(v, 0, -1) if batched else v[:, None]

        unit = jax.tree.map(last, unit, is_batched[0])
        wide = jax.tree.map(last, (battle, delay), tuple(is_batched[1:]))
        wide = jax.tree.map(lambda v: jnp.broadcast_to(v, (v.shape[0], axis_size)), wide)
        after = fight(rules, unit, *wide)
        return jax.tree.map(lambda v: jnp.moveaxis(v, -1, 0), after), jax.tree.map(lambda _: True, after)

    return one
