"""Family `smacv2`: SMACv2's generated battles in the real game, stepped by workers (`grasp.envs.workers.smac`)."""

from typing import NamedTuple

from grasp.envs.host import ask, interpreter
from grasp.envs.smac import ADAPTER, MEDIVACS, Rows, scenes
from grasp.types import Host


class Options(NamedTuple):
    """The sizes of the teams."""

    n_units: int = 10
    n_enemies: int = 10


RACES = {"10gen_terran": MEDIVACS, "10gen_protoss": Rows(1, 1, types=3), "10gen_zerg": Rows(types=3)}


def names() -> list[str]:
    return list(RACES)


def make(task: str, n_units: int = 10, n_enemies: int | None = None) -> Host:
    """The battle; as many enemies as units, unless told."""
    teams = {"n_units": n_units, "n_enemies": n_units if n_enemies is None else n_enemies}
    host = ask(f"smacv2/{task}", interpreter("smacv2"), ADAPTER, task, {"game": "smacv2", **teams})
    return host._replace(scene=scenes(host.spec, RACES[task]) if task in RACES else None)
