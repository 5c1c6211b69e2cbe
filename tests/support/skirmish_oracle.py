"""Random Skirmish battles, with the benchmark's masks, observations and states computed by loops over units."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from env_contract import FAST_COMPILE
from skirmish_cases import DEFAULT, FACTS, RACES, SIZES, battle_of, full_hp, names_of, scenario_of

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import smacv2_visibility, spawns
from grasp.envs.skirmish.state import Battle
from grasp.envs.skirmish.unit_stats import NAMES

NUM_BATTLES = 200


CLEAN = skirmish.Options(exact_quirks=False)


MAPS = ["3m", "2s3z", "3s5z_vs_3s6z", "MMM2", "terran_5_vs_5", "protoss_5_vs_5", "zerg_5_vs_5"]


DRAWN = MAPS[4:]


def random_places(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Coordinates of crowds, with edges of the map and exact distances among them."""
    places = np.clip(rng.uniform(2, 30, (shape[0], 1)) + rng.normal(0, 4.5, shape), 0, 32)
    places[::2] = np.round(places[::2] * 2) / 2
    edges = rng.choice([0, 0.4, 1, 7.9, 8.5, 9, 22.9, 23, 23.9, 30.9, 31, 31.2, 32], shape)
    return np.where(rng.random(shape) < 0.2, edges, places).astype(np.float32)


@functools.cache
def random_states(task: str) -> skirmish.State:
    """Many random states of a map's battles."""
    rng = np.random.default_rng(sum(task.encode()))
    scenario, num_allies, num_enemies = scenario_of(task), *SIZES[task][:2]
    shape = (NUM_BATTLES, num_allies + num_enemies)
    if scenario.battlefield.generated:
        kind = rng.choice([NAMES.index(name) for name in RACES[task.split("_")[0]]], shape)
    else:
        kind = np.broadcast_to(spawns.fixed(scenario.battlefield)[0], shape)
    names = [[NAMES[k] for k in row] for row in kind]
    most = np.array([[full_hp(name, n >= num_allies) for n, name in enumerate(row)] for row in names])
    shield = np.array([[FACTS[name].shield for name in row] for row in names])
    scale = np.array([[FACTS[name].normaliser for name in row] for row in names])
    fraction = np.where(rng.random(shape) < 0.3, 1.0, rng.uniform(0.01, 1, shape))
    values = (
        most * fraction * (rng.random(shape) < 0.8),
        shield * rng.uniform(0, 1, shape),
        rng.uniform(0, 200, shape),
        scale * rng.uniform(0, 1.5, shape),
    )
    battle = battle_of(random_places(rng, shape), random_places(rng, shape), *(v.astype(np.float32) for v in values))
    holder = rng.integers(0, num_allies, (NUM_BATTLES, num_enemies))
    holder = np.where(rng.random(holder.shape) < 0.7, holder, smacv2_visibility.UNKNOWN)
    action = rng.integers(-1, num_enemies + 6, (NUM_BATTLES, num_allies))
    time = jnp.zeros(NUM_BATTLES, jnp.int32)
    ints = (jnp.asarray(v, jnp.int32) for v in (kind, action, holder))
    kind, action, holder = ints
    return skirmish.State(battle, kind, action, holder, time)


@functools.cache
def shown_of(task: str, options: skirmish.Options = DEFAULT):
    """(states after observing, observations) of `random_states`."""
    scenario = scenario_of(task, options)

    def show(state: skirmish.State, key: jax.Array):
        return skirmish.seen(scenario, skirmish.stats(scenario, state.kind), state, key)

    keys = jax.random.split(jax.random.key(1), NUM_BATTLES)
    show_all = jax.jit(jax.vmap(show), compiler_options=FAST_COMPILE)
    return jax.tree.map(np.asarray, show_all(random_states(task), keys))


class View(NamedTuple):
    """One battle, for the oracle."""

    generated: bool
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
        return FACTS[self.names[n]].sight if self.generated else 9.0

    def bits(self, n: int) -> list[float]:
        return [float(self.names[n] == name) for name in self.coded[n >= self.num_allies]]

    def vitals(self, n: int) -> list:
        health = [self.battle.hp[n] / full_hp(self.names[n], n >= self.num_allies)]
        return health + ([self.battle.shield[n] / FACTS[self.names[n]].shield] if self.has_shields else [])

    @property
    def has_shields(self) -> bool:
        return bool({"stalker", "zealot", "colossus"} & set(self.names))


