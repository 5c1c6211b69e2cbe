"""Family `skirmish`: StarCraft micro battles with the interface of SMAC and SMACv2, simulated in JAX.

Observations, state, actions, masks, rewards, time limits and the win rule are the benchmarks'. The dynamics are a model
of the game's; docs/skirmish.md states what is modelled.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from grasp.envs.skirmish import game_loop, movement, observation, reward, smacv2_visibility, spawns
from grasp.envs.skirmish.maps import MAPS, Map, find
from grasp.envs.skirmish.observation import Codes
from grasp.envs.skirmish.state import ATTACK, FIRST_TARGET, MOVE, SCRIPT, STOP, Battle, Rules, is_acting, sides
from grasp.envs.skirmish.unit_stats import SMACLITE, Profile, Unit, table
from grasp.types import Bodies, Env, EnvSpec, GraspError, Key, Observation, Step

VERSION = "skirmish-1"
"""The version of the rules. It is raised by hand with every change of the dynamics and recorded with every run, so that
runs under different rules are not compared."""
MOVE_BY = 2.0
"""Cells of one move action."""
DIRECTIONS = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], np.float32)
"""North, south, east, west: actions 2 to 5."""


class Options(NamedTuple):
    """The options of a map."""

    profile: Profile = "sc2"
    cooldown_noise: bool = True
    """Whether weapons have the game's random delay after a shot."""
    exact_quirks: bool = True
    """Whether to reproduce two quirks of the benchmarks: SMACv2 hides rows of visible enemies (`smacv2_visibility`),
    and the first entry of a healer's enemy rows describes its allies (`observation.observe`)."""
    start_jitter: float = 0.0
    """On SMAC's maps: the largest random shift of a team's start, in cells per axis."""
    enemy: Literal["attack", "focus", "hold"] = "attack"
    """The scripted enemy: attacks the nearest ally; focuses the weakest ally it notices; or holds its position."""
    state: Literal["team", "agent"] = "team"
    """The benchmark's global state, or one state per agent that adds its relation to every unit."""
    reward_norm: Literal["episode", "fixed"] = "episode"
    """On SMACv2's maps: scale rewards so that a win returns 20 by this battle's enemies, or by their average worth on
    the map."""


class State(NamedTuple):
    """One battle in progress."""

    battle: Battle
    kind: Int[Array, " N"]
    """Types of units, as indices into `unit_stats.NAMES`."""
    last_action: Int[Array, " A"]
    """-1 before the first step."""
    holder: Int[Array, " E"]
    """The agent by which each enemy is known (`smacv2_visibility`)."""
    time: Int[Array, ""]


class Scenario(NamedTuple):
    """All that is fixed for a map and its options."""

    rules: Rules
    battlefield: Map
    codes: Codes
    options: Options
    fight: Callable[[Unit, Battle, Array], Battle]
    """The game loops of one step."""


def names() -> list[str]:
    return list(MAPS)


def make(task: str, **chosen: Any) -> Env:
    """The environment of a map, with the fields of `Options`."""
    scenario = scenario_of(task, **chosen)
    return Env(spec_of(task, scenario), partial(reset, scenario), partial(step, scenario), partial(scene, scenario))


def scenario_of(task: str, **chosen: Any) -> Scenario:
    options, battlefield = Options(**chosen), find(task)
    if options.profile == "smaclite" and (unknown := sorted(battlefield.types - SMACLITE.keys())):
        raise GraspError(f"profile smaclite has no {unknown[0]}, a unit of '{task}'; use profile sc2")
    rules = rules_of(battlefield, options)
    return Scenario(rules, battlefield, observation.codes(battlefield), options, game_loop.for_one_copy(rules))


