"""The quadratic program: accuracy over families, statuses, certificate, jit and vmap."""

import consensus_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.consensus import Status, consensus, gram, min_norm, rescale, solve
from grasp.consensus.min_norm import strict
from grasp.consensus.nonnegative_qp import Program, _wolfe, nonnegative, optimal, rounding

SOLVE = jax.jit(solve)
MIN_NORM = jax.jit(min_norm)


def check_family(name: str, num: int, dtype: type) -> None:
    g = oracle.family(name, num, seed=num).astype(dtype)
    u, info = MIN_NORM(jnp.asarray(g))
    weights = np.asarray(info.weights, np.float64)
    assert abs(weights.sum() - 1) < 1e-5
    assert weights.min() >= 0
    if name in ("zero", "stationary"):
        assert Status(int(info.status)) is Status.STATIONARY
        assert not np.any(u)
        return
    assert Status(int(info.status)) is Status.CERTIFIED
    assert float(info.residual) <= strict(np.dtype(dtype))
    if name in ("orthogonal", "conflicting", "scaled", "shared"):
        assert int(info.iterations) <= 10  # pivoting alone; the fallback would take one per agent in the support
    assert oracle.violation(g.astype(np.float64), weights @ g) <= strict(np.dtype(dtype))
    expected = oracle.min_norm(g.astype(np.float64))
    tolerance = 2e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(u, expected, atol=tolerance * np.linalg.norm(expected))


@pytest.mark.parametrize("num", [1, 2, 3, 10, 27, 64, 256])
@pytest.mark.parametrize("name", oracle.FAMILIES)
def test_in_float32_u_is_the_shortest_vector_up_to_rounding(name, num):
    check_family(name, num, np.float32)


@pytest.mark.parametrize("num", [1, 2, 3, 10, 27, 64, 256])
@pytest.mark.parametrize("name", oracle.FAMILIES)
def test_in_float64_u_is_the_shortest_vector_up_to_rounding(name, num, x64):
    check_family(name, num, np.float64)


def test_residual_measures_the_violation(x64):
    """Weights that are not optimal are not certified; the residual is the largest violation."""
    g = oracle.family("conflicting", 5, seed=3)
    _, info = consensus(jnp.asarray(g), "mean")
    np.testing.assert_allclose(float(info.residual), max(0, oracle.violation(g, g.mean(0))), rtol=1e-8, atol=1e-12)
    _, info = consensus(jnp.asarray(g * np.array([[9.0], [1], [1], [1], [1]])), "mean")
    assert float(info.residual) > 0.1
    assert Status(int(info.status)) is Status.UNCERTIFIED


def test_the_status_says_whether_weights_are_certified_and_if_not_why():
    assert Status(int(SOLVE(jnp.diag(jnp.array([1.0, 2.0]))).status)) is Status.CERTIFIED
    assert Status(int(SOLVE(jnp.array([[1.0, -1.0], [-1.0, 1.0]])).status)) is Status.STATIONARY
    indefinite = SOLVE(jnp.array([[1.0, -1.2], [-1.2, 1.0]]))
    assert Status(int(indefinite.status)) is Status.NOT_PSD
    assert not np.any(indefinite.weights)
    broken = SOLVE(jnp.array([[1.0, jnp.nan], [jnp.nan, 1.0]]))
    assert Status(int(broken.status)) is Status.NON_FINITE
    assert not np.any(broken.weights)
    # ‖u‖ is 0.0035 of the gradients' norm: too small to certify in float32, too large to count as 0.
    near = SOLVE(jnp.array([[1.0, -0.99997], [-0.99997, 1.0]]))
    assert Status(int(near.status)) in (Status.CERTIFIED, Status.ROUNDING)
    assert Status(int(SOLVE(jnp.array([[-1.0]])).status)) is Status.NOT_PSD


def test_rounding_status_is_reached_and_bounded():
    """Of nearly cancelling float32 sets some can't be certified; all of these have the status ROUNDING."""
    rng = np.random.default_rng(0)
    g = rng.normal(size=(400, 6, 40))
    g = g - (1 - 10 ** rng.uniform(-4, -1, size=(400, 1, 1))) * g.mean(1, keepdims=True)
    g = (g / np.linalg.norm(g, axis=2).max(1)[:, None, None]).astype(np.float32)
    status = np.asarray(jax.jit(jax.vmap(lambda x: solve(gram(x)).status))(jnp.asarray(g)))
    counts = {name: int(np.sum(status == name)) for name in Status}
    assert counts[Status.ROUNDING] > 0
    assert counts[Status.CERTIFIED] > 0
    assert counts[Status.STATIONARY] > 0
    assert sum(counts[name] for name in (Status.ROUNDING, Status.CERTIFIED, Status.STATIONARY)) == 400


