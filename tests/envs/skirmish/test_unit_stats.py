"""The numbers of Skirmish's units, of the game and of the profile smaclite."""

import pytest
from skirmish_cases import BODIES, FACTS, WEAPONS

from grasp.envs.skirmish.unit_stats import NAMES, Unit, table


def test_the_stats_of_the_game():
    units = table("sc2")
    for k, name in enumerate(NAMES):
        fact, body = FACTS[name], BODIES[name]
        stat = {field: getattr(units, field)[:, k].tolist() for field in Unit._fields}
        expected = {"shield": fact.shield, "armour": body.armour, "radius": body.radius, "separation": body.separation}
        expected |= {"regenerates": 0.2734 / 16 if name in ("zergling", "baneling", "hydralisk") else 0.0}
        expected |= {word: float(word in body.attributes.split()) for word in ("light", "armoured", "biological")}
        expected |= {"flies": float("flies" in body.attributes), "tall": float("tall" in body.attributes)}
        if name in WEAPONS:
            weapon = WEAPONS[name]
            expected |= {"damage": weapon.damage, "hits": weapon.hits, "bonus_light": weapon.light, "inner": body.inner}
            expected |= {"bonus_armoured": weapon.armoured, "period": weapon.period, "hits_air": float(weapon.air)}
        for field, value in expected.items():
            assert stat[field] == pytest.approx([value] * 2, rel=1e-6), (name, field)
        assert stat["hp"] == [fact.hp, 90 if name == "hydralisk" else fact.hp]
        assert stat["speed"] == pytest.approx([body.speed / 16, (2.5 if name == "medivac" else body.speed) / 16])
        assert stat["reach"] == pytest.approx([WEAPONS[name].reach if name in WEAPONS else 4] * 2)


SPEEDS = {"marine": 3.15, "marauder": 3.15, "medivac": 3.5, "stalker": 4.13, "zealot": 3.15, "colossus": 3.15}


SPEEDS |= {"zergling": 4.13, "baneling": 3.15}


PERIODS = {"marine": 10, "marauder": 18, "stalker": 22, "zealot": 14, "colossus": 18, "zergling": 8}


def test_the_stats_of_smaclite():
    """Other speeds, periods and regeneration; the separation is the radius; banelings do 80 damage. Both sides are
    equal, and all other stats are the game's."""
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
