"""The training loop: of which policy the final evaluation is."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from one_step import one_step_env
from safetensors.numpy import load_file
from tiny import TINY

from grasp import runs
from grasp.config import configure
from grasp.runs.metrics_log import read
from grasp.training import loop
from grasp.training.runner import Built
from grasp.types import Algorithm, Decision


class State(NamedTuple):
    skill: Any
    iteration: Any


SKILLS = (0, 0, 1, 0, 0)
"""The action of the policy before training and after each of the four iterations; it is also the return."""


def fickle() -> Algorithm:
    """Its policy is good after the second iteration only."""

    def act(state, memory, observation, key, greedy):
        return Decision(jnp.broadcast_to(state.skill, observation.alive.shape), memory, ())

    def update(state, trajectory, key):
        after = state.iteration + 1
        return State(jnp.array(SKILLS)[after], after), {}

    return Algorithm(
        init=lambda key: State(jnp.array(SKILLS[0]), jnp.array(0)),
        memory=lambda num_envs: jnp.zeros((num_envs, 1)),
        act=act,
        update=update,
        acting=("skill",),
    )


def test_the_absolute_metric_is_of_the_best_snapshot_which_becomes_the_policy(tmp_path):
    """Not of the last, nor of the worst."""
    config, env = configure("mappo", "matrix/climbing", TINY | {"eval_interval": 40}), one_step_env()
    run = runs.create(tmp_path / "run", config, env.spec)
    loop.train(run, [0], lambda record: None, built=Built(env, fickle()))
    lines = read(run.metrics_log(0)).records
    assert [line["return_mean"] for line in lines if line["kind"] == "evaluation"] == list(SKILLS)
    (final,) = (line for line in lines if line["kind"] == "absolute")
    assert final["returns"] == [1.0] * TINY["final_episodes"]
    assert final["best_env_steps"] == 80
    (policy,) = load_file(run.policy(0)).values()
    np.testing.assert_array_equal(policy, 1)


def test_an_evaluation_s_record_tells_greedy_from_sampled_episodes(tmp_path):
    """The greedy action is 1, which returns 1; the sampled one is the copy's number modulo 2."""

    def act(state, memory, observation, key, greedy):
        drawn = jnp.arange(observation.alive.shape[0]) % 2
        action = jnp.where(jnp.broadcast_to(jnp.asarray(greedy), drawn.shape), 1, drawn)
        return Decision(jnp.broadcast_to(action[:, None], observation.alive.shape), memory, ())

    config, env = configure("mappo", "matrix/climbing", TINY | {"eval_interval": 40}), one_step_env()
    run = runs.create(tmp_path / "run", config, env.spec)
    loop.train(run, [0], lambda record: None, built=Built(env, fickle()._replace(act=act)))
    line = next(line for line in read(run.metrics_log(0)).records if line["kind"] == "evaluation")
    assert (line["return_mean"], line["distinct_episodes"]) == (1.0, 1)
    assert line["sampled_returns"] == [1.0, 0.0, 1.0]  # copies 3 to 5
    assert line["sampled_return_mean"] == pytest.approx(2 / 3)
    assert line["sampled_distinct_episodes"] == 2
