"""The training rounds of MA2E's autoencoder: one gradient step for every episode and mask, and how each moves it."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ma2e_cases import (
    HYPER,
    MODES,
    PAIR,
    RELEASED,
    SMALL,
    TEAM,
    Log,
    episodes,
    finite,
    holding,
    initial_state,
    read,
    recorded_rounds,
    recording_state,
    standing_in,
    state_before_rounds,
    trace,
)
from qmix_cases import fetched
from trees import assert_close, distance

from grasp.algos import inputs, replay_buffer
from grasp.algos.ma2e import algorithm as ma2e
from grasp.algos.ma2e import autoencoder
from grasp.nn import transformer

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