def spec_of(task: str, scenario: Scenario) -> EnvSpec:
    """The benchmark's sizes. A unit's row has `extra` entries for its shield and its type."""
    battlefield, own = scenario.battlefield, scenario.options.state == "agent"
    allies, enemies = len(battlefield.allies), len(battlefield.enemies)
    extra, num_actions = battlefield.shields + len(battlefield.codes), FIRST_TARGET + enemies
    rows = (enemies + allies - 1) * (5 + extra)
    team = allies * (4 + extra + num_actions) + enemies * (3 + extra)
    return EnvSpec(
        name=f"skirmish/{task}",
        num_agents=allies,
        obs_dim=4 + rows + 1 + extra + 2 * battlefield.generated,
        state_dim=team + own * (allies + 4 + 4 * (allies + enemies)),
        num_actions=num_actions,
        horizon=battlefield.limit,
        agent_states=own,
        has_wins=True,
        version=VERSION,
    )


def rules_of(battlefield: Map, options: Options) -> Rules:
    num_units, most = len(battlefield.allies) + len(battlefield.enemies), battlefield.most
    heals = [True] * num_units if battlefield.generated else table("sc2").heals[0, spawns.fixed(battlefield)[0]]
    return Rules(
        num_allies=len(battlefield.allies),
        num_units=num_units,
        generated=battlefield.generated,
        shields=battlefield.shields,
        healers=tuple(int(index) for index in np.flatnonzero(heals)) if most("heals") else (),
        layers=bool(most("flies") or most("tall")),
        sweeps=bool(most("sweeps")),
        explodes=bool(most("explodes")),
        hits=int(most("hits")),
        size=spawns.SIZE,
        low=0.0 if battlefield.generated else 8.0,
        high=spawns.SIZE if battlefield.generated else 24.0,
        rally=(spawns.SPAWN[1], spawns.SPAWN[0]),
        smaclite=options.profile == "smaclite",
        enemy=options.enemy,
        win_worth=reward.expected(battlefield) if battlefield.generated and options.reward_norm == "fixed" else None,
    )


def reset(scenario: Scenario, key: Key) -> tuple[State, Observation]:
    """A new battle."""
    start_key, jitter_key, look_key = jax.random.split(key, 3)
    rules = scenario.rules
    if rules.generated:
        kind, position = spawns.generated(scenario.battlefield, start_key)
    else:
        kind, position = (jnp.asarray(v) for v in spawns.fixed(scenario.battlefield))
        shift = jax.random.uniform(jitter_key, (2, 2), minval=-1.0) * scenario.options.start_jitter
        position = position + shift[(jnp.arange(rules.num_units) >= rules.num_allies).astype(jnp.int32)]
    unit = stats(scenario, kind)
    zeros, none = jnp.zeros(rules.num_units), jnp.full(rules.num_units, -1, jnp.int32)
    enemy = jnp.arange(rules.num_units) >= rules.num_allies
    battle = Battle(
        x=position[:, 0],
        y=position[:, 1],
        hp=unit.hp,
        shield=unit.shield,
        energy=50.0 * unit.heals,
        cooldown=zeros,
        calm=zeros,
        order=jnp.where(enemy, SCRIPT, STOP).astype(jnp.int32),
        target=none,
        goal_x=zeros,
        goal_y=zeros,
        healing=none,
        bursting=jnp.zeros(rules.num_units, bool),
    )
    if rules.generated:
        single = jax.tree.map(lambda v: v[:, None], (unit, battle))
        battle = jax.tree.map(lambda v: v[:, 0], movement.settle(rules, *single))
        order = spawns.ranks(kind, battle.x, battle.y, rules.num_allies)  # sorted by the settled positions
        kind, unit, battle = jax.tree.map(lambda v: v[order], (kind, unit, battle))
    else:
        x, y = movement.keep_within_walls(rules, unit, battle.x, battle.y)
        battle = battle._replace(x=x, y=y)
    num_enemies = rules.num_units - rules.num_allies
    no_action = jnp.full(rules.num_allies, -1, jnp.int32)
    state = State(
        battle, kind, no_action, jnp.full(num_enemies, smacv2_visibility.UNKNOWN, jnp.int32), jnp.zeros((), jnp.int32)
    )
    return seen(scenario, unit, state, look_key)


def stats(scenario: Scenario, kind: Int[Array, " N"]) -> Unit:
    """The stats of all units; constants where the teams are fixed."""
    fixed = kind if scenario.rules.generated else spawns.fixed(scenario.battlefield)[0]
    return spawns.stats(scenario.options.profile, fixed, scenario.rules.num_allies)


