"""Each probe pays a right policy its optimum and wrong ones clearly less, and its stated values are true."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.envs import make
from grasp.envs.probes import DISCOUNT, SOLVED, VALUES, names

KEYS = jax.random.split(jax.random.key(0), 32)


def mean_return(name: str, policy) -> float:
    """Mean undiscounted return of `policy(observation, t, seen at t=0) -> action[N]` over 32 starts."""
    env = make(f"probe/{name}")

    def episode(key):
        env_state, first = env.reset(key)
        observation, total, over = first, jnp.zeros(()), jnp.array(False)
        for t in range(env.spec.horizon):
            env_state, step = env.step(env_state, policy(observation, t, first), key)
            total = total + jnp.where(over, 0.0, step.reward)
            over = over | step.terminated | step.truncated
            observation = step.observation
        return total

    return float(jnp.mean(jax.vmap(episode)(KEYS)))


def constant(*action):
    return lambda observation, t, first: jnp.array(action)


def recall(observation, t, first):
    return jnp.argmax(first.obs[:, :2], axis=1)


def forget(observation, t, first):
    return jnp.argmax(observation.obs[:, :2], axis=1)


def right_and_legal(observation, t, first):
    return jnp.where(observation.alive, 2 * (t % 2), 1)


def dead_agent_plays(action):
    return lambda observation, t, first: jnp.where(observation.alive, 2 * (t % 2), action)


def split_roles(observation, t, first):
    cue, number = jnp.argmax(observation.obs[:, :2], axis=1), jnp.argmax(observation.obs[:, 2:], axis=1)
    return cue * number


def follow_cue(observation, t, first):
    return jnp.argmax(observation.obs[:, :2], axis=1)


RIGHT = {
    "action": constant(1, 1),
    "memory": recall,
    "mask_death": right_and_legal,
    "roles": split_roles,
    "coordination": split_roles,
}
WRONG = {
    "action": [(constant(0, 0), 0.0), (constant(1, 2), 0.5)],
    "memory": [(constant(0, 1), 0.5), (lambda o, t, first: 1 - recall(o, t, first), 0.0)],
    "mask_death": [(constant(1, 1), 0.0), (constant(0, 1), -20 + 1 / 8 + 1 / 4)],
}


def test_every_probe_has_a_criterion():
    assert set(names()) == set(SOLVED) | set(VALUES)
    assert set(SOLVED) == set(RIGHT)


@pytest.mark.parametrize("name", SOLVED)
def test_the_right_policy_solves_the_probe(name):
    assert mean_return(name, RIGHT[name]) == pytest.approx(1.0)
    assert SOLVED[name] < 1.0


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, policies in WRONG.items() for i in range(len(policies))]
)
def test_a_wrong_policy_does_not_solve_the_probe(name, index):
    policy, expected = WRONG[name][index]
    assert mean_return(name, policy) == pytest.approx(expected)
    assert expected < SOLVED[name]


def test_memory_shows_the_cue_only_once():
    assert 0.2 < mean_return("memory", forget) < 0.8


def test_roles_pays_for_the_pair_only():
    assert 0.2 < mean_return("roles", constant(0, 0)) < 0.8
    assert 0.2 < mean_return("roles", constant(0, 1)) < 0.8
    assert mean_return("roles", constant(1, 1)) == 0


def test_coordination_needs_the_agents_indices():
    _, observation = make("probe/coordination").reset(KEYS[0])
    assert observation.obs[:, 2:].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert 0.2 < mean_return("coordination", follow_cue) < 0.8
    assert 0.2 < mean_return("coordination", constant(0, 1)) < 0.8


@pytest.mark.parametrize("action", [0, 1, 2])
def test_actions_of_dead_agents_have_no_effect(action):
    assert mean_return("mask_death", dead_agent_plays(action)) == pytest.approx(1.0)


def test_only_the_row_of_the_dead_agent_is_noise():
    env = make("probe/mask_death")
    env_state, observation = env.reset(KEYS[0])
    for t in range(4):
        assert observation.alive.tolist() == [True, t < 2]
        assert (jnp.abs(observation.obs).max(axis=1) >= 1e3).tolist() == [False, t >= 2]
        assert observation.avail[0].tolist() == [t % 2 == 0, True, t % 2 == 1]
        env_state, step = env.step(env_state, jnp.array([1, 1]), KEYS[0])
        observation = step.observation


@pytest.mark.parametrize("name", VALUES)
def test_stated_values_are_the_true_ones(name):
    """The discounted sum of rewards until termination, past the time limit, is the value under all actions."""
    env = make(f"probe/{name}")
    met = set()
    for key in KEYS:
        env_state, observation = env.reset(key)
        states, rewards, ended = [], [], False
        while not ended:
            states.append(tuple(np.asarray(observation.state).tolist()))
            env_state, step = env.step(env_state, jnp.zeros(2, jnp.int32), key)
            rewards.append(float(step.reward))
            observation, ended = step.observation, bool(step.terminated)
        for t, state in enumerate(states):
            value = sum(DISCOUNT**k * reward for k, reward in enumerate(rewards[t:]))
            assert VALUES[name][state] == pytest.approx(value)
            met.add(state)
    assert met == set(VALUES[name])


def test_truncation_hides_the_reward_behind_the_time_limit():
    """From the first position there is no reward before the truncation: treated as termination it is worth 0, not
    0.97."""
    env = make("probe/truncation")
    start = env.reset(KEYS[0])[0]._replace(draw=jnp.int32(1))
    after, one = env.step(start, jnp.zeros(2, jnp.int32), KEYS[0])
    _, two = env.step(after, jnp.zeros(2, jnp.int32), KEYS[0])
    assert (bool(one.truncated), bool(two.truncated), bool(two.terminated)) == (False, True, False)
    assert float(one.reward + two.reward) == 0.0
    assert VALUES["truncation"][(1.0, 0.0, 0.0, 0.0)] == pytest.approx(DISCOUNT**3)
    assert two.observation.state.tolist() == [0.0, 0.0, 1.0, 0.0]