def test_vmap_equals_a_loop_and_terminates():
    rng = np.random.default_rng(1)
    g = jnp.asarray(rng.normal(size=(16, 9, 6)), jnp.float32)
    grams = jax.vmap(gram)(g)
    batched = jax.jit(jax.vmap(solve))(grams)
    for i in range(16):
        single = SOLVE(grams[i])
        assert int(single.status) == int(batched.status[i])
        np.testing.assert_allclose(single.weights @ g[i], batched.weights[i] @ g[i], atol=2e-3)
    assert int(batched.iterations.max()) <= 30


def test_one_agent_and_small_scales():
    np.testing.assert_array_equal(SOLVE(jnp.array([[4.0]])).weights, [1.0])
    scaled, scale = rescale(jnp.asarray(oracle.family("orthogonal", 4, 0), jnp.float32) * 1e-25)
    assert float(scale) < 1e-20
    assert Status(int(SOLVE(gram(scaled)).status)) is Status.CERTIFIED


def test_nonnegative_program_matches_nnls(x64):
    """The quadratic program for any b, not only that of the min-norm problem."""
    rng = np.random.default_rng(2)
    a = rng.normal(size=(30, 12, 7))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    target = rng.normal(size=(30, 12))
    H, b = np.einsum("bdi,bdj->bij", a, a), np.einsum("bdi,bd->bi", a, target)
    x, _ = jax.jit(jax.vmap(nonnegative))(jnp.asarray(H), jnp.asarray(b))
    np.testing.assert_allclose(x, [oracle.nnls(*pair)[0] for pair in zip(a, target, strict=True)], atol=1e-9)


def test_wolfe_fallback_alone_reaches_the_optimum(x64):
    """The fallback is rarely needed, so it is started here from a candidate that the check rejects."""
    g = np.stack([oracle.family("conflicting" if seed % 2 else "deficient", 12, seed, dim=30) for seed in range(20)])
    unit = g / np.linalg.norm(g, axis=2, keepdims=True)

    def fallback(H):
        program = Program(H, jnp.ones(12, H.dtype), rounding(H))
        rejected = -jnp.ones(12, H.dtype)
        return optimal(program, rejected), *_wolfe(program, rejected, jnp.asarray(0))

    accepted, x, iterations = jax.jit(jax.vmap(fallback))(jnp.asarray(np.einsum("bnd,bmd->bnm", unit, unit)))
    x = np.asarray(x)
    assert not np.any(accepted)
    u = np.einsum("bn,bnd->bd", x / x.sum(1, keepdims=True), unit)
    np.testing.assert_allclose(u, [oracle.min_norm(one) for one in unit], atol=1e-8)
    assert int(iterations.min()) > 1


def test_few_factorisations_where_gradients_are_dependent(x64):
    """Pivoting that cycles switches to Wolfe's method soon, and its last iterate is not returned as a solution."""
    rng = np.random.default_rng(0)
    thin = rng.normal(size=(20, 64, 20)) + np.repeat([0.0, 0.3], 10)[:, None, None]
    solution = jax.jit(jax.vmap(solve))(jnp.asarray(np.einsum("bnd,bmd->bnm", thin, thin)))
    assert set(np.asarray(solution.status).tolist()) <= {Status.CERTIFIED, Status.STATIONARY}
    assert int(solution.iterations.max()) <= 96
    w = np.asarray(solution.weights)
    assert w.min() >= 0
    np.testing.assert_allclose(np.einsum("bn,bnd->bd", w, thin), [oracle.min_norm(g) for g in thin], atol=1e-6)


def test_x64_is_never_switched_on():
    before = jax.config.jax_enable_x64
    u, info = MIN_NORM(jnp.ones((3, 2)))
    assert jax.config.jax_enable_x64 == before
    assert u.dtype == info.weights.dtype == jnp.float32
