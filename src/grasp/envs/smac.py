"""Families `smac` and `smacv2`: SMAC's maps and SMACv2's generated battles in StarCraft II itself, stepped by worker
processes. `grasp.envs.workers.smac` defines how the game is read.

The scenes for `grasp play` are drawn from the benchmarks' global state, which is [ally rows | enemy rows | last
actions]. A row has health, for allies the cooldown, the position, and where the map has them a shield and type bits.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from grasp.envs.host import WORKERS, from_adapter, interpreter
from grasp.types import Bodies, EnvSpec, Host

ADAPTER = WORKERS / "smac.py"
FIRST_TARGET = 6
"""The first action that targets a unit: an enemy, or for a healer an ally."""
HEALER = 2
"""The type bit of medivacs, on maps that have them."""
SIDE = 32.0
"""The approximate side of a map: the state holds positions as fractions of the map."""
RADIUS = 0.5
"""The radius of a drawn unit, which the state does not contain."""


class Rows(NamedTuple):
    """The optional columns of the state's rows."""

    ally_shield: int = 0
    """1 where allies have shields."""
    enemy_shield: int = 0
    types: int = 0
    """The number of type bits."""
    heals: bool = False
    """Whether units of the type HEALER may be present."""


MARINES, PROTOSS, AGAINST_ZERG = Rows(), Rows(1, 1), Rows(1, 0)
MIXED, MEDIVACS = Rows(1, 1, types=2), Rows(types=3, heals=True)
MAPS = {
    "3m": MARINES, "8m": MARINES, "25m": MARINES, "5m_vs_6m": MARINES, "8m_vs_9m": MARINES, "10m_vs_11m": MARINES,
    "27m_vs_30m": MARINES, "MMM": MEDIVACS, "MMM2": MEDIVACS, "2s3z": MIXED, "3s5z": MIXED, "3s5z_vs_3s6z": MIXED,
    "3s_vs_3z": PROTOSS, "3s_vs_4z": PROTOSS, "3s_vs_5z": PROTOSS, "1c3s5z": Rows(1, 1, types=3),
    "2m_vs_1z": Rows(0, 1), "corridor": AGAINST_ZERG, "6h_vs_8z": Rows(0, 1), "2s_vs_1sc": AGAINST_ZERG,
    "so_many_baneling": AGAINST_ZERG, "bane_vs_bane": Rows(types=2), "2c_vs_64zg": AGAINST_ZERG,
}  # fmt: skip
RACES = {"10gen_terran": MEDIVACS, "10gen_protoss": Rows(1, 1, types=3), "10gen_zerg": Rows(types=3)}
"""SMACv2's tasks."""


def names() -> list[str]:
    return list(MAPS)


def make(task: str) -> Host:
    """A map of SMAC."""
    host = from_adapter(f"smac/{task}", interpreter("smac"), ADAPTER, task, {"game": "smac"})
    return host._replace(scene=scenes(host.spec, MAPS[task]) if task in MAPS else None)


class Smacv2:
    """The family `smacv2`."""

    class Options(NamedTuple):
        """The sizes of the teams."""

        n_units: int = 10
        n_enemies: int = 10

    @staticmethod
    def names() -> list[str]:
        return list(RACES)

    @staticmethod
    def make(task: str, n_units: int = 10, n_enemies: int | None = None) -> Host:
        """A generated battle of SMACv2; by default with as many enemies as units."""
        teams = {"n_units": n_units, "n_enemies": n_units if n_enemies is None else n_enemies}
        host = from_adapter(f"smacv2/{task}", interpreter("smacv2"), ADAPTER, task, {"game": "smacv2", **teams})
        return host._replace(scene=scenes(host.spec, RACES[task]) if task in RACES else None)


def scenes(spec: EnvSpec, columns: Rows) -> Callable[[Float[np.ndarray, " s"]], Bodies] | None:
    """A function that draws a global state, or None if the state's length does not fit these columns."""
    allies, enemies = spec.num_agents, spec.num_actions - FIRST_TARGET
    wide, narrow = 4 + columns.ally_shield + columns.types, 3 + columns.enemy_shield + columns.types
    ends = np.cumsum([allies * wide, enemies * narrow, allies * spec.num_actions])
    if ends[-1] != spec.state_dim:
        return None

    def scene(state: Float[np.ndarray, " s"]) -> Bodies:
        ours, theirs, last = np.split(state, ends[:-1])
        ours, theirs = ours.reshape(allies, wide), theirs.reshape(enemies, narrow)
        last = last.reshape(allies, spec.num_actions)
        shields = [
            rows[:, 4 - side] if columns[side] else np.zeros(len(rows)) for side, rows in enumerate((ours, theirs))
        ]
        action = np.where(last.any(-1), last.argmax(-1), 0)
        is_healer = ours[:, wide - columns.types + HEALER] > 0 if columns.heals else np.zeros(allies, bool)
        target = np.where(action < FIRST_TARGET, -1, action - FIRST_TARGET + np.where(is_healer, 0, allies))
        health = np.concatenate([ours[:, 0], theirs[:, 0]])
        has_shields = columns.ally_shield or columns.enemy_shield
        return Bodies(
            position=SIDE * np.concatenate([ours[:, 2:4], theirs[:, 1:3]]),
            radius=np.full(allies + enemies, RADIUS, np.float32),
            group=np.repeat([0, 1], [allies, enemies]),
            shown=health > 0,
            health=health,
            shield=np.concatenate(shields).astype(np.float32) if has_shields else None,
            target=np.concatenate([target, np.full(enemies, -1)]),
        )

    return scene
