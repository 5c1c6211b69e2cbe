"""Skirmish's orders, bodies and walls; and what must hold in every fight, whoever stands where."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_skirmish_mechanics import BODIES, COPIES, FOE, SIDE, TARGETS, WEAPONS, Put, play, rules_for, set_up

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import movement
from grasp.envs.skirmish import targeting as targets
from grasp.envs.skirmish.state import ATTACK, MOVE, SCRIPT, STOP, Battle

BOTH_SCRIPTED = rules_for(SIDE, (True, True))
FLAT = rules_for(SIDE)._replace(drawn=True, low=0.0, high=32.0)
"""SMACv2's map."""


def far(story: Battle, n: int, m: int, b: int) -> np.ndarray:
    return np.hypot(story.x[:, n, b] - story.x[:, m, b], story.y[:, n, b] - story.y[:, m, b])


def test_an_order_to_move_goes_two_cells_and_ends_there():
    ways = [(2, 0), (-2, 0), (0, 2), (0, -2)]
    battles = [([Put(name, 16, 16, MOVE, goal=(16 + dx, 16 + dy))], []) for name in TARGETS[:3] for dx, dy in ways]
    story = play(battles, 4)
    for b, (put, _) in enumerate(battles):
        name, goal = put[0].name, np.array(put[0].goal)
        place = np.stack([story.x[:, 0, b], story.y[:, 0, b]], -1)
        gone = np.hypot(*(place - 16).T)
        a_step = BODIES[name].speed / 2
        np.testing.assert_allclose(gone, np.minimum(a_step * np.arange(5), 2.0), atol=1e-4)
        np.testing.assert_allclose(place[2], goal, atol=1e-4)


def test_stop_does_not_shoot_and_the_dead_do_nothing():
    """No damage without an attack: enemies at arm's length, one side idle or walking past, the shooters dead."""
    idle = [Put("marine", 16, 16), Put("medivac", 16, 14), Put("marine", 12, 12, MOVE, goal=(18, 12))]
    battles = [(idle, [Put("marine", 17, 16), Put("zealot", 15, 12)])]
    battles += [([Put("marine", 16, 16, ATTACK, FOE, hp=0.0)], [Put("marine", 17, 16, SCRIPT, hp=0.0)])]
    battles += [([Put("marine", 16, 16, ATTACK, FOE, hp=0.0)], [Put("marine", 17, 16)])]
    story = play(battles, 6)
    assert (story.hp == story.hp[:1]).all()
    assert (story.shield == story.shield[:1]).all()
    assert (story.cooldown == 0).all()
    assert story.x[-1, 0, 1] == 16


def test_an_attack_on_a_dead_or_untouchable_target_idles():
    """Nor does it look for another one, also when the target dies within the step."""
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


def test_an_attack_chases_until_its_weapon_reaches_edge_to_edge():
    names = [name for name in WEAPONS if name != "baneling"]
    battles = [([Put(name, 10, 16, ATTACK, FOE)], [Put("stalker", 20.5, 16)]) for name in names]
    story = play(battles, 12)
    for b, name in enumerate(names):
        reach = WEAPONS[name].reach + BODIES[name].radius + BODIES["stalker"].radius
        gap, a_loop = far(story, 0, FOE, b), BODIES[name].speed / 16
        assert reach - a_loop - 1e-3 <= gap[-1] <= reach + 1e-3, name
        hurt = story.shield[:, FOE, b] < 80
        assert hurt[-1], name
        assert not hurt[gap > reach + 1e-3].any(), name


def test_enemies_go_to_the_allies_start_and_fight_whom_they_notice():
    """Scan range 5.5 from edge to edge for a marine: at 6.3 between the centres an ally is passed by, at 6.2 not."""
    battles = [([Put("marine", 15, 16 + up)], [Put("marine", 15, 16, SCRIPT)]) for up in (6.3, 6.2)]
    battles += [([], [Put("marine", 12, 16, SCRIPT), Put("zealot", 12, 18, SCRIPT)])]
    battles += [([Put("stalker", 22, 16, order, FOE)], [Put("marine", 15.1, 16, SCRIPT)]) for order in (ATTACK, STOP)]
    story = play(battles, 8)
    assert story.x[1, FOE, 0] == pytest.approx(15 - 1.125, abs=1e-3)
    assert story.x[1, FOE, 1] == pytest.approx(15, abs=1e-3)
    assert story.hp[2, 0, :2].tolist() == [45, 39]
    left = np.hypot(story.x[:, FOE : FOE + 2, 2] - 9, story.y[:, FOE : FOE + 2, 2] - 16)
    assert (left[-1] < 1.0).all()
    assert story.x[1, FOE, 3] > 15.1, "who is attacked from further away goes for the attacker"
    assert story.x[1, FOE, 4] < 15.1


