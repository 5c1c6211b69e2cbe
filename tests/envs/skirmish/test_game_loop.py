"""Skirmish's game loops: timers and regeneration, invariants of random fights, and durations of fights in smaclite."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from skirmish_cases import BODIES, COPIES, FOE, SIDE, TARGETS, Put, play, rules_for, set_up

from grasp.envs.skirmish import game_loop
from grasp.envs.skirmish.state import ATTACK, MOVE, SCRIPT, STOP, Battle


def test_a_shield_regenerates_160_loops_after_the_last_hit():
    """After one shot in the first loop the shield regenerates in all eight loops of the 21st step."""
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


def test_zerg_and_energy_regenerate_up_to_their_maximum():
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


BOTH_SCRIPTED = rules_for(SIDE, (True, True))


@functools.cache
def melees() -> tuple[list[tuple[list[Put], list[Put]]], Battle]:
    """Sixteen fights of random teams; at every step the allies get random orders."""
    rng = np.random.default_rng(7)

    def team(x: float, order: int) -> list[Put]:
        names = rng.choice(TARGETS, SIDE)
        return [Put(str(n), x + rng.uniform(-2, 2), rng.uniform(12, 20), order, target=-1) for n in names]

    battles = [(team(13, ATTACK), team(18, SCRIPT)) for _ in range(COPIES)]

    def reorder(_: int, battle: Battle) -> Battle:
        orders = rng.choice([STOP, MOVE, ATTACK, ATTACK], (SIDE, COPIES))
        targets = np.where(rng.random((SIDE, COPIES)) < 0.1, 0, rng.integers(FOE, 2 * SIDE, (SIDE, COPIES)))
        goal = rng.uniform(0, 32, (SIDE, COPIES)).astype(np.float32)
        return battle._replace(
            order=battle.order.at[:SIDE].set(orders),
            target=battle.target.at[:SIDE].set(np.where(orders == ATTACK, targets, -1)),
            goal_x=battle.goal_x.at[:SIDE].set(goal),
            goal_y=battle.goal_y.at[:SIDE].set(goal[::-1]),
        )

    return battles, play(battles, 40, reorder)


def test_invariants_hold_in_random_fights():
    battles, story = melees()
    unit, _ = set_up(battles, SIDE)
    assert all(np.isfinite(v).all() for v in story)
    assert ((story.hp >= 0) & (story.hp <= np.asarray(unit.hp) + 1e-4)).all()
    assert ((story.shield >= 0) & (story.shield <= np.asarray(unit.shield) + 1e-4)).all()
    assert ((story.energy >= 0) & (story.energy <= 200)).all()
    alive = story.hp > 0
    assert not (alive[1:] & ~alive[:-1]).any(), "a dead unit came back to life"
    assert 40 < (~alive[-1]).sum() < 12 * COPIES, "too few units died for a meaningful test"
    dead = ~alive[:-1]
    assert (np.diff(story.x, axis=0)[dead] == 0).all()
    a_step = np.asarray(unit.speed) * 8
    moved = np.hypot(np.diff(story.x, axis=0), np.diff(story.y, axis=0))
    assert (moved <= a_step + 1e-3).all(), "a unit moved faster than its speed"
    names = [[put.name for side in sides for put in side] for sides in battles]
    separation = np.array([[BODIES[name].separation for name in team] for team in names]).T
    layer = np.array([[{"medivac": 1, "colossus": 2}.get(name, 0) for name in team] for team in names]).T
    apart = np.hypot(story.x[:, :, None] - story.x[:, None], story.y[:, :, None] - story.y[:, None])
    meet = alive[:, :, None] & alive[:, None] & (layer[:, None] == layer[None])
    meet &= ~np.eye(2 * SIDE, dtype=bool)[..., None]
    inside = np.where(meet, separation[:, None] + separation[None] - apart, 0.0)
    assert inside[0].max() > 0.5, "no units overlapped at the start"
    assert inside[1:].max() <= 0.2, "units overlap"


def test_copies_are_independent():
    battles, _ = melees()
    together = play(battles[:4], 12)
    elsewhere = play([*battles[4:8], *battles[:4]], 12)
    for v, w in zip(together, elsewhere, strict=True):
        np.testing.assert_array_equal(v[:, :, :4], w[:, :, 4:8])


@pytest.mark.parametrize("order", [(1, 2, 0, 4, 5, 3), (5, 4, 3, 2, 1, 0)])
def test_the_order_of_equal_units_does_not_matter(order):
    rng = np.random.default_rng(11)
    battles = []
    for _ in range(COPIES):
        y = rng.uniform(12, 20, (2, SIDE))
        allies = [Put("marine", 12 + rng.uniform(-1, 1), v, ATTACK, FOE + k) for k, v in enumerate(y[0])]
        enemies = [Put("zealot", 16.5 + rng.uniform(-1, 1), v, SCRIPT) for v in y[1]]
        battles.append((allies, enemies))
    place = [*order, *(FOE + k for k in order)]
    turned = [
        ([a[k]._replace(target=place.index(a[k].target)) for k in order], [e[k] for k in order]) for a, e in battles
    ]
    story, other = play(battles, 10), play(turned, 10)
    for name in ("x", "y", "hp", "shield"):
        np.testing.assert_allclose(getattr(story, name)[:, place], getattr(other, name), atol=1e-2, err_msg=name)
    assert (story.hp[-1] < story.hp[0]).sum() > COPIES


def mirrored_fights(image) -> list[tuple[list[Put], list[Put]]]:
    """Fights of random teams of one type, with the enemies at the images of the allies' positions."""
    rng = np.random.default_rng(13)
    battles = []
    for name in ("marine", "marauder", "stalker", "zealot", "zergling") * 3:
        allies = [Put(name, 10 + rng.uniform(-1.5, 1.5), 16 + rng.uniform(-3, 3), SCRIPT) for _ in range(SIDE)]
        battles.append((allies, [put._replace(x=image(put)[0], y=image(put)[1]) for put in allies]))
    return battles


