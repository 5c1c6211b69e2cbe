"""Advantages and TD(λ) targets against brute-force sums, with terminations and truncations everywhere."""

import jax.numpy as jnp
import numpy as np
import pytest

from grasp.algos.returns import gae, masked_moments, td_lambda

GAMMA, LAMBDA = 0.9, 0.8


def brute_force(reward, value, next_value, terminated, truncated):
    """Â_t = Σ_l (γλ)^l δ_{t+l}, the sum up to the step that ends an episode; δ without future where terminated."""
    steps, envs = reward.shape
    advantage = np.zeros_like(reward)
    for t in range(steps):
        for b in range(envs):
            weight = 1.0
            for later in range(t, steps):
                future = 0.0 if terminated[later, b] else GAMMA * next_value[later, b]
                advantage[t, b] += weight * (reward[later, b] + future - value[later, b])
                if terminated[later, b] or truncated[later, b]:
                    break
                weight *= GAMMA * LAMBDA
    return advantage


@pytest.mark.parametrize("seed", range(5))
def test_gae_equals_the_explicit_sum(seed):
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, 12, 4)).astype(np.float32)
    ending = rng.integers(0, 6, size=(12, 4))
    terminated, truncated = ending == 0, ending == 1
    found = gae(*map(jnp.asarray, (reward, value, next_value, terminated, truncated)), GAMMA, LAMBDA)
    np.testing.assert_allclose(
        found, brute_force(reward, value, next_value, terminated, truncated), rtol=1e-5, atol=1e-6
    )


def test_agents_with_values_of_their_own_have_advantages_of_their_own():
    rng = np.random.default_rng(7)
    reward, ending = rng.normal(size=(12, 4)).astype(np.float32), rng.integers(0, 6, size=(12, 4))
    value, next_value = rng.normal(size=(2, 12, 4, 3)).astype(np.float32)
    happened = [jnp.asarray(x)[..., None] for x in (reward, ending == 0, ending == 1)]
    found = gae(happened[0], jnp.asarray(value), jnp.asarray(next_value), *happened[1:], GAMMA, LAMBDA)
    for i in range(3):
        alone = brute_force(reward, value[..., i], next_value[..., i], ending == 0, ending == 1)
        np.testing.assert_allclose(found[..., i], alone, rtol=1e-5, atol=1e-6)


def test_a_truncated_step_keeps_its_future_and_a_terminated_one_has_none():
    one, no, yes = jnp.ones((1, 1)), jnp.array([[False]]), jnp.array([[True]])
    assert gae(one, 0 * one, 10 * one, no, yes, GAMMA, LAMBDA)[0, 0] == pytest.approx(1 + GAMMA * 10)
    assert gae(one, 0 * one, 10 * one, yes, no, GAMMA, LAMBDA)[0, 0] == pytest.approx(1)


def test_masked_moments_count_only_what_the_mask_counts():
    x = jnp.array([1.0, 3.0, 1e6])
    mean, spread = masked_moments(x, jnp.array([1.0, 3.0, 0.0]))
    assert mean == pytest.approx(2.5)
    assert spread == pytest.approx(np.std([1, 3, 3, 3]))


def forward_view(reward, next_value, terminated, gamma, trace):
    """One episode's targets as the weighted sum of its n-step returns, (1 − λ) Σ λ^{n−1} G^(n) and what is left of the
    weight on the longest, which reaches the end."""
    steps = len(reward)
    targets = np.zeros(steps)
    for t in range(steps):
        left = steps - t
        for n in range(1, left + 1):
            ahead = sum(gamma**k * reward[t + k] for k in range(n))
            if n < left or not terminated:
                ahead += gamma**n * next_value[t + n - 1]
            targets[t] += (trace ** (n - 1) if n == left else (1 - trace) * trace ** (n - 1)) * ahead
    return targets


def every_ending(padding, steps=6, seed=0):
    """An episode of every length, once terminated and once truncated, with `padding` after its end."""
    rng = np.random.default_rng(seed)
    length = np.tile(np.arange(1, steps + 1), 2)
    terminated = np.repeat([True, False], steps)
    reward, next_value = rng.normal(size=(2, steps, 2 * steps))
    beyond = np.arange(steps)[:, None] >= length
    return np.where(beyond, padding, reward), np.where(beyond, padding, next_value), length, terminated


def targets_of(reward, next_value, length, terminated, gamma, trace):
    arrays = (jnp.asarray(reward, jnp.float32), jnp.asarray(next_value, jnp.float32))
    return np.asarray(td_lambda(*arrays, jnp.asarray(length), jnp.asarray(terminated), gamma, trace))


@pytest.mark.parametrize("padding", [0.0, 1e6, np.nan])
@pytest.mark.parametrize("trace", [0.0, 0.6, 1.0])
def test_td_lambda_is_the_weighted_sum_of_n_step_returns(trace, padding):
    reward, next_value, length, terminated = every_ending(padding)
    found = targets_of(reward, next_value, length, terminated, GAMMA, trace)
    for e, steps in enumerate(length):
        expected = forward_view(reward[:steps, e], next_value[:steps, e], terminated[e], GAMMA, trace)
        np.testing.assert_allclose(found[:steps, e], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found[steps:, e], 0)


def test_lambda_0_is_the_one_step_target():
    reward, next_value, length, terminated = every_ending(1e6)
    found = targets_of(reward, next_value, length, terminated, GAMMA, 0.0)
    for e, steps in enumerate(length):
        for t in range(steps):
            over = terminated[e] and t == steps - 1
            expected = reward[t, e] + (0 if over else GAMMA * next_value[t, e])
            assert found[t, e] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_lambda_1_is_monte_carlo_and_values_matter_only_where_an_episode_was_truncated():
    reward, next_value, length, terminated = every_ending(1e6)
    found = targets_of(reward, next_value, length, terminated, GAMMA, 1.0)
    other = targets_of(reward, 1.0 - 3.0 * next_value, length, terminated, GAMMA, 1.0)
    for e, steps in enumerate(length):
        earned = [sum(GAMMA ** (k - t) * reward[k, e] for k in range(t, steps)) for t in range(steps)]
        last = 0 if terminated[e] else next_value[steps - 1, e]
        expected = [earned[t] + GAMMA ** (steps - t) * last for t in range(steps)]
        np.testing.assert_allclose(found[:steps, e], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[:, terminated], other[:, terminated])
    assert (np.abs(found - other).max(0)[~terminated] > 0.1).all()
