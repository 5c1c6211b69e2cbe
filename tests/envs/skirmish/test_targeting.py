"""The targets of Skirmish's units: by orders, by the enemy's script, and by smaclite's rules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from skirmish_cases import BODIES, FLAT, FOE, LITE, SIDE, Put, placed_on_map, play, rules_for, set_up

from grasp.envs.skirmish import targeting
from grasp.envs.skirmish.state import ATTACK, SCRIPT, STOP, Battle

SCAN = {
    "marine": 5.5,
    "marauder": 6.5,
    "stalker": 6.5,
    "colossus": 7.5,
    "hydralisk": 5.5,
    "zealot": 5.0,
    "zergling": 5.0,
    "baneling": 5.0,
}


@functools.cache
def aimer(smaclite: bool):
    """(unit, battle) of one ally and one enemy -> the enemy's target."""
    rules = rules_for(1)._replace(smaclite=smaclite)

    def aim(unit, battle):
        return targeting.aim(rules, unit, battle, jnp.array(True)).target[1]

    return jax.jit(aim, compiler_options=FAST_COMPILE)


@pytest.mark.parametrize("smaclite", [False, True])
def test_the_scan_range_of_each_type(smaclite):
    """From edge to edge, half a cell more than the weapon's range and at least 5; in smaclite less than 5 from the
    centre. Tested with marines and colossi just inside and just outside."""
    cases = [(name, prey, off) for name in SCAN for prey in ("marine", "colossus") for off in (-0.01, 0.0, 0.01)]
    radius = {name: BODIES[name].radius for name in SCAN}
    far = [5.0 + radius[p] if smaclite else SCAN[name] + radius[name] + radius[p] for name, p, _ in cases]
    battles = [
        ([Put(prey, 16 - d - off, 16)], [Put(name, 16, 16, SCRIPT)])
        for (name, prey, off), d in zip(cases, far, strict=True)
    ]
    found = aimer(smaclite)(*set_up(battles, 1, "smaclite" if smaclite else "sc2"))
    noticed = [off < 0 or (off == 0 and not smaclite) for *_, off in cases]
    assert [
        case for case, target, seen in zip(cases, found.tolist(), noticed, strict=True) if (target == 0) != seen
    ] == []


def test_an_order_to_attack_an_invalid_target_is_dropped():
    """The unit chooses no other target, also when its target dies within the step."""
    battles = [
        ([Put("marine", 10, 16, ATTACK, FOE)], [Put("marine", 20, 16, hp=0.0), Put("marine", 12, 16)]),
        ([Put("marauder", 10, 16, ATTACK, FOE)], [Put("medivac", 20, 16), Put("marine", 12, 16)]),
        ([Put("zergling", 10, 16, ATTACK, FOE)], [Put("marine", 10.8, 16, hp=4.0), Put("marine", 10, 16.8)]),
    ]
    story = play(battles, 3)
    assert (story.x[:, 0, :3] == 10).all()
    assert (story.hp[-1, FOE + 1, :3] == 45).all()
    assert (story.cooldown[-1, 0, :2] == 0).all()
    assert story.hp[1, FOE, 2] == 0
    assert story.hp[0, FOE, 1] == story.hp[-1, FOE, 1]


def test_enemies_march_to_the_allies_start_and_attack_units_in_scan_range():
    """A marine's scan range is 5.5 from edge to edge: it attacks at 6.2 between centres, but not at 6.3."""
    battles = [([Put("marine", 15, 16 + up)], [Put("marine", 15, 16, SCRIPT)]) for up in (6.3, 6.2)]
    battles += [([], [Put("marine", 12, 16, SCRIPT), Put("zealot", 12, 18, SCRIPT)])]
    battles += [([Put("stalker", 22, 16, order, FOE)], [Put("marine", 15.1, 16, SCRIPT)]) for order in (ATTACK, STOP)]
    story = play(battles, 8)
    assert story.x[1, FOE, 0] == pytest.approx(15 - 1.125, abs=1e-3)
    assert story.x[1, FOE, 1] == pytest.approx(15, abs=1e-3)
    assert story.hp[2, 0, :2].tolist() == [45, 39]
    left = np.hypot(story.x[:, FOE : FOE + 2, 2] - 9, story.y[:, FOE : FOE + 2, 2] - 16)
    assert (left[-1] < 1.0).all()
    assert story.x[1, FOE, 3] > 15.1, "it does not pursue a distant attacker"
    assert story.x[1, FOE, 4] < 15.1


