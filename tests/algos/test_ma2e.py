"""MA2E's training of its autoencoder: the visible agents, the windows, the schedule, and what must not change."""

from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from trees import assert_close, distance

from grasp.algos import inputs, qmix, replay_buffer
from grasp.algos.ma2e import algorithm as ma2e
from grasp.algos.ma2e import autoencoder
from grasp.algos.replay_buffer import Episodes, Replay
from grasp.config.hyperparameters import Ma2e
from grasp.envs import base as envs
from grasp.nn import actor as actors
from grasp.nn import transformer
from grasp.training import rollout
from grasp.types import EnvSpec, GraspError, Observation, Trajectory

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


def fetched(function):
    """Compiled, with its results in numpy: only what is tested is compiled."""
    compiled = jax.jit(function)
    return lambda *args: jax.device_get(compiled(*args))


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


# Hand-made episodes and training rounds on them


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


COUNTS = {(4, True): 32 * (4 + 9), (4, False): 8 * (4 + 1), (2, True): 32 * 2, (2, False): 8 * 2}
"""Gradient steps of a round, by number of agents and whether it is pretraining; of two agents there are no groups."""


@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.parametrize("pretraining", [True, False])
@pytest.mark.parametrize("spec", [TEAM, PAIR], ids=["4", "2"])
@pytest.mark.parametrize("mode", MODES)
def test_a_round_is_a_gradient_step_for_every_episode_and_mask(mode, spec, pretraining, rounds):
    found = trace(mode, spec, pretraining, rounds)
    assert len(found.keep) == rounds * COUNTS[spec.num_agents, pretraining]


