"""Gram matrix, combination, rescaling, diagnostics and the API: by hand, on extreme inputs, and errors."""

import doctest
import functools

import consensus_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.consensus import Status, aggregate, combine, consensus, diagnose, gram, min_norm, rescale
from grasp.consensus.gram import num_agents, project

TREE = {"a": jnp.array([[1.0, 2], [3, 4]]), "b": jnp.array([[[0.0], [1]], [[-1], [0]]])}
MIN_NORM = jax.jit(min_norm)
DIAGNOSE = jax.jit(diagnose)
CONSENSUS = {name: jax.jit(functools.partial(consensus, operator=name)) for name in ("min_norm", "mean", "random")}


def test_gram_sums_over_leaves():
    np.testing.assert_allclose(gram(TREE), [[6, 11], [11, 26]])


def test_combine_and_project():
    u = combine(TREE, jnp.array([0.5, 2.0]))
    np.testing.assert_allclose(u["a"], [6.5, 9])
    np.testing.assert_allclose(u["b"], [[-2], [0.5]])
    np.testing.assert_allclose(project(TREE, u), [6.5 + 18 + 0.5, 19.5 + 36 + 2])


def test_rescale_divides_by_the_largest_norm():
    scaled, scale = rescale(jnp.array([[3.0, 4], [0, 1]]))
    assert float(scale) == pytest.approx(5)
    np.testing.assert_allclose(scaled, [[0.6, 0.8], [0, 0.2]], rtol=1e-6)
    zeros, scale = rescale(jnp.zeros((2, 3)))
    assert float(scale) == 1
    assert not np.any(zeros)
    over_two_leaves, scale = rescale({"a": jnp.array([[3.0], [1]]), "b": jnp.array([[4.0], [1]])})
    assert float(scale) == pytest.approx(5)
    np.testing.assert_allclose(over_two_leaves["b"], [[0.8], [0.2]], rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1.0, 1e10, 1e30])
def test_u_scales_with_the_gradients_over_the_whole_range(scale):
    g = np.array([[2.0, 0], [0, 1]], np.float32) * np.float32(scale)
    u, info = MIN_NORM(jnp.asarray(g))
    np.testing.assert_allclose(np.asarray(u) / np.float32(scale), [0.4, 0.8], rtol=1e-5)
    assert Status(int(info.status)) is Status.CERTIFIED
    assert float(info.scale) == pytest.approx(2 * scale, rel=1e-5)


def test_norms_a_factor_of_a_thousand_million_apart():
    """The shortest gradient determines u, and its digits are not lost beside a much longer one."""
    u, info = MIN_NORM(jnp.array([[1e9, 0.0], [0.0, 1.0]]))
    np.testing.assert_allclose(u, [1e-9, 1.0], rtol=1e-5)
    assert Status(int(info.status)) is Status.CERTIFIED


