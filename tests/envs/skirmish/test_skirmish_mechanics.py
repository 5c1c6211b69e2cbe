"""Skirmish's game loops on hand-made battles, against the numbers of the specification."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from test_skirmish_contract import FACTS, battle_of

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import game_loop
from grasp.envs.skirmish.maps import Map
from grasp.envs.skirmish.state import ATTACK, SCRIPT, STOP, Battle, Rules
from grasp.envs.skirmish.unit_stats import NAMES, SC2, Profile, Unit, table


class Weapon(NamedTuple):
    damage: float
    hits: int
    light: float
    armoured: float
    period: float
    reach: float
    air: bool


class Body(NamedTuple):
    armour: float
    attributes: str
    speed: float
    """A second."""
    radius: float
    separation: float
    inner: float


WEAPONS = {
    "marine": Weapon(6, 1, 0, 0, 13.773, 5, True),
    "marauder": Weapon(10, 1, 0, 10, 24, 6, False),
    "stalker": Weapon(13, 1, 0, 5, 29.922, 6, True),
    "zealot": Weapon(8, 2, 0, 0, 19.2, 0.1, False),
    "colossus": Weapon(10, 2, 5, 0, 24, 7, False),
    "zergling": Weapon(5, 1, 0, 0, 11.137, 0.1, False),
    "baneling": Weapon(20, 1, 15, 0, 0, 0.25, False),
    "hydralisk": Weapon(12, 1, 0, 0, 13.199, 5, True),
}
BODIES = {
    "marine": Body(0, "light biological", 2.25, 0.375, 0.375, 0.375),
    "marauder": Body(1, "armoured biological", 2.25, 0.5625, 0.5, 0.375),
    "medivac": Body(1, "armoured flies", 2.75, 0.75, 0.75, 0),
    "stalker": Body(1, "armoured", 2.9531, 0.625, 0.625, 0.5),
    "zealot": Body(1, "light biological", 2.25, 0.5, 0.375, 0.375),
    "colossus": Body(1, "armoured tall", 2.25, 1.0, 0.75, 0.5625),
    "zergling": Body(0, "light biological", 2.9531, 0.375, 0.375, 0.375),
    "baneling": Body(0, "biological", 2.5, 0.375, 0.375, 0.375),
    "hydralisk": Body(0, "light biological", 2.25, 0.625, 0.5, 0.375),
}
TARGETS = ("marine", "marauder", "medivac", "stalker", "zealot", "colossus", "zergling", "baneling", "hydralisk")
VOLLEYS = {  # to kill an enemy of full health; 0: never
    "marine": (8, 25, 30, 30, 29, 65, 6, 5, 15),
    "marauder": (5, 7, 0, 9, 17, 19, 4, 3, 9),
    "stalker": (4, 8, 9, 10, 13, 21, 3, 3, 7),
    "zealot": (3, 9, 0, 11, 11, 24, 3, 2, 6),
    "colossus": (2, 7, 0, 9, 6, 19, 2, 2, 3),
    "zergling": (9, 32, 0, 36, 35, 80, 7, 6, 18),
    "baneling": (2, 7, 0, 9, 5, 19, 1, 2, 3),
    "hydralisk": (4, 12, 14, 14, 14, 31, 3, 3, 8),
}
SIDE = 6
"""Places of a side in the arena; an enemy's place is SIDE + its number."""
FOE = SIDE
COPIES = 16


class Put(NamedTuple):
    """A unit of a hand-made battle. Without a name the place is empty."""

    name: str
    x: float
    y: float
    order: int = STOP
    target: int = -1
    goal: tuple[float, float] = (0.0, 0.0)
    hp: float | None = None
    shield: float | None = None
    energy: float = 50.0
    cooldown: float = 0.0


NOT_THERE = Put("marine", 1.0, 9.0, hp=0.0, shield=0.0)