def test_enemies_on_smacv2s_map_pursue_the_nearest_ally_at_any_distance():
    """They keep a target until it dies and ignore units that they cannot hit. Their medivacs stay."""
    lone = [Put("marine", 3, 3)]
    two = [Put("marine", 16, 3), Put("marine", 16, 30)]
    battles = [
        (lone, [Put("zealot", 29, 29, SCRIPT)]),
        (two, [Put("zealot", 16, 16, SCRIPT)]),
        ([Put("medivac", 10, 16), Put("marine", 25, 16)], [Put("marauder", 12, 16, SCRIPT)]),
        (lone, [Put("medivac", 16, 16, SCRIPT), Put("marine", 16, 17, SCRIPT)]),
    ]

    def meddle(t: int, battle: Battle) -> Battle:
        if t == 1:  # the other ally comes nearer, but not into the scan range
            return battle._replace(y=battle.y.at[1, 1].set(22.0))
        return battle._replace(hp=battle.hp.at[0, 1].set(0.0)) if t == 3 else battle

    story = play(battles, 6, meddle, FLAT)
    np.testing.assert_allclose(story.x[1, FOE, 0], 29 - 1.125 / np.sqrt(2), atol=1e-3)
    np.testing.assert_allclose(story.y[1, FOE, 0], 29 - 1.125 / np.sqrt(2), atol=1e-3)
    assert (np.diff(story.y[:5, FOE, 1]) < -1).all()
    assert (np.diff(story.y[4:, FOE, 1]) > 1).all()
    assert story.x[1, FOE, 2] > 12
    assert (story.x[:, FOE, 3] == 16).all()
    assert story.x[1, FOE + 1, 3] < 16


def test_a_holding_enemy_fights_without_approaching():
    battles = [([Put("marine", 3, 16)], [Put("marine", 20, 16, SCRIPT)])]
    battles += [([Put("marine", 14.5, 16)], [Put("marine", 20, 16, SCRIPT)])]
    for rules in (rules_for(SIDE), FLAT):
        story = play(battles, 3, rules=rules._replace(enemy="hold"))
        assert (story.x[:, FOE, :2] == 20).all()
        assert story.hp[-1, 0, 0] == 45
        assert story.hp[-1, 0, 1] < 45
        assert play(battles, 3, rules=rules).x[-1, FOE, 0] < 18


def test_a_holding_enemy_does_not_pursue_units_in_scan_range_or_attackers():
    """A marine at distance 6 is in scan range but out of reach; a stalker attacks from 7; then an ally comes into
    reach."""
    bait = [Put("marine", 14, 16)]
    sniper = [Put("stalker", 13, 16, ATTACK, FOE), Put("marine", 3, 16)]
    hurt = [Put("medivac", 20, 16, SCRIPT), Put("marine", 25.2, 16, SCRIPT, hp=10.0)]
    battles = [(bait, [Put("marine", 20, 16, SCRIPT)]), (sniper, [Put("marine", 20, 16, SCRIPT)]), ([], hurt)]

    def come(t: int, battle: Battle) -> Battle:
        return battle._replace(x=battle.x.at[1, 1].set(17.0)) if t == 1 else battle

    for rules in (rules_for(SIDE), FLAT):
        story = play(battles, 5, come, rules._replace(enemy="hold"))
        assert (story.x[:, FOE, :3] == 20).all()
        assert (story.y[:, FOE, :3] == 16).all()
        assert story.hp[-1, 0, 0] == 45
        assert story.hp[-1, FOE, 1] < 45, "it was not attacked"
        assert story.hp[-1, 1, 1] < 45, "it did not attack the unit in reach"
        assert play(battles, 5, come, rules).x[1, FOE, 0] < 20


def test_a_focusing_enemy_attacks_the_weakest_in_scan_range():
    allies = [Put("marine", 16, 16), Put("marine", 15.5, 17, hp=20.0), Put("marine", 3, 16, hp=1.0)]
    battles = [(allies, [Put("marine", 20, 16, SCRIPT)])]
    for enemy, hurt in (("attack", 0), ("focus", 1)):
        after = play(battles, 1, rules=rules_for(SIDE)._replace(enemy=enemy)).hp[-1, :3, 0]
        assert (after < [45, 20, 1]).nonzero()[0].tolist() == [hurt]