@pytest.mark.parametrize("pretraining", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_each_agent_is_shown_alone_in_turn_then_groups_of_two_or_more_but_never_all(mode, pretraining):
    agents, groups = 4, 9 if pretraining else 1
    keep = trace(mode, TEAM, pretraining, rounds=2).keep.reshape(-1, agents + groups, agents)
    assert len(keep) == 2 * (32 if pretraining else 8)
    for turn in keep:
        np.testing.assert_array_equal(turn[:agents], np.eye(agents, dtype=bool))
    sizes = keep[:, agents:].sum(-1)
    assert set(sizes.ravel().tolist()) == {2, 3}
    shown = keep[:, agents:].mean((0, 1))
    assert (shown > 0.3).all()
    assert (shown < 0.95).all()


@pytest.mark.parametrize("pretraining", [True, False])
def test_of_two_agents_each_is_shown_alone_and_there_is_nothing_else(pretraining):
    keep = trace("paper", PAIR, pretraining).keep.reshape(-1, 2, 2)
    np.testing.assert_array_equal(keep, np.broadcast_to(np.eye(2, dtype=bool), keep.shape))


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_alone_has_2T_visible_tokens_and_a_group_of_k_plus_one_2T_for_each(mode):
    """Counted where the autoencoder encodes: without encodings of their places, hidden tokens are zero there."""
    counts = []

    def encode(params, sequence, *rest):
        counts.append((jnp.abs(sequence).max(-1) > 0).sum())
        return sequence

    def visible(params, batch, turn):
        keep = ma2e.mask(jax.random.fold_in(jax.random.key(0), turn), turn, 4)
        batch = replay_buffer.time_first(replay_buffer.ended(batch))
        window = jnp.array([3]), jnp.array([3])  # three steps of an episode of four
        hyper = replace(HYPER[mode], windows=1)
        ma2e.objective(hyper, params, *ma2e.lived(hyper, batch), batch.length, *window, keep, jax.random.key(0))
        return counts.pop(), keep

    places = [
        (autoencoder, "encodings", lambda steps, agents, embed, mode: jnp.zeros((steps, agents, 2, embed))),
        (transformer, "encode", encode),
        (transformer, "decode", lambda params, sequence, *rest: sequence),
    ]
    counted = standing_in(fetched(visible), *places)
    found = [counted(initial_state(SMALL, TEAM).senses, episodes(TEAM, 16), jnp.array(turn)) for turn in range(13)]
    assert all(count == 2 * SMALL.window * keep.sum() for count, keep in found)
    assert [count for count, _ in found[:4]] == [2 * SMALL.window] * 4
    assert {int(count) for count, _ in found[4:]} == {2 * SMALL.window * 2, 2 * SMALL.window * 3}


@pytest.mark.parametrize("pretraining", [True, False])
def test_the_ring_holds_the_errors_of_the_newest_hundred_steps_oldest_first(pretraining):
    found = trace("paper", TEAM, pretraining, rounds=1)
    expected = np.concatenate([np.full(100, np.inf), found.draw])[-100:]
    np.testing.assert_array_equal(found.errors, expected.astype(np.float32))
    assert np.isfinite(found.errors).all() == pretraining


def test_every_step_of_every_round_draws_by_itself_and_by_its_key():
    first, other = (trace("paper", TEAM, True, rounds=2, seed=seed) for seed in (0, 1))
    assert len(set(first.draw.tolist()) | set(other.draw.tolist())) > 2 * len(first.draw) - 5
    half = len(first.end) // 2
    for x in (first.end, first.which, first.keep[:, :]):
        assert (x[:half] != x[half:]).any()


def test_seeds_at_once_train_as_each_alone():
    """One is pretraining, one has two rounds due, one has nothing due."""
    cases = [(True, 1), (False, 2), (False, 0)]
    states = [recording_state(TEAM)(pretraining) for pretraining, _ in cases]
    stacked = jax.tree.map(lambda *x: np.stack(x), *states)
    keys = jnp.stack([jax.random.key(0)] * 3)
    _, log, errors, _ = recorded_rounds("paper", seeds=True)(stacked, jnp.array([r for _, r in cases]), keys)
    for i, (pretraining, rounds) in enumerate(cases):
        mine = read(TEAM, Log(log.count[i], log.rows[i]), errors[i])
        for one, other in zip(mine, trace("paper", TEAM, pretraining, rounds), strict=True):
            np.testing.assert_array_equal(one, other)


# Which windows


@pytest.mark.parametrize("pretraining", [True, False])
def test_paper_draws_windows_of_any_episode_that_end_where_it_was_played(pretraining):
    found = trace("paper", TEAM, pretraining, rounds=2)
    assert (found.end >= 0).all()
    assert (found.end < found.length).all()
    assert (found.length == found.number % 4 + 1).all()
    assert (np.ptp(found.which, axis=1) > 0).mean() > 0.9  # not one episode a step
    ends = {(int(n) % 4 + 1, int(e)) for n, e in zip(found.number.ravel(), found.end.ravel(), strict=True)}
    assert ends == {(length, end) for length in range(1, 5) for end in range(length)}


def test_beyond_an_episode_s_end_nothing_is_seen_and_nothing_was_done():
    batch = replay_buffer.time_first(replay_buffer.ended(jax.tree.map(jnp.asarray, episodes(TEAM, 4))))
    seen, done = ma2e.lived(SMALL, batch)
    for place, length in enumerate(batch.length.tolist()):
        assert (seen[length + 1 :, place] == 0).all()
        assert (done[length:, place] == 0).all()
        assert (seen[: length + 1, place, :, -4:] == jnp.eye(4)[None]).all()  # which agent it is


@pytest.mark.parametrize("pretraining", [True, False])
def test_released_draws_windows_of_one_episode_after_the_other_padding_included(pretraining):
    found = trace("released", TEAM, pretraining)
    masks = 13 if pretraining else 5
    turn = np.arange(len(found.which)) // masks
    np.testing.assert_array_equal(found.which, np.broadcast_to(turn[:, None], found.which.shape))
    for length in range(1, 5):
        assert set(found.end[found.length == length].tolist()) == {0, 1, 2, 3}
    assert found.clean.all()  # not what the slots held before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("finished", [3, 16, 21])
def test_fine_tuning_takes_the_newest_episodes_and_pretraining_any_that_are_there(mode, finished):
    """Episode n is in slot n mod 16; where fewer than eight are there, some come again."""
    newest = [n % 16 for n in range(max(0, finished - 8), finished)]
    tuned = trace(mode, TEAM, False, rounds=2, finished=finished)
    assert set(tuned.number.ravel().tolist()) == set(newest)
    if mode == "released":
        each = tuned.number[: 8 * 5 : 5, 0]
        np.testing.assert_array_equal(each, [(finished - 1 - k % min(finished, 8)) % 16 for k in range(8)])
    trained = trace(mode, TEAM, True, rounds=2, finished=finished)
    assert set(trained.number.ravel().tolist()) <= set(range(min(finished, 16)))
    assert len(set(trained.number.ravel().tolist())) >= min(finished, 13)


@pytest.mark.parametrize("mode", MODES)
def test_a_window_is_cut_from_its_episode_and_padded_before_its_start(mode, monkeypatch):
    given = []

    def loss(params, obs, action, keep, filled, mode, over, dropout_key):
        given.append((obs, action, keep, filled, mode, over, dropout_key))
        return jnp.array(6.0), jnp.array(5.0)

    monkeypatch.setattr(autoencoder, "reconstruction_loss", loss)
    stored = episodes(TEAM, 16)
    batch = replay_buffer.time_first(replay_buffer.ended(jax.tree.map(jnp.asarray, stored)))
    which, end = jnp.array([3, 6, 3, 2]), jnp.array([3, 1, 0, 2])
    keep, key = jnp.array([True, False, True, False]), jax.random.key(5)
    found = ma2e.objective(HYPER[mode], {}, *ma2e.lived(HYPER[mode], batch), batch.length, which, end, keep, key)
    assert found == ((-6.0, 5.0) if mode == "paper" else (-6.0 / 4, 5.0))  # episode 3 has four steps
    obs, action, shown, filled, *rest = given[0]
    assert rest[:2] == [mode, "masked" if mode == "paper" else "all"]
    assert (rest[2] is None) == (mode == "paper")
    np.testing.assert_array_equal(shown, np.broadcast_to(keep, (4, 4)))
    for w, (e, last) in enumerate(zip([3, 6, 3, 2], [3, 1, 0, 2], strict=True)):
        for back in range(3):
            step, at = last - back, 2 - back
            assert filled[w, at] == (step >= 0)
            if step >= 0:
                done = np.eye(3)[stored.action[e, step - 1]] if step else np.zeros((4, 3))
                expected = np.concatenate([stored.obs[e, step], done, np.eye(4)], -1)
                np.testing.assert_allclose(obs[w, at], expected, rtol=1e-6)
                np.testing.assert_allclose(action[w, at], stored.action[e, step] / 3, rtol=1e-6)


# Optimisers, learning, and what is not finite


@cache
def optimisers():
    """The optimisers that the algorithm itself hands to its training rounds, by mode."""
    found = {}
    for mode, hyper in HYPER.items():
        update = ma2e.make(hyper, PAIR).update
        assert isinstance(update, partial)
        found[mode] = update.args[2]
    return found


@cache
def by_hand_slope(mode):
    """The gradient of the loss, and the error over hidden tokens."""

    def loss(params, obs, action, filled, agent):
        keep = jnp.broadcast_to(autoencoder.alone(2, agent), (4, 2))
        over = "masked" if mode == "paper" else "all"
        return autoencoder.reconstruction_loss(params, obs, action, keep, filled, mode, over)

    return fetched(jax.grad(loss, has_aux=True))


def by_hand_windows(stored, number, ends):
    """The windows of one episode of two agents that end there, three steps each."""
    obs, action = np.zeros((4, 3, 2, inputs.width(SMALL, PAIR)), np.float32), np.zeros((4, 3, 2), np.float32)
    filled = np.zeros((4, 3), bool)
    for w, last in enumerate(ends):
        for back in range(min(3, last + 1)):
            step, at = last - back, 2 - back
            done = np.eye(3)[stored.action[number, step - 1]] if step else np.zeros((2, 3))
            obs[w, at] = np.concatenate([stored.obs[number, step], done, np.eye(2)], -1)
            action[w, at], filled[w, at] = stored.action[number, step] / 3, True
    return obs, action, filled


def test_released_steps_are_plain_sgd_on_the_loss_over_the_episode_s_length():
    """The newest episode, number 15, has four steps; either agent is shown alone once, twice over."""
    optimiser, senses, stored, ends = (
        optimisers()["released"],
        initial_state(SMALL, PAIR).senses,
        episodes(PAIR, 16),
        (3, 1, 0, 2),
    )

    def draw(hyper, batch, turn, key):
        return jnp.broadcast_to(turn, 4), jnp.array(ends)

    places = [(ma2e, "draw", draw), (ma2e, "NEWEST", 1), (transformer, "DROPOUT", 0.0)]
    train = standing_in(fetched(partial(ma2e.train_rounds, RELEASED, optimiser)), *places)
    state = state_before_rounds(holding(stored), senses, jax.device_get(optimiser.init(senses)), False)
    after, _, errors, _ = train(state, jnp.array(2), jax.random.key(0))
    params, expected = senses, []
    for step in range(4):
        downhill, error = by_hand_slope("released")(params, *by_hand_windows(stored, 15, ends), jnp.array(step % 2))
        params = jax.tree.map(lambda x, g: x - np.float32(1e-2 / 4) * g, params, downhill)
        expected.append(error)
    np.testing.assert_allclose(errors[-4:], expected, rtol=1e-4)
    assert np.isinf(errors[:-4]).all()
    assert distance(senses, after) > 1e-3
    assert_close(after, params, 1e-5)


@cache
def actual_rounds():
    return fetched(partial(ma2e.train_rounds, SMALL, optimisers()["paper"]))


def training_rounds_on(stored, rounds, pretraining, calls=1, finished=None):
    senses = initial_state(SMALL, PAIR).senses
    opt = jax.device_get(optimisers()["paper"].init(senses))
    state = state_before_rounds(holding(stored, finished), senses, opt, pretraining)
    for call in range(calls):
        found = actual_rounds()(state, jnp.array(rounds), jax.random.key(call))
        state = state._replace(senses=found[0], tutor=state.tutor._replace(opt=found[1], errors=found[2]))
    return senses, found


def test_paper_steps_are_adam_on_the_loss_carried_over_from_round_to_round():
    """One episode of one step: every window is the same. Two rounds of 16 steps, the agents shown in turn."""
    stored = episodes(PAIR, 16)
    senses, (after, _, errors, _) = training_rounds_on(stored, 1, False, calls=2, finished=1)
    params, expected = senses, []
    first, second = (jax.tree.map(np.zeros_like, params) for _ in range(2))
    for step in range(32):
        downhill, error = by_hand_slope("paper")(params, *by_hand_windows(stored, 0, (0, 0, 0, 0)), jnp.array(step % 2))
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, downhill)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, downhill)
        unbiased = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)

        def moved(x, m, v, unbiased=unbiased):
            return np.float32(x - 1e-2 * (m / unbiased[0]) / (np.sqrt(v / unbiased[1]) + 1e-8))

        params = jax.tree.map(moved, params, first, second)
        expected.append(error)
    np.testing.assert_allclose(errors[-32:], expected, rtol=1e-3)
    assert np.isinf(errors[:-32]).all()
    assert expected[-1] < 0.9 * expected[0]
    for name in ("obs_out", "action_out", "obs_in"):  # Adam makes steps of the rounding of a gradient that is zero
        size = distance(after[name], senses[name])
        assert size > 5e-2
        assert_close(after[name], params[name], 0.02 * size)


