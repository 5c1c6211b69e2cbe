"""MA2E: when its autoencoder is trained and when it learns values, how it acts, and what it refuses."""

from dataclasses import replace
from functools import cache

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
    acting,
    initial_state,
    looked,
    memory_of,
    standing_in,
    trajectory,
)
from qmix_cases import fetched

from grasp.algos import inputs, qmix, replay_buffer
from grasp.algos.ma2e import algorithm as ma2e
from grasp.envs import base as envs
from grasp.nn import actor as actors
from grasp.nn import transformer
from grasp.training import rollout
from grasp.types import GraspError

# The schedule, with training rounds and TD steps that only count


def counted_rounds(hyper, optimiser, state, rounds, key):
    return state.senses + rounds, state.tutor.opt, state.tutor.errors, jnp.zeros(())


def counted_step(hyper, optimiser, state, episodes, key, see):
    return state._replace(copied=state.copied + 1), {"loss": jnp.zeros(())}


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