def rules_for(side: int, scripted: tuple[bool, bool] = (False, True)) -> Rules:
    """The rules of a SMAC map on which anything may stand anywhere."""
    everyone = Map(TARGETS[:side] * 2, TARGETS[:side] * 2, 100)
    rules = skirmish.rules_of(everyone, skirmish.Options())
    return rules._replace(
        num_allies=side, num_units=2 * side, shields=True, healers=tuple(range(2 * side)), sweeps=True, explodes=True,
        hits=2, scripted=scripted,
    )  # fmt: skip


def set_up(battles: list[tuple[list[Put], list[Put]]], side: int, profile: Profile = "sc2") -> tuple[Unit, Battle]:
    """(allies, enemies) of every copy as arrays [N, B]."""
    rows = [[*a, *[NOT_THERE] * (side - len(a)), *e, *[NOT_THERE] * (side - len(e))] for a, e in battles]
    units = [list(column) for column in zip(*rows, strict=True)]
    kind = np.array([[NAMES.index(put.name) for put in line] for line in units])
    enemy = (np.arange(2 * side) >= side).astype(int)[:, None]
    unit = Unit(*(jnp.asarray(column[enemy, kind]) for column in table(profile)))

    def field(name: str) -> np.ndarray:
        return np.array([[getattr(put, name) for put in line] for line in units])

    def filled(name: str, full) -> np.ndarray:
        given = np.array([[np.nan if v is None else v for v in line] for line in field(name)], np.float32)
        return np.where(np.isnan(given), np.asarray(full), given)

    values = (field("x"), field("y"), filled("hp", unit.hp), filled("shield", unit.shield))
    values += (field("energy") * np.asarray(unit.heals), field("cooldown"))
    battle = battle_of(*(np.asarray(v, np.float32) for v in values))
    goal = np.array([[put.goal for put in line] for line in units], np.float32)
    orders = (jnp.asarray(field(name), jnp.int32) for name in ("order", "target"))
    order, target = orders
    goal_x, goal_y = jnp.asarray(goal[..., 0]), jnp.asarray(goal[..., 1])
    return unit, battle._replace(order=order, target=target, goal_x=goal_x, goal_y=goal_y)


@functools.cache
def fighter(rules: Rules):
    def fight(unit: Unit, battle: Battle) -> Battle:
        return game_loop.fight(rules, unit, battle, jnp.zeros_like(battle.x))

    return jax.jit(fight, compiler_options=FAST_COMPILE)


ARENA = rules_for(SIDE)


def play(
    battles: list[tuple[list[Put], list[Put]]],
    steps: int,
    edit: Callable[[int, Battle], Battle] = lambda _, battle: battle,
    rules: Rules = ARENA,
) -> Battle:
    """The battles from before the first step on, [T + 1, N, B]; `edit` meddles after each step."""
    padding = [([], [])] * (COPIES - len(battles))
    unit, battle = set_up(battles + padding, rules.num_allies, "smaclite" if rules.smaclite else "sc2")
    story = [battle]
    for t in range(steps):
        battle = edit(t, fighter(rules)(unit, battle))
        story.append(battle)
    return jax.tree.map(lambda *v: np.stack(v), *story)


def volley(name: str, target: str, hp: float, shield: float) -> tuple[float, float]:
    """The target after one volley: shield first, armour off every hit, at least half a point of what gets through."""
    weapon, body = WEAPONS[name], BODIES[target]
    for _ in range(weapon.hits):
        raw = weapon.damage + weapon.light * ("light" in body.attributes)
        raw += weapon.armoured * ("armoured" in body.attributes)
        absorbed = min(raw, shield)
        shield -= absorbed
        if raw > absorbed:
            hp -= max(raw - absorbed - body.armour, 0.5)
    return max(hp, 0.0), shield


def test_stats_are_the_specifications():
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


@pytest.mark.parametrize("drawn", [False, True])
def test_a_new_unit_is_a_row(monkeypatch, drawn):
    """What the rules of a map reckon with is what its units can do, by the table alone."""
    task, name = ("zerg_5_vs_5", "hydralisk") if drawn else ("3m", "marine")
    plain = skirmish.field_of(task).rules
    assert (plain.shields, plain.healers, plain.layers, plain.sweeps, plain.hits) == (False, (), False, False, 1)
    assert plain.explodes == drawn
    odd = SC2[name]._replace(shield=10.0, heals=True, tall=True, sweeps=True, explodes=True, hits=3)
    monkeypatch.setitem(SC2, name, odd)
    rules = skirmish.field_of(task).rules
    assert rules.shields
    assert rules.layers
    assert rules.sweeps
    assert rules.explodes
    assert (rules.hits, rules.healers) == (3, tuple(range(rules.num_units)))


