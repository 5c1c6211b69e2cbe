"""The pieces of the losses against plain numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.algos import losses


def test_an_illegal_action_has_no_probability_and_no_gradient():
    logits, avail = jnp.array([[5.0, 0.0, 0.0]]), jnp.array([[False, True, True]])
    log_probs = losses.log_probabilities(logits, avail)
    np.testing.assert_allclose(jnp.exp(log_probs), [[0.0, 0.5, 0.5]])
    gradient = jax.grad(lambda x: losses.entropy(losses.log_probabilities(x, avail)).sum())(logits)
    assert gradient[0, 0] == 0
    assert np.isfinite(gradient).all()


def test_a_single_legal_action_is_certain():
    log_probs = losses.log_probabilities(jnp.array([3.0, -1.0]), jnp.array([False, True]))
    assert log_probs[1] == 0
    assert losses.entropy(log_probs) == 0


def test_entropy_of_the_uniform_distribution():
    log_probs = losses.log_probabilities(jnp.zeros((2, 4)), jnp.ones((2, 4), bool))
    np.testing.assert_allclose(losses.entropy(log_probs), np.log(4), rtol=1e-6)


def test_chosen_reads_the_action_s_entry():
    log_probs = jnp.arange(12.0).reshape(2, 2, 3)
    np.testing.assert_array_equal(losses.chosen(log_probs, jnp.array([[0, 2], [1, 0]])), [[0, 5], [7, 9]])


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, 1.0, 1.2), (0.5, 1.0, 0.5), (1.5, -1.0, -1.5), (0.5, -1.0, -0.8), (1.0, 2.0, 2.0)],
)
def test_the_surrogate_is_clipped_only_where_that_lowers_it(ratio, advantage, expected):
    assert losses.surrogate(jnp.array(ratio), jnp.array(advantage), 0.2) == pytest.approx(expected)


def test_the_value_loss_takes_the_worse_of_plain_and_clipped():
    old, target = jnp.zeros(3), jnp.array([1.0, 1.0, -1.0])
    value = jnp.array([0.9, 0.1, 0.5])
    expected = [0.5 * (0.2 - 1) ** 2, 0.5 * (0.1 - 1) ** 2, 0.5 * 1.5**2]
    np.testing.assert_allclose(losses.value_loss(value, old, target, 0.2, 10.0), expected, rtol=1e-6)


def test_huber_is_linear_beyond_delta():
    np.testing.assert_allclose(losses.huber(jnp.array([0.5, 3.0, -3.0]), 1.0), [0.125, 2.5, 2.5])
