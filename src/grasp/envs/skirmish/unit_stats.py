"""The stats of unit types. Distances are in cells, times in game loops (16 per game second, 8 per environment step).

The profile `sc2` is the game as SMAC steps it. `smaclite` has the numbers of that simulator, for comparison only: its
speeds and periods belong to another clock. docs/skirmish.md states what is modelled.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

Profile = Literal["sc2", "smaclite"]
LOOPS_A_SECOND = 16
LOOPS_A_STEP = 8
Stat = Any
"""A number in the tables below; in a battle an array, [N] or [N, B]."""


class Unit(NamedTuple):
    """The stats of one type, or of all units of a battle."""

    hp: Stat
    shield: Stat = 0.0
    armour: Stat = 0.0
    light: Stat = False
    armoured: Stat = False
    biological: Stat = False
    flies: Stat = False
    tall: Stat = False
    """Walks over other units, and can be hit by weapons against air."""
    damage: Stat = 0.0
    hits: Stat = 1
    bonus_light: Stat = 0.0
    bonus_armoured: Stat = 0.0
    sweeps: Stat = False
    """Also damages units beside its target."""
    explodes: Stat = False
    heals: Stat = False
    period: Stat = 0.0
    """Loops between shots."""
    reach: Stat = 0.0
    """Weapon range, from edge to edge."""
    hits_ground: Stat = True
    hits_air: Stat = False
    speed: Stat = 0.0
    """Cells per loop."""
    radius: Stat = 0.0
    separation: Stat = 0.0
    """The radius that no other unit may enter."""
    inner: Stat = 0.375
    """The radius that walls may not enter."""
    sight: Stat = 9.0
    mask_range: Stat = 6.0
    """SMACv2: the largest distance between centres at which an attack is a legal action."""
    cooldown_scale: Stat = 1.0
    """The divisor of the cooldown in SMAC's state."""
    regenerates: Stat = 0.0
    """Hit points per loop."""
    mark: Stat = 0
    """The code of the letter drawn on the unit."""


def _per_loop(a_second: float) -> float:
    return a_second / LOOPS_A_SECOND


SC2: dict[str, Unit] = {
    "baneling": Unit(
        30, biological=True, damage=20, bonus_light=15, explodes=True, reach=0.25, speed=_per_loop(2.5),
        radius=0.375, separation=0.375, sight=8, mask_range=2, regenerates=_per_loop(0.2734), mark=ord("b"),
    ),
    "colossus": Unit(
        200, 150, 1, armoured=True, tall=True, damage=10, hits=2, bonus_light=5, sweeps=True, period=24.0, reach=7,
        speed=_per_loop(2.25), radius=1.0, separation=0.75, inner=0.5625, sight=10, mask_range=7, cooldown_scale=24,
        mark=ord("C"),
    ),
    "hydralisk": Unit(
        80, light=True, biological=True, damage=12, period=13.199, reach=5, hits_air=True, speed=_per_loop(2.25),
        radius=0.625, separation=0.5, sight=9, mask_range=5, cooldown_scale=10, regenerates=_per_loop(0.2734),
        mark=ord("h"),
    ),
    "marauder": Unit(
        125, 0, 1, armoured=True, biological=True, damage=10, bonus_armoured=10, period=24.0, reach=6,
        speed=_per_loop(2.25), radius=0.5625, separation=0.5, sight=10, mask_range=6, cooldown_scale=25, mark=ord("M"),
    ),
    "marine": Unit(
        45, light=True, biological=True, damage=6, period=13.773, reach=5, hits_air=True, speed=_per_loop(2.25),
        radius=0.375, separation=0.375, sight=9, mask_range=5, cooldown_scale=15, mark=ord("m"),
    ),
    "medivac": Unit(
        150, 0, 1, armoured=True, flies=True, heals=True, reach=4, hits_ground=False, speed=_per_loop(2.75),
        radius=0.75, separation=0.75, inner=0.0, sight=11, mask_range=4, cooldown_scale=200, mark=ord("+"),
    ),
    "stalker": Unit(
        80, 80, 1, armoured=True, damage=13, bonus_armoured=5, period=29.922, reach=6, hits_air=True,
        speed=_per_loop(2.9531), radius=0.625, separation=0.625, inner=0.5, sight=10, mask_range=6, cooldown_scale=35,
        mark=ord("s"),
    ),
    "zealot": Unit(
        100, 50, 1, light=True, biological=True, damage=8, hits=2, period=19.2, reach=0.1, speed=_per_loop(2.25),
        radius=0.5, separation=0.375, sight=9, mask_range=2, cooldown_scale=22, mark=ord("z"),
    ),
    "zergling": Unit(
        35, light=True, biological=True, damage=5, period=11.137, reach=0.1, speed=_per_loop(2.9531),
        radius=0.375, separation=0.375, sight=8, mask_range=2, cooldown_scale=11, regenerates=_per_loop(0.2734),
        mark=ord("z"),
    ),
}  # fmt: skip
"""The benchmarks' allies, which are modified copies of the game's units."""

STOCK: dict[str, dict[str, float]] = {"hydralisk": {"hp": 90.0}, "medivac": {"speed": _per_loop(2.5)}}
"""Where the game's own units, which the enemy has, differ from those copies."""

SMACLITE: dict[str, dict[str, float]] = {
    "baneling": {"speed": _per_loop(3.15), "damage": 80.0, "bonus_light": 0.0, "regenerates": _per_loop(0.38)},
    "colossus": {"speed": _per_loop(3.15), "period": 18.0, "tall": False, "separation": 1.0},
    "marauder": {"speed": _per_loop(3.15), "period": 18.0, "separation": 0.5625},
    "marine": {"speed": _per_loop(3.15), "period": 10.0},
    "medivac": {"speed": _per_loop(3.5)},
    "stalker": {"speed": _per_loop(4.13), "period": 22.0},
    "zealot": {"speed": _per_loop(3.15), "period": 14.0, "separation": 0.5},
    "zergling": {"speed": _per_loop(4.13), "period": 8.0, "regenerates": _per_loop(0.38)},
}
"""The differences of smaclite, on both sides. It has no hydralisk."""

NAMES = tuple(sorted(SC2))
"""Types by index. The alphabetical order is that of the game's type numbers, by which the benchmark sorts agents."""


def table(profile: Profile) -> Unit:
    """All stats as arrays [side, type], allies first."""
    sides = []
    for side in ({}, STOCK):
        changes = side if profile == "sc2" else SMACLITE
        sides.append([SC2[name]._replace(**changes.get(name, {})) for name in NAMES])
    columns = (np.array([[unit[k] for unit in side] for side in sides], np.float32) for k in range(len(Unit._fields)))
    return Unit(*columns)
