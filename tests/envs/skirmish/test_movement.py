"""How Skirmish's units move: orders, marches, collisions and walls."""

import jax.numpy as jnp
import numpy as np
import pytest
from skirmish_cases import BODIES, FOE, TARGETS, WEAPONS, Put, placed_on_map, play

from grasp.envs.skirmish import movement
from grasp.envs.skirmish.state import ATTACK, MOVE, SCRIPT, Battle


def far(story: Battle, n: int, m: int, b: int) -> np.ndarray:
    return np.hypot(story.x[:, n, b] - story.x[:, m, b], story.y[:, n, b] - story.y[:, m, b])


def test_a_move_order_goes_two_cells_and_stops():
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


def test_stopped_and_dead_units_do_not_shoot():
    """No damage by units in reach that stand, walk past or are dead."""
    idle = [Put("marine", 16, 16), Put("medivac", 16, 14), Put("marine", 12, 12, MOVE, goal=(18, 12))]
    battles = [(idle, [Put("marine", 17, 16), Put("zealot", 15, 12)])]
    battles += [([Put("marine", 16, 16, ATTACK, FOE, hp=0.0)], [Put("marine", 17, 16, SCRIPT, hp=0.0)])]
    battles += [([Put("marine", 16, 16, ATTACK, FOE, hp=0.0)], [Put("marine", 17, 16)])]
    story = play(battles, 6)
    assert (story.hp == story.hp[:1]).all()
    assert (story.shield == story.shield[:1]).all()
    assert (story.cooldown == 0).all()
    assert story.x[-1, 0, 1] == 16


def test_an_attacker_pursues_until_its_target_is_in_reach():
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


def test_units_that_meet_head_on_pass_each_other():
    battles = [([Put("marine", 10, 16, MOVE, goal=(20, 16))], [Put("marine", 20, 16, MOVE, goal=(10, 16))])]
    battles += [([Put("marine", 10, 16, MOVE, goal=(20, 16)), Put("marine", 15, 16)], [])]
    story = play(battles, 14)
    np.testing.assert_allclose(story.x[-1, 0, :2], 20, atol=0.1)
    assert story.x[-1, FOE, 0] == pytest.approx(10, abs=0.1)


def overlap(story: Battle, names: list[str], places: list[int], b: int) -> float:
    """The largest overlap at the end."""
    worst = 0.0
    for k, n in enumerate(places):
        for j, m in enumerate(places[:k]):
            room = BODIES[names[k]].separation + BODIES[names[j]].separation
            worst = max(worst, room - far(story, n, m, b)[-1])
    return worst


def test_standing_units_are_pushed_apart():
    """In groups of three at most 0.1 of overlap remains after 16 loops."""
    rng = np.random.default_rng(0)
    heaps = [list(rng.choice(["marine", "zealot", "zergling", "stalker"], 3)) for _ in range(8)]
    heaps += [["medivac"] * 2, ["marine"] * 2]
    battles = [([Put(str(name), *(16 + rng.uniform(-0.3, 0.3, 2))) for name in heap], []) for heap in heaps]
    story = play(battles, 2)
    for b, heap in enumerate(heaps):
        assert overlap(story, [str(name) for name in heap], list(range(len(heap))), b) <= 0.1, heap


def test_units_at_one_position_separate():
    story = play([([Put("marine", 16, 16)], [Put("marine", 16, 16)])], 2)
    assert far(story, 0, FOE, 0)[-1] > 0.65


def test_six_zealots_around_one_all_reach_it():
    angles = np.arange(6) * np.pi / 5
    ring = [Put("zealot", 16 + 3 * np.cos(a), 16 + 3 * np.sin(a), ATTACK, FOE) for a in angles]
    story = play([(ring, [Put("zealot", 16, 16)])], 4)
    gaps = np.array([far(story, n, FOE, 0)[-1] for n in range(6)])
    assert (gaps <= 1.1 + 1e-3).all(), gaps


def test_walking_units_keep_an_extra_distance():
    """Zealots: 0.75 between standing units, and 0.0625 more, half of radius minus separation, for a walking one."""
    walker = Put("zealot", 14.5, 16.3, MOVE, goal=(17.5, 16.3))
    battles = [([walker, Put("zealot", 16, 16)], []), ([Put("zealot", 16, 16), Put("zealot", 16.76, 16)], [])]
    story = play(battles, 3)
    nearest = min(far(story, 0, 1, 0)[1:])
    assert nearest >= 0.8125 - 0.02, nearest
    assert story.x[-1, 0, 0] > 16.5
    assert far(story, 0, 1, 1)[-1] == pytest.approx(0.76, abs=1e-5)