def test_volleys_of_every_pair():
    """Every attacker next to an idle target, as an ordered ally and as a scripted enemy; hits at every step."""
    pairs = [(*pair, side) for side in (0, 1) for pair in itertools.product(WEAPONS, TARGETS)]

    def stand(name: str, target: str, side: int) -> tuple[list[Put], list[Put]]:
        far = BODIES[name].radius + BODIES[target].radius + 0.05
        if side == 0:
            return [Put(name, 16 - far, 16, ATTACK, 1)], [Put(target, 16, 16)]
        return [Put(target, 16, 16)], [Put(name, 16 - far, 16, SCRIPT)]

    unit, battle = set_up([stand(*pair) for pair in pairs], 1)
    unit = unit._replace(regenerates=jnp.zeros_like(unit.regenerates))
    attacker, column = np.array([side for *_, side in pairs]), np.arange(len(pairs))
    state = [(float(unit.hp[1 - side, b]), float(unit.shield[1 - side, b])) for b, (*_, side) in enumerate(pairs)]
    fallen, shots = np.zeros(len(pairs), int), np.zeros(len(pairs), int)
    fight, orders = fighter(rules_for(1)), battle.order
    for t in range(1, 121):
        battle = fight(unit, battle)
        for b, (name, target, _) in enumerate(pairs):
            if name in ("marauder", "zealot", "colossus", "zergling", "baneling") and target == "medivac":
                continue
            due = t if name == "baneling" else 1 + (8 * t - 1) // math.ceil(WEAPONS[name].period)
            while shots[b] < due and state[b][0] > 0:
                state[b], shots[b] = volley(name, target, *state[b]), shots[b] + 1
            fallen[b] = fallen[b] or (t if state[b][0] <= 0 else 0)
        found = np.stack([np.asarray(v)[1 - attacker, column] for v in (battle.hp, battle.shield)], -1)
        alive = found[:, 0] > 0
        np.testing.assert_array_equal(alive, [hp > 0 for hp, _ in state], err_msg=f"step {t}")
        np.testing.assert_allclose(found[alive], np.array(state)[alive], atol=1e-3, err_msg=f"step {t}")
        # banelings, and those whom a dying one hurt, are there again for the next volley
        hp = battle.hp.at[attacker, column].set(unit.hp[attacker, column])
        battle = battle._replace(hp=hp, order=jnp.where(battle.hp > 0, battle.order, orders))
    for b, (name, target, side) in enumerate(pairs):
        expected = VOLLEYS[name][TARGETS.index(target)]
        if target != "hydralisk" or side == 0:  # an ally has 80 hit points
            assert shots[b] == expected, (name, target)
        assert (fallen[b] > 0) == (expected > 0)


def test_a_mixed_volley_falls_in_the_order_of_the_attackers():
    """Five random attackers around one ally of random hit points and shield; who is not ready does not fire."""
    rng = np.random.default_rng(2)
    shooters = [name for name in WEAPONS if name != "baneling"]
    battles, expected = [], []
    for target in (*TARGETS[:2], *TARGETS[3:], "stalker", "zealot", "stalker", "zealot", "colossus", "zealot"):
        hp = float(rng.integers(1, int(FACTS[target].hp)))
        shield = min(float(rng.integers(0, 40)), FACTS[target].shield)
        around, state = [], (hp, shield)
        for k, name in enumerate(rng.choice(shooters, 5)):
            far, way = BODIES[name].radius + BODIES[target].radius + 0.05, 2 * np.pi * k / 5
            ready = rng.random() < 0.7
            place = 16 + far * np.cos(way), 16 + far * np.sin(way)
            around.append(Put(name, *place, SCRIPT, cooldown=0.0 if ready else 30.0))
            state = volley(name, target, *state) if ready else state
        battles.append(([Put(target, 16, 16, hp=hp, shield=shield)], around))
        expected.append((min(state[0], hp), state[1]))
    story = play(battles, 1)
    grown = 8 * np.array(
        [0.2734 / 16 if put[0].name in ("zergling", "baneling", "hydralisk") else 0 for put, _ in battles]
    )
    hp, shield = story.hp[1, 0, : len(battles)], story.shield[1, 0, : len(battles)]
    for b, (left, absorbing) in enumerate(expected):
        assert hp[b] == pytest.approx(left, abs=grown[b] + 1e-3) if left > 0 else hp[b] == 0, b
        assert shield[b] == pytest.approx(absorbing, abs=1e-3) or left == 0


