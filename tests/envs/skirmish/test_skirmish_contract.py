"""Skirmish's contract: sizes, masks, observations, state, rewards and ends, against an oracle with loops over units."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from jax.typing import ArrayLike

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import observation, spawns
from grasp.envs.skirmish import smacv2_visibility as sight
from grasp.envs.skirmish.maps import find
from grasp.envs.skirmish.state import STOP, Battle
from grasp.envs.skirmish.unit_stats import NAMES
from grasp.types import GraspError

NUM_BATTLES = 200
DEFAULT, CLEAN = skirmish.Options(), skirmish.Options(exact_quirks=False)


class Fact(NamedTuple):
    """What the benchmark knows of a type."""

    hp: float
    shield: float
    sight: float
    shoots: float
    """SMACv2's range of the mask."""
    normaliser: float


FACTS = {
    "marine": Fact(45, 0, 9, 5, 15),
    "marauder": Fact(125, 0, 10, 6, 25),
    "medivac": Fact(150, 0, 11, 4, 200),
    "stalker": Fact(80, 80, 10, 6, 35),
    "zealot": Fact(100, 50, 9, 2, 22),
    "colossus": Fact(200, 150, 10, 7, 24),
    "zergling": Fact(35, 0, 8, 2, 11),
    "baneling": Fact(30, 0, 8, 2, 1),
    "hydralisk": Fact(80, 0, 9, 5, 10),
}
RACES = {
    "terran": ("marine", "marauder", "medivac"),
    "protoss": ("stalker", "zealot", "colossus"),
    "zerg": ("zergling", "hydralisk", "baneling"),
}
"""In the order of their bits."""
# agents, enemies, obs, state, actions, limit, and the reward of a win before scaling (0: by the teams)
SIZES = {
    "3m": (3, 3, 30, 48, 9, 60, 365),
    "8m": (8, 8, 80, 168, 14, 120, 640),
    "5m_vs_6m": (5, 6, 55, 98, 12, 70, 530),
    "8m_vs_9m": (8, 9, 85, 179, 15, 120, 695),
    "10m_vs_11m": (10, 11, 105, 243, 17, 150, 805),
    "27m_vs_30m": (27, 30, 285, 1170, 36, 180, 1850),
    "2s3z": (5, 5, 80, 120, 11, 120, 1020),
    "3s5z": (8, 8, 128, 216, 14, 150, 1510),
    "3s5z_vs_3s6z": (8, 9, 136, 230, 15, 170, 1670),
    "MMM": (10, 10, 160, 290, 16, 150, 1015),
    "MMM2": (10, 12, 176, 322, 18, 180, 1205),
} | {
    f"{race}_{size}": (*counts, *(sizes[1] if race == "protoss" else sizes[0]), counts[1] + 6, 200, 0)
    for size, counts, sizes in (
        ("5_vs_5", (5, 5), ((82, 120), (92, 130))),
        ("10_vs_10", (10, 10), ((162, 290), (182, 310))),
        ("10_vs_11", (10, 11), ((170, 306), (191, 327))),
        ("20_vs_20", (20, 20), ((322, 780), (362, 820))),
    )
    for race in RACES
}
FIXED = [task for task, sizes in SIZES.items() if sizes[-1]]


@functools.cache
def field_of(task: str, options: skirmish.Options = DEFAULT, size: tuple[int, int] | None = None):
    """Everything fixed about a map, or about a smaller one of its kind."""
    battlefield = find(task)
    if size:
        battlefield = battlefield._replace(allies=battlefield.allies[: size[0]], enemies=battlefield.enemies[: size[1]])
    rules = skirmish.rules_of(battlefield, options)
    codes = observation.codes(battlefield)
    return skirmish.Field(rules, battlefield, codes, options, skirmish.over_copies(rules))


def names_of(kind) -> list[str]:
    return [NAMES[k] for k in kind]


def full_hp(name: str, is_enemy: bool) -> float:
    return 90.0 if is_enemy and name == "hydralisk" else FACTS[name].hp


def battle_of(x, y, hp, shield: ArrayLike = 0, energy: ArrayLike = 0, cooldown: ArrayLike = 0) -> Battle:
    """A battle in which everybody stands and has no target."""
    x, y, hp = (jnp.asarray(v, jnp.float32) for v in (x, y, hp))
    shield, energy, cooldown = (
        jnp.broadcast_to(jnp.asarray(v, jnp.float32), x.shape) for v in (shield, energy, cooldown)
    )
    fresh = jax.tree.map(lambda v: jnp.zeros(x.shape, v.dtype), fresh_battle())
    nobody = jnp.full(x.shape, -1, jnp.int32)
    return fresh._replace(
        x=x, y=y, hp=hp, shield=shield, energy=energy, cooldown=cooldown, order=jnp.full(x.shape, STOP, jnp.int32),
        target=nobody, healing=nobody,
    )  # fmt: skip