@pytest.mark.parametrize(
    "image", [lambda put: (32 - put.x, 32 - put.y), lambda put: (32 - put.x, put.y)], ids=["turned", "mirrored"]
)
def test_a_mirrored_start_has_a_mirrored_end(image):
    """Both sides act by the same script from starts that are each other's images: rotated by 180° around the centre of
    the map, or mirrored in the line between the sides."""
    battles = mirrored_fights(image)
    story = play(battles, 20, rules=BOTH_SCRIPTED)
    ours, theirs = (jax.tree.map(lambda v, s=s: v[:, s, : len(battles)], story) for s in (np.s_[:SIDE], np.s_[SIDE:]))
    expected = image(ours)
    np.testing.assert_allclose(theirs.x, expected[0], atol=1e-2)
    np.testing.assert_allclose(theirs.y, expected[1], atol=1e-2)
    np.testing.assert_allclose(ours.hp, theirs.hp, atol=1e-2)
    np.testing.assert_allclose(ours.shield, theirs.shield, atol=1e-2)
    assert (ours.hp[-1] < ours.hp[0]).any(0).all(), "no damage in a fight"


TYPES = ("marine", "marauder", "medivac", "stalker", "zealot", "colossus", "zergling", "baneling")


LOOPS_TO_KILL = {  # measured game loops from the first hit on an idle ally to its death; 0: never
    "marine": (70, 240, 290, 290, 280, 640, 60, 50),
    "marauder": (72, 108, 0, 144, 288, 324, 54, 54),
    "stalker": (66, 154, 176, 198, 264, 440, 44, 44),
    "zealot": (28, 112, 0, 140, 140, 322, 28, 14),
    "colossus": (18, 108, 0, 144, 90, 324, 18, 18),
    "zergling": (64, 248, 0, 280, 272, 632, 56, 48),
}


LONGEST = 660


def test_loops_from_the_first_hit_to_death_equal_smaclites(monkeypatch):
    """One copy per pair of attacker and target; every game loop is observed."""
    monkeypatch.setattr(game_loop, "LOOPS_A_STEP", 1)
    rules = rules_for(1)._replace(smaclite=True)
    pairs = [(name, target) for name in LOOPS_TO_KILL for target in TYPES]
    battles = [
        ([Put(target, 16, 16)], [Put(name, 16 + BODIES[name].radius + BODIES[target].radius + 0.05, 16, SCRIPT)])
        for name, target in pairs
    ]
    unit, battle = set_up(battles, 1, "smaclite")

    def one_loop(battle, _):
        battle = game_loop.fight(rules, unit, battle, jnp.zeros_like(battle.x))
        return battle, battle.hp[0] + battle.shield[0]

    watch = jax.jit(lambda battle: jax.lax.scan(one_loop, battle, None, LONGEST)[1], compiler_options=FAST_COMPILE)
    left = np.asarray(watch(battle))
    full = np.asarray(unit.hp + unit.shield)[0]
    hit, dead = (left < full).argmax(0), np.where((left <= 0).any(0), (left <= 0).argmax(0), -1)
    expected = np.array([LOOPS_TO_KILL[name][TYPES.index(target)] for name, target in pairs])
    found = np.where(dead >= 0, dead - hit, 0)
    off = [(*pair, int(f), int(e)) for pair, f, e in zip(pairs, found, expected, strict=True) if abs(f - e) > 1]
    assert off == []