def twins():
    """Agent 1 sees and does what agent 0 does."""
    rng, batch = np.random.default_rng(3), episodes(PAIR, 16)
    obs = np.repeat(rng.choice([-1.0, 1.0], size=(16, 5, 1, 2)), 2, 2).astype(np.float32)
    return batch._replace(obs=obs, action=np.repeat(batch.action[..., :1], 2, -1))


def test_training_reconstructs_what_a_hidden_agent_sees_that_copies_a_visible_one():
    _, (_, _, early, _) = training_rounds_on(twins(), 1, False)  # sixteen steps
    _, (_, _, late, skipped) = training_rounds_on(twins(), 20, True)
    start = early[np.isfinite(early)][:8].mean()
    assert np.isfinite(late).all()
    assert late.mean() < 0.2 * start, (late.mean(), start)
    assert skipped == 0


def test_steps_on_what_is_not_finite_are_left_out_and_counted():
    """Every third of the newest eight episodes has an observation that is not finite."""
    stored = episodes(PAIR, 16)
    stored.obs[[9, 12, 15], 0, 1, 1] = [np.nan, np.inf, -np.inf]
    senses, (after, opt, errors, skipped) = training_rounds_on(stored, 2, False)
    assert 0 < skipped < 32
    assert finite((after, opt))
    assert distance(senses, after) > 1e-3
    assert int(optax.tree.get(opt, "count")) == 32 - skipped
    assert np.isinf(errors[-32:]).sum() == skipped  # an error that is no number is not remembered