@functools.cache
def fresh_battle() -> Battle:
    """What a battle is made of."""
    return jax.eval_shape(functools.partial(skirmish.reset, field_of("3m")), jax.random.key(0))[0].battle


def random_places(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Crowds with edges and exact distances among them."""
    places = np.clip(rng.uniform(2, 30, (shape[0], 1)) + rng.normal(0, 4.5, shape), 0, 32)
    places[::2] = np.round(places[::2] * 2) / 2
    edges = rng.choice([0, 0.4, 1, 7.9, 8.5, 9, 22.9, 23, 23.9, 30.9, 31, 31.2, 32], shape)
    return np.where(rng.random(shape) < 0.2, edges, places).astype(np.float32)


@functools.cache
def random_states(task: str) -> skirmish.State:
    """Many battles of a map in the middle of anything."""
    rng = np.random.default_rng(sum(task.encode()))
    field, num_allies, num_enemies = field_of(task), *SIZES[task][:2]
    shape = (NUM_BATTLES, num_allies + num_enemies)
    if field.battlefield.drawn:
        kind = rng.choice([NAMES.index(name) for name in RACES[task.split("_")[0]]], shape)
    else:
        kind = np.broadcast_to(spawns.fixed(field.battlefield)[0], shape)
    names = [[NAMES[k] for k in row] for row in kind]
    most = np.array([[full_hp(name, n >= num_allies) for n, name in enumerate(row)] for row in names])
    shield = np.array([[FACTS[name].shield for name in row] for row in names])
    scale = np.array([[FACTS[name].normaliser for name in row] for row in names])
    share = np.where(rng.random(shape) < 0.3, 1.0, rng.uniform(0.01, 1, shape))
    values = (
        most * share * (rng.random(shape) < 0.8),
        shield * rng.uniform(0, 1, shape),
        rng.uniform(0, 200, shape),
        scale * rng.uniform(0, 1.5, shape),
    )
    battle = battle_of(random_places(rng, shape), random_places(rng, shape), *(v.astype(np.float32) for v in values))
    holder = rng.integers(0, num_allies, (NUM_BATTLES, num_enemies))
    holder = np.where(rng.random(holder.shape) < 0.7, holder, sight.NOBODY)
    action = rng.integers(-1, num_enemies + 6, (NUM_BATTLES, num_allies))
    time = jnp.zeros(NUM_BATTLES, jnp.int32)
    ints = (jnp.asarray(v, jnp.int32) for v in (kind, action, holder))
    kind, action, holder = ints
    return skirmish.State(battle, kind, action, holder, time)


@functools.cache
def shown_of(task: str, options: skirmish.Options = DEFAULT):
    """What those battles look like: (states after looking, observations)."""
    field = field_of(task, options)

    def show(state: skirmish.State, key: jax.Array):
        return skirmish.seen(field, skirmish.stats(field, state.kind), state, key)

    keys = jax.random.split(jax.random.key(1), NUM_BATTLES)
    show_all = jax.jit(jax.vmap(show), compiler_options=FAST_COMPILE)
    return jax.tree.map(np.asarray, show_all(random_states(task), keys))


class Scene(NamedTuple):
    """One battle as the oracle sees it."""

    drawn: bool
    num_allies: int
    names: list[str]
    battle: Battle
    coded: tuple[tuple[str, ...], ...]

    def far(self, n: int, m: int):
        dx, dy = self.battle.x[m] - self.battle.x[n], self.battle.y[m] - self.battle.y[n]
        return np.sqrt(dx * dx + dy * dy)

    def alive(self, n: int) -> bool:
        return bool(self.battle.hp[n] > 0)

    def sight(self, n: int) -> float:
        return FACTS[self.names[n]].sight if self.drawn else 9.0

    def bits(self, n: int) -> list[float]:
        return [float(self.names[n] == name) for name in self.coded[n >= self.num_allies]]

    def vitals(self, n: int) -> list:
        health = [self.battle.hp[n] / full_hp(self.names[n], n >= self.num_allies)]
        return health + ([self.battle.shield[n] / FACTS[self.names[n]].shield] if self.has_shields else [])

    @property
    def has_shields(self) -> bool:
        return bool({"stalker", "zealot", "colossus"} & set(self.names))


def scene_of(task: str, state: skirmish.State) -> Scene:
    names, prefix = names_of(state.kind), task.split("_")[0]
    if prefix in RACES:
        coded = (RACES[prefix],) * 2
    elif task.startswith("MMM"):
        coded = (("marauder", "marine", "medivac"),) * 2
    else:
        coded = ((), ()) if "m" in task else (("stalker", "zealot"), ("zealot", "stalker"))
    return Scene(prefix in RACES, SIZES[task][0], names, state.battle, coded)


def scenes(task: str) -> list[Scene]:
    states = jax.tree.map(np.asarray, random_states(task))
    return [scene_of(task, jax.tree.map(lambda v, b=b: v[b], states)) for b in range(NUM_BATTLES)]


def is_walkable(scene: Scene, x: float, y: float) -> bool:
    column, line = int(x), int(y)
    low, high = (0, 31) if scene.drawn else (8, 23)
    return 0 <= column <= 31 and low <= line <= high


def legal_actions(scene: Scene, n: int) -> list[bool]:
    num_units = len(scene.names)
    num_enemies = num_units - scene.num_allies
    if not scene.alive(n):
        return [True] + [False] * (num_enemies + 5)
    x, y = float(scene.battle.x[n]), float(scene.battle.y[n])
    moves = [is_walkable(scene, x + dx, y + dy) for dx, dy in ((0, 1), (0, -1), (1, 0), (-1, 0))]
    reach = FACTS[scene.names[n]].shoots if scene.drawn else 6.0
    targets = [False] * num_enemies
    for e in range(num_enemies):
        m = scene.num_allies + e
        if scene.names[n] == "medivac":
            m = e if e < scene.num_allies and scene.names[e] != "medivac" else n
        if m != n:
            targets[e] = scene.alive(m) and bool(scene.far(n, m) <= reach)
    return [False, True, *moves, *targets]


def seen_row(scene: Scene, n: int, m: int, first: float) -> list:
    """Unit m in the eyes of agent n."""
    far, sees = scene.far(n, m), scene.sight(n)
    vitals, bits = scene.vitals(m), scene.bits(m)
    if not (scene.alive(m) and far < sees):
        return [0.0] * (4 + len(vitals) + len(bits))
    dx, dy = scene.battle.x[m] - scene.battle.x[n], scene.battle.y[m] - scene.battle.y[n]
    return [first, far / sees, dx / sees, dy / sees, *vitals, *bits]


def observed(scene: Scene, n: int, hidden: frozenset[int] = frozenset(), exact_quirks: bool = True) -> np.ndarray:
    """The observation of agent n; `hidden` are enemies whose rows are wiped. By a quirk a medivac's row of enemy e
    begins with whether it may heal ally e."""
    legal, num_allies = legal_actions(scene, n), scene.num_allies
    parts: list[list] = [[float(bit) for bit in legal[2:6]]]
    for e in range(len(scene.names) - num_allies):
        may = legal[6 + e] and (exact_quirks or scene.names[n] != "medivac")
        row = seen_row(scene, n, num_allies + e, float(may))
        parts.append([0.0] * len(row) if e in hidden else row)
    parts += [seen_row(scene, n, m, 1.0) for m in range(num_allies) if m != n]
    place = [scene.battle.x[n] / 32, scene.battle.y[n] / 32] if scene.drawn else []
    parts.append([*scene.vitals(n), *place, *scene.bits(n)])
    return np.concatenate(parts) * scene.alive(n)


def state_vector(scene: Scene, action) -> np.ndarray:
    """The global state after these last actions."""
    rows = []
    for n, name in enumerate(scene.names):
        ready = scene.battle.energy[n] if name == "medivac" else scene.battle.cooldown[n]
        ready = [ready / FACTS[name].normaliser] if n < scene.num_allies else []
        place = [(scene.battle.x[n] - 16) / 32, (scene.battle.y[n] - 16) / 32]
        health, *shield = scene.vitals(n)
        rows.append(np.array([health, *ready, *place, *shield, *scene.bits(n)]) * scene.alive(n))
    num_actions = len(scene.names) - scene.num_allies + 6
    rows += [[float(a == chosen) for a in range(num_actions)] for chosen in action]
    return np.concatenate(rows)


MAPS = ["3m", "2s3z", "3s5z_vs_3s6z", "MMM2", "terran_5_vs_5", "protoss_5_vs_5", "zerg_5_vs_5"]
DRAWN = MAPS[4:]


def test_every_map_has_the_benchmarks_sizes():
    assert set(skirmish.names()) == set(SIZES)
    for task, (num_agents, num_enemies, obs_dim, state_dim, num_actions, limit, _) in SIZES.items():
        spec = skirmish.make(task).spec
        found = (spec.num_agents, spec.obs_dim, spec.state_dim, spec.num_actions, spec.horizon)
        assert found == (num_agents, obs_dim, state_dim, num_actions, limit), task
        assert (spec.name, spec.has_wins, num_actions) == (f"skirmish/{task}", True, num_enemies + 6)


def test_an_unknown_map_is_named_with_the_known_ones():
    with pytest.raises(GraspError, match=r"'3mm'.*3m"):
        skirmish.make("3mm")


@pytest.mark.parametrize("task", MAPS)
def test_masks(task):
    _, shown = shown_of(task)
    for b, scene in enumerate(scenes(task)):
        expected = [legal_actions(scene, n) for n in range(scene.num_allies)]
        np.testing.assert_array_equal(shown.avail[b], expected, err_msg=f"battle {b}")
        assert shown.alive[b].tolist() == [scene.alive(n) for n in range(scene.num_allies)]


WITHOUT_THE_BOOK = [(task, CLEAN) for task in MAPS] + [(task, DEFAULT) for task in MAPS if task not in DRAWN]


@pytest.mark.parametrize(("task", "options"), WITHOUT_THE_BOOK)
def test_observations_without_the_book(task, options):
    _, shown = shown_of(task, options)
    for b, scene in enumerate(scenes(task)):
        expected = [observed(scene, n, exact_quirks=options.exact_quirks) for n in range(scene.num_allies)]
        np.testing.assert_allclose(shown.obs[b], expected, rtol=0, atol=1e-6, err_msg=f"battle {b}")


@pytest.mark.parametrize("task", MAPS)
def test_states(task):
    _, shown = shown_of(task)
    action = np.asarray(random_states(task).last_action)
    for b, scene in enumerate(scenes(task)):
        expected = state_vector(scene, action[b])
        np.testing.assert_allclose(shown.state[b], expected, rtol=0, atol=1e-6, err_msg=f"battle {b}")


def agent_state(scene: Scene, n: int, action) -> np.ndarray:
    """Agent n's own state: the team's, who it is, its moves, and how it stands to every unit."""
    legal, sees = legal_actions(scene, n), scene.sight(n)
    parts: list = [state_vector(scene, action), [float(m == n) for m in range(scene.num_allies)], legal[2:6]]
    for m in range(len(scene.names)):
        aimed = m if scene.names[n] == "medivac" else m - scene.num_allies
        may = (
            0 <= aimed < len(legal) - 6 and legal[6 + aimed] and (m < scene.num_allies) == (scene.names[n] == "medivac")
        )
        dx, dy = scene.battle.x[m] - scene.battle.x[n], scene.battle.y[m] - scene.battle.y[n]
        row = [float(may), scene.far(n, m) / sees, dx / sees, dy / sees]
        parts.append(row if scene.alive(n) and scene.alive(m) else [0.0] * 4)
    return np.concatenate(parts)


@pytest.mark.parametrize("task", ["3m", "MMM2", "terran_5_vs_5", "protoss_5_vs_5"])
def test_agents_states_of_their_own(task):
    _, shown = shown_of(task, skirmish.Options(state="agent"))
    spec = skirmish.make(task, state="agent").spec
    assert spec.agent_states
    assert shown.state.shape[1:] == (spec.num_agents, spec.state_dim)
    action = np.asarray(random_states(task).last_action)
    for b, scene in enumerate(scenes(task)):
        expected = [agent_state(scene, n, action[b]) for n in range(scene.num_allies)]
        np.testing.assert_allclose(shown.state[b], expected, rtol=0, atol=1e-6, err_msg=f"battle {b}")


def test_moves_at_the_edges_as_measured():
    """Truncation towards zero: the low edges of the map are permissive, those of the band are not."""
    flat, band = field_of("terran_5_vs_5"), field_of("3m")
    places = np.array([[0.4, 0.4], [31.2, 31.2], [0.0, 31.0], [31.0, 0.0], [16.0, 16.0]])
    legal = observation.walkable(flat.rules, jnp.asarray(places[:, 0]), jnp.asarray(places[:, 1]))
    north, south, east, west = np.asarray(legal).T.tolist()
    assert north == [True, False, False, True, True]
    assert south == [True, True, True, False, True]
    assert east == [True, False, True, False, True]
    assert west == [True, True, False, True, True]
    y = jnp.array([8.5, 8.99, 9.0, 22.99, 23.0, 23.5])
    north, south, _, _ = np.asarray(observation.walkable(band.rules, jnp.full(6, 16.0), y)).T.tolist()
    assert north == [True, True, True, True, False, False]
    assert south == [False, False, True, True, True, True]
