"""Small MA2E problems: states, hand-made episodes and rollouts; and training rounds that record what each of their
gradient steps was given."""

from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from qmix_cases import fetched

from grasp.algos import qmix, replay_buffer
from grasp.algos.ma2e import algorithm as ma2e
from grasp.algos.replay_buffer import Episodes, Replay
from grasp.config.hyperparameters import Ma2e
from grasp.types import EnvSpec, Observation, Trajectory

TEAM = EnvSpec(name="toy", num_agents=4, obs_dim=2, state_dim=3, num_actions=3, horizon=4)
PAIR = replace(TEAM, num_agents=2)
SMALL = Ma2e(
    num_envs=2,
    rollout=4,
    buffer=16,
    batch=2,
    interval=2,
    target_interval=1000,
    hidden=8,
    mixer_embed=3,
    mixer_hidden=4,
    lr=1e-2,
    epsilon=0.2,
    anneal=40,
    window=3,
    embed=8,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    feedforward=8,
    windows=4,
    autoencoder_lr=1e-2,
    threshold=0.0,
)
RELEASED = replace(SMALL, mode="released")
HYPER = {"paper": SMALL, "released": RELEASED}
MODES = list(HYPER)


def standing_in(function, *places):
    """The function compiled and called with other things in these places: (module, name, value)."""

    def call(*args):
        with pytest.MonkeyPatch.context() as patch:
            for place in places:
                patch.setattr(*place)
            return function(*args)

    return call


UNCUT = (qmix, "at_its_length", lambda function, tile, fed: function(tile, fed))
"""Compiles every gradient once for each width; it has tests of its own."""


def noise(shapes, seed=0):
    """Numbers for a tree of shapes: nothing is compiled for them."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(scale=0.4, size=x.shape).astype(np.float32), shapes)


@cache
def initial_state(hyper, spec, pretraining=False):
    """A state in which everything is drawn anew and nothing has been stored."""
    shapes = jax.eval_shape(ma2e.make(hyper, spec).init, jax.random.key(0))
    networks = {name: noise(getattr(shapes, name)) for name in ("agent", "mixer", "target", "senses")}
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    stored = jax.device_get(replay_buffer.empty(spec, hyper.buffer, hyper.num_envs))
    tutor = zeros.tutor._replace(errors=np.full(100, np.inf, np.float32), pretraining=np.bool_(pretraining))
    return zeros._replace(**networks, replay=stored, tutor=tutor)


def finite(tree):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def episodes(spec, number, seed=0):
    """Episodes of every length in turn, NaN in the padding; agent 0's first observation is the episode's index."""
    rng = np.random.default_rng(seed)
    steps, agents = spec.horizon, spec.num_agents
    length = (np.arange(number) % steps + 1).astype(np.int32)
    obs = rng.normal(size=(number, steps + 1, agents, spec.obs_dim)).astype(np.float32)
    obs[:, 0, 0, 0] = np.arange(number)
    obs[np.arange(steps + 1)[None] > length[:, None]] = np.nan
    return Episodes(
        obs=obs,
        state=rng.normal(size=(number, steps + 1, spec.state_dim)).astype(np.float32),
        avail=np.ones((number, steps + 1, agents, spec.num_actions), bool),
        action=rng.integers(spec.num_actions, size=(number, steps, agents)).astype(np.int32),
        reward=rng.normal(size=(number, steps)).astype(np.float32),
        length=length,
        terminated=np.ones(number, bool),
    )


def holding(batch, finished=None, num_envs=2):
    """A replay of so many slots whose episode n is in slot n, modulo their number."""
    capacity = len(batch.length)
    slots = jax.tree.map(lambda x: np.concatenate([x, x[:num_envs]]), batch)
    finished = np.int32(capacity if finished is None else finished)
    return Replay(slots, np.arange(capacity, dtype=np.int32), capacity + np.arange(num_envs, dtype=np.int32), finished)


def state_before_rounds(stored, senses, opt, pretraining):
    errors = np.full(ma2e.MEAN_OF, np.inf, np.float32)
    tutor = ma2e.Tutor(opt, errors, np.bool_(pretraining), np.int32(0), np.int32(0))
    return qmix.State((), (), (), (), stored, np.int32(0), np.int32(0), senses, tutor)


class Log(NamedTuple):
    """The state of an optimiser that moves nothing and writes down every gradient."""

    count: jax.Array
    rows: jax.Array


ROOM = 1000


def recorder():
    def init(params):
        return Log(jnp.zeros((), jnp.int32), jnp.zeros((ROOM, params.size)))

    def update(downhill, log, params=None):
        return jnp.zeros_like(downhill), Log(log.count + 1, log.rows.at[log.count].set(-downhill))

    return optax.GradientTransformation(init, update)


def recording_objective(hyper, params, seen, done, length, which, end, keep, dropout_key):
    """An objective whose gradient is what it was given."""
    draw = jax.random.uniform(dropout_key)
    clean = jnp.isfinite(seen[end, which]).all()
    recorded = (keep, which, end, seen[0, which, 0, 0], length[which], clean[None], draw[None])
    return params @ jnp.concatenate([x.astype(jnp.float32) for x in recorded]), draw


class Trace(NamedTuple):
    """What every gradient step was given, in order."""

    keep: np.ndarray
    which: np.ndarray
    end: np.ndarray
    number: np.ndarray
    """The index of each window's episode, which is its first observation."""
    length: np.ndarray
    clean: np.ndarray
    """Whether all that was seen at the windows' ends is finite."""
    draw: np.ndarray
    errors: np.ndarray
    """The ring after the last."""