def test_where_nothing_is_finite_nothing_moves():
    stored = episodes(PAIR, 16)
    stored.obs[:, 0, 0, 0] = np.nan
    stored.length[:] = 1
    senses, (after, opt, _, skipped) = training_rounds_on(stored, 1, False)
    assert skipped == 16
    assert_close(senses, after)
    assert int(optax.tree.get(opt, "count")) == 0


# The schedule, with training rounds and TD steps that only count


def counted_rounds(hyper, optimiser, state, rounds, key):
    return state.senses + rounds, state.tutor.opt, state.tutor.errors, jnp.zeros(())


def counted_step(hyper, optimiser, state, episodes, key, see):
    return state._replace(copied=state.copied + 1), {"loss": jnp.zeros(())}


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


def blank(pretraining=False):
    """A state before learning, with a counter for an autoencoder."""
    return initial_state(SMALL, PAIR, pretraining)._replace(senses=np.int32(0))


@cache
def timeline(updates, **options):
    """The state and the metrics after every update; each has two episodes, eight steps in all."""
    hyper = replace(SMALL, **options)
    places = [(ma2e, "train_rounds", counted_rounds), (qmix, "improve", counted_step)]
    update = standing_in(fetched(ma2e.make(hyper, PAIR).update), *places)
    state, found = blank(hyper.pretrain > 0), []
    if "threshold" in options:
        state = state._replace(tutor=state.tutor._replace(errors=np.full(100, 0.5, np.float32)))
    for index in range(updates):
        state, metrics = update(state, trajectory(index), jax.random.key(index))
        found.append((state, metrics))
    return found


