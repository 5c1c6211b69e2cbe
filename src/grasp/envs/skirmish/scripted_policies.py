"""Scripted policies for the allies, to calibrate the simulator and to compare learned policies with.

They observe the whole battle and choose only legal actions. Among equal choices they take the first.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.envs.skirmish.observation import between
from grasp.envs.skirmish.state import FIRST_TARGET, Battle, Rules
from grasp.envs.skirmish.unit_stats import Unit
from grasp.types import Key

NOOP, STAND = 0, 1
NOTICED = 9.0
"""The distance within which a script walks towards an enemy."""
Script = Callable[[Rules, Unit, Battle, Bool[Array, "A a"], Key], Int[Array, " A"]]


def stop(rules: Rules, unit: Unit, battle: Battle, avail: Bool[Array, "A a"], key: Key) -> Int[Array, " A"]:
    """Stand."""
    return jnp.where(avail[:, STAND], STAND, NOOP)


def random(rules: Rules, unit: Unit, battle: Battle, avail: Bool[Array, "A a"], key: Key) -> Int[Array, " A"]:
    """A random legal action."""
    return jax.random.categorical(key, jnp.where(avail, 0.0, -1e9))


def hold(rules: Rules, unit: Unit, battle: Battle, avail: Bool[Array, "A a"], key: Key) -> Int[Array, " A"]:
    """Shoot at the nearest enemy; do not move."""
    return attack(rules, unit, battle, avail, enemies_apart(rules, battle), stop(rules, unit, battle, avail, key))


def nearest(rules: Rules, unit: Unit, battle: Battle, avail: Bool[Array, "A a"], key: Key) -> Int[Array, " A"]:
    """Shoot at the nearest enemy, or walk towards it."""
    return attack(rules, unit, battle, avail, enemies_apart(rules, battle), towards(rules, unit, battle, avail))


def focus(rules: Rules, unit: Unit, battle: Battle, avail: Bool[Array, "A a"], key: Key) -> Int[Array, " A"]:
    """Shoot at the weakest enemy, or walk towards the nearest."""
    strength = (battle.hp + battle.shield)[rules.num_allies :]
    cost = jnp.broadcast_to(strength, (rules.num_allies, len(strength)))
    return attack(rules, unit, battle, avail, cost, towards(rules, unit, battle, avail))


SCRIPTS: dict[str, Script] = {"stop": stop, "hold": hold, "nearest": nearest, "focus": focus, "random": random}


def enemies_apart(rules: Rules, battle: Battle) -> Float[Array, "A E"]:
    return between(battle, rules.num_allies)[2][:, rules.num_allies :]


def attack(
    rules: Rules, unit: Unit, battle: Battle, avail: Bool[Array, "A a"], cost: Float[Array, "A E"], otherwise: Array
) -> Int[Array, " A"]:
    """The legal target with the lowest cost; for a healer the ally with the lowest fraction of its hit points."""
    allies = slice(rules.num_allies)
    targets = avail[:, FIRST_TARGET:]
    heals = unit.heals[allies] > 0
    fraction = (battle.hp / unit.hp)[allies]
    patients = jnp.pad(fraction, (0, max(0, cost.shape[1] - len(fraction))), constant_values=1.0)[: cost.shape[1]]
    hurt = targets & (patients < 1)[None]
    cost = jnp.where(heals[:, None], jnp.broadcast_to(patients, cost.shape), cost)
    legal = jnp.where(heals[:, None], hurt, targets)
    chosen = FIRST_TARGET + jnp.where(legal, cost, jnp.inf).argmin(-1)
    otherwise = jnp.where(heals, jnp.where(avail[:, STAND], STAND, NOOP), otherwise)
    return jnp.where(legal.any(-1), chosen, otherwise)


def towards(rules: Rules, unit: Unit, battle: Battle, avail: Bool[Array, "A a"]) -> Int[Array, " A"]:
    """A move towards the nearest living enemy within NOTICED, along the longer axis if it is open, else the other."""
    dx, dy, far = (v[:, rules.num_allies :] for v in between(battle, rules.num_allies))
    far = jnp.where((battle.hp > 0)[None, rules.num_allies :], far, jnp.inf)
    which = far.argmin(-1)[:, None]
    dx, dy, far = (jnp.take_along_axis(v, which, -1)[:, 0] for v in (dx, dy, far))
    across, along = jnp.where(dx > 0, 4, 5), jnp.where(dy > 0, 2, 3)
    first = jnp.where(jnp.abs(dx) >= jnp.abs(dy), across, along)
    second = jnp.where(jnp.abs(dx) >= jnp.abs(dy), along, across)

    def is_open(action: Array) -> Array:
        return jnp.take_along_axis(avail, action[:, None], -1)[:, 0]

    stand = jnp.where(avail[:, STAND], STAND, NOOP)
    step = jnp.where(is_open(first), first, jnp.where(is_open(second), second, stand))
    return jnp.where(far <= NOTICED, step, stand)
