"""Skirmish's profile smaclite: that simulator's numbers, and how long its units take to kill each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from test_skirmish_mechanics import BODIES, WEAPONS, Put, rules_for, set_up

from grasp.envs.skirmish import game_loop
from grasp.envs.skirmish.state import SCRIPT
from grasp.envs.skirmish.unit_stats import NAMES, table

PREY = ("marine", "marauder", "medivac", "stalker", "zealot", "colossus", "zergling", "baneling")
TICKS = {  # from the first hit on an idle ally to its death, as measured; 0: never
    "marine": (70, 240, 290, 290, 280, 640, 60, 50),
    "marauder": (72, 108, 0, 144, 288, 324, 54, 54),
    "stalker": (66, 154, 176, 198, 264, 440, 44, 44),
    "zealot": (28, 112, 0, 140, 140, 322, 28, 14),
    "colossus": (18, 108, 0, 144, 90, 324, 18, 18),
    "zergling": (64, 248, 0, 280, 272, 632, 56, 48),
}
LONGEST = 660
SPEEDS = {"marine": 3.15, "marauder": 3.15, "medivac": 3.5, "stalker": 4.13, "zealot": 3.15, "colossus": 3.15}
SPEEDS |= {"zergling": 4.13, "baneling": 3.15}
PERIODS = {"marine": 10, "marauder": 18, "stalker": 22, "zealot": 14, "colossus": 18, "zergling": 8}


def test_smaclites_numbers():
    """Another clock for speeds, periods and growth; bodies as wide as they are; a baneling's 80 for all. The same on
    both sides, and all else as in the game."""
    lite, game = table("smaclite"), table("sc2")
    changed = {"speed", "period", "separation", "regenerates", "damage", "bonus_light", "tall"}
    for k, name in enumerate(NAMES):
        if name == "hydralisk":  # not in smaclite
            continue
        zerg, weapon = name in ("zergling", "baneling"), WEAPONS.get(name)
        expected = {"speed": SPEEDS[name] / 16, "separation": BODIES[name].radius, "tall": 0.0}
        expected |= {"regenerates": 0.38 / 16 if zerg else 0.0, "period": PERIODS.get(name, 0)}
        expected |= {"damage": weapon.damage if weapon else 0, "bonus_light": weapon.light if weapon else 0}
        if name == "baneling":
            expected |= {"damage": 80, "bonus_light": 0}
        assert set(expected) == changed
        for field, value in expected.items():
            assert getattr(lite, field)[:, k].tolist() == pytest.approx([value] * 2, rel=1e-6), (name, field)
        for field in set(lite._fields) - changed:
            assert getattr(lite, field)[:, k].tolist() == [getattr(game, field)[0, k]] * 2, (name, field)


def test_ticks_from_the_first_hit_to_death_are_smaclites(monkeypatch):
    """Every pair is a copy of one battle, of which every tick is looked at."""
    monkeypatch.setattr(game_loop, "LOOPS_A_STEP", 1)
    rules = rules_for(1)._replace(smaclite=True)
    pairs = [(name, prey) for name in TICKS for prey in PREY]
    battles = [
        ([Put(prey, 16, 16)], [Put(name, 16 + BODIES[name].radius + BODIES[prey].radius + 0.05, 16, SCRIPT)])
        for name, prey in pairs
    ]
    unit, battle = set_up(battles, 1, "smaclite")

    def tick(battle, _):
        battle = game_loop.fight(rules, unit, battle, jnp.zeros_like(battle.x))
        return battle, battle.hp[0] + battle.shield[0]

    watch = jax.jit(lambda battle: jax.lax.scan(tick, battle, None, LONGEST)[1], compiler_options=FAST_COMPILE)
    left = np.asarray(watch(battle))
    full = np.asarray(unit.hp + unit.shield)[0]
    hit, dead = (left < full).argmax(0), np.where((left <= 0).any(0), (left <= 0).argmax(0), -1)
    expected = np.array([TICKS[name][PREY.index(prey)] for name, prey in pairs])
    found = np.where(dead >= 0, dead - hit, 0)
    off = [(*pair, int(f), int(e)) for pair, f, e in zip(pairs, found, expected, strict=True) if abs(f - e) > 1]
    assert off == []