def column(found, name):
    return [float(metrics[name]) for _, metrics in found]


def test_learning_begins_when_pretraining_is_over_and_counts_only_its_own_steps():
    """Pretraining of 20 steps is over after three rollouts of eight."""
    found = timeline(8, pretrain=20, fine_tune=12)
    assert column(found, "pretraining") == [1, 1, 1, 0, 0, 0, 0, 0]
    assert [int(state.tutor.played) for state, _ in found] == [8, 16, 24, 24, 24, 24, 24, 24]
    assert [int(state.env_steps) for state, _ in found] == [0, 0, 0, 8, 16, 24, 32, 40]
    assert column(found, "gradient_steps") == [0, 0, 0, 1, 1, 1, 1, 1]
    assert [int(state.copied) for state, _ in found] == [0, 0, 0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(column(found, "epsilon"), [1, 1, 1, 0.84, 0.68, 0.52, 0.36, 0.2], rtol=1e-5)
    assert column(found, "finished_episodes") == [2, 4, 6, 8, 10, 12, 14, 16]


def test_a_round_for_every_rollout_of_pretraining_then_one_whenever_a_multiple_is_crossed():
    """Multiples of 12 are crossed on the way to 16, 24 and 40 steps."""
    found = timeline(8, pretrain=20, fine_tune=12)
    assert column(found, "autoencoder_rounds") == [1, 1, 1, 0, 1, 1, 0, 1]
    assert [int(state.senses) for state, _ in found] == [1, 2, 3, 3, 4, 5, 5, 6]
    assert [int(state.tutor.rounds) for state, _ in found] == [0, 0, 0, 0, 1, 2, 2, 3]


def test_without_pretraining_learning_begins_at_once():
    found = timeline(3, pretrain=0, fine_tune=12)
    assert column(found, "pretraining") == [0, 0, 0]
    assert column(found, "gradient_steps") == [1, 1, 1]
    assert column(found, "autoencoder_rounds") == [0, 1, 1]
    assert [int(state.env_steps) for state, _ in found] == [8, 16, 24]
    assert [int(state.tutor.played) for state, _ in found] == [0, 0, 0]


def test_a_small_error_ends_pretraining_in_paper_but_not_in_released():
    paper = timeline(3, pretrain=1000, threshold=0.6)
    released = timeline(3, pretrain=1000, threshold=0.6, mode="released")
    assert column(paper, "pretraining") == [1, 0, 0]
    assert column(paper, "gradient_steps") == [0, 1, 1]
    assert column(released, "pretraining") == [1, 1, 1]
    assert column(released, "gradient_steps") == [0, 0, 0]
    assert [int(state.env_steps) for state, _ in released] == [0, 0, 0]


def after_due_rounds(hyper, *, env_steps=0, new_steps=8, finished=4, errors=np.inf, **tutor):
    """One call of `train_due_rounds`, its rounds counted."""
    state = blank()
    known = {"errors": jnp.full(100, errors) if np.ndim(errors) == 0 else jnp.asarray(errors)}
    known |= {name: jnp.array(value) for name, value in ({"pretraining": False} | tutor).items()}
    state = state._replace(
        env_steps=jnp.array(env_steps),
        replay=state.replay._replace(finished=jnp.array(finished)),
        tutor=jax.tree.map(jnp.asarray, state.tutor)._replace(**known),
    )
    train = standing_in(ma2e.train_due_rounds, (ma2e, "train_rounds", counted_rounds))
    after, metrics = train(hyper, optax.identity(), state, jnp.array(new_steps), jax.random.key(0))
    assert int(after.senses) == int(metrics["autoencoder_rounds"])
    return after.tutor, metrics


NEARLY = np.append(np.zeros(99), np.inf).astype(np.float32)
HALVES = np.repeat([0.0, 1.0], 50).astype(np.float32)


@pytest.mark.parametrize(
    ("errors", "threshold", "ends"),
    [(0.5, 0.51, True), (0.5, 0.49, False), (HALVES, 0.51, True), (HALVES, 0.49, False), (NEARLY, 1e9, False)],
    ids=["below", "above", "mean-below", "mean-above", "too-few"],
)
def test_the_mean_of_the_ring_ends_pretraining_once_it_is_full(errors, threshold, ends):
    hyper = replace(SMALL, threshold=threshold, pretrain=1000)
    tutor, metrics = after_due_rounds(hyper, errors=errors, pretraining=True, played=8)
    assert bool(tutor.pretraining) != ends
    assert bool(metrics["pretraining"])
    tutor, _ = after_due_rounds(replace(hyper, mode="released"), errors=errors, pretraining=True, played=8)
    assert bool(tutor.pretraining)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("played", "over"), [(0, False), (11, False), (12, True), (100, True)])
