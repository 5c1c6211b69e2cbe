"""How Skirmish's battles start: SMAC's formations exactly, SMACv2's teams and positions by their distributions."""

import functools
import math

import jax
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from skirmish_cases import BODIES, FIXED, RACES, SIZES, TEAMS, listed, names_of

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import spawns
from grasp.envs.skirmish.maps import find
from grasp.envs.skirmish.unit_stats import NAMES

NUM_DRAWS = 4000


def strips(names: list[str], way: int) -> list[tuple[float, float, float]]:
    """The x of each unit relative to the spawn point, and the lower and upper y of its row. Gaps of empty rows
    count."""
    side = math.ceil(math.sqrt(len(names)))
    rows = [names[k : k + side] for k in range(0, len(names), side)]
    heights = [2 * max(BODIES[name].radius for name in row) for row in rows]
    width = max(sum(2 * BODIES[name].radius for name in row) for row in rows)
    low, found = -(sum(heights) + 0.05 * (side - 1)) / 2, []
    for row, height in zip(rows, heights, strict=True):
        x = -width / 2
        for name in row:
            y = sorted((way * low, way * (low + height)))
            found.append((way * (x + BODIES[name].radius), *y))
            x += 2 * BODIES[name].radius + 0.05
        low += height + 0.05
    return found


def placed(task: str) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    kind, place = spawns.fixed(find(task))
    names, num_allies = names_of(kind), SIZES[task][0]
    return names[:num_allies], names[num_allies:], place[:num_allies], place[num_allies:]


def test_3m_as_measured():
    _, _, allies, enemies = placed("3m")
    expected = [(8.625, 15.6), (8.625, 16.4), (9.425, 15.6)]  # sorted by x, then y
    np.testing.assert_allclose(allies, expected, atol=1e-5)
    np.testing.assert_allclose(enemies, [(23.375, 16.4), (22.575, 16.4), (23.375, 15.6)], atol=1e-5)


@pytest.mark.parametrize("task", FIXED)
def test_teams_stand_in_square_formations_without_overlap(task):
    """Square formations from the lower left for allies, rotated by 180° for enemies, medivacs first, without
    overlap."""
    allies, enemies, ally_places, enemy_places = placed(task)
    teams = [listed(team) for team in TEAMS[task]]
    assert enemies == teams[1]
    assert sorted(allies) == sorted(teams[0])
    for way, x, team, names, places in (
        (1, 9, teams[0], allies, ally_places),
        (-1, 23, teams[1], enemies, enemy_places),
    ):
        left = list(zip(names, (tuple(p) for p in places - np.array([x, 16])), strict=True))
        team = sorted(team, key=lambda name: name != "medivac")
        for name, (x_from, low, high) in zip(team, strips(team, way), strict=True):
            fitting = [p for n, p in left if n == name and abs(p[0] - x_from) < 1e-4 and low < p[1] < high]
            assert len(fitting) == 1, f"{name} should stand at {x_from} between {low} and {high}"
            radius = BODIES[name].radius
            assert low - 1e-4 <= fitting[0][1] - radius <= fitting[0][1] + radius <= high + 1e-4
    for names, places in ((allies, ally_places), (enemies, enemy_places)):
        sizes = np.array([BODIES[name].radius for name in names])
        apart = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) - sizes[:, None] - sizes[None]
        assert (apart[~np.eye(len(names), dtype=bool)] > 0).all()
        assert (places[:, 1] - sizes >= 8).all()
        assert (places[:, 1] + sizes <= 24).all()
    if TEAMS[task][0] == TEAMS[task][1]:
        order = np.lexsort((*np.round(32 - enemy_places, 3).T[::-1], enemies))
        np.testing.assert_allclose(32 - enemy_places[order], ally_places, atol=1e-4)


@pytest.mark.parametrize("task", FIXED)
def test_agents_are_sorted_by_type_then_x_then_y(task):
    allies, _, places, _ = placed(task)
    rows = [(name, *place) for name, place in zip(allies, places.tolist(), strict=True)]
    assert rows == sorted(rows)


def test_agents_of_mmm2():
    allies, enemies, _, _ = placed("MMM2")
    assert allies == ["marauder"] * 2 + ["marine"] * 7 + ["medivac"]
    assert enemies == ["marine"] * 8 + ["marauder"] * 3 + ["medivac"]


def test_jitter_shifts_a_team_as_a_whole():
    env = skirmish.make("3m", start_jitter=0.5)
    state, _ = jax.jit(jax.vmap(env.reset), compiler_options=FAST_COMPILE)(jax.random.split(jax.random.key(0), 500))
    places = np.stack([state.battle.x, state.battle.y], -1)
    shift = places - spawns.fixed(find("3m"))[1]
    np.testing.assert_allclose(shift[:, :3], np.broadcast_to(shift[:, :1], (500, 3, 2)), atol=1e-5)
    np.testing.assert_allclose(shift[:, 3:], np.broadcast_to(shift[:, 3:4], (500, 3, 2)), atol=1e-5)
    teams = shift[:, [0, 3]].reshape(500, 4)
    assert (np.abs(teams) <= 0.5 + 1e-5).all()
    assert (np.abs(teams.mean(0)) < 4 * 0.2887 / np.sqrt(500)).all()
    np.testing.assert_allclose(teams.std(0), 0.2887, atol=0.03)
    assert (np.abs(np.corrcoef(teams.T) - np.eye(4)) < 0.2).all()