def test_diagnose_by_hand():
    g = jnp.array([[2.0, 0], [-1, 1], [0, 0]])
    w = jnp.array([0.25, 0.5, 0.25])  # u = (0, 0.5), mean = (1/3, 1/3)
    found = {name: np.asarray(value) for name, value in DIAGNOSE(gram(g / 2), w, jnp.asarray(2.0)).items()}
    half = 0.5**0.5
    np.testing.assert_allclose(found["cosine"], [[1, -half, 0], [-half, 1, 0], [0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(found["conflict_rate"], 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(found["mean_cosine"], -half / 3, rtol=1e-5)
    np.testing.assert_allclose(found["norms"], [2, 2**0.5, 0], rtol=1e-6)
    np.testing.assert_allclose(found["u_norm"], 0.5, rtol=1e-5)
    np.testing.assert_allclose(found["u_ratio"], 0.5 / ((2 + 2**0.5) / 3), rtol=1e-5)
    np.testing.assert_allclose(found["residual"], 0.5 / 2, rtol=1e-5)  # agent 1: (0.25 − 0)/(2 · 0.5)
    np.testing.assert_allclose(found["min_alignment"], 0, atol=1e-6)
    np.testing.assert_allclose(found["weight_entropy"], 1.5 * np.log(2), rtol=1e-6)
    np.testing.assert_allclose(found["cosine_to_mean"], half, rtol=1e-5)
    np.testing.assert_array_equal(found["weights"], w)


def test_diagnose_agrees_with_the_gradients():
    g = oracle.family("conflicting", 5, 0, dim=7).astype(np.float32)
    u, info = MIN_NORM(jnp.asarray(g))
    found = DIAGNOSE(info.gram, info.weights, info.scale)
    u = np.asarray(u, np.float64)
    np.testing.assert_allclose(found["u_norm"], np.linalg.norm(u), rtol=1e-3)
    np.testing.assert_allclose(found["norms"], np.linalg.norm(g, axis=1), rtol=1e-5)
    cosines = g @ u / np.linalg.norm(g, axis=1) / np.linalg.norm(u)
    np.testing.assert_allclose(found["min_alignment"], cosines.min(), atol=1e-4)
    assert float(found["residual"]) < 1e-4


def test_diagnose_zero_gradients_and_one_agent():
    zero = DIAGNOSE(jnp.zeros((3, 3)), jnp.zeros(3), jnp.asarray(1.0))
    assert all(not np.any(value) for value in zero.values())
    one = DIAGNOSE(jnp.ones((1, 1)), jnp.ones(1), jnp.asarray(3.0))
    assert float(one["conflict_rate"]) == float(one["mean_cosine"]) == float(one["residual"]) == 0
    assert float(one["u_norm"]) == pytest.approx(3)
    assert float(one["min_alignment"]) == pytest.approx(1)
    assert float(one["cosine_to_mean"]) == pytest.approx(1)


def test_zero_gradients_and_one_agent():
    u, info = MIN_NORM(jnp.array([[1.0, 0], [0, 0]]))
    np.testing.assert_array_equal(u, [0, 0])
    np.testing.assert_array_equal(info.weights, [0, 1])
    assert Status(int(info.status)) is Status.STATIONARY
    u, info = MIN_NORM(jnp.zeros((2, 2)))
    assert not np.any(u)
    assert float(jnp.sum(info.weights)) == pytest.approx(1)
    u, info = MIN_NORM(jnp.array([[3.0, -4]]))
    np.testing.assert_allclose(u, [3, -4], rtol=1e-6)
    assert Status(int(info.status)) is Status.CERTIFIED


@pytest.mark.parametrize("operator", ["min_norm", "mean", "random"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_non_finite_gradient_gives_no_direction(operator, value):
    u, info = CONSENSUS[operator]({"a": jnp.ones((2, 2)), "b": jnp.array([[1.0], [value]])})
    assert not np.any(u["a"])
    assert not np.any(u["b"])
    assert not np.any(info.weights)
    assert np.all(np.isfinite(info.gram))
    assert Status(int(info.status)) is Status.NON_FINITE
    assert float(info.residual) == np.inf


def test_other_operators_are_certified_only_at_the_min_norm_point():
    """For equal orthogonal gradients the mean is the min-norm point; with a zero gradient, only u = 0 is."""
    mean = CONSENSUS["mean"]
    _, info = mean(jnp.eye(2))
    assert Status(int(info.status)) is Status.CERTIFIED
    _, info = mean(jnp.array([[2.0, 0], [0, 1]]))
    assert Status(int(info.status)) is Status.UNCERTIFIED
    np.testing.assert_allclose(info.residual, (1.25 - 0.5) / 1.25**0.5, rtol=1e-5)
    _, info = mean(jnp.array([[1.0, 0], [0, 0]]))
    assert Status(int(info.status)) is Status.UNCERTIFIED
    assert int(info.iterations) == 0


def test_jit_and_vmap_agree_with_the_plain_call():
    g = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 5)), jnp.float32)
    u, info = jax.jit(jax.vmap(min_norm))({"g": g})
    assert info.status.shape == (3,)
    for i in range(3):
        alone, _ = MIN_NORM({"g": g[i]})
        np.testing.assert_allclose(u["g"][i], alone["g"], atol=1e-5)
        np.testing.assert_allclose(alone["g"], oracle.min_norm(np.asarray(g[i], np.float64)), atol=1e-5)


def test_gradients_without_one_agent_axis_are_refused_in_one_sentence():
    with pytest.raises(
        ValueError, match=r"^the gradients are an empty tree; pass a pytree of arrays with a leading agent"
    ):
        num_agents({})
    with pytest.raises(ValueError, match=r"^a gradient leaf is a scalar; every leaf needs a leading agent axis$"):
        gram({"a": jnp.asarray(1.0)})
    with pytest.raises(
        ValueError, match=r"^the leading agent axes of the gradient leaves are \[2, 3\]; they must be equal"
    ):
        combine({"a": jnp.ones((2, 1)), "b": jnp.ones((3, 1))}, jnp.ones(2))
    with pytest.raises(ValueError, match=r"leaves are \[0\]; they must be equal and above 0$"):
        min_norm(jnp.ones((0, 3)))


def test_64_bit_mode_is_left_off_and_dtypes_are_kept():
    before = jax.config.jax_enable_x64
    u, info = min_norm({"a": jnp.ones((2, 2), jnp.float32)})  # no jit: the plain call must work too
    np.testing.assert_allclose(u["a"], [1, 1], rtol=1e-6)
    assert u["a"].dtype == info.weights.dtype == info.residual.dtype == jnp.float32
    assert jax.config.jax_enable_x64 == before


def test_the_docstring_runs():
    failed, tried = doctest.testmod(aggregate)
    assert tried >= 4
    assert failed == 0