def test_pretraining_is_over_after_its_steps(mode, played, over):
    tutor, _ = after_due_rounds(replace(HYPER[mode], pretrain=20), pretraining=True, played=played)
    assert bool(tutor.pretraining) != over
    assert int(tutor.played) == played + 8


@pytest.mark.parametrize(
    ("env_steps", "crossed"), [(8, 2), (9, 3), (10, 3), (15, 3), (16, 3), (11, 2)], ids=lambda x: str(x)
)
def test_several_multiples_at_once_are_several_rounds_in_paper_and_one_in_released(env_steps, crossed):
    paper, _ = after_due_rounds(replace(SMALL, fine_tune=3), env_steps=env_steps, rounds=5)
    released, _ = after_due_rounds(replace(RELEASED, fine_tune=3), env_steps=env_steps, rounds=5)
    assert (int(paper.rounds), int(released.rounds)) == (5 + crossed, 6)
    far, _ = after_due_rounds(replace(SMALL, fine_tune=100), env_steps=env_steps, rounds=5)
    assert int(far.rounds) == 5


@pytest.mark.parametrize(("rounds", "more"), [(299, 1), (300, 1), (301, 0), (302, 0)])
def test_released_has_301_rounds_and_paper_no_end(rounds, more):
    assert after_due_rounds(replace(RELEASED, fine_tune=8), env_steps=8, rounds=rounds)[1]["autoencoder_rounds"] == more
    assert after_due_rounds(replace(SMALL, fine_tune=8), env_steps=8, rounds=rounds)[1]["autoencoder_rounds"] == 1


@pytest.mark.parametrize("pretraining", [True, False])
def test_there_is_no_round_before_an_episode_has_finished(pretraining):
    hyper = replace(SMALL, fine_tune=8, pretrain=1000)
    assert after_due_rounds(hyper, env_steps=8, finished=0, pretraining=pretraining)[1]["autoencoder_rounds"] == 0
    assert after_due_rounds(hyper, env_steps=8, finished=1, pretraining=pretraining)[1]["autoencoder_rounds"] == 1


# Acting


@pytest.mark.parametrize("mode", MODES)
def test_acting_perceives_what_learning_perceives_of_the_stored_episodes(mode):
    """Deaths, resets, windows not yet full. The network hands on what it is fed, so the memory holds the rows."""
    env = envs.make("probe/mask_death")
    width = env.spec.num_agents * inputs.width(HYPER[mode], env.spec)
    hyper = replace(HYPER[mode], hidden=width, num_envs=3, rollout=12, buffer=36)
    algorithm = ma2e.make(hyper, env.spec)
    places = [
        (actors, "step", lambda backbone, sharing, memory, seen: (seen, seen)),
        (actors, "logits", lambda head, sharing, features: jnp.zeros((*features.shape[:-1], 3))),
        (transformer, "DROPOUT", 0.0),
    ]

    def play(state):
        arena = rollout.open_arena(env, algorithm, 3, jax.random.key(1))
        _, found, _ = rollout.collect(env, algorithm, state, arena, jax.random.key(0), hyper.rollout)
        stored = replay_buffer.numbered(replay_buffer.append(state.replay, found), jnp.arange(9))
        batch = replay_buffer.time_first(replay_buffer.ended(stored))
        return found.memory.agent[1:], ma2e.see(hyper, state.senses, jax.random.key(2), batch), batch

    state = initial_state(hyper, env.spec)
    state = state._replace(senses=jax.tree.map(lambda x: 3 * x, state.senses))  # so that windows tell
    acted, learned, batch = standing_in(fetched(play), *places)(state)
    assert (batch.length == 4).all()
    assert (batch.obs[2:, :, 1] == 0).all()
    assert learned.shape == (5, 9, 2, width)
    assert np.abs(learned).max() < 50  # what the dead hold is never seen
    acted = acted.reshape(3, 4, 3, 2, width).swapaxes(0, 1).reshape(4, 9, 2, width)  # all three finish together
    gap = np.abs(acted - learned[:4]).max(-1)
    assert gap[1:].max() < 2e-5
    assert gap[0, :, 1].max() < 2e-5
    acts = batch.action[0, :, 0] > 0
    assert acts.any()
    assert gap[0, :, 0].max() < 2e-5 if mode == "paper" else (gap[0, acts, 0] > 1e-4).all()
    assert np.abs(acted[1:] - acted[:-1])[..., width // 2 :].max((1, 3)).min() > (1e-3 if mode == "paper" else -1)


def memory_of(num_envs):
    return ma2e.make(SMALL, PAIR).memory(num_envs)


@cache
def acting(greedy):
    return fetched(lambda state, *rest: ma2e.decide(SMALL, state, *rest, greedy))


def looked(num_envs):
    obs = np.repeat(np.random.default_rng(0).normal(size=(1, 2, 2)), num_envs, 0).astype(np.float32)
    avail = np.repeat([[[True, True, True], [False, True, True]]], num_envs, 0)
    return Observation(obs, np.zeros((num_envs, 3), np.float32), avail, np.ones((num_envs, 2), bool))


def test_memory_is_zeros_and_after_a_step_holds_what_was_seen_and_done():
    start = memory_of(1500)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(start))
    seen = looked(1500)
    decision = acting(False)(initial_state(SMALL, PAIR), start, seen, jax.random.key(0))
    window = decision.memory.window
    assert (window.age == 1).all()
    np.testing.assert_array_equal(window.seen[:, -1, :, :2], seen.obs)
    np.testing.assert_array_equal(window.seen[:, -1, :, 2:5], 0)
    np.testing.assert_array_equal(window.seen[:, -1, :, 5:], np.broadcast_to(np.eye(2), (1500, 2, 2)))
    np.testing.assert_allclose(window.done[:, -1], decision.action / 3, rtol=1e-6)
    np.testing.assert_array_equal(window.seen[:, :-1], 0)
    np.testing.assert_array_equal(window.done[:, :-1], 0)
    np.testing.assert_array_equal(decision.memory.last_action, np.eye(3)[decision.action])


