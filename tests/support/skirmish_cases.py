"""The facts of Skirmish's specification (units, maps), and battles placed by hand and played in a small arena."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from env_contract import FAST_COMPILE
from jax.typing import ArrayLike

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import game_loop, observation
from grasp.envs.skirmish.maps import Map, find
from grasp.envs.skirmish.state import STOP, Battle, Rules
from grasp.envs.skirmish.unit_stats import NAMES, Profile, Unit, table


class Fact(NamedTuple):
    """The benchmark's numbers of a type."""

    hp: float
    shield: float
    sight: float
    shoots: float
    """The range of legal attacks in SMACv2."""
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


class Weapon(NamedTuple):
    damage: float
    hits: int
    light: float
    armoured: float
    period: float
    reach: float
    air: bool


class Body(NamedTuple):
    armour: float
    attributes: str
    speed: float
    """Cells per second."""
    radius: float
    separation: float
    inner: float


WEAPONS = {
    "marine": Weapon(6, 1, 0, 0, 13.773, 5, True),
    "marauder": Weapon(10, 1, 0, 10, 24, 6, False),
    "stalker": Weapon(13, 1, 0, 5, 29.922, 6, True),
    "zealot": Weapon(8, 2, 0, 0, 19.2, 0.1, False),
    "colossus": Weapon(10, 2, 5, 0, 24, 7, False),
    "zergling": Weapon(5, 1, 0, 0, 11.137, 0.1, False),
    "baneling": Weapon(20, 1, 15, 0, 0, 0.25, False),
    "hydralisk": Weapon(12, 1, 0, 0, 13.199, 5, True),
}


BODIES = {
    "marine": Body(0, "light biological", 2.25, 0.375, 0.375, 0.375),
    "marauder": Body(1, "armoured biological", 2.25, 0.5625, 0.5, 0.375),
    "medivac": Body(1, "armoured flies", 2.75, 0.75, 0.75, 0),
    "stalker": Body(1, "armoured", 2.9531, 0.625, 0.625, 0.5),
    "zealot": Body(1, "light biological", 2.25, 0.5, 0.375, 0.375),
    "colossus": Body(1, "armoured tall", 2.25, 1.0, 0.75, 0.5625),
    "zergling": Body(0, "light biological", 2.9531, 0.375, 0.375, 0.375),
    "baneling": Body(0, "biological", 2.5, 0.375, 0.375, 0.375),
    "hydralisk": Body(0, "light biological", 2.25, 0.625, 0.5, 0.375),
}


TARGETS = ("marine", "marauder", "medivac", "stalker", "zealot", "colossus", "zergling", "baneling", "hydralisk")


RACES = {
    "terran": ("marine", "marauder", "medivac"),
    "protoss": ("stalker", "zealot", "colossus"),
    "zerg": ("zergling", "hydralisk", "baneling"),
}
"""In the order of their one-hot bits."""


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


TEAMS = {
    "2s3z": ({"stalker": 2, "zealot": 3},) * 2,
    "3s5z": ({"stalker": 3, "zealot": 5},) * 2,
    "3s5z_vs_3s6z": ({"stalker": 3, "zealot": 5}, {"stalker": 3, "zealot": 6}),
    "MMM": ({"marine": 7, "marauder": 2, "medivac": 1},) * 2,
    "MMM2": ({"marine": 7, "marauder": 2, "medivac": 1}, {"marine": 8, "marauder": 3, "medivac": 1}),
} | {task: ({"marine": SIZES[task][0]}, {"marine": SIZES[task][1]}) for task in FIXED if "m" in task}
"""Allies and enemies in the order in which the map creates them."""


def listed(team: dict[str, int]) -> list[str]:
    return [name for name, number in team.items() for _ in range(number)]


DEFAULT = skirmish.Options()


@functools.cache
def scenario_of(task: str, options: skirmish.Options = DEFAULT, size: tuple[int, int] | None = None):
    """The scenario of a map, or of a smaller map of its kind."""
    battlefield = find(task)
    if size:
        battlefield = battlefield._replace(allies=battlefield.allies[: size[0]], enemies=battlefield.enemies[: size[1]])
    rules = skirmish.rules_of(battlefield, options)
    codes = observation.codes(battlefield)
    return skirmish.Scenario(rules, battlefield, codes, options, game_loop.for_one_copy(rules))


def names_of(kind) -> list[str]:
    return [NAMES[k] for k in kind]


def full_hp(name: str, is_enemy: bool) -> float:
    return 90.0 if is_enemy and name == "hydralisk" else FACTS[name].hp


def battle_of(x, y, hp, shield: ArrayLike = 0, energy: ArrayLike = 0, cooldown: ArrayLike = 0) -> Battle:
    """A battle in which all units stand and have no target."""
    x, y, hp = (jnp.asarray(v, jnp.float32) for v in (x, y, hp))
    shield, energy, cooldown = (
        jnp.broadcast_to(jnp.asarray(v, jnp.float32), x.shape) for v in (shield, energy, cooldown)
    )
    fresh = jax.tree.map(lambda v: jnp.zeros(x.shape, v.dtype), fresh_battle())
    none = jnp.full(x.shape, -1, jnp.int32)
    return fresh._replace(
        x=x, y=y, hp=hp, shield=shield, energy=energy, cooldown=cooldown, order=jnp.full(x.shape, STOP, jnp.int32),
        target=none, healing=none,
    )  # fmt: skip