def test_columns_of_marines_pass_through_each_other():
    """Two columns of five, almost on one line, exchange positions in little more than the unobstructed time."""
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


def test_colossi_and_medivacs_pass_over_other_units():
    wall = [Put("marine", 16, 14 + 0.76 * k) for k in range(6)]
    walkers = ["colossus", "medivac", "zealot"]
    story = play([([Put(name, 14.5, 16, MOVE, goal=(18.5, 16))], wall) for name in walkers], 4)
    x = [14.5 + min(4.0, 4 * BODIES[name].speed / 2) for name in walkers[:2]]
    np.testing.assert_allclose(story.x[-1, 0, :2], x, atol=1e-3)
    assert (story.x[-1, FOE:, :2] == 16).all()
    assert story.x[-1, 0, 2] < 18.4


def test_units_stay_within_the_walls_and_the_map():
    """Groups of all types ordered into every corner; flying units may pass the walls but not the edges of the map."""
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


def test_medivacs_march_no_faster_than_the_slowest_living_fighter_of_their_side():
    """Marines walk 1.125 per step; a medivac alone, beside dead units or with stalkers flies its own 1.25."""
    slow, fast, allies = Put("marine", 20, 20, SCRIPT), Put("stalker", 20, 20, SCRIPT), [Put("marine", 3, 9)]
    companies = [[slow], [fast], [slow, fast._replace(y=12)], [], [slow._replace(hp=0.0)], [fast]]
    battles = [(allies * (k == 5), [Put("medivac", 20, 16, SCRIPT), *team]) for k, team in enumerate(companies)]
    story = play(battles, 1)
    gone = 20 - story.x[1, FOE, : len(battles)]
    np.testing.assert_allclose(gone, [1.125, 1.25, 1.125, 1.25, 1.25, 1.25], atol=1e-4)


def test_marching_units_stop_half_a_cell_before_the_point():
    """In loops of 0.140625 cells: two from a distance of 0.7, none from 0.45."""
    story = play([([], [Put("marine", 9 + far, 16, SCRIPT)]) for far in (0.7, 0.45)], 2)
    np.testing.assert_allclose(story.x[1:, FOE, :2], [[9.7 - 2 * 0.140625, 9.45]] * 2, atol=1e-4)


@pytest.mark.parametrize("angle", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize(("wish", "turn"), [((-1.0, 0.0), 1), ((-1.0, 0.1), 1), ((-1.0, -0.1), -1), ((0.0, 0.0), 0)])
def test_a_push_is_turned_to_the_side_of_the_wish_in_all_directions(angle, wish, turn):
    """The components of the wish are along the push and to its left. Head-on, both units turn to the left."""
    way = np.array([np.cos(2 * np.pi * angle), np.sin(2 * np.pi * angle)]) * 0.25
    left_of_way = np.array([-way[1], way[0]])
    rules, unit, battle = placed_on_map("3m", {0: (16 - way[0], 16 - way[1]), 1: (16 + way[0], 16 + way[1])})
    wants = (np.round(wish[0] * way + wish[1] * left_of_way, 6)).astype(np.float32)
    wants_x, wants_y = (jnp.zeros_like(battle.x).at[0].set(-v).at[1].set(v) for v in wants)
    x, y = movement.push(rules, unit, battle, jnp.ones(battle.x.shape, bool), (wants_x, wants_y), battle.x, battle.y)
    room, far = 0.75, 0.5
    fraction = 8 / 3 * room**2 / (room**2 + 3 * far**2) - 2 / 3
    assert fraction == pytest.approx(room / far - 1, rel=0.05), "the approximation of the relative overlap"
    for n, sign in ((0, -1), (1, 1)):
        moved = np.array([float((x - battle.x)[n, 0]), float((y - battle.y)[n, 0])])
        along, left = sign * (moved @ way) / 0.25, sign * (moved @ left_of_way) / 0.25
        assert along == pytest.approx(far * fraction / 2, rel=1e-4), "each unit moves half of it"
        assert left == pytest.approx(turn * movement.ASIDE * along, rel=1e-2), "limited by float32 at positions near 16"