def test_before_any_step_has_counted_actions_are_uniform_over_the_legal_ones():
    action = acting(False)(initial_state(SMALL, PAIR), memory_of(1500), looked(1500), jax.random.key(0)).action
    for agent, legal in enumerate(([0, 1, 2], [1, 2])):
        share = np.bincount(action[:, agent], minlength=3) / len(action)
        np.testing.assert_allclose(share[legal], 1 / len(legal), atol=4 * np.sqrt(0.25 / len(action)))
        assert share[legal].sum() == pytest.approx(1)


def test_greedy_play_is_the_best_legal_action_of_what_is_perceived():
    state = initial_state(SMALL, PAIR)
    seen, start = looked(1), memory_of(1)
    decision = acting(True)(state, start, seen, jax.random.key(0))
    q = np.asarray(actors.logits(state.agent.head, "hybrid", jax.nn.relu(decision.memory.agent)))
    np.testing.assert_array_equal(decision.action, np.where(seen.avail, q, -np.inf).argmax(-1))
    assert np.ptp(q) > 0.1


# Whole runs

PROBE = replace(RELEASED, pretrain=16, fine_tune=24, mixer="sum", operator="min_norm", scope="both")
"""The released code, two agents, a consensus of their gradients; the sum because it compiles faster."""
LARGE = pytest.mark.full("a large team, which compiles for long")
CROWD = EnvSpec(name="crowd", num_agents=27, obs_dim=2, state_dim=3, num_actions=3, horizon=2)
CROWDED = replace(SMALL, pretrain=1000, fine_tune=8, windows=1, window=2, rollout=2, buffer=4, feedforward=4)


@cache
def probe():
    """Six updates: the states before and after them, and the metrics."""
    algorithm = ma2e.make(PROBE, PAIR)
    update = standing_in(fetched(algorithm.update), UNCUT)
    states, found = [fetched(algorithm.init)(jax.random.key(0))], []
    for index in range(6):
        state, metrics = update(states[-1], trajectory(index), jax.random.key(index))
        states.append(state)
        found.append(metrics)
    return states, found


@cache
def crowd():
    """27 agents in paper mode: an update of pretraining, one that crosses a multiple of eight steps, and one that
    does not."""
    update = standing_in(fetched(ma2e.make(CROWDED, CROWD).update), UNCUT, (ma2e, "EPISODES", 8))
    found = []
    for pretraining, env_steps in ((True, 0), (False, 6), (False, 0)):
        state = initial_state(CROWDED, CROWD, pretraining)._replace(env_steps=np.int32(env_steps))
        found.append((state, *update(state, trajectory(0, CROWD), jax.random.key(0))))
    return found


def updates(which):
    if which == "crowd":
        return crowd()
    states, found = probe()
    return list(zip(states, states[1:], found, strict=False))


def learner(state):
    return state.agent, state.mixer, state.target, state.opt


def test_a_fresh_state_has_equal_targets_an_error_of_infinity_and_nothing_played():
    start = probe()[0][0]
    assert_close(start.target, (start.agent, start.mixer))
    assert np.isinf(start.tutor.errors).all()
    assert (bool(start.tutor.pretraining), int(start.tutor.played), int(start.tutor.rounds)) == (True, 0, 0)
    assert (int(start.env_steps), int(start.replay.finished)) == (0, 0)
    assert start.agent.backbone["gru"]["memory"]["weight"].shape == (8, 24)