def test_enemies_of_the_flat_map_hunt_the_nearest_wherever_it_is():
    """They keep whom they hunt until it dies, skip whom they cannot hit, and their medivacs stay."""
    lone = [Put("marine", 3, 3)]
    two = [Put("marine", 16, 3), Put("marine", 16, 30)]
    battles = [
        (lone, [Put("zealot", 29, 29, SCRIPT)]),
        (two, [Put("zealot", 16, 16, SCRIPT)]),
        ([Put("medivac", 10, 16), Put("marine", 25, 16)], [Put("marauder", 12, 16, SCRIPT)]),
        (lone, [Put("medivac", 16, 16, SCRIPT), Put("marine", 16, 17, SCRIPT)]),
    ]

    def meddle(t: int, battle: Battle) -> Battle:
        if t == 1:  # the other one comes nearer, yet out of what a zealot notices
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


def test_an_enemy_that_holds_fights_but_does_not_come():
    battles = [([Put("marine", 3, 16)], [Put("marine", 20, 16, SCRIPT)])]
    battles += [([Put("marine", 14.5, 16)], [Put("marine", 20, 16, SCRIPT)])]
    for rules in (rules_for(SIDE), FLAT):
        story = play(battles, 3, rules=rules._replace(enemy="hold"))
        assert (story.x[:, FOE, :2] == 20).all()
        assert story.hp[-1, 0, 0] == 45
        assert story.hp[-1, 0, 1] < 45
        assert play(battles, 3, rules=rules).x[-1, FOE, 0] < 18


def test_an_enemy_that_holds_does_not_come_for_whom_it_notices_or_who_attacks_it():
    """At 6 a marine is noticed and out of reach; from 7 a stalker shoots it, until an ally comes into reach."""
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
        assert story.hp[-1, FOE, 1] < 45, "nobody shot at it"
        assert story.hp[-1, 1, 1] < 45, "it fights whoever is in reach"
        assert play(battles, 5, come, rules).x[1, FOE, 0] < 20


def test_an_enemy_that_focuses_takes_the_weakest_it_notices():
    allies = [Put("marine", 16, 16), Put("marine", 15.5, 17, hp=20.0), Put("marine", 3, 16, hp=1.0)]
    battles = [(allies, [Put("marine", 20, 16, SCRIPT)])]
    for enemy, hurt in (("attack", 0), ("focus", 1)):
        after = play(battles, 1, rules=rules_for(SIDE)._replace(enemy=enemy)).hp[-1, :3, 0]
        assert (after < [45, 20, 1]).nonzero()[0].tolist() == [hurt]


def test_two_that_meet_head_on_pass_each_other_and_who_stands_is_passed():
    battles = [([Put("marine", 10, 16, MOVE, goal=(20, 16))], [Put("marine", 20, 16, MOVE, goal=(10, 16))])]
    battles += [([Put("marine", 10, 16, MOVE, goal=(20, 16)), Put("marine", 15, 16)], [])]
    story = play(battles, 14)
    np.testing.assert_allclose(story.x[-1, 0, :2], 20, atol=0.1)
    assert story.x[-1, FOE, 0] == pytest.approx(10, abs=0.1)


def overlap(story: Battle, names: list[str], places: list[int], b: int) -> float:
    """The worst overlap at the end among units of one layer."""
    worst = 0.0
    for k, n in enumerate(places):
        for j, m in enumerate(places[:k]):
            room = BODIES[names[k]].separation + BODIES[names[j]].separation
            worst = max(worst, room - far(story, n, m, b)[-1])
    return worst


def test_standing_units_do_not_stay_in_each_other():
    """Small heaps: 16 loops leave at most 0.1 of overlap."""
    rng = np.random.default_rng(0)
    heaps = [list(rng.choice(["marine", "zealot", "zergling", "stalker"], 3)) for _ in range(8)]
    heaps += [["medivac"] * 2, ["marine"] * 2]
    battles = [([Put(str(name), *(16 + rng.uniform(-0.3, 0.3, 2))) for name in heap], []) for heap in heaps]
    story = play(battles, 2)
    for b, heap in enumerate(heaps):
        assert overlap(story, [str(name) for name in heap], list(range(len(heap))), b) <= 0.1, heap