def seen(scenario: Scenario, unit: Unit, state: State, key: Key) -> tuple[State, Observation]:
    """The observation of a state. On SMACv2's maps observing changes which enemies are known."""
    rules, shown, exact_quirks = scenario.rules, None, scenario.options.exact_quirks
    if rules.generated and exact_quirks:
        holder, shown = smacv2_visibility.look(rules, unit, state.battle, state.holder, key)
        state = state._replace(holder=holder)
    avail = observation.legal(rules, unit, state.battle)
    last_action = jax.nn.one_hot(state.last_action, avail.shape[-1])
    global_state = observation.global_state(rules, scenario.codes, unit, state.kind, state.battle, last_action)
    if scenario.options.state == "agent":
        global_state = observation.agent_states(rules, unit, state.battle, avail, global_state)
    return state, Observation(
        obs=observation.observe(rules, scenario.codes, unit, state.kind, state.battle, avail, shown, exact_quirks),
        state=global_state,
        avail=avail,
        alive=state.battle.hp[: rules.num_allies] > 0,
    )


def step(scenario: Scenario, state: State, action: Int[Array, " A"], key: Key) -> tuple[State, Step]:
    """Orders, eight game loops, reward and observation."""
    delay_key, look_key = jax.random.split(key)
    rules, before = scenario.rules, state.battle
    unit = stats(scenario, state.kind)
    noisy = scenario.options.cooldown_noise and not rules.smaclite
    delay = (
        jax.random.uniform(delay_key, before.x.shape, minval=-1.0, maxval=2.0) if noisy else jnp.zeros_like(before.x)
    )
    after = scenario.fight(unit, ordered(rules, unit, before, action), delay)
    terminated, won = reward.outcome(rules, unit, after)
    time = state.time + 1
    state = state._replace(
        battle=after, last_action=action, time=time, holder=smacv2_visibility.forget(rules, after, state.holder)
    )
    state, observed = seen(scenario, unit, state, look_key)
    gained = reward.earned(rules, unit, before, after, won)
    return state, Step(observed, gained, terminated, ~terminated & (time >= scenario.battlefield.limit), won)


def scene(scenario: Scenario, state: State) -> Bodies:
    """The battle for drawing: positions, health, and the targets of units that act."""
    rules, battle, unit = scenario.rules, state.battle, stats(scenario, state.kind)
    return Bodies(
        position=jnp.stack([battle.x, battle.y], -1),
        radius=unit.radius,
        group=sides(rules)[:, 0].astype(jnp.int32),
        shown=battle.hp > 0,
        health=battle.hp / unit.hp,
        shield=battle.shield / jnp.maximum(unit.shield, 1.0) if rules.shields else None,
        target=jnp.where(is_acting(battle), battle.target, -1),
        mark=unit.mark.astype(jnp.int32),
    )


def ordered(rules: Rules, unit: Unit, battle: Battle, action: Int[Array, " A"]) -> Battle:
    """The battle with the agents' actions as orders. An illegal action is an order to stop."""
    is_legal = jnp.take_along_axis(observation.legal(rules, unit, battle), action[:, None], -1)[:, 0]
    moves = is_legal & (action >= 2) & (action < FIRST_TARGET)
    attacks = is_legal & (action >= FIRST_TARGET)
    offset = jnp.asarray(DIRECTIONS)[jnp.clip(action - 2, 0, 3)] * MOVE_BY
    allies = slice(rules.num_allies)
    target = action - FIRST_TARGET + jnp.where(unit.heals[allies] > 0, 0, rules.num_allies)

    def set_allies(values: Array, to_allies: Array) -> Array:
        return values.at[allies].set(to_allies.astype(values.dtype))

    return battle._replace(
        order=set_allies(battle.order, jnp.where(moves, MOVE, jnp.where(attacks, ATTACK, STOP))),
        target=set_allies(battle.target, jnp.where(attacks, target, -1)),
        goal_x=set_allies(battle.goal_x, battle.x[allies] + offset[:, 0]),
        goal_y=set_allies(battle.goal_y, battle.y[allies] + offset[:, 1]),
    )
