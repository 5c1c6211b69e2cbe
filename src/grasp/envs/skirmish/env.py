"""Skirmish: StarCraft micro battles with SMAC's and SMACv2's contract, simulated in JAX. Ours, not the game's
(docs/skirmish.md says what is modelled).

`skirmish/<map>`; observation, state, actions, masks, rewards, limits and win rule are the benchmark's.
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
"""Of the rules: raised by hand with every change that moves a battle; recorded with every run, so that runs of
different rules are not compared."""
MOVE_BY = 2.0
DIRECTIONS = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], np.float32)
"""North, south, east, west: actions 2 to 5."""


class Options(NamedTuple):
    """What can be chosen beside the map."""

    profile: Profile = "sc2"
    cooldown_noise: bool = True
    """The game's random delay after a shot."""
    exact_quirks: bool = True
    """SMACv2 hides enemies that it has not kept book of (sight.py); and in a healer's rows of enemies the first entry
    tells of its friends."""
    start_jitter: float = 0.0
    """SMAC's maps: how far a team's start may be shifted."""
    enemy: Literal["attack", "focus", "hold"] = "attack"
    """How the computer fights: the nearest first; the weakest of those it notices; or without coming any nearer."""
    state: Literal["team", "agent"] = "team"
    """The benchmark's global state; or one for each agent, with how it sees everyone beside."""
    reward_norm: Literal["episode", "fixed"] = "episode"
    """SMACv2's maps: what returns 20, this battle's enemies or what a map's enemies are worth on average."""


class State(NamedTuple):
    """One battle."""

    battle: Battle
    kind: Int[Array, " N"]
    last_action: Int[Array, " A"]
    """-1 before the first."""
    holder: Int[Array, " E"]
    time: Int[Array, ""]


class Field(NamedTuple):
    """Everything that is fixed for a map."""

    rules: Rules
    battlefield: Map
    codes: Codes
    options: Options
    fight: Callable[[Unit, Battle, Array], Battle]


def names() -> list[str]:
    return list(MAPS)


def make(task: str, **chosen: Any) -> Env:
    """The battle on a map, with the fields of `Options`."""
    field = field_of(task, **chosen)
    return Env(spec_of(task, field), partial(reset, field), partial(step, field), partial(scene, field))


def field_of(task: str, **chosen: Any) -> Field:
    options, battlefield = Options(**chosen), find(task)
    if options.profile == "smaclite" and (unknown := sorted(battlefield.types - SMACLITE.keys())):
        raise GraspError(f"profile smaclite has no {unknown[0]}, which fights on '{task}'; use profile sc2")
    rules = rules_of(battlefield, options)
    return Field(rules, battlefield, observation.codes(battlefield), options, game_loop.for_one_copy(rules))


def spec_of(task: str, field: Field) -> EnvSpec:
    """The benchmark's sizes. A row has `extra` entries for its shield and its type."""
    battlefield, own = field.battlefield, field.options.state == "agent"
    allies, enemies = len(battlefield.allies), len(battlefield.enemies)
    extra, num_actions = battlefield.shields + len(battlefield.codes), FIRST_TARGET + enemies
    rows = (enemies + allies - 1) * (5 + extra)
    team = allies * (4 + extra + num_actions) + enemies * (3 + extra)
    return EnvSpec(
        name=f"skirmish/{task}",
        num_agents=allies,
        obs_dim=4 + rows + 1 + extra + 2 * battlefield.drawn,
        state_dim=team + own * (allies + 4 + 4 * (allies + enemies)),
        num_actions=num_actions,
        horizon=battlefield.limit,
        agent_states=own,
        has_wins=True,
        version=VERSION,
    )


def rules_of(battlefield: Map, options: Options) -> Rules:
    num_units, most = len(battlefield.allies) + len(battlefield.enemies), battlefield.most
    heals = [True] * num_units if battlefield.drawn else table("sc2").heals[0, spawns.fixed(battlefield)[0]]
    return Rules(
        num_allies=len(battlefield.allies),
        num_units=num_units,
        drawn=battlefield.drawn,
        shields=battlefield.shields,
        healers=tuple(int(p) for p in np.flatnonzero(heals)) if most("heals") else (),
        layers=bool(most("flies") or most("tall")),
        sweeps=bool(most("sweeps")),
        explodes=bool(most("explodes")),
        hits=int(most("hits")),
        size=spawns.SIZE,
        low=0.0 if battlefield.drawn else 8.0,
        high=spawns.SIZE if battlefield.drawn else 24.0,
        rally=(spawns.SPAWN[1], spawns.SPAWN[0]),
        smaclite=options.profile == "smaclite",
        enemy=options.enemy,
        most=reward.expected(battlefield) if battlefield.drawn and options.reward_norm == "fixed" else None,
    )