def test_a_hit_that_breaks_the_shield():
    """By hand: 6 on 3 shield: 3 - 1 armour; 6 on 5.5: at least a half; 8 twice on 10: all of one, 6 - 1 of the next."""
    shots = [("marine", "stalker", 3.0), ("marine", "stalker", 5.5), ("zealot", "zealot", 10.0)]
    battles = [
        ([Put(name, 15, 16, ATTACK, FOE)], [Put(target, 16, 16, shield=shield)]) for name, target, shield in shots
    ]
    story = play(battles, 1)
    np.testing.assert_allclose(story.hp[0, FOE, :3] - story.hp[1, FOE, :3], [2.0, 0.5, 5.0], atol=1e-5)
    assert (story.shield[1, FOE, :3] == 0).all()


def test_a_shield_grows_160_loops_after_the_last_hit():
    """One shot at the first loop: the shield grows in all eight loops of the twenty-first step."""
    battles = [([Put("stalker", 16, 16)], [Put("marine", 18, 16, SCRIPT)])]
    battles += [([Put("stalker", 16, 16, hp=0.0, shield=20.0), Put("zealot", 20, 20, shield=49.9)], [])]

    def disarm(_: int, battle: Battle) -> Battle:
        return battle._replace(order=battle.order.at[FOE].set(STOP))

    story = play(battles, 40, disarm)
    shield = story.shield[:, 0, 0]
    assert (shield[1:21] == 74).all()
    assert shield[21] == pytest.approx(74 + 8 * 0.125, abs=1e-4)
    np.testing.assert_allclose(np.diff(shield)[21:25], 1.0, atol=1e-4)
    assert shield.max() == shield[-1] == 80
    assert (story.hp[:, 0, 0] == 80).all()
    assert (story.shield[:, 0, 1] <= 20).all()
    assert story.shield[-1, 1, 1] == 50


def test_zerg_and_energy_grow_and_stop_at_their_most():
    battles = [
        ([Put("zergling", 10, 16, hp=10.0), Put("hydralisk", 12, 16, hp=79.9), Put("marine", 14, 16, hp=10.0)], []),
        ([Put("medivac", 10, 16, hp=10.0), Put("medivac", 13, 16, energy=199.9), Put("baneling", 20, 20, hp=0.0)], []),
    ]
    story = play(battles, 10)
    np.testing.assert_allclose(story.hp[:, 0, 0], 10 + np.arange(11) * 8 * 0.2734 / 16, atol=1e-4)
    assert (story.hp[-1, 1, 0], story.hp[-1, 2, 0], story.hp[-1, 0, 1]) == (80, 10, 10)
    np.testing.assert_allclose(story.energy[:, 0, 1], 50 + np.arange(11) * 8 * 0.5625 / 16, atol=1e-4)
    assert story.energy[-1, 1, 1] == 200
    assert story.hp[-1, 2, 1] == 0


