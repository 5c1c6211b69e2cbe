"""Whom Skirmish's computer notices, keeps and follows, and how it marches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from test_skirmish_mechanics import BODIES, FOE, Put, play, rules_for, set_up
from test_skirmish_movement import FLAT, LITE

from grasp.envs.skirmish import targeting
from grasp.envs.skirmish.state import ATTACK, SCRIPT, STOP

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
    """(unit, battle) of one ally and one enemy -> whom the enemy aims at."""
    rules = rules_for(1)._replace(smaclite=smaclite)

    def aim(unit, battle):
        return targeting.aim(rules, unit, battle, jnp.array(True)).target[1]

    return jax.jit(aim, compiler_options=FAST_COMPILE)


@pytest.mark.parametrize("smaclite", [False, True])
def test_how_far_each_type_notices(smaclite):
    """From edge to edge, half a cell further than its weapon and at least 5; in smaclite 5 from its centre, and less
    than that, for all. Marines and colossi come just within it and just not."""
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


def test_an_enemy_keeps_whom_it_fights_out_of_reach_only_while_that_one_attacks_it():
    """Though another stands in reach. SMAC's maps; at 7 between the centres a marine reaches nobody."""
    near, enemy = Put("marine", 16, 16), Put("marine", 20, 16, SCRIPT, target=1)
    battles = [([near, Put("marine", 13, 16, order, target)], [enemy]) for order, target in ((ATTACK, FOE), (STOP, -1))]
    assert play(battles, 1).target[1, FOE, :2].tolist() == [1, 0]


def test_an_enemy_medivac_notices_a_hurt_friend_5_away():
    """From edge to edge: 5 + 0.75 + 0.375 between the centres. It marches away from the others."""
    battles = [
        ([], [Put("medivac", 20, 16, SCRIPT), Put("marine", 20 + far, 16, hp=10.0)]) for far in (6.1, 6.15, 8.0, 9.9)
    ]
    story = play(battles, 1)
    assert story.target[1, FOE, :4].tolist() == [FOE + 1, -1, -1, -1]
    assert (story.x[1, FOE, :4] > 20).tolist() == [True, False, False, False]


def test_who_loses_its_target_on_the_flat_map_waits_for_the_next_step():
    """The map wakes the idle once a step: a zealot that kills in the fourth loop stands for the other four."""
    allies = [Put("marine", 15.1, 16, hp=1.0), Put("marine", 3, 16)]
    story = play([(allies, [Put("zealot", 16, 16, SCRIPT, cooldown=4.0)])], 2, rules=FLAT)
    assert story.hp[1, 0, 0] == 0
    assert story.target[:, FOE, 0].tolist() == [-1, -1, 1]
    np.testing.assert_allclose(story.x[:, FOE, 0], [16, 16, 16 - 1.125], atol=1e-4)


def test_medivacs_march_no_faster_than_the_slowest_living_fighter_of_their_side():
    """Marines walk 1.125 a step; a medivac alone, beside the dead, or with stalkers flies its own 1.25."""
    slow, fast, allies = Put("marine", 20, 20, SCRIPT), Put("stalker", 20, 20, SCRIPT), [Put("marine", 3, 9)]
    companies = [[slow], [fast], [slow, fast._replace(y=12)], [], [slow._replace(hp=0.0)], [fast]]
    battles = [(allies * (k == 5), [Put("medivac", 20, 16, SCRIPT), *team]) for k, team in enumerate(companies)]
    story = play(battles, 1)
    gone = 20 - story.x[1, FOE, : len(battles)]
    np.testing.assert_allclose(gone, [1.125, 1.25, 1.125, 1.25, 1.25, 1.25], atol=1e-4)


def test_who_marches_stops_half_a_cell_before_the_point():
    """In loops of 0.140625: from 0.7 away two of them, from 0.45 none."""
    story = play([([], [Put("marine", 9 + far, 16, SCRIPT)]) for far in (0.7, 0.45)], 2)
    np.testing.assert_allclose(story.x[1:, FOE, :2], [[9.7 - 2 * 0.140625, 9.45]] * 2, atol=1e-4)


def test_smaclites_armour_may_take_all_of_a_hit_and_its_dead_banelings_do_not_explode():
    """Of a marine's 6 half a point passes 5.5 of shield, and not the armour; in the game half a point always does."""
    shot = ([Put("marine", 15, 16, ATTACK, FOE)], [Put("stalker", 16, 16, shield=5.5)])
    killed = ([Put("marine", 16, 16, ATTACK, FOE)], [Put("baneling", 17.5, 16, hp=5.0)])
    for rules, expected in ((LITE, (0.0, 0.0)), (rules_for(6), (0.5, 35.0))):
        story = play([shot, killed], 1, rules=rules)
        assert story.shield[1, FOE, 0] == 0
        assert story.hp[1, FOE, 1] == 0
        assert (story.hp[0, FOE, 0] - story.hp[1, FOE, 0], 45 - story.hp[1, 0, 1]) == expected
