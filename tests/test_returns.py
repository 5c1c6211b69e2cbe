"""M1: advantages against a brute-force sum, with terminations and truncations everywhere."""

import jax.numpy as jnp
import numpy as np
import pytest

from grasp.returns import gae, masked_moments

GAMMA, LAMBDA = 0.9, 0.8


def brute_force(reward, value, next_value, terminated, truncated):
    """Â_t = Σ_l (γλ)^l δ_{t+l}, the sum cut after the step that ends an episode; δ without future where terminated."""
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
def test_M1_gae_equals_the_explicit_sum(seed):
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, 12, 4)).astype(np.float32)
    ending = rng.integers(0, 6, size=(12, 4))
    terminated, truncated = ending == 0, ending == 1
    found = gae(*map(jnp.asarray, (reward, value, next_value, terminated, truncated)), GAMMA, LAMBDA)
    np.testing.assert_allclose(
        found, brute_force(reward, value, next_value, terminated, truncated), rtol=1e-5, atol=1e-6
    )


def test_a_truncated_step_keeps_its_future_and_a_terminated_one_has_none():
    one, no, yes = jnp.ones((1, 1)), jnp.array([[False]]), jnp.array([[True]])
    assert gae(one, 0 * one, 10 * one, no, yes, GAMMA, LAMBDA)[0, 0] == pytest.approx(1 + GAMMA * 10)
    assert gae(one, 0 * one, 10 * one, yes, no, GAMMA, LAMBDA)[0, 0] == pytest.approx(1)


def test_masked_moments_count_only_what_the_mask_counts():
    x = jnp.array([1.0, 3.0, 1e6])
    mean, spread = masked_moments(x, jnp.array([1.0, 3.0, 0.0]))
    assert mean == pytest.approx(2.5)
    assert spread == pytest.approx(np.std([1, 3, 3, 3]))