def test_healing_rate_cost_and_limits():
    """Half a step's 4.5 hit points, a third of it in energy; nobody above full, nobody dead, nobody of metal."""
    grown = 8 * 0.5625 / 16
    patients = [
        (Put("marine", 12, 16, hp=10.0), 4.5),
        (Put("marauder", 12, 16, hp=10.0), 4.5),
        (Put("marine", 12, 16, hp=44.0), 1.0),
        (Put("marine", 12, 16), 0.0),
        (Put("marine", 12, 16, hp=0.0), 0.0),
        (Put("stalker", 12, 16, hp=10.0), 0.0),
        (Put("medivac", 12, 16, hp=10.0), 0.0),
    ]
    story = play([([Put("medivac", 10, 16, ATTACK, 1), put], []) for put, _ in patients], 1)
    given = np.array([healed for _, healed in patients])
    np.testing.assert_allclose(story.hp[1, 1, :7] - story.hp[0, 1, :7], given, atol=1e-4)
    np.testing.assert_allclose(story.energy[1, 0, :7] - story.energy[0, 0, :7], grown - given / 3, atol=1e-4)


def test_healing_starts_with_5_energy_and_goes_on_with_less():
    battles = [([Put("medivac", 10, 16, ATTACK, 1, energy=e), Put("marine", 12, 16, hp=1.0)], []) for e in (4.0, 5.0)]
    story = play(battles, 6)
    hp = story.hp[:, 1]
    assert (hp[:4, 0] == 1).all(), "29 loops are needed to regain one energy"
    assert hp[4, 0] > 1
    np.testing.assert_allclose(np.diff(hp[:5, 1]), 4.5, atol=1e-4)
    assert story.energy[3, 0, 1] < 3


def test_healing_empties_the_medivac_and_no_more():
    """Without energy only what grows can be given: three hit points for each."""
    story = play([([Put("medivac", 10, 16, ATTACK, 1, energy=5.0), Put("marauder", 12, 16, hp=1.0)], [])], 24)
    given, energy = np.diff(story.hp[:, 1, 0]), story.energy[:, 0, 0]
    assert (energy >= 0).all()
    total = 3 * (5.0 + 24 * 8 * 0.5625 / 16 - energy[-1])
    assert given.sum() == pytest.approx(total, abs=0.01)
    assert given[-6:].sum() < 6 * 4.5 / 2


def test_two_medivacs_do_not_heal_one_unit_at_once():
    """The first does, and pays; on two patients both do. An enemy medivac heals the nearest hurt friend by itself."""
    both = [Put("medivac", 10, 15, ATTACK, 2), Put("medivac", 10, 17, ATTACK, 2), Put("marine", 12, 16, hp=10.0)]
    each = [both[0], both[1]._replace(target=3), both[2], Put("marauder", 12, 18, hp=10.0)]
    enemies = [
        Put("medivac", 20, 16, SCRIPT),
        Put("marine", 22, 16, hp=10.0),
        Put("marine", 18.5, 16, hp=10.0),
        Put("marine", 20, 17),
    ]
    story = play([(both, []), (each, []), ([], enemies)], 1)
    gained = story.hp[1] - story.hp[0]
    np.testing.assert_allclose(gained[2:4, 0], [4.5, 0], atol=1e-4)
    np.testing.assert_allclose(gained[2:4, 1], [4.5, 4.5], atol=1e-4)
    np.testing.assert_allclose(gained[FOE : FOE + 4, 2], [0, 0, 4.5, 0], atol=1e-4)
    assert story.energy[1, 0, 0] < 50 < story.energy[1, 1, 0]
    assert (story.energy[1, :2, 1] < 50).all()


def test_a_medivac_heals_from_4_away_and_flies_there_first():
    """Edge to edge: 4 + 0.75 + 0.375 between the centres."""
    places = (5.12, 5.14, 8.0)
    battles = [([Put("medivac", 10, 16, ATTACK, 1), Put("marine", 10 + far, 16, hp=10.0)], []) for far in places]
    story = play(battles, 3)
    moved, healed = story.x[:, 0, :3] - 10, story.hp[:, 1, :3] - 10
    np.testing.assert_allclose(moved[1], [0, 2.75 / 16, 1.375], atol=1e-4)
    assert healed[1, 0] == pytest.approx(4.5, abs=1e-4)
    assert 0 < healed[1, 1] < 4.5
    assert healed[1:, 2].tolist() == [0, 0, pytest.approx(healed[3, 2])]
    assert story.x[3, 0, 2] >= 18 - 5.125 - 2.75 / 16 - 1e-4
