"""Whole updates of MA2E: pretraining, learning and fine-tuning, and what each of them must not change."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import optax
import pytest
from ma2e_cases import PAIR, RELEASED, SMALL, UNCUT, finite, initial_state, standing_in, trajectory
from qmix_cases import fetched
from trees import assert_close, distance

from grasp.algos.ma2e import algorithm as ma2e
from grasp.types import EnvSpec

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


@pytest.mark.full("MA2E with a consensus, whose rule is QMIX's")
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