def test_two_agents_pretrain_learn_and_fine_tune_as_released():
    states, found = probe()
    assert [bool(m["pretraining"]) for m in found] == [True, True, False, False, False, False]
    assert [int(m["gradient_steps"]) for m in found] == [0, 0, 1, 1, 1, 1]
    assert [int(m["autoencoder_rounds"]) for m in found] == [1, 1, 0, 0, 1, 0]
    assert [int(state.env_steps) for state in states] == [0, 0, 0, 8, 16, 24, 32]
    assert [int(m["autoencoder_skipped"]) + int(m["skipped_steps"]) for m in found] == [0] * 6
    assert finite([(state.agent, state.senses) for state in states])
    assert all(0 < m["autoencoder_error"] < 10 for m in found)


def test_a_consensus_can_be_made_of_the_agents_gradients():
    for before, after, metrics in updates("probe")[2:]:
        assert metrics["weights"].shape == (2,)
        assert metrics["weights"].sum() == pytest.approx(1, abs=1e-4)
        for part in (lambda state: state.agent.head, lambda state: state.agent.backbone["attention"]):
            assert distance(part(before), part(after)) > 1e-5


@LARGE
def test_twenty_seven_agents_act_and_learn():
    algorithm, steps = ma2e.make(CROWDED, CROWD), trajectory(0, CROWD)
    seen = jax.tree.map(lambda x: x[0], steps.observation)
    act = fetched(lambda *args: algorithm.act(*args, False))
    assert act(initial_state(CROWDED, CROWD), algorithm.memory(2), seen, jax.random.key(0)).action.shape == (2, 27)
    pretrained, tuned, learned = crowd()
    assert [int(m["gradient_steps"]) for _, _, m in crowd()] == [0, 1, 1]
    assert [int(m["autoencoder_rounds"]) for _, _, m in crowd()] == [1, 1, 0]
    assert [int(optax.tree.get(after.tutor.opt, "count")) for _, after, _ in crowd()] == [8 * 36, 8 * 28, 0]
    for _, after, metrics in (pretrained, tuned, learned):
        assert finite((after.agent, after.senses, after.mixer))
        assert metrics["autoencoder_skipped"] + metrics["skipped_steps"] == 0


@pytest.mark.parametrize("which", ["probe", pytest.param("crowd", marks=LARGE)])
def test_training_rounds_never_change_the_agents_their_mixer_nor_the_targets(which):
    checked = 0
    for before, after, metrics in updates(which):
        assert_close(before.target, after.target)
        if metrics["gradient_steps"] == 0:
            assert_close(learner(before), learner(after))
            assert distance(before.senses, after.senses) > 1e-6
            checked += 1
    assert checked == {"probe": 2, "crowd": 1}[which]


@pytest.mark.parametrize("which", ["probe", pytest.param("crowd", marks=LARGE)])
def test_learning_values_never_changes_the_autoencoder(which):
    checked = 0
    for before, after, metrics in updates(which):
        if metrics["autoencoder_rounds"] == 0:
            assert_close((before.senses, before.tutor), (after.senses, after.tutor))
            assert distance((before.agent, before.mixer), (after.agent, after.mixer)) > 1e-4
            checked += 1
    assert checked == {"probe": 3, "crowd": 1}[which]


@pytest.mark.parametrize("options", [{"embed": 10, "heads": 2}, {"embed": 8, "heads": 3}, {"embed": 24, "heads": 5}])
def test_sizes_that_do_not_go_together_are_refused_before_anything_runs(options):
    with pytest.raises(GraspError, match=r"embed \d+ must be a multiple of 4 .* and of heads"):
        ma2e.make(replace(SMALL, **options), PAIR)


def test_an_unknown_operator_is_refused_before_anything_runs():
    with pytest.raises(GraspError, match="min_nrm"):
        ma2e.make(replace(SMALL, operator="min_nrm"), PAIR)


def test_what_acting_needs_is_the_agents_the_autoencoder_and_the_steps():
    algorithm = ma2e.make(SMALL, PAIR)
    assert set(algorithm.acting) == {"agent", "senses", "env_steps"}
    assert algorithm.replays == SMALL.buffer
    state = initial_state(SMALL, PAIR)
    bare = state._replace(**{name: () for name in state._fields if name not in algorithm.acting + algorithm.judging})
    acts = [acting(True)(s, memory_of(1), looked(1), jax.random.key(0)) for s in (state, bare)]
    np.testing.assert_array_equal(acts[0].action, acts[1].action)
