"""Skirmish's shots, splash damage and healing, on battles placed by hand."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from skirmish_cases import BODIES, FACTS, FOE, LITE, TARGETS, WEAPONS, Put, fighter, play, rules_for, set_up

from grasp.envs.skirmish.state import ATTACK, SCRIPT

ATTACKS_TO_KILL = {  # attacks needed to kill an enemy of full health; 0: impossible
    "marine": (8, 25, 30, 30, 29, 65, 6, 5, 15),
    "marauder": (5, 7, 0, 9, 17, 19, 4, 3, 9),
    "stalker": (4, 8, 9, 10, 13, 21, 3, 3, 7),
    "zealot": (3, 9, 0, 11, 11, 24, 3, 2, 6),
    "colossus": (2, 7, 0, 9, 6, 19, 2, 2, 3),
    "zergling": (9, 32, 0, 36, 35, 80, 7, 6, 18),
    "baneling": (2, 7, 0, 9, 5, 19, 1, 2, 3),
    "hydralisk": (4, 12, 14, 14, 14, 31, 3, 3, 8),
}


def attacked(name: str, target: str, hp: float, shield: float) -> tuple[float, float]:
    """The target after one attack: damage to the shield first, armour reduces each hit to no less than 0.5."""
    weapon, body = WEAPONS[name], BODIES[target]
    for _ in range(weapon.hits):
        raw = weapon.damage + weapon.light * ("light" in body.attributes)
        raw += weapon.armoured * ("armoured" in body.attributes)
        absorbed = min(raw, shield)
        shield -= absorbed
        if raw > absorbed:
            hp -= max(raw - absorbed - body.armour, 0.5)
    return max(hp, 0.0), shield


def test_attacks_of_every_pair():
    """Each attacker beside each idle target, as an ordered ally and as a scripted enemy, compared at every step."""
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
                state[b], shots[b] = attacked(name, target, *state[b]), shots[b] + 1
            fallen[b] = fallen[b] or (t if state[b][0] <= 0 else 0)
        found = np.stack([np.asarray(v)[1 - attacker, column] for v in (battle.hp, battle.shield)], -1)
        alive = found[:, 0] > 0
        np.testing.assert_array_equal(alive, [hp > 0 for hp, _ in state], err_msg=f"step {t}")
        np.testing.assert_allclose(found[alive], np.array(state)[alive], atol=1e-3, err_msg=f"step {t}")
        # restore banelings, and attackers hurt by a dying one, for the next attack
        hp = battle.hp.at[attacker, column].set(unit.hp[attacker, column])
        battle = battle._replace(hp=hp, order=jnp.where(battle.hp > 0, battle.order, orders))
    for b, (name, target, side) in enumerate(pairs):
        expected = ATTACKS_TO_KILL[name][TARGETS.index(target)]
        if target != "hydralisk" or side == 0:  # an ally has 80 hit points
            assert shots[b] == expected, (name, target)
        assert (fallen[b] > 0) == (expected > 0)


def test_simultaneous_attacks_apply_in_the_order_of_the_attackers():
    """Five random attackers around one ally of random hit points and shield; only ready ones fire."""
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
            state = attacked(name, target, *state) if ready else state
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
    """By hand: 6 on shield 3: 3 - 1 armour; 6 on 5.5: the minimum, 0.5; 8 twice on 10: the second leaves 6 - 1."""
    shots = [("marine", "stalker", 3.0), ("marine", "stalker", 5.5), ("zealot", "zealot", 10.0)]
    battles = [
        ([Put(name, 15, 16, ATTACK, FOE)], [Put(target, 16, 16, shield=shield)]) for name, target, shield in shots
    ]
    story = play(battles, 1)
    np.testing.assert_allclose(story.hp[0, FOE, :3] - story.hp[1, FOE, :3], [2.0, 0.5, 5.0], atol=1e-5)
    assert (story.shield[1, FOE, :3] == 0).all()


def test_in_smaclite_armour_can_absorb_a_whole_hit_and_killed_banelings_do_not_explode():
    """After 5.5 of shield 0.5 of a marine's 6 remain. In smaclite armour absorbs them, in the game 0.5 is the
    minimum."""
    shot = ([Put("marine", 15, 16, ATTACK, FOE)], [Put("stalker", 16, 16, shield=5.5)])
    killed = ([Put("marine", 16, 16, ATTACK, FOE)], [Put("baneling", 17.5, 16, hp=5.0)])
    for rules, expected in ((LITE, (0.0, 0.0)), (rules_for(6), (0.5, 35.0))):
        story = play([shot, killed], 1, rules=rules)
        assert story.shield[1, FOE, 0] == 0
        assert story.hp[1, FOE, 1] == 0
        assert (story.hp[0, FOE, 0] - story.hp[1, FOE, 0], 45 - story.hp[1, 0, 1]) == expected


def test_a_colossus_damages_a_rectangle_across_its_line_of_fire():
    """Ground units that touch a rectangle of 2.8 by 0.3 around the target take both hits."""
    beside = [(1.7, 0.0), (1.8, 0.0), (0.0, 0.5), (0.0, 0.55), (1.6, 0.4), (1.7, 0.42), (-1.7, 0.0), (0.0, -0.5)]
    hit = [True, False, True, False, True, False, True, True]
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])  # the line of fire, and across it
    battles = []
    for across, along in beside:
        aim, place = np.array([16.0, 16.0]), along * turn[0] + across * turn[1]
        stand = aim - 5 * turn[0]
        colossus = Put("colossus", stand[0], stand[1], ATTACK, FOE)
        friend = Put("marine", *(aim + 0.1))
        foes = [Put("marine", *aim), Put("marine", *(aim + place)), Put("medivac", *aim)]
        battles.append(([colossus, friend], foes))
    story = play(battles, 1)
    lost = story.hp[0] - story.hp[1]
    n = len(beside)
    assert lost[FOE, :n].tolist() == [30] * n
    assert lost[FOE + 1, :n].tolist() == [30 if touched else 0 for touched in hit]
    assert not lost[FOE + 2, :n].any(), "a flying unit was hit"
    assert not lost[:2, :n].any(), "friendly fire"


def test_a_baneling_explodes_at_its_target():
    """It dies. Enemies on the ground whose edge is within 2.2 take 35, or 20 if not light."""
    allies = [Put("baneling", 16, 16, ATTACK, FOE), Put("marine", 16, 17)]
    near = Put("marine", 16 + 0.75 + 0.24, 16)
    others = [("marine", 2.56), ("marine", 2.59), ("marauder", 2.75), ("marauder", 2.78), ("medivac", 1.0)]
    battles = [(allies, [near, Put(name, 16 - far, 16)]) for name, far in others]
    story = play([*battles, (allies, [near._replace(x=16 + 0.75 + 0.6)])], 1)
    lost = story.hp[0] - story.hp[1]
    assert (story.hp[1, 0, :5] == 0).all()
    assert lost[FOE, :5].tolist() == [35] * 5
    assert lost[FOE + 1, :5].tolist() == [35, 0, 19, 0, 0]
    assert not lost[1, :6].any(), "friendly fire"
    assert lost[FOE, 5] == 35, "it did not walk to its target"


def test_a_baneling_that_is_killed_explodes_one_loop_later():
    """Shot in the last loop of a step, it explodes in the next step; so does one killed by another's explosion."""
    shooter = Put("marine", 16, 16, ATTACK, FOE, cooldown=8.0)
    shot = ([shooter, Put("marine", 17, 17)], [Put("baneling", 17.5, 16, hp=5.0), Put("zergling", 18, 16)])
    chain = (
        [Put("baneling", 16, 16, ATTACK, FOE, cooldown=8.0), Put("marine", 18, 17)],
        [Put("zergling", 16.9, 16), Put("baneling", 17.8, 16, hp=15.0)],
    )
    story = play([shot, chain], 2)
    assert story.hp[1, [0, 1, FOE], 0].tolist() == [45, 45, 0]
    assert story.hp[2, [0, 1, FOE + 1], 0].tolist() == [10, 10, 35]
    assert story.hp[1, [0, 1, FOE, FOE + 1], 1].tolist() == [0, 45, 0, 0]
    assert story.hp[2, 1, 1] == 10


