"""Exploration of the Q-learners: epsilon, and the actions that it explores."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from qmix_cases import SGD, SMALL, SPEC, acting, agent_values, case, in_loops, state_of

from grasp.algos import exploration, qmix
from grasp.algos.ma2e import algorithm as ma2e
from grasp.algos.replay_buffer import Episodes
from grasp.config import configure
from grasp.envs import base as envs
from grasp.types import Observation


def test_epsilon_anneals_linearly_over_environment_steps_and_stays():
    hyper = replace(SMALL, epsilon=0.2, anneal=1000)
    found = [float(exploration.epsilon(hyper, jnp.asarray(steps))) for steps in (0, 250, 500, 1000, 1001, 10**9)]
    np.testing.assert_allclose(found, [1.0, 0.8, 0.6, 0.2, 0.2, 0.2], rtol=1e-6)


def looked(num_envs, seed=0):
    """The same observation and the same legal actions in every environment: agent 0 has all of them, 1 has two, 2 has
    one."""
    obs = np.random.default_rng(seed).normal(size=(1, 3, SPEC.obs_dim)).astype(np.float32)
    seen = Observation(
        obs=obs,
        state=np.zeros((1, SPEC.state_dim), np.float32),
        avail=np.array([[[True, True, True], [False, True, True], [True, False, False]]]),
        alive=np.ones((1, 3), bool),
    )
    return jax.tree.map(lambda x: np.repeat(x, num_envs, 0), seen)


def decisions(env_steps, number=6000, greedy=False):
    given, seen = case("hybrid"), looked(number)
    state = state_of(given.online, given.target, SGD)._replace(env_steps=np.int32(env_steps))
    memory = qmix.Memory(np.zeros((number, 3, SMALL.hidden), np.float32), np.zeros((number, 3, 3), np.float32))
    return seen, acting(greedy=greedy)(state, memory, seen, jax.random.key(1))


def test_exploring_is_uniform_over_the_legal_actions_and_never_illegal():
    seen, decision = decisions(env_steps=0)
    for agent in range(3):
        share = np.bincount(decision.action[:, agent], minlength=3) / len(decision.action)
        legal = seen.avail[0, agent]
        assert (share[~legal] == 0).all()
        np.testing.assert_allclose(share[legal], 1 / legal.sum(), atol=4 * np.sqrt(0.25 / len(decision.action)))


@pytest.mark.parametrize(("env_steps", "epsilon"), [(50, 0.55), (100, 0.1), (10_000, 0.1)])
def test_each_agent_explores_by_itself_with_probability_epsilon(env_steps, epsilon):
    _, decision = decisions(env_steps)
    _, best = decisions(env_steps, number=1, greedy=True)
    other = decision.action != best.action
    rate = epsilon * np.array([2 / 3, 1 / 2, 0])
    bound = 4 * np.sqrt(0.25 / len(other))
    np.testing.assert_allclose(other.mean(0), rate, atol=bound)
    assert (other[:, 0] & other[:, 1]).mean() == pytest.approx(rate[0] * rate[1], abs=bound)


def test_which_action_is_explored_does_not_depend_on_whether_one_explores():
    """Of two actions the worse is taken in half of the explorations. If one number decided both, whether to explore
    and which action to take, it would be a quarter."""
    keys = jax.random.split(jax.random.key(0), 4000)
    q, avail = jnp.array([[0.0, 1.0]]), jnp.ones((1, 2), bool)
    action = jax.vmap(lambda key: exploration.choose(q, avail, jnp.array(0.5), key))(keys)
    assert (action == 0).mean() == pytest.approx(0.25, abs=0.03)


def test_greedy_play_takes_the_best_legal_action_whatever_epsilon_is():
    given = case("hybrid")
    seen, decision = decisions(env_steps=0, number=40, greedy=True)
    team, _ = in_loops(given.online, "hybrid")
    step = Episodes(seen.obs[:1], seen.state[:1], seen.avail[:1], np.zeros((0, 3), int), (), 0, False)
    q = np.stack([agent_values(team[i], i, step)[0] for i in range(3)])
    best = np.where(seen.avail[0], q, -np.inf).argmax(-1)
    assert (decision.action == best).all()
    assert (best != q.argmax(-1)).any()


@pytest.mark.parametrize("algo", ["qmix", "ma2e"])
def test_what_is_evaluated_explores_with_the_final_epsilon(algo):
    hyper = configure(algo, "probe/value", {"epsilon": 0.2, "anneal": 1000}).hyper
    algorithm = (qmix if algo == "qmix" else ma2e).make(hyper, envs.make("probe/value").spec)
    new = jax.eval_shape(algorithm.init, jax.random.key(0))._replace(env_steps=jnp.int32(7))
    assert float(exploration.epsilon(hyper, algorithm.evaluated(new).env_steps)) == pytest.approx(0.2)
    assert float(exploration.epsilon(hyper, new.env_steps)) > 0.9