@functools.cache
def fresh_battle() -> Battle:
    """The shapes and types of a battle's arrays."""
    return jax.eval_shape(functools.partial(skirmish.reset, scenario_of("3m")), jax.random.key(0))[0].battle


SIDE = 6
"""Units per side in the arena. Enemy k has the index SIDE + k."""


FOE = SIDE


COPIES = 16


class Put(NamedTuple):
    """A unit placed by hand."""

    name: str
    x: float
    y: float
    order: int = STOP
    target: int = -1
    goal: tuple[float, float] = (0.0, 0.0)
    hp: float | None = None
    shield: float | None = None
    energy: float = 50.0
    cooldown: float = 0.0


NOT_THERE = Put("marine", 1.0, 9.0, hp=0.0, shield=0.0)


def rules_for(side: int, scripted: tuple[bool, bool] = (False, True)) -> Rules:
    """The rules of a SMAC map on which any type may have any index."""
    everyone = Map(TARGETS[:side] * 2, TARGETS[:side] * 2, 100)
    rules = skirmish.rules_of(everyone, skirmish.Options())
    return rules._replace(
        num_allies=side, num_units=2 * side, shields=True, healers=tuple(range(2 * side)), sweeps=True, explodes=True,
        hits=2, scripted=scripted,
    )  # fmt: skip


def set_up(battles: list[tuple[list[Put], list[Put]]], side: int, profile: Profile = "sc2") -> tuple[Unit, Battle]:
    """(allies, enemies) of every copy as arrays [N, B]."""
    rows = [[*a, *[NOT_THERE] * (side - len(a)), *e, *[NOT_THERE] * (side - len(e))] for a, e in battles]
    units = [list(column) for column in zip(*rows, strict=True)]
    kind = np.array([[NAMES.index(put.name) for put in line] for line in units])
    enemy = (np.arange(2 * side) >= side).astype(int)[:, None]
    unit = Unit(*(jnp.asarray(column[enemy, kind]) for column in table(profile)))

    def field(name: str) -> np.ndarray:
        return np.array([[getattr(put, name) for put in line] for line in units])

    def filled(name: str, full) -> np.ndarray:
        given = np.array([[np.nan if v is None else v for v in line] for line in field(name)], np.float32)
        return np.where(np.isnan(given), np.asarray(full), given)

    values = (field("x"), field("y"), filled("hp", unit.hp), filled("shield", unit.shield))
    values += (field("energy") * np.asarray(unit.heals), field("cooldown"))
    battle = battle_of(*(np.asarray(v, np.float32) for v in values))
    goal = np.array([[put.goal for put in line] for line in units], np.float32)
    orders = (jnp.asarray(field(name), jnp.int32) for name in ("order", "target"))
    order, target = orders
    goal_x, goal_y = jnp.asarray(goal[..., 0]), jnp.asarray(goal[..., 1])
    return unit, battle._replace(order=order, target=target, goal_x=goal_x, goal_y=goal_y)


@functools.cache
def fighter(rules: Rules):
    def fight(unit: Unit, battle: Battle) -> Battle:
        return game_loop.fight(rules, unit, battle, jnp.zeros_like(battle.x))

    return jax.jit(fight, compiler_options=FAST_COMPILE)


ARENA = rules_for(SIDE)


FLAT = rules_for(SIDE)._replace(generated=True, low=0.0, high=32.0)
"""The rules of SMACv2's map."""


LITE = rules_for(SIDE)._replace(smaclite=True)


def play(
    battles: list[tuple[list[Put], list[Put]]],
    steps: int,
    edit: Callable[[int, Battle], Battle] = lambda _, battle: battle,
    rules: Rules = ARENA,
) -> Battle:
    """The battles before and after each step, [T + 1, N, B]. `edit` changes them after each step."""
    padding = [([], [])] * (COPIES - len(battles))
    unit, battle = set_up(battles + padding, rules.num_allies, "smaclite" if rules.smaclite else "sc2")
    story = [battle]
    for t in range(steps):
        battle = edit(t, fighter(rules)(unit, battle))
        story.append(battle)
    return jax.tree.map(lambda *v: np.stack(v), *story)


def placed_on_map(task: str, where: dict[int, tuple[float, float]], **options):
    """The rules and units of a map, and a battle in which only the placed units are alive."""
    scenario = skirmish.scenario_of(task, **options)
    state, _ = skirmish.reset(scenario, jax.random.key(0))
    unit, battle = (
        jax.tree.map(lambda v: jnp.asarray(v)[:, None], t) for t in (skirmish.stats(scenario, state.kind), state.battle)
    )
    for n in range(battle.x.shape[0]):
        x, y = where.get(n, (0.0, 0.0))
        battle = battle._replace(
            x=battle.x.at[n].set(x), y=battle.y.at[n].set(y), hp=battle.hp.at[n].set(45.0 * (n in where))
        )
    return scenario.rules, unit, battle