def test_jitter_keeps_units_within_the_walls():
    """Also with a large jitter. Medivacs may be anywhere on the map."""
    env = skirmish.make("MMM2", start_jitter=20.0)
    state, _ = jax.jit(jax.vmap(env.reset), compiler_options=FAST_COMPILE)(jax.random.split(jax.random.key(0), 200))
    inner = np.array([BODIES[name].inner for name in names_of(state.kind[0])])
    walks = inner > 0
    x, y = np.asarray(state.battle.x), np.asarray(state.battle.y)
    assert ((x >= inner) & (x <= 32 - inner) & (y >= 0) & (y <= 32)).all()
    assert ((y >= 8 + inner) & (y <= 24 - inner))[:, walks].all()
    assert (y[:, ~walks] < 8).any()


@functools.cache
def drawn(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Many starts: names of types, and positions."""
    keys = jax.random.split(jax.random.key(4), NUM_DRAWS)
    draw = jax.jit(jax.vmap(functools.partial(spawns.generated, find(task))), compiler_options=FAST_COMPILE)
    kind, place = draw(keys)
    return np.array(NAMES)[np.asarray(kind)], np.asarray(place)


@functools.cache
def teams(race: str, num_allies: int, num_enemies: int) -> np.ndarray:
    """The units of many random teams, in the order of the draw."""
    battlefield = find(f"{race}_10_vs_11")
    battlefield = battlefield._replace(
        allies=battlefield.allies[:num_allies], enemies=battlefield.enemies[:num_enemies]
    )
    draw = jax.jit(jax.vmap(functools.partial(spawns.teams, battlefield)), compiler_options=FAST_COMPILE)
    return np.array(NAMES)[np.asarray(draw(jax.random.split(jax.random.key(5), NUM_DRAWS)))]


@functools.cache
def begun(task: str, number: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """The starts of many resets: names of types, and positions."""
    reset = jax.jit(jax.vmap(skirmish.make(task).reset), compiler_options=FAST_COMPILE)
    state, _ = reset(jax.random.split(jax.random.key(6), number))
    return np.array(NAMES)[np.asarray(state.kind)], np.stack([state.battle.x, state.battle.y], -1)


def is_surrounded(place: np.ndarray, num_allies: int) -> np.ndarray:
    """Whether the allies are around the centre, which is very rare for a reflected team."""
    return np.hypot(*(place[:, :num_allies].mean(1) - 16).T) < 0.9


@pytest.mark.parametrize("race", RACES)
def test_teams_are_drawn_by_weight(race):
    """With ten members teams are rejected so rarely that the frequencies are the weights."""
    allies = teams(race, 10, 11)[:, :10]
    for name in RACES[race]:
        p = 0.1 if name in ("medivac", "colossus", "baneling") else 0.45
        fraction, sigma = (allies == name).mean(), np.sqrt(p * (1 - p) / allies.size)
        assert abs(fraction - p) < 4 * sigma, name
    number = (allies == RACES[race][0]).sum(1)
    assert number.var() == pytest.approx(10 * 0.45 * 0.55, rel=0.1), "members are not independent"


@pytest.mark.parametrize("race", RACES)
def test_the_enemy_has_the_allies_team_and_an_eleventh_fighter(race):
    kind = teams(race, 10, 11)
    np.testing.assert_array_equal(kind[:, :10], kind[:, 10:20])
    extra = kind[:, 20]
    odd = {"terran": "medivac", "zerg": "baneling"}.get(race)
    assert odd not in extra
    expected = 0.45 if odd is None else 0.5
    assert abs((extra == RACES[race][0]).mean() - expected) < 4 * np.sqrt(0.25 / NUM_DRAWS)


@pytest.mark.parametrize(("race", "odd"), [("terran", "medivac"), ("zerg", "baneling"), ("protoss", "colossus")])
def test_no_team_has_only_units_that_cannot_be_a_whole_team(race, odd):
    """With one member. For protoss, which have no such type, a tenth of teams is only colossi."""
    kind = teams(race, 1, 1)
    expected = 0.1 if race == "protoss" else 0.0
    fraction = (kind[:, 0] == odd).mean()
    assert abs(fraction - expected) <= 4 * np.sqrt(expected * 0.9 / NUM_DRAWS)
    assert (kind[:, 0] == kind[:, 1]).all()


@pytest.mark.parametrize("task", ["terran_10_vs_11", "zerg_5_vs_5", "zerg_20_vs_20"])
def test_agents_of_random_teams_are_sorted_and_the_enemy_has_their_types(task):
    """By their positions after `movement.settle`, which differ from the drawn ones."""
    kind, place = begun(task)
    num_allies = SIZES[task][0]
    enemies = kind[:, num_allies : 2 * num_allies]
    np.testing.assert_array_equal(np.sort(kind[:, :num_allies]), np.sort(enemies))
    assert (enemies[:, 1:] < enemies[:, :-1]).any(), "the enemies are sorted too"
    for names, places in zip(kind[:, :num_allies].tolist(), place.tolist(), strict=True):
        rows = [(name, *spot) for name, spot in zip(names, places[:num_allies], strict=True)]
        assert rows == sorted(rows)


@pytest.mark.parametrize("task", ["terran_10_vs_11", "terran_20_vs_20", "protoss_20_vs_20", "zerg_20_vs_20"])
def test_starts_have_no_overlaps_and_are_on_the_map(task):
    """Also if a whole group was drawn in a corner, or enemies among the allies."""
    kind, place = begun(task)
    separation = np.vectorize(lambda name: BODIES[name].separation)(kind)
    plane = np.vectorize(lambda name: {"medivac": 1, "colossus": 2}.get(name, 0))(kind)
    inner = np.vectorize(lambda name: BODIES[name].inner)(kind)[..., None]
    assert ((place >= inner) & (place <= 32 - inner)).all()
    apart = np.hypot(*(place[:, :, None] - place[:, None]).transpose(3, 0, 1, 2))
    overlap = separation[:, :, None] + separation[:, None] - apart
    pairs = (plane[:, :, None] == plane[:, None]) & ~np.eye(kind.shape[1], dtype=bool)
    assert overlap[pairs].max() <= 0.1


def test_half_of_the_battles_are_surrounded():
    fraction = is_surrounded(drawn("terran_10_vs_11")[1], 10).mean()
    assert abs(fraction - 0.5) < 4 * np.sqrt(0.25 / NUM_DRAWS)


def test_reflected_starts_are_exact_mirrors_and_uniform():
    kind, place = drawn("terran_10_vs_11")
    reflected = ~is_surrounded(place, 10)
    kind, place = kind[reflected], place[reflected]
    for names, spots in zip(kind[::10].tolist(), place[::10].tolist(), strict=True):
        image = [(name, float(np.float32(32 - x)), y) for name, (x, y) in zip(names[:10], spots[:10], strict=True)]
        enemies = [(name, x, y) for name, (x, y) in zip(names[10:20], spots[10:20], strict=True)]
        assert sorted(image) == sorted(enemies)
    allies, extra = place[:, :10].reshape(-1, 2), place[:, 20]
    spans = ((allies[:, 0], 0, 15), (allies[:, 1], 0, 32), (extra[:, 0], 16, 32), (extra[:, 1], 0, 32))
    for values, low, high in spans:
        fraction = np.histogram(values, 8, (low, high))[0] / len(values)
        assert fraction.sum() == pytest.approx(1.0), f"values outside [{low}, {high}]"
        assert (np.abs(fraction - 1 / 8) < 4.5 * np.sqrt(7 / 64 / len(values))).all()


def test_reflected_starts_are_mirrors_when_the_battle_begins():
    """Also after overlaps were resolved the enemies are at the mirror images of the allies."""
    kind, place = begun("zerg_20_vs_20")
    reflected = ~is_surrounded(place, 20)
    for names, spots in zip(kind[reflected], place[reflected], strict=True):
        image = np.stack([32 - spots[:20, 0], spots[:20, 1]], -1)
        apart = np.hypot(*(image[:, None] - spots[None, 20:]).transpose(2, 0, 1))
        apart[names[:20, None] != names[None, 20:]] = 99.0
        assert apart.min(1).max() < 1e-3
        assert len(set(apart.argmin(1))) == 20


def test_surrounding_groups_are_on_separate_diagonals():
    """Five zerg are within one cell of their group's centre, which is at least two cells from the map's centre on both
    axes, so each quadrant is one group. Members fill the groups in order, and each group is on a diagonal."""
    place = drawn("zerg_5_vs_5")[1]
    away = place[is_surrounded(place, 5), 5:] - 16
    quadrant = (away[..., 0] > 0) * 2 + (away[..., 1] > 0)
    changes = (np.diff(quadrant, axis=1) != 0).sum(1)
    number = np.array([len(set(row)) for row in quadrant])
    np.testing.assert_array_equal(changes, number - 1)
    for k in range(1, 5):
        onto = sum((-1) ** (k - j) * math.comb(k, j) * j**5 for j in range(k + 1))
        p = sum(math.comb(g, k) * onto / g**5 for g in range(k, 5)) / 4
        assert abs((number == k).mean() - p) < 4 * np.sqrt(p * (1 - p) / len(number)), f"{k} groups"
    alone = quadrant[number == 1, 0]
    np.testing.assert_allclose([(alone == q).mean() for q in range(4)], 0.25, atol=4 * np.sqrt(0.1875 / len(alone)))
    out = np.abs(away[:, 0])  # the first member of the first group is at its centre
    inside = out.max(1) < 14
    np.testing.assert_allclose(out[inside, 0], out[inside, 1], atol=0.6)
    fraction = np.histogram(out.mean(1), 7, (2, 16))[0] / len(out)
    assert (np.abs(fraction[1:-1] - 1 / 7) < 4.5 * np.sqrt(6 / 49 / len(out))).all()