def test_units_on_one_spot_part():
    story = play([([Put("marine", 16, 16)], [Put("marine", 16, 16)])], 2)
    assert far(story, 0, FOE, 0)[-1] > 0.65


def test_six_zealots_around_one_all_get_at_it():
    angles = np.arange(6) * np.pi / 5
    ring = [Put("zealot", 16 + 3 * np.cos(a), 16 + 3 * np.sin(a), ATTACK, FOE) for a in angles]
    story = play([(ring, [Put("zealot", 16, 16)])], 4)
    gaps = np.array([far(story, n, FOE, 0)[-1] for n in range(6)])
    assert (gaps <= 1.1 + 1e-3).all(), gaps


def test_who_walks_keeps_clear_and_who_stands_stands_closer():
    """Zealots: 0.75 between two that stand, half of what a radius is more than a separation, 0.0625, for the walker."""
    walker = Put("zealot", 14.5, 16.3, MOVE, goal=(17.5, 16.3))
    battles = [([walker, Put("zealot", 16, 16)], []), ([Put("zealot", 16, 16), Put("zealot", 16.76, 16)], [])]
    story = play(battles, 3)
    nearest = min(far(story, 0, 1, 0)[1:])
    assert nearest >= 0.8125 - 0.02, nearest
    assert story.x[-1, 0, 0] > 16.5
    assert far(story, 0, 1, 1)[-1] == pytest.approx(0.76, abs=1e-5)


def test_files_of_marines_pass_through_each_other():
    """Five and five almost on one line, with each other's places as goals: all arrive in little more than the time."""
    rng = np.random.default_rng(3)
    battles = []
    for _ in range(8):
        y = 16 + rng.uniform(-0.02, 0.02, (2, 5))
        right = [Put("marine", 10 + 0.8 * k, y[0, k], MOVE, goal=(20 + 0.8 * k, 16)) for k in range(5)]
        left = [Put("marine", 20 + 0.8 * k, y[1, k], MOVE, goal=(10 + 0.8 * k, 16)) for k in range(5)]
        battles.append((right, left))
    story = play(battles, 15)
    goal = np.array([[put.goal[0]] for put in (*battles[0][0], *battles[0][1])])
    places = np.r_[0:5, FOE : FOE + 5]
    missing = np.hypot(story.x[-1, places, :8] - goal, story.y[-1, places, :8] - 16)
    assert (missing < 0.5).all(), missing


def test_a_colossus_and_a_medivac_pass_over_everyone():
    wall = [Put("marine", 16, 14 + 0.76 * k) for k in range(6)]
    walkers = ["colossus", "medivac", "zealot"]
    story = play([([Put(name, 14.5, 16, MOVE, goal=(18.5, 16))], wall) for name in walkers], 4)
    x = [14.5 + min(4.0, 4 * BODIES[name].speed / 2) for name in walkers[:2]]
    np.testing.assert_allclose(story.x[-1, 0, :2], x, atol=1e-3)
    assert (story.x[-1, FOE:, :2] == 16).all()
    assert story.x[-1, 0, 2] < 18.4


def test_nobody_leaves_the_map():
    """Every type sent against every wall, in company; flying units may leave the band but not the map."""
    corners = [(-9.0, -9.0), (41.0, 41.0), (-9.0, 41.0), (41.0, -9.0)]
    battles = []
    for x, y in corners:
        for names in (TARGETS[:5], TARGETS[4:]):
            near = np.clip((x, y), (3, 10), (29, 22))
            team = [Put(n, near[0], near[1] + 0.3 * k, MOVE, goal=(x, y)) for k, n in enumerate(names)]
            battles.append((team, [put._replace(y=put.y + 0.1) for put in team]))
    story = play(battles, 20)
    for b, (team, _) in enumerate(battles):
        for k, put in enumerate(team):
            inner, flies = BODIES[put.name].inner, put.name == "medivac"
            low, high = (0, 32) if flies else (8 + inner, 24 - inner)
            for n in (k, FOE + k):
                y, x = story.y[1:, n, b], story.x[1:, n, b]
                assert ((y >= low) & (y <= high) & (x >= inner) & (x <= 32 - inner)).all(), put.name
                assert not flies or (y < 7.5).any() or (y > 24.5).any()