def test_healing_rate_cost_and_limits():
    """4.5 hit points per step for a third of that in energy; not above full health, not the dead, only biological
    units."""
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


def test_healing_starts_with_5_energy_and_continues_with_less():
    battles = [([Put("medivac", 10, 16, ATTACK, 1, energy=e), Put("marine", 12, 16, hp=1.0)], []) for e in (4.0, 5.0)]
    story = play(battles, 6)
    hp = story.hp[:, 1]
    assert (hp[:4, 0] == 1).all(), "29 loops are needed to regain one energy"
    assert hp[4, 0] > 1
    np.testing.assert_allclose(np.diff(hp[:5, 1]), 4.5, atol=1e-4)
    assert story.energy[3, 0, 1] < 3


def test_healing_is_limited_by_energy():
    """Without stored energy only the regenerated energy is used, at three hit points each."""
    story = play([([Put("medivac", 10, 16, ATTACK, 1, energy=5.0), Put("marauder", 12, 16, hp=1.0)], [])], 24)
    given, energy = np.diff(story.hp[:, 1, 0]), story.energy[:, 0, 0]
    assert (energy >= 0).all()
    total = 3 * (5.0 + 24 * 8 * 0.5625 / 16 - energy[-1])
    assert given.sum() == pytest.approx(total, abs=0.01)
    assert given[-6:].sum() < 6 * 4.5 / 2


def test_two_medivacs_do_not_heal_one_unit_in_the_same_loop():
    """The first heals and uses energy; two units are healed by both. An enemy medivac chooses the nearest hurt ally."""
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


def test_a_medivac_heals_within_4_cells_and_flies_there_first():
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
