"""The optimiser: clipping, annealing, and what a step that is not taken leaves behind."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mappo_cases import SMALL, iterate, world
from trees import assert_close

from grasp.algos import happo, ppo
from grasp.algos.optimiser import ascend, clipped_adam, taken_if
from grasp.config.hyperparameters import Happo

SPREAD = "mpe/simple_spread"
DECAY = 4 * SMALL.num_envs * SMALL.rollout


def counted(opt_state):
    """The counts of the learning-rate schedules in an optimiser's state."""
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda x: isinstance(x, optax.ScaleByScheduleState))
    return [np.asarray(node.count) for node in nodes if isinstance(node, optax.ScaleByScheduleState)]


def test_the_gradient_is_clipped_by_its_norm_not_by_its_entries():
    optimiser = clipped_adam(lr=1.0, eps=1.0, max_grad_norm=1.0)
    params = {"a": jnp.zeros(2)}
    after, _, _ = ascend(optimiser, params, optimiser.init(params), {"a": jnp.array([3.0, 4.0])})
    np.testing.assert_allclose(after["a"], [0.6 / 1.6, 0.8 / 1.8], rtol=1e-5)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_with_decay_the_learning_rate_anneals_linearly_to_0_over_that_many_environment_steps(minibatches):
    """4 iterations of 60 environment steps; Adam's first update is the learning rate itself."""
    hyper = replace(SMALL, decay=DECAY, adam_eps=1e-12, lr=0.5, minibatches=minibatches)
    steps = 4 * SMALL.epochs * minibatches
    optimiser = ppo.optimisers(hyper).actor
    params, moves = {"a": jnp.zeros(())}, []
    state = optimiser.init(params)
    for _ in range(steps + 1):
        updates, state = optimiser.update({"a": jnp.ones(())}, state, params)
        moves.append(-float(updates["a"]))
    np.testing.assert_allclose(moves, 0.5 * (1 - np.arange(steps + 1) / steps), atol=1e-5)


@pytest.mark.parametrize("taken", [True, False])
def test_a_step_not_taken_leaves_parameters_and_moments_and_is_counted_by_the_schedule(taken):
    optimiser = clipped_adam(lr=1.0, eps=1e-8, max_grad_norm=1.0, decay_steps=10)
    params = {"a": jnp.ones(2)}
    before = params, optimiser.init(params)
    after = ascend(optimiser, *before, {"a": jnp.array([1.0, -1.0])})[:2]
    found = taken_if(jnp.array(taken), after, before)
    expected = after if taken else before
    assert_close(found[0], expected[0])
    assert_close(optax.tree.get(found[1], "mu"), optax.tree.get(expected[1], "mu"))
    assert counted(found[1]) == [1]


def test_a_skipped_step_is_counted_by_the_schedule():
    optimiser = clipped_adam(lr=1.0, eps=1e-8, max_grad_norm=1.0, decay_steps=10)
    params = {"a": jnp.ones(2)}
    after, opt_state, stats = ascend(optimiser, params, optimiser.init(params), {"a": jnp.array([jnp.nan, 1.0])})
    assert_close(after, params)
    assert stats["skipped_steps"] == 1
    assert counted(opt_state) == [1]


def test_after_kl_stop_the_learning_rate_goes_on_annealing():
    hyper = replace(SMALL, lr=3e-2, epochs=8, decay=DECAY, trust="kl_stop", kl=1e-3)
    state, metrics = iterate(SPREAD, hyper, iterations=1)
    assert 0 < float(metrics["halted"]) < 1
    assert counted(state.actor_opt) == counted(state.critic_opt) == [hyper.epochs]


def test_for_an_agent_that_never_lived_in_a_batch_the_learning_rate_goes_on_annealing():
    env, _, _, _, trajectory = world(SPREAD, SMALL)
    hyper = Happo(**{name: getattr(SMALL, name) for name in ("num_envs", "rollout", "chunk", "epochs", "hidden")})
    algorithm = happo.make(replace(hyper, decay=DECAY), env.spec)
    state = algorithm.init(jax.random.key(0))
    alive = trajectory.observation.alive.at[..., 1].set(False)
    dead = trajectory._replace(observation=trajectory.observation._replace(alive=alive))
    after, _ = jax.jit(algorithm.update)(state, dead, jax.random.key(1))
    (count,) = counted(after.actor_opt)
    np.testing.assert_array_equal(count, [hyper.epochs] * 3)