LITE = rules_for(SIDE)._replace(smaclite=True)


def test_smaclites_allies_shoot_at_the_dead_and_walk_to_whom_they_cannot_hit():
    """A shot at a corpse costs its cooldown; a marauder goes to a medivac and never fires."""
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


def test_smaclites_enemies_look_again_while_a_healer_lives():
    """They go over to a healer in sight, else to the nearest; without a healer they keep whom they have."""
    kept, nearer = Put("marine", 15, 16), Put("marine", 16.5, 17)
    enemy = Put("marine", 20, 16, SCRIPT, target=0)
    battles = [([kept, nearer, Put("medivac", *place)], [enemy]) for place in ((15, 18), (3, 3))]
    battles += [([kept, nearer], [enemy])]
    for rules, chosen in ((LITE, [2, 1, 0]), (rules_for(SIDE), [0, 0, 0])):
        assert play(battles, 1, rules=rules).target[1, FOE, :3].tolist() == chosen


def test_smaclites_enemy_medivac_takes_the_weakest_and_follows_who_fights():
    weak, near = Put("marine", 22, 17.5, hp=10.0), Put("marine", 20.5, 17.5, hp=30.0)
    battles = [([], [Put("medivac", 20, 16, SCRIPT), near, weak])]
    battles += [([Put("marine", 22, 12)], [Put("medivac", 20, 19, SCRIPT), Put("marine", 22, 16.5, SCRIPT)])]
    for rules, chosen in ((LITE, [FOE + 2, FOE + 1]), (rules_for(SIDE), [FOE + 1, -1])):
        assert play(battles, 1, rules=rules).target[1, FOE, :2].tolist() == chosen


@functools.cache
def melees() -> tuple[list[tuple[list[Put], list[Put]]], Battle]:
    """Sixteen fights of random teams, the allies ordered at random enemies anew every step."""
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


def test_nothing_impossible_happens_in_a_melee():
    battles, story = melees()
    unit, _ = set_up(battles, SIDE)
    assert all(np.isfinite(v).all() for v in story)
    assert ((story.hp >= 0) & (story.hp <= np.asarray(unit.hp) + 1e-4)).all()
    assert ((story.shield >= 0) & (story.shield <= np.asarray(unit.shield) + 1e-4)).all()
    assert ((story.energy >= 0) & (story.energy <= 200)).all()
    alive = story.hp > 0
    assert not (alive[1:] & ~alive[:-1]).any(), "somebody rose from the dead"
    assert 40 < (~alive[-1]).sum() < 12 * COPIES, "too few died for this to mean anything"
    dead = ~alive[:-1]
    assert (np.diff(story.x, axis=0)[dead] == 0).all()
    a_step = np.asarray(unit.speed) * 8
    moved = np.hypot(np.diff(story.x, axis=0), np.diff(story.y, axis=0))
    assert (moved <= a_step + 1e-3).all(), "somebody was pushed faster than it walks"
    names = [[put.name for side in sides for put in side] for sides in battles]
    separation = np.array([[BODIES[name].separation for name in team] for team in names]).T
    layer = np.array([[{"medivac": 1, "colossus": 2}.get(name, 0) for name in team] for team in names]).T
    apart = np.hypot(story.x[:, :, None] - story.x[:, None], story.y[:, :, None] - story.y[:, None])
    meet = alive[:, :, None] & alive[:, None] & (layer[:, None] == layer[None])
    meet &= ~np.eye(2 * SIDE, dtype=bool)[..., None]
    inside = np.where(meet, separation[:, None] + separation[None] - apart, 0.0)
    assert inside[0].max() > 0.5, "nobody had to be pushed out of another"
    assert inside[1:].max() <= 0.2, "somebody is inside another"


def test_copies_do_not_know_of_each_other():
    battles, _ = melees()
    together = play(battles[:4], 12)
    elsewhere = play([*battles[4:8], *battles[:4]], 12)
    for v, w in zip(together, elsewhere, strict=True):
        np.testing.assert_array_equal(v[:, :, :4], w[:, :, 4:8])


@pytest.mark.parametrize("order", [(1, 2, 0, 4, 5, 3), (5, 4, 3, 2, 1, 0)])
def test_places_of_alike_units_do_not_matter(order):
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


