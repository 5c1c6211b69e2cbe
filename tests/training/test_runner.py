"""The functions that train a group of seeds: the keys of iterations, and what an evaluation asks for."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from one_step import one_step_env
from tiny import TINY

from grasp.config import configure
from grasp.training import runner
from grasp.types import Algorithm, Decision


class Draws(NamedTuple):
    """What the algorithm drew in its last iteration: the last time it acted, and in its update."""

    acting: Any
    updating: Any


def telling() -> Algorithm:
    """Its action is whether it is asked to be greedy; its state has what it drew."""

    def act(state, memory, observation, key, greedy):
        wanted = jnp.broadcast_to(jnp.asarray(greedy, int), observation.alive.shape[:1])
        action = jnp.broadcast_to(wanted[:, None], observation.alive.shape)
        return Decision(action, memory, jnp.broadcast_to(jax.random.uniform(key), action.shape[:1]))

    def update(state, trajectory, key):
        return Draws(trajectory.record[-1, 0], jax.random.uniform(key)), {}

    return Algorithm(
        init=lambda key: Draws(jnp.zeros(()), jnp.zeros(())),
        memory=lambda num_envs: jnp.zeros((num_envs, 1)),
        act=act,
        update=update,
        acting=(),
    )


def made() -> runner.Runner:
    config = configure("mappo", "matrix/climbing", TINY)
    return runner.on_device(config, one_step_env(), telling(), 1)


def test_every_iteration_acts_and_updates_with_keys_of_its_own():
    trainer, draws = made(), []
    state = trainer.begin([0])
    for _ in range(3):
        state, _ = trainer.advance(state)
        draws += [float(draw[0]) for draw in state.state]
    assert len(set(draws)) == 6


def test_evaluations_have_as_many_greedy_and_sampled_episodes_as_configured():
    trainer = made()
    state, keys = trainer.begin([0]).state, jax.random.key(1)[None]
    for score, episodes in ((trainer.score, "eval_episodes"), (trainer.score_best, "final_episodes")):
        greedy, sampled = score(state, keys)
        assert greedy.returned.shape == sampled.returned.shape == (1, TINY[episodes])
        np.testing.assert_array_equal(greedy.returned, 1.0)
        np.testing.assert_array_equal(sampled.returned, 0.0)