def view_of(task: str, state: skirmish.State) -> View:
    names, prefix = names_of(state.kind), task.split("_")[0]
    if prefix in RACES:
        coded = (RACES[prefix],) * 2
    elif task.startswith("MMM"):
        coded = (("marauder", "marine", "medivac"),) * 2
    else:
        coded = ((), ()) if "m" in task else (("stalker", "zealot"), ("zealot", "stalker"))
    return View(prefix in RACES, SIZES[task][0], names, state.battle, coded)


def views(task: str) -> list[View]:
    states = jax.tree.map(np.asarray, random_states(task))
    return [view_of(task, jax.tree.map(lambda v, b=b: v[b], states)) for b in range(NUM_BATTLES)]


def is_walkable(view: View, x: float, y: float) -> bool:
    column, line = int(x), int(y)
    low, high = (0, 31) if view.generated else (8, 23)
    return 0 <= column <= 31 and low <= line <= high


def legal_actions(view: View, n: int) -> list[bool]:
    num_units = len(view.names)
    num_enemies = num_units - view.num_allies
    if not view.alive(n):
        return [True] + [False] * (num_enemies + 5)
    x, y = float(view.battle.x[n]), float(view.battle.y[n])
    moves = [is_walkable(view, x + dx, y + dy) for dx, dy in ((0, 1), (0, -1), (1, 0), (-1, 0))]
    reach = FACTS[view.names[n]].shoots if view.generated else 6.0
    targets = [False] * num_enemies
    for e in range(num_enemies):
        m = view.num_allies + e
        if view.names[n] == "medivac":
            m = e if e < view.num_allies and view.names[e] != "medivac" else n
        if m != n:
            targets[e] = view.alive(m) and bool(view.far(n, m) <= reach)
    return [False, True, *moves, *targets]


def seen_row(view: View, n: int, m: int, first: float) -> list:
    """The row of unit m in the observation of agent n."""
    far, sees = view.far(n, m), view.sight(n)
    vitals, bits = view.vitals(m), view.bits(m)
    if not (view.alive(m) and far < sees):
        return [0.0] * (4 + len(vitals) + len(bits))
    dx, dy = view.battle.x[m] - view.battle.x[n], view.battle.y[m] - view.battle.y[n]
    return [first, far / sees, dx / sees, dy / sees, *vitals, *bits]


def observed(view: View, n: int, hidden: frozenset[int] = frozenset(), exact_quirks: bool = True) -> np.ndarray:
    """The observation of agent n, without the rows of `hidden` enemies. With `exact_quirks` a medivac's row of enemy e
    starts with whether ally e can be healed."""
    legal, num_allies = legal_actions(view, n), view.num_allies
    parts: list[list] = [[float(bit) for bit in legal[2:6]]]
    for e in range(len(view.names) - num_allies):
        may = legal[6 + e] and (exact_quirks or view.names[n] != "medivac")
        row = seen_row(view, n, num_allies + e, float(may))
        parts.append([0.0] * len(row) if e in hidden else row)
    parts += [seen_row(view, n, m, 1.0) for m in range(num_allies) if m != n]
    place = [view.battle.x[n] / 32, view.battle.y[n] / 32] if view.generated else []
    parts.append([*view.vitals(n), *place, *view.bits(n)])
    return np.concatenate(parts) * view.alive(n)


def state_vector(view: View, action) -> np.ndarray:
    """The global state with these last actions."""
    rows = []
    for n, name in enumerate(view.names):
        ready = view.battle.energy[n] if name == "medivac" else view.battle.cooldown[n]
        ready = [ready / FACTS[name].normaliser] if n < view.num_allies else []
        place = [(view.battle.x[n] - 16) / 32, (view.battle.y[n] - 16) / 32]
        health, *shield = view.vitals(n)
        rows.append(np.array([health, *ready, *place, *shield, *view.bits(n)]) * view.alive(n))
    num_actions = len(view.names) - view.num_allies + 6
    rows += [[float(a == chosen) for a in range(num_actions)] for chosen in action]
    return np.concatenate(rows)