def fights_of_alike(image) -> list[tuple[list[Put], list[Put]]]:
    """Random teams of one type, several of each type; the enemies stand at the image of the allies' places."""
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
    """Both sides act by the same script from starts that are each other's image: turned by half around the middle of
    the map, or mirrored in the line between the sides."""
    battles = fights_of_alike(image)
    story = play(battles, 20, rules=BOTH_SCRIPTED)
    ours, theirs = (jax.tree.map(lambda v, s=s: v[:, s, : len(battles)], story) for s in (np.s_[:SIDE], np.s_[SIDE:]))
    expected = image(ours)
    np.testing.assert_allclose(theirs.x, expected[0], atol=1e-2)
    np.testing.assert_allclose(theirs.y, expected[1], atol=1e-2)
    np.testing.assert_allclose(ours.hp, theirs.hp, atol=1e-2)
    np.testing.assert_allclose(ours.shield, theirs.shield, atol=1e-2)
    assert (ours.hp[-1] < ours.hp[0]).any(0).all(), "somewhere nobody fought"


def placed(task: str, where: dict[int, tuple[float, float]], **options):
    """A map's rules and units, and a battle in which the named units stand there and all others are dead."""
    field = skirmish.field_of(task, **options)
    state, _ = skirmish.reset(field, jax.random.key(0))
    unit, battle = (
        jax.tree.map(lambda v: jnp.asarray(v)[:, None], t) for t in (skirmish.stats(field, state.kind), state.battle)
    )
    for n in range(battle.x.shape[0]):
        x, y = where.get(n, (0.0, 0.0))
        battle = battle._replace(
            x=battle.x.at[n].set(x), y=battle.y.at[n].set(y), hp=battle.hp.at[n].set(45.0 * (n in where))
        )
    return field.rules, unit, battle


@pytest.mark.parametrize("noticed", [True, False])
def test_whom_one_notices_comes_before_whoever_attacks_from_afar(noticed):
    """Also for a script that would like the far one better, since it is the weaker."""
    rules, unit, battle = placed("3m", {0: (16.0, 16.0), 1: (8.0, 16.0), 3: (20.0, 16.0)}, enemy="focus")
    battle = battle._replace(
        hp=battle.hp.at[1].set(5.0).at[0].multiply(float(noticed)),
        order=battle.order.at[1].set(ATTACK),
        target=battle.target.at[1].set(3),
    )
    assert int(targets.aim(rules, unit, battle, jnp.array(False)).target[3, 0]) == (0 if noticed else 1)


@pytest.mark.parametrize("angle", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize(("wish", "turn"), [((-1.0, 0.0), 1), ((-1.0, 0.1), 1), ((-1.0, -0.1), -1), ((0.0, 0.0), 0)])
def test_a_push_is_turned_to_the_side_of_the_wish_whatever_its_direction(angle, wish, turn):
    """The wish is told along the push and to its left. Head-on the turn is to the left, for both of two that meet."""
    way = np.array([np.cos(2 * np.pi * angle), np.sin(2 * np.pi * angle)]) * 0.25
    left_of_way = np.array([-way[1], way[0]])
    rules, unit, battle = placed("3m", {0: (16 - way[0], 16 - way[1]), 1: (16 + way[0], 16 + way[1])})
    wants = (np.round(wish[0] * way + wish[1] * left_of_way, 6)).astype(np.float32)
    wants_x, wants_y = (jnp.zeros_like(battle.x).at[0].set(-v).at[1].set(v) for v in wants)
    x, y = movement.push(rules, unit, battle, jnp.ones(battle.x.shape, bool), (wants_x, wants_y), battle.x, battle.y)
    room, far = 0.75, 0.5
    share = 8 / 3 * room**2 / (room**2 + 3 * far**2) - 2 / 3
    assert share == pytest.approx(room / far - 1, rel=0.05), "which is nearly the overlap"
    for n, sign in ((0, -1), (1, 1)):
        moved = np.array([float((x - battle.x)[n, 0]), float((y - battle.y)[n, 0])])
        along, left = sign * (moved @ way) / 0.25, sign * (moved @ left_of_way) / 0.25
        assert along == pytest.approx(far * share / 2, rel=1e-4), "each takes half of it"
        assert left == pytest.approx(turn * movement.ASIDE * along, rel=1e-2), "of 1e-6 that 16 is known to"