def test_smaclites_allies_keep_invalid_targets():
    """A shot at a dead unit costs the cooldown; a marauder walks to a medivac and never fires."""
    battles = [
        ([Put("marine", 10, 16, ATTACK, FOE)], [Put("marine", 13, 16, hp=0.0)]),
        ([Put("marauder", 10, 16, ATTACK, FOE)], [Put("medivac", 13, 16)]),
    ]
    story = play(battles, 1, rules=LITE)
    assert story.cooldown[1, 0, 0] > 0
    assert story.x[1, 0, 1] > 10.5
    assert story.hp[1, FOE, 1] == 150
    ours = play(battles, 1)
    assert (ours.cooldown[1, 0, :2] == 0).all()
    assert (ours.x[1, 0, :2] == 10).all()


def test_smaclites_enemies_choose_again_while_a_healer_lives():
    """They switch to a healer in range, else to the nearest; without a living healer they keep their target."""
    kept, nearer = Put("marine", 15, 16), Put("marine", 16.5, 17)
    enemy = Put("marine", 20, 16, SCRIPT, target=0)
    battles = [([kept, nearer, Put("medivac", *place)], [enemy]) for place in ((15, 18), (3, 3))]
    battles += [([kept, nearer], [enemy])]
    for rules, chosen in ((LITE, [2, 1, 0]), (rules_for(SIDE), [0, 0, 0])):
        assert play(battles, 1, rules=rules).target[1, FOE, :3].tolist() == chosen


def test_smaclites_enemy_medivac_chooses_the_weakest_and_follows_fighting_units():
    weak, near = Put("marine", 22, 17.5, hp=10.0), Put("marine", 20.5, 17.5, hp=30.0)
    battles = [([], [Put("medivac", 20, 16, SCRIPT), near, weak])]
    battles += [([Put("marine", 22, 12)], [Put("medivac", 20, 19, SCRIPT), Put("marine", 22, 16.5, SCRIPT)])]
    for rules, chosen in ((LITE, [FOE + 2, FOE + 1]), (rules_for(SIDE), [FOE + 1, -1])):
        assert play(battles, 1, rules=rules).target[1, FOE, :2].tolist() == chosen


@pytest.mark.parametrize("noticed", [True, False])
def test_units_in_scan_range_come_before_distant_attackers(noticed):
    """Also for the script `focus`, whose cost of the distant, weaker unit is lower."""
    rules, unit, battle = placed_on_map("3m", {0: (16.0, 16.0), 1: (8.0, 16.0), 3: (20.0, 16.0)}, enemy="focus")
    battle = battle._replace(
        hp=battle.hp.at[1].set(5.0).at[0].multiply(float(noticed)),
        order=battle.order.at[1].set(ATTACK),
        target=battle.target.at[1].set(3),
    )
    assert int(targeting.aim(rules, unit, battle, jnp.array(False)).target[3, 0]) == (0 if noticed else 1)


def test_an_enemy_keeps_a_target_out_of_reach_only_while_that_unit_attacks_it():
    """On SMAC's maps, although another unit is in reach. At 7 between centres a marine's target is out of reach."""
    near, enemy = Put("marine", 16, 16), Put("marine", 20, 16, SCRIPT, target=1)
    battles = [([near, Put("marine", 13, 16, order, target)], [enemy]) for order, target in ((ATTACK, FOE), (STOP, -1))]
    assert play(battles, 1).target[1, FOE, :2].tolist() == [1, 0]


def test_the_scan_range_of_an_enemy_medivac_for_hurt_allies_is_5():
    """From edge to edge: 5 + 0.75 + 0.375 between centres. It marches on past units further away."""
    battles = [
        ([], [Put("medivac", 20, 16, SCRIPT), Put("marine", 20 + far, 16, hp=10.0)]) for far in (6.1, 6.15, 8.0, 9.9)
    ]
    story = play(battles, 1)
    assert story.target[1, FOE, :4].tolist() == [FOE + 1, -1, -1, -1]
    assert (story.x[1, FOE, :4] > 20).tolist() == [True, False, False, False]


def test_on_smacv2s_map_a_unit_without_target_waits_for_the_next_step():
    """Idle units get targets once per step: a zealot that kills in the fourth loop stands for the other four."""
    allies = [Put("marine", 15.1, 16, hp=1.0), Put("marine", 3, 16)]
    story = play([(allies, [Put("zealot", 16, 16, SCRIPT, cooldown=4.0)])], 2, rules=FLAT)
    assert story.hp[1, 0, 0] == 0
    assert story.target[:, FOE, 0].tolist() == [-1, -1, 1]
    np.testing.assert_allclose(story.x[:, FOE, 0], [16, 16, 16 - 1.125], atol=1e-4)
