"""Skirmish's weapons that hit more than their target: the colossus' beams and the banelings."""

import numpy as np
from test_skirmish_mechanics import FOE, Put, play

from grasp.envs.skirmish.state import ATTACK


def test_a_colossus_sweeps_across_its_line_of_fire():
    """A rectangle of 2.8 by 0.3 around the target: whose circle touches it takes both hits, on the ground only."""
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
    assert not lost[FOE + 2, :n].any(), "a flying unit was swept"
    assert not lost[:2, :n].any(), "friendly fire"


def test_a_baneling_explodes_at_its_target():
    """It dies. Whose edge is within 2.2, on the ground and on the other side, is hurt: 35, 20 if not light."""
    friends = [Put("baneling", 16, 16, ATTACK, FOE), Put("marine", 16, 17)]
    near = Put("marine", 16 + 0.75 + 0.24, 16)
    others = [("marine", 2.56), ("marine", 2.59), ("marauder", 2.75), ("marauder", 2.78), ("medivac", 1.0)]
    battles = [(friends, [near, Put(name, 16 - far, 16)]) for name, far in others]
    story = play([*battles, (friends, [near._replace(x=16 + 0.75 + 0.6)])], 1)
    lost = story.hp[0] - story.hp[1]
    assert (story.hp[1, 0, :5] == 0).all()
    assert lost[FOE, :5].tolist() == [35] * 5
    assert lost[FOE + 1, :5].tolist() == [35, 0, 19, 0, 0]
    assert not lost[1, :6].any(), "friendly fire"
    assert lost[FOE, 5] == 35, "it did not run to its target"


def test_a_baneling_that_is_killed_explodes_one_loop_later():
    """Shot in the last loop of a step, it harms in the next; killed by another's blast it explodes too."""
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