def reset(field: Field, key: Key) -> tuple[State, Observation]:
    """A new battle."""
    start_key, jitter_key, look_key = jax.random.split(key, 3)
    rules = field.rules
    if rules.drawn:
        kind, place = spawns.drawn(field.battlefield, start_key)
    else:
        kind, place = (jnp.asarray(v) for v in spawns.fixed(field.battlefield))
        shift = jax.random.uniform(jitter_key, (2, 2), minval=-1.0) * field.options.start_jitter
        place = place + shift[(jnp.arange(rules.num_units) >= rules.num_allies).astype(jnp.int32)]
    unit = stats(field, kind)
    zeros, nobody = jnp.zeros(rules.num_units), jnp.full(rules.num_units, -1, jnp.int32)
    enemy = jnp.arange(rules.num_units) >= rules.num_allies
    battle = Battle(
        x=place[:, 0],
        y=place[:, 1],
        hp=unit.hp,
        shield=unit.shield,
        energy=50.0 * unit.heals,
        cooldown=zeros,
        calm=zeros,
        order=jnp.where(enemy, SCRIPT, STOP).astype(jnp.int32),
        target=nobody,
        goal_x=zeros,
        goal_y=zeros,
        healing=nobody,
        bursting=jnp.zeros(rules.num_units, bool),
    )
    if rules.drawn:
        alone = jax.tree.map(lambda v: v[:, None], (unit, battle))
        battle = jax.tree.map(lambda v: v[:, 0], movement.settled(rules, *alone))
        order = spawns.ranks(kind, battle.x, battle.y, rules.num_allies)  # where they stand now, not where drawn
        kind, unit, battle = jax.tree.map(lambda v: v[order], (kind, unit, battle))
    else:
        x, y = movement.walled(rules, unit, battle.x, battle.y)
        battle = battle._replace(x=x, y=y)
    num_enemies = rules.num_units - rules.num_allies
    no_action = jnp.full(rules.num_allies, -1, jnp.int32)
    state = State(
        battle, kind, no_action, jnp.full(num_enemies, smacv2_visibility.NOBODY, jnp.int32), jnp.zeros((), jnp.int32)
    )
    return seen(field, unit, state, look_key)


def stats(field: Field, kind: Int[Array, " N"]) -> Unit:
    """Everyone's stats: the same in all copies, where the teams are."""
    fixed = kind if field.rules.drawn else spawns.fixed(field.battlefield)[0]
    return spawns.stats(field.options.profile, fixed, field.rules.num_allies)


def seen(field: Field, unit: Unit, state: State, key: Key) -> tuple[State, Observation]:
    """What the agents are shown; in SMACv2's maps looking changes what is known."""
    rules, shown, exact_quirks = field.rules, None, field.options.exact_quirks
    if rules.drawn and exact_quirks:
        holder, shown = smacv2_visibility.look(rules, unit, state.battle, state.holder, key)
        state = state._replace(holder=holder)
    avail = observation.legal(rules, unit, state.battle)
    last_action = jax.nn.one_hot(state.last_action, avail.shape[-1])
    whole = observation.global_state(rules, field.codes, unit, state.kind, state.battle, last_action)
    if field.options.state == "agent":
        whole = observation.agent_states(rules, unit, state.battle, avail, whole)
    return state, Observation(
        obs=observation.observe(rules, field.codes, unit, state.kind, state.battle, avail, shown, exact_quirks),
        state=whole,
        avail=avail,
        alive=state.battle.hp[: rules.num_allies] > 0,
    )


def step(field: Field, state: State, action: Int[Array, " A"], key: Key) -> tuple[State, Step]:
    """Orders, eight game loops, and what came of them."""
    delay_key, look_key = jax.random.split(key)
    rules, before = field.rules, state.battle
    unit = stats(field, state.kind)
    noisy = field.options.cooldown_noise and not rules.smaclite
    delay = (
        jax.random.uniform(delay_key, before.x.shape, minval=-1.0, maxval=2.0) if noisy else jnp.zeros_like(before.x)
    )
    after = field.fight(unit, ordered(rules, unit, before, action), delay)
    over, won = reward.outcome(rules, unit, after)
    time = state.time + 1
    state = state._replace(
        battle=after, last_action=action, time=time, holder=smacv2_visibility.forget(rules, after, state.holder)
    )
    state, shown = seen(field, unit, state, look_key)
    gained = reward.earned(rules, unit, before, after, won)
    return state, Step(shown, gained, over, ~over & (time >= field.battlefield.limit), won)


def scene(field: Field, state: State) -> Bodies:
    """The battle as it is drawn: who lives, where, how strong, and at whom they aim."""
    rules, battle, unit = field.rules, state.battle, stats(field, state.kind)
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
    """The battle with the agents' actions as orders; an illegal one is an order to stop."""
    is_legal = jnp.take_along_axis(observation.legal(rules, unit, battle), action[:, None], -1)[:, 0]
    moves = is_legal & (action >= 2) & (action < FIRST_TARGET)
    attacks = is_legal & (action >= FIRST_TARGET)
    way = jnp.asarray(DIRECTIONS)[jnp.clip(action - 2, 0, 3)] * MOVE_BY
    allies = slice(rules.num_allies)
    target = action - FIRST_TARGET + jnp.where(unit.heals[allies] > 0, 0, rules.num_allies)

    def told(values: Array, to_allies: Array) -> Array:
        return values.at[allies].set(to_allies.astype(values.dtype))

    return battle._replace(
        order=told(battle.order, jnp.where(moves, MOVE, jnp.where(attacks, ATTACK, STOP))),
        target=told(battle.target, jnp.where(attacks, target, -1)),
        goal_x=told(battle.goal_x, battle.x[allies] + way[:, 0]),
        goal_y=told(battle.goal_y, battle.y[allies] + way[:, 1]),
    )
