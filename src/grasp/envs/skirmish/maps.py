"""The maps, with the benchmark's team sizes, time limits and type codes."""

from typing import NamedTuple

from grasp.envs.skirmish.unit_stats import SC2
from grasp.types import GraspError, suggest


class Map(NamedTuple):
    """A battle of SMAC (two fixed teams) or of SMACv2 (random teams of one race)."""

    allies: tuple[str, ...]
    """Types in the order in which the map creates them. For a generated team only the length matters."""
    enemies: tuple[str, ...]
    limit: int
    """The time limit in environment steps."""
    codes: tuple[str, ...] = ()
    """Types in the order of their one-hot bits; empty where all units are of one type."""
    enemy_codes: tuple[str, ...] = ()
    race: str = ""
    """The race of generated teams; empty for fixed teams."""

    @property
    def generated(self) -> bool:
        return bool(self.race)

    @property
    def types(self) -> frozenset[str]:
        """All types that may take part."""
        return frozenset(RACES[self.race].types if self.generated else self.allies + self.enemies)

    def most(self, stat: str) -> float:
        """The largest value of a stat among these types, from which the map's rules follow."""
        return max(float(getattr(SC2[name], stat)) for name in self.types)

    @property
    def shields(self) -> bool:
        return self.most("shield") > 0


class Race(NamedTuple):
    """The distribution of SMACv2's teams."""

    types: tuple[str, ...]
    weights: tuple[float, ...]
    alone: tuple[str, ...]
    """Types that cannot be a whole team."""
    codes: tuple[str, ...]


RACES = {
    "terran": Race(
        ("marine", "marauder", "medivac"), (0.45, 0.45, 0.1), ("medivac",), ("marine", "marauder", "medivac")
    ),
    "protoss": Race(("stalker", "zealot", "colossus"), (0.45, 0.45, 0.1), (), ("stalker", "zealot", "colossus")),
    "zerg": Race(
        ("zergling", "baneling", "hydralisk"), (0.45, 0.1, 0.45), ("baneling",), ("zergling", "hydralisk", "baneling")
    ),
}
SIZES = {"5_vs_5": (5, 5), "10_vs_10": (10, 10), "10_vs_11": (10, 11), "20_vs_20": (20, 20)}


def _team(**counts: int) -> tuple[str, ...]:
    return tuple(name for name, count in counts.items() for _ in range(count))


def _marines(allies: int, enemies: int, limit: int) -> Map:
    return Map(_team(marine=allies), _team(marine=enemies), limit)


def _protoss(allies: tuple[int, int], enemies: tuple[int, int], limit: int) -> Map:
    """Stalkers and zealots. SMAC codes the enemy's two types in the opposite order."""
    ours, theirs = (_team(stalker=stalkers, zealot=zealots) for stalkers, zealots in (allies, enemies))
    return Map(ours, theirs, limit, ("stalker", "zealot"), ("zealot", "stalker"))


def _mixed(marines: int, marauders: int, limit: int) -> Map:
    teams = _team(marine=7, marauder=2, medivac=1), _team(marine=marines, marauder=marauders, medivac=1)
    codes = ("marauder", "marine", "medivac")
    return Map(*teams, limit, codes, codes)


def _generated(race: str, allies: int, enemies: int) -> Map:
    first, codes = RACES[race].types[0], RACES[race].codes
    return Map((first,) * allies, (first,) * enemies, 200, codes, codes, race)


MAPS: dict[str, Map] = {
    "3m": _marines(3, 3, 60),
    "8m": _marines(8, 8, 120),
    "5m_vs_6m": _marines(5, 6, 70),
    "8m_vs_9m": _marines(8, 9, 120),
    "10m_vs_11m": _marines(10, 11, 150),
    "27m_vs_30m": _marines(27, 30, 180),
    "2s3z": _protoss((2, 3), (2, 3), 120),
    "3s5z": _protoss((3, 5), (3, 5), 150),
    "3s5z_vs_3s6z": _protoss((3, 5), (3, 6), 170),
    "MMM": _mixed(7, 2, 150),
    "MMM2": _mixed(8, 3, 180),
} | {f"{race}_{size}": _generated(race, *counts) for race in RACES for size, counts in SIZES.items()}


def find(name: str) -> Map:
    if name not in MAPS:
        raise GraspError(f"unknown map '{name}'; {suggest(name, MAPS)}")
    return MAPS[name]