@cache
def recorded_rounds(mode, seeds=False):
    given = partial(ma2e.train_rounds, HYPER[mode], recorder())
    return standing_in(fetched(jax.vmap(given) if seeds else given), (ma2e, "objective", recording_objective))


def recording_state(spec, finished=16):
    size = spec.num_agents + 4 * SMALL.windows + 2
    return partial(
        state_before_rounds,
        holding(episodes(spec, 16), finished),
        np.zeros(size, np.float32),
        recorder().init(np.zeros(size)),
    )


def trace(mode, spec, pretraining, rounds=1, finished=16, seed=0):
    state = recording_state(spec, finished)(pretraining)
    _, log, errors, skipped = recorded_rounds(mode)(state, jnp.array(rounds), jax.random.key(seed))
    assert skipped == 0
    return read(spec, log, errors)


def read(spec, log, errors):
    windows, agents = SMALL.windows, spec.num_agents
    columns = np.cumsum([agents, windows, windows, windows, windows, 1])
    keep, which, end, number, length, clean, draw = np.split(log.rows[: log.count], columns, axis=1)
    return Trace(keep > 0, which, end, number, length, clean[:, 0] > 0, draw[:, 0], errors)


def trajectory(index, spec=PAIR, num_envs=2):
    """Whole episodes of four steps, one in every environment."""
    rng = np.random.default_rng(index)
    lead = (spec.horizon, num_envs)

    def seen():
        return Observation(
            rng.normal(size=(*lead, spec.num_agents, spec.obs_dim)).astype(np.float32),
            rng.normal(size=(*lead, spec.state_dim)).astype(np.float32),
            np.ones((*lead, spec.num_agents, spec.num_actions), bool),
            np.ones((*lead, spec.num_agents), bool),
        )

    ended = np.zeros(lead, bool)
    ended[-1] = True
    return Trajectory(
        observation=seen(),
        memory=(),
        first=np.roll(ended, 1, 0),
        action=rng.integers(spec.num_actions, size=(*lead, spec.num_agents), dtype=np.int32),
        record=(),
        reward=rng.normal(size=lead).astype(np.float32),
        terminated=ended,
        truncated=np.zeros(lead, bool),
        next_observation=seen(),
    )


def memory_of(num_envs):
    return ma2e.make(SMALL, PAIR).memory(num_envs)


@cache
def acting(greedy):
    return fetched(lambda state, *rest: ma2e.decide(SMALL, state, *rest, greedy))


def looked(num_envs):
    obs = np.repeat(np.random.default_rng(0).normal(size=(1, 2, 2)), num_envs, 0).astype(np.float32)
    avail = np.repeat([[[True, True, True], [False, True, True]]], num_envs, 0)
    return Observation(obs, np.zeros((num_envs, 3), np.float32), avail, np.ones((num_envs, 2), bool))
