"""Family `smac`: SMAC's maps in the real game, stepped by workers. How it is read stands in
`grasp.envs.workers.smac`."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from grasp.envs.host import SIMULATORS, ask, interpreter
from grasp.types import Bodies, EnvSpec, Host

ADAPTER = SIMULATORS / "smac.py"
FIRST_TARGET = 6
"""The first action that names a unit: an enemy, or for a healer a friend."""
HEALER = 2
"""The type of medivacs, where there are any."""
SIDE = 32.0
"""Of a map, roughly: the state has places as shares of it."""
RADIUS = 0.5
"""Of a drawn unit; the state does not tell."""


class Rows(NamedTuple):
    """What a unit's row of the state has beside the usual: whether allies and enemies have shields, bits for types, and
    whether the last of these heal."""

    ally_shield: int = 0
    enemy_shield: int = 0
    types: int = 0
    heals: bool = False


MARINES, PROTOSS, AGAINST_ZERG = Rows(), Rows(1, 1), Rows(1, 0)
MIXED, MEDIVACS = Rows(1, 1, types=2), Rows(types=3, heals=True)
MAPS = {
    "3m": MARINES, "8m": MARINES, "25m": MARINES, "5m_vs_6m": MARINES, "8m_vs_9m": MARINES, "10m_vs_11m": MARINES,
    "27m_vs_30m": MARINES, "MMM": MEDIVACS, "MMM2": MEDIVACS, "2s3z": MIXED, "3s5z": MIXED, "3s5z_vs_3s6z": MIXED,
    "3s_vs_3z": PROTOSS, "3s_vs_4z": PROTOSS, "3s_vs_5z": PROTOSS, "1c3s5z": Rows(1, 1, types=3),
    "2m_vs_1z": Rows(0, 1), "corridor": AGAINST_ZERG, "6h_vs_8z": Rows(0, 1), "2s_vs_1sc": AGAINST_ZERG,
    "so_many_baneling": AGAINST_ZERG, "bane_vs_bane": Rows(types=2), "2c_vs_64zg": AGAINST_ZERG,
}  # fmt: skip


def names() -> list[str]:
    return list(MAPS)


def make(task: str) -> Host:
    host = ask(f"smac/{task}", interpreter("smac"), ADAPTER, task, {"game": "smac"})
    return host._replace(scene=scenes(host.spec, MAPS[task]) if task in MAPS else None)


def scenes(spec: EnvSpec, has: Rows) -> Callable[[Float[np.ndarray, " s"]], Bodies] | None:
    """What draws a state of the benchmark: rows of allies, of enemies, then everyone's last action. None where a state
    is not as long as that."""
    allies, enemies = spec.num_agents, spec.num_actions - FIRST_TARGET
    wide, narrow = 4 + has.ally_shield + has.types, 3 + has.enemy_shield + has.types
    ends = np.cumsum([allies * wide, enemies * narrow, allies * spec.num_actions])
    if ends[-1] != spec.state_dim:
        return None

    def scene(state: Float[np.ndarray, " s"]) -> Bodies:
        ours, theirs, last = np.split(state, ends[:-1])
        ours, theirs = ours.reshape(allies, wide), theirs.reshape(enemies, narrow)
        last = last.reshape(allies, spec.num_actions)
        shields = [rows[:, 4 - side] if has[side] else np.zeros(len(rows)) for side, rows in enumerate((ours, theirs))]
        action = np.where(last.any(-1), last.argmax(-1), 0)
        is_healer = ours[:, wide - has.types + HEALER] > 0 if has.heals else np.zeros(allies, bool)
        target = np.where(action < FIRST_TARGET, -1, action - FIRST_TARGET + np.where(is_healer, 0, allies))
        health = np.concatenate([ours[:, 0], theirs[:, 0]])
        return Bodies(
            position=SIDE * np.concatenate([ours[:, 2:4], theirs[:, 1:3]]),
            radius=np.full(allies + enemies, RADIUS, np.float32),
            group=np.repeat([0, 1], [allies, enemies]),
            shown=health > 0,
            health=health,
            shield=np.concatenate(shields).astype(np.float32) if has.ally_shield or has.enemy_shield else None,
            target=np.concatenate([target, np.full(enemies, -1)]),
        )

    return scene
