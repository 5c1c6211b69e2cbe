"""Observations, the global state and legal actions of one battle, as in SMAC. Arrays are [N]."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from grasp.envs.skirmish.maps import Map
from grasp.envs.skirmish.state import FIRST_TARGET, Battle, Rules
from grasp.envs.skirmish.unit_stats import NAMES, Unit

SIGHT = 9.0
"""The sight range of all units on SMAC's maps; on SMACv2's each type has its own."""
MASK_RANGE = 6.0
"""The largest distance of a legal target on SMAC's maps; on SMACv2's each type has its own."""
PROBE = 1.0
"""A move is legal if the cell at this distance is walkable."""


class Codes(NamedTuple):
    """The one-hot codes of types, of allies and of enemies."""

    ally: Float[np.ndarray, "types b"]
    enemy: Float[np.ndarray, "types b"]


def codes(battlefield: Map) -> Codes:
    def one(order: tuple[str, ...]) -> Float[np.ndarray, "types b"]:
        return np.array([[name == coded for coded in order] for name in NAMES], np.float32).reshape(len(NAMES), -1)

    return Codes(one(battlefield.codes), one(battlefield.enemy_codes))


def between(battle: Battle, num_allies: int) -> tuple[Array, Array, Float[Array, "A N"]]:
    """From every ally to every unit: dx, dy and the distance."""
    dx = battle.x[None, :] - battle.x[:num_allies, None]
    dy = battle.y[None, :] - battle.y[:num_allies, None]
    return dx, dy, jnp.sqrt(dx**2 + dy**2)


def legal(rules: Rules, unit: Unit, battle: Battle) -> Bool[Array, "A a"]:
    """No-op for dead agents; stop, walkable moves and targets within range for living ones."""
    allies, num_enemies = slice(rules.num_allies), rules.num_units - rules.num_allies
    alive = battle.hp[allies] > 0
    moves = walkable(rules, battle.x[allies], battle.y[allies])
    far = between(battle, rules.num_allies)[2]
    reach = (unit.mask_range if rules.generated else jnp.full_like(unit.mask_range, MASK_RANGE))[allies]
    near = (far <= reach[:, None]) & (battle.hp[None, :] > 0)
    targets = near[:, rules.num_allies :]
    if rules.healers:
        heals = unit.heals[allies] > 0
        patients = near[:, allies] & ~heals[None, :]
        patients = jnp.pad(patients, ((0, 0), (0, max(0, num_enemies - rules.num_allies))))[:, :num_enemies]
        targets = jnp.where(heals[:, None], patients, targets)
    living = jnp.concatenate([jnp.ones_like(alive)[:, None], moves, targets], -1) & alive[:, None]
    return jnp.concatenate([~alive[:, None], living], -1)


def walkable(rules: Rules, x: Float[Array, " A"], y: Float[Array, " A"]) -> Bool[Array, "A 4"]:
    """Whether north, south, east and west are walkable. The benchmark truncates coordinates towards zero, so a point
    just below 0 is still on the map."""
    probes = ((x, y + PROBE), (x, y - PROBE), (x + PROBE, y), (x - PROBE, y))

    def free(x: Array, y: Array) -> Array:
        column, row = jnp.trunc(x), jnp.trunc(y)
        return (column >= 0) & (column < rules.size) & (row >= rules.low) & (row < rules.high)

    return jnp.stack([free(*probe) for probe in probes], -1)


def observe(
    rules: Rules, codes: Codes, unit: Unit, kind: Array, battle: Battle, avail: Bool[Array, "A a"],
    shown: Bool[Array, "A E"] | None = None, exact_quirks: bool = True,
) -> Float[Array, "A o"]:  # fmt: skip
    """[moves | enemies | other allies | own], zeros for dead agents. `shown` masks enemies' rows (SMACv2's quirk).

    The first entry of enemy e's row is whether action 6 + e is legal. For a healer that action targets ally e: with
    `exact_quirks` the entry has that meaning, as in the benchmark, and without it is 0.
    """
    num_allies = rules.num_allies
    allies, enemies = slice(num_allies), slice(num_allies, None)
    sight = ranges(rules, unit)
    dx, dy, far = between(battle, num_allies)
    visible = (far < sight) & (battle.hp[None, :] > 0)
    health, armour = battle.hp / unit.hp, battle.shield / jnp.maximum(unit.shield, 1.0)

    def rows(side: slice, first: Array, bits: Array) -> Float[Array, "A K r"]:
        columns = [first, *(v[:, side] / sight for v in (far, dx, dy))]
        columns += [
            jnp.broadcast_to(v[None, side], first.shape) for v in ((health, armour) if rules.shields else (health,))
        ]
        spread = jnp.broadcast_to(bits[None], (*first.shape, bits.shape[-1]))
        return jnp.concatenate([jnp.stack(columns, -1), spread], -1) * visible[:, side, None]

    ally_bits, enemy_bits = jnp.asarray(codes.ally)[kind[allies]], jnp.asarray(codes.enemy)[kind[enemies]]
    aims = avail[:, FIRST_TARGET:] & (exact_quirks | (unit.heals[allies, None] == 0))
    enemy_rows = rows(enemies, aims.astype(jnp.float32), enemy_bits)
    if shown is not None:
        enemy_rows = enemy_rows * shown[..., None]
    ally_rows = rows(allies, jnp.ones((num_allies, num_allies)), ally_bits)
    others = np.array([[m for m in range(num_allies) if m != n] for n in range(num_allies)], np.int32)
    ally_rows = ally_rows[np.arange(num_allies)[:, None], others]
    own = [health[allies, None]] + ([armour[allies, None]] if rules.shields else [])
    if rules.generated:
        own += [battle.x[allies, None] / rules.size, battle.y[allies, None] / rules.size]
    parts = [
        avail[:, 2:FIRST_TARGET].astype(jnp.float32),
        enemy_rows.reshape(num_allies, -1),
        ally_rows.reshape(num_allies, -1),
        *own,
    ]
    return jnp.concatenate([*parts, ally_bits], -1) * (battle.hp[allies] > 0)[:, None]


def ranges(rules: Rules, unit: Unit) -> Float[Array, "A 1"]:
    """The sight range of each agent."""
    return (unit.sight if rules.generated else jnp.full_like(unit.sight, SIGHT))[: rules.num_allies, None]


def agent_states(
    rules: Rules, unit: Unit, battle: Battle, avail: Bool[Array, "A a"], global_state: Float[Array, " s"]
) -> Float[Array, "A t"]:
    """For each agent [global state | agent one-hot | its moves | for every unit: is a legal target, distance, dx, dy].

    MAPPO's feature-pruned agent-specific state: the global state and those columns of the observation that it does not
    contain. Unlike the observation it has no limit of sight. The columns of dead units and dead agents are zero.
    """
    num_allies = rules.num_allies
    dx, dy, far = (v / ranges(rules, unit) for v in between(battle, num_allies))
    related = ((battle.hp[:num_allies, None] > 0) & (battle.hp[None, :] > 0))[..., None]
    targets = avail[:, FIRST_TARGET:]
    heals = (unit.heals[:num_allies] > 0)[:, None]
    patients = jnp.pad(targets, ((0, 0), (0, max(0, num_allies - targets.shape[1]))))[:, :num_allies]
    aims = jnp.concatenate([patients & heals, targets & ~heals], -1)
    columns = jnp.stack([aims, far, dx, dy], -1) * related
    return jnp.concatenate(
        [
            jnp.broadcast_to(global_state, (num_allies, global_state.shape[0])),
            jnp.eye(num_allies),
            avail[:, 2:FIRST_TARGET],
            columns.reshape(num_allies, -1),
        ],
        -1,
    )


def global_state(
    rules: Rules, codes: Codes, unit: Unit, kind: Array, battle: Battle, last_action: Float[Array, "A a"]
) -> Float[Array, " s"]:
    """[ally rows | enemy rows | last actions], zeros for dead units."""
    allies, enemies = slice(rules.num_allies), slice(rules.num_allies, None)
    ready = jnp.where(unit.heals > 0, battle.energy, battle.cooldown) / unit.cooldown_scale
    x, y = (battle.x - rules.size / 2) / rules.size, (battle.y - rules.size / 2) / rules.size
    health, armour = battle.hp / unit.hp, battle.shield / jnp.maximum(unit.shield, 1.0)
    shields = (armour,) if rules.shields else ()

    def rows(side: slice, columns: tuple[Array, ...], bits: np.ndarray) -> Float[Array, " row"]:
        stacked = jnp.concatenate([jnp.stack([v[side] for v in columns], -1), jnp.asarray(bits)[kind[side]]], -1)
        return (stacked * (battle.hp[side] > 0)[:, None]).reshape(-1)

    ally_rows = rows(allies, (health, ready, x, y, *shields), codes.ally)
    enemy_rows = rows(enemies, (health, x, y, *shields), codes.enemy)
    return jnp.concatenate([ally_rows, enemy_rows, last_action.reshape(-1)])
