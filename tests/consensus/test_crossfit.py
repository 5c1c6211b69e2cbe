"""The noise-corrected Gram matrix: bias, plain loops, invariances, extreme inputs, and the gain in the weights."""

import functools

import consensus_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from consensus_sets import min_norm_points
from paths import REPOSITORY

from grasp.consensus import Status, consensus, diagnose, gram, solve
from grasp.consensus.crossfit import LARGEST_RATIO, crossfit, crossfit_gram, products, variance

GRAM = jax.jit(crossfit_gram)
GRAMS = jax.jit(jax.vmap(crossfit_gram))
CROSSFIT = jax.jit(crossfit, static_argnames="operator")
CROSSFITS = jax.jit(jax.vmap(crossfit))
# Without the exact solver a new shape compiles three times as fast: for tests in which any operator will do.
MEAN = functools.partial(CROSSFIT, operator="mean")
MEANS = jax.jit(jax.vmap(functools.partial(crossfit, operator="mean")))
PLAIN = jax.jit(consensus, static_argnames="operator")
SOLVE = jax.jit(jax.vmap(solve))
NAIVE = jax.jit(jax.vmap(lambda folds: gram(jnp.mean(folds, axis=0))))


def drawn(G, key):
    """A user's operator that needs the key."""
    w = jax.random.uniform(key, len(G), G.dtype)
    return w / jnp.sum(w)


def noisy(g: np.ndarray, num_folds: int, noise: float, seed: int) -> np.ndarray:
    """Folds [K, N, D] around g in float32; the error of their mean has about `noise` times the mean norm of g."""
    size = noise * np.linalg.norm(g, axis=1).mean() * (num_folds / g.shape[1]) ** 0.5
    # Two seeds, because one alone would repeat the numbers that g was drawn from.
    error = np.random.default_rng((77, seed)).normal(size=(num_folds, *g.shape))
    return (g + size * error).astype(np.float32)


def loops(folds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P_U by a loop over ordered pairs of different folds, and the matrix of the first fold against the others."""
    num_folds, num, _ = folds.shape
    pairs = [(k, l) for k in range(num_folds) for l in range(num_folds) if k != l]
    total = np.zeros((num, num))
    for k, l in pairs:
        for i in range(num):
            for j in range(num):
                total[i, j] += folds[k, i] @ folds[l, j]
    return total / len(pairs), folds[0] @ folds[1].T


def reference(folds: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """P, P_U and a of the module's docstring; the jackknife recomputes the estimate without each fold."""
    num_folds, num, _ = folds.shape
    unbiased, cross = loops(folds)
    q = np.sqrt(np.mean(np.sum(folds**2, axis=2), axis=0))
    units = np.outer(q, q)
    if num_folds == 2:
        variances = ((cross - cross.T) / 2) ** 2
    else:
        without = np.stack([loops(np.delete(folds, k, axis=0))[0] for k in range(num_folds)])
        variances = (num_folds - 1) / num_folds * np.sum((without - without.mean(0)) ** 2, axis=0)
    off = ~np.eye(num, dtype=bool)
    a = min(1.0, np.sum((variances / units**2)[off]) / np.sum((unbiased / units)[off] ** 2))
    values, vectors = np.linalg.eigh(unbiased / units)
    positive = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
    return ((1 - a) * positive + a * np.diag(np.diag(positive))) * units, unbiased, a


def test_pure_noise_biases_the_naive_gram_and_not_the_crossfitted_one():
    """20,000 coordinates of unit variance, 4 folds: tr Σ/n = 5,000, a standard deviation of √(2D/(n(n−1))) = 57.7."""
    rng = np.random.default_rng(18)
    naive, unbiased = [], []
    for _ in range(8):
        folds = jnp.asarray(rng.standard_normal((25, 4, 2, 20_000), dtype=np.float32))
        naive.append(NAIVE(folds))
        unbiased.append(GRAMS(folds).unbiased)
    naive, unbiased = np.concatenate(naive), np.concatenate(unbiased)
    for values, expected in [(naive, 5000), (unbiased, 0)]:
        diagonal = np.diagonal(values, axis1=1, axis2=2).ravel()
        assert abs(diagonal.mean() - expected) < 3 * diagonal.std() / len(diagonal) ** 0.5
    assert np.diagonal(unbiased, axis1=1, axis2=2).std() == pytest.approx(57.7, rel=0.1)
    assert abs(unbiased[:, 0, 1].mean()) < 3 * unbiased[:, 0, 1].std() / len(unbiased) ** 0.5
    assert unbiased[:, 0, 1].std() == pytest.approx(57.7 / 2**0.5, rel=0.15)


@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_the_estimate_of_a_known_signal_is_unbiased_also_where_agents_share_half_of_the_noise(shared):
    rng = np.random.default_rng(19)
    trials, num_folds, dim = 1000, 4, 30
    g = rng.normal(size=(2, dim)) * 0.3
    own, common = (rng.normal(size=(trials, num_folds, n, dim)) for n in (2, 1))
    folds = jnp.asarray(g + (1 - shared) ** 0.5 * own + shared**0.5 * common, jnp.float32)
    naive, unbiased = np.asarray(NAIVE(folds)), np.asarray(GRAMS(folds).unbiased)
    bias = dim / num_folds * np.array([[1, shared], [shared, 1]])
    assert np.all(np.abs((naive - g @ g.T - bias).mean(0)) < 3 * naive.std(0) / trials**0.5)
    assert np.all(np.abs((unbiased - g @ g.T).mean(0)) < 3 * unbiased.std(0) / trials**0.5)


@pytest.mark.parametrize("num_folds", [2, 3, 5])
@pytest.mark.parametrize("noise", [0.02, 2.0])
def test_the_estimate_equals_plain_loops_over_pairs_of_folds(num_folds, noise, x64):
    folds = noisy(oracle.family("conflicting", 4, 1, dim=40), num_folds, noise, seed=num_folds).astype(np.float64)
    expected, unbiased, a = reference(folds)
    clear = noise < 1  # then no eigenvalue is clipped and a is small
    assert (np.linalg.eigvalsh(unbiased)[0] > 0) == clear
    assert (a < 0.01) == clear
    found = GRAM({"a": jnp.asarray(folds[..., :24]).reshape(num_folds, 4, 6, 4), "b": jnp.asarray(folds[..., 24:])})
    np.testing.assert_allclose(found.unbiased, unbiased, atol=1e-12 * np.abs(unbiased).max())
    np.testing.assert_allclose(found.shrinkage, a, rtol=1e-9)
    np.testing.assert_allclose(found.gram, expected, atol=1e-12 * np.abs(expected).max())
    naive = np.sum(folds.mean(0) ** 2)
    np.testing.assert_allclose(found.noise_ratio, naive / np.trace(unbiased), rtol=1e-9)


@pytest.mark.parametrize(("num_folds", "factor"), [(2, 1.0), (3, 4.0), (4, 3.0), (8, 14 / 6)])
def test_the_variance_is_right_for_small_noise_and_errs_upwards_for_large(num_folds, factor):
    """Estimated over true variance of an off-diagonal entry: 1 with signal, 2(K−1)/(K−2) without (1 for two folds)."""
    rng = np.random.default_rng(num_folds)
    noise = rng.standard_normal((2000, num_folds, 2, 30), dtype=np.float32)
    signal = 50 * rng.standard_normal((1, 1, 2, 30), dtype=np.float32)

    def spread(folds):
        A, _ = products(folds)
        total = jnp.sum(A + jnp.swapaxes(A, 1, 2), axis=0) / 2
        return total[0, 1] / (num_folds * (num_folds - 1)), variance(A, total)[0, 1]

    for folds, expected in [(noise, factor), (noise + signal, 1.0)]:
        entries, estimates = jax.jit(jax.vmap(spread))(jnp.asarray(folds))
        assert float(jnp.mean(estimates) / jnp.var(entries)) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("num_folds", [2, 4])
@pytest.mark.parametrize("signal", [0.0, 0.1, 1.0])
def test_the_gram_is_positive_semi_definite_and_the_shrinkage_a_fraction(num_folds, signal):
    rng = np.random.default_rng(5)
    g = rng.normal(size=(40, 1, 6, 50)) * 10 ** rng.uniform(-3, 0, size=(40, 1, 6, 1))
    folds = jnp.asarray(signal * g + rng.normal(size=(40, num_folds, 6, 50)), jnp.float32)
    found = GRAMS(folds)
    eigenvalues = np.linalg.eigvalsh(np.asarray(found.gram, np.float64))
    assert np.all(eigenvalues[:, 0] >= -1e-6 * eigenvalues[:, -1])
    assert np.any(np.linalg.eigvalsh(np.asarray(found.unbiased, np.float64))[:, 0] < -0.01)
    assert np.all((found.shrinkage >= 0) & (found.shrinkage <= 1))
    solved = SOLVE(found.gram)
    assert not np.any(solved.status == Status.NOT_PSD)
    np.testing.assert_allclose(jnp.sum(solved.weights, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("num_folds", [2, 4])
def test_as_noise_vanishes_shrinkage_goes_to_zero_and_signal_to_one(num_folds):
    g = oracle.family("conflicting", 5, 3)
    found = [CROSSFIT(jnp.asarray(noisy(g, num_folds, noise, seed=0))) for noise in (0.1, 0.01, 0.001)]
    shrinkages = [float(extra.folded.shrinkage) for _, _, extra in found]
    assert shrinkages[0] > 10 * shrinkages[1] > 100 * shrinkages[2]
    assert shrinkages[2] < 1e-5
    assert float(found[2][2].signal) > 0.99
    assert float(found[2][2].folded.noise_ratio) == pytest.approx(1, abs=1e-4)
    assert float(found[0][2].folded.noise_ratio) == pytest.approx(1.01, abs=1e-3)


@pytest.mark.parametrize(
    ("operator", "num_folds"), [("min_norm", 2), ("min_norm", 4), ("mean", 4), (f"{__name__}:drawn", 4), ("nash", 4)]
)
def test_equal_folds_give_the_plain_consensus(operator, num_folds):
    g = jnp.asarray(oracle.family("conflicting", 5, 2), jnp.float32)
    key = jax.random.key(3)
    expected, plain = PLAIN(g, operator=operator, key=key)
    u, info, extra = CROSSFIT(jnp.stack([g] * num_folds), operator=operator, key=key)
    np.testing.assert_allclose(u, expected, atol=1e-4 * float(jnp.max(jnp.abs(expected))))
    np.testing.assert_allclose(info.weights, plain.weights, rtol=1e-3)
    np.testing.assert_allclose(info.gram, plain.gram, atol=1e-5)
    assert float(info.scale) == pytest.approx(float(plain.scale), rel=1e-5)
    np.testing.assert_allclose(info.residual, plain.residual, atol=1e-4)
    assert Status(int(info.status)) is Status(int(plain.status))
    assert float(extra.signal) == pytest.approx(1, abs=1e-3)
    assert float(extra.folded.shrinkage) < 1e-8


@pytest.mark.parametrize("name", ["stationary", "zero"])
def test_equal_folds_with_zero_in_the_hull_give_no_direction(name):
    g = jnp.asarray(oracle.family(name, 5, 2), jnp.float32)
    u, info, extra = CROSSFIT(jnp.stack([g] * 4))
    assert not np.any(u)
    assert Status(int(info.status)) is Status.STATIONARY
    assert float(extra.signal) == 0


def test_u_does_not_depend_on_the_order_of_folds_or_agents():
    folds = noisy(oracle.family("conflicting", 5, 4), 4, 1.0, seed=1)
    u, info, extra = CROSSFIT(jnp.asarray(folds))
    again, other, turned = CROSSFIT(jnp.asarray(folds[[2, 0, 3, 1]]))
    np.testing.assert_allclose(again, u, atol=1e-5)
    np.testing.assert_allclose(turned.folded.gram, extra.folded.gram, atol=1e-6)
    np.testing.assert_allclose(turned.folded.shrinkage, extra.folded.shrinkage, rtol=1e-3)
    order = np.array([3, 0, 4, 1, 2])
    again, other, turned = CROSSFIT(jnp.asarray(folds[:, order]))
    np.testing.assert_allclose(again, u, atol=1e-5)
    np.testing.assert_allclose(other.weights, np.asarray(info.weights)[order], atol=1e-4)
    np.testing.assert_allclose(turned.folded.gram, np.asarray(extra.folded.gram)[np.ix_(order, order)], atol=1e-6)
    assert float(np.ptp(info.weights)) > 0.02
    assert float(extra.folded.shrinkage) > 0.01


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
def test_u_scales_with_the_gradients_over_the_whole_range(scale):
    folds = noisy(oracle.family("shared", 5, 4), 4, 1.0, seed=2)
    u, info, extra = CROSSFIT(jnp.asarray(folds))
    scaled, other, changed = CROSSFIT(jnp.asarray(folds * np.float32(scale)))
    assert 0.1 < float(extra.signal) < 0.9
    np.testing.assert_allclose(np.asarray(scaled) / np.float32(scale), u, atol=1e-4)
    assert float(other.scale) == pytest.approx(float(info.scale) * scale, rel=1e-4)
    np.testing.assert_allclose(other.gram, info.gram, atol=1e-5)
    for before, after in [(extra.signal, changed.signal), *zip(extra.folded[2:], changed.folded[2:], strict=True)]:
        np.testing.assert_allclose(after, before, rtol=1e-3)


def test_scaling_one_agent_scales_its_row_and_column_alone():
    """The estimate is in units of each agent's norm: one large gradient does not change how much the others shrink."""
    folds = noisy(oracle.family("conflicting", 4, 6), 4, 2.0, seed=3)
    stretch = np.array([1.0, 100, 0.01, 1], np.float32)
    before, after = GRAM(jnp.asarray(folds)), GRAM(jnp.asarray(folds * stretch[:, None]))
    assert 0.05 < float(before.shrinkage) < 1
    np.testing.assert_allclose(after.shrinkage, before.shrinkage, rtol=1e-4)
    largest = float(jnp.max(jnp.abs(before.gram)))
    np.testing.assert_allclose(after.gram / np.outer(stretch, stretch), before.gram, atol=1e-4 * largest)


def conflict(num: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """True gradients in a random 3-dimensional subspace, pairs of them in conflict, 0 outside their hull."""
    while True:
        thin = rng.normal(size=(num, 3)) * np.exp(0.3 * rng.normal(size=(num, 1))) + [0.7, 0, 0]
        inner = thin @ thin.T
        u = oracle.min_norm(thin)
        if np.mean(inner < 0) > 0.15 and u @ u > 0.03 * np.trace(inner) / num:
            return thin @ np.linalg.qr(rng.normal(size=(dim, 3)))[0].T


EXCESS = [
    (1, "equal", 1.73, 1.01, 0.19),
    (3, "equal", 3.13, 1.36, 0.03),
    (3, "unequal", 4.04, 1.64, 0.05),
    (3, "half common", 2.77, 1.60, 0.02),
    (10, "equal", 3.76, 3.56, 0.00),
]


@pytest.mark.parametrize(("noise", "kind", "naive", "crossfitted", "signal"), EXCESS)
def test_weights_resolve_conflicts_that_noise_hides(noise, kind, naive, crossfitted, signal):
    """‖Σ w_i g_i‖²/‖u*‖² with the true gradients (1 is optimal), mean over 24 seeds, as in docs/theory.md."""
    num, num_folds, dim = 5, 4, 5000
    truths, samples = [], []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        g = conflict(num, dim, rng)
        error = noisy(g, num_folds, noise, seed) - g
        if kind == "unequal":
            error = error * np.exp(0.7 * rng.normal(size=(num, 1)))
        if kind == "half common":
            error = (error + noisy(g, num_folds, noise, 1000 + seed)[:, :1] - g[:1]) / 2**0.5
        truths.append(g)
        samples.append(g + error)
    truths, folds = np.stack(truths), np.stack(samples)
    best = np.sum(min_norm_points(truths)[1] ** 2, axis=1)

    def excess(w):
        return np.sum(np.einsum("sn,snd->sd", w, truths) ** 2, axis=1) / best

    _, info, extra = CROSSFITS(jnp.asarray(folds, jnp.float32))
    assert excess(np.asarray(info.weights, np.float64)).mean() == pytest.approx(crossfitted, rel=0.05)
    assert excess(min_norm_points(folds.mean(1))[0]).mean() == pytest.approx(naive, rel=0.05)
    assert excess(np.full((24, num), 1 / num)).mean() == pytest.approx(3.85, rel=0.05)
    assert float(jnp.mean(extra.signal)) == pytest.approx(signal, abs=0.01)
    page = (REPOSITORY / "docs" / "theory.md").read_text()
    assert f"| {noise} | {kind} | {naive:.2f} | {crossfitted:.2f} | {signal:.2f} |\n" in page


@pytest.mark.parametrize("num_folds", [2, 4])
def test_the_signal_fraction_of_one_agent(num_folds):
    """One agent with a gradient of norm 1 and an error of norm r: s = 1/(1 + r²), and 0 without a gradient."""
    g = np.zeros((1, 5000))
    g[0, 0] = 1
    for noise in (0.0, 0.5, 1.0, 2.0):
        folds = np.stack([noisy(g, num_folds, noise, seed) for seed in range(20)])
        u, _, extra = MEANS(jnp.asarray(folds))
        assert float(jnp.mean(extra.signal)) == pytest.approx(1 / (1 + noise**2), abs=0.03)
        np.testing.assert_allclose(u, np.asarray(extra.signal)[:, None] * folds.mean(1)[:, 0], atol=1e-5)


def test_in_pure_noise_no_signal_is_found():
    noise = np.random.default_rng(0).standard_normal((24, 4, 5, 5000), dtype=np.float32)
    u, _, extra = CROSSFITS(jnp.asarray(noise))
    assert float(jnp.mean(extra.signal)) < 0.03
    assert float(jnp.min(extra.signal)) == 0
    assert float(jnp.max(jnp.linalg.norm(u, axis=1))) < 0.1 * 5000**0.5
    assert np.all(np.asarray(extra.folded.noise_ratio) > 20)
    assert float(jnp.mean(extra.folded.shrinkage)) > 0.6


def test_u_is_a_combination_of_the_mean_gradients_and_the_certificate_is_for_the_estimate():
    folds = noisy(oracle.family("shared", 5, 7), 4, 1.0, seed=4)
    u, info, extra = CROSSFIT(jnp.asarray(folds))
    w, P, scale = (np.asarray(value, np.float64) for value in (info.weights, info.gram, info.scale))
    assert scale == pytest.approx(np.linalg.norm(folds, axis=2).max(), rel=1e-5)
    mixed = w @ folds.mean(0, dtype=np.float64)
    s = w @ np.asarray(extra.folded.unbiased, np.float64) @ w * scale**2 / (mixed @ mixed)
    assert 0.05 < s < 0.95
    assert float(extra.signal) == pytest.approx(s, rel=1e-4)
    np.testing.assert_allclose(u, s * mixed, atol=1e-5 * np.abs(mixed).max())
    np.testing.assert_array_equal(info.gram, extra.folded.gram)
    assert Status(int(info.status)) is Status.CERTIFIED
    assert np.min(P @ w) >= w @ P @ w * (1 - 1e-4)
    assert float(jax.jit(diagnose)(info.gram, info.weights, info.scale)["residual"]) < 1e-4
    direction, mean, other = MEAN({"a": jnp.asarray(folds[..., :80]), "b": jnp.asarray(folds[..., 80:])})
    halves = np.concatenate([direction["a"], direction["b"]])
    np.testing.assert_allclose(halves, float(other.signal) * folds.mean((0, 1)), atol=1e-5)
    gaps = (np.mean(P) - P.mean(1)) / np.sqrt(np.diag(P) * np.mean(P))
    assert float(mean.residual) == pytest.approx(gaps.max(), rel=1e-3)
    assert Status(int(mean.status)) is Status.UNCERTIFIED


@pytest.mark.parametrize(("run", "shape"), [(CROSSFIT, (4, 5, 300)), (MEAN, (2, 1, 4))], ids=["min_norm", "one agent"])
def test_zero_gradients_are_stationary_and_carry_no_signal(run, shape):
    u, info, extra = run(jnp.zeros(shape))
    assert not np.any(u)
    assert float(jnp.sum(info.weights)) == pytest.approx(1)
    assert Status(int(info.status)) is Status.STATIONARY
    assert float(info.scale) == float(extra.folded.noise_ratio) == 1
    assert float(extra.signal) == float(extra.folded.shrinkage) == 0
    assert not np.any(extra.folded.gram)


def test_folds_that_cancel_carry_no_signal():
    g = jnp.asarray(1e20 * oracle.family("shared", 3, 0, dim=6), jnp.float32)
    u, _, extra = MEAN(jnp.stack([g, -g]))
    assert not np.any(u)
    assert float(extra.signal) == 0
    assert float(extra.folded.noise_ratio) == LARGEST_RATIO
    assert np.all(np.isfinite(extra.folded.gram))


def test_a_fold_of_zeros_does_not_change_the_scale_of_the_others():
    """A fold of zeros beside gradients far below 1."""
    g = np.zeros((3, 2, 2), np.float32)
    g[:2] = [[2e-20, 0], [0, 1e-20]]
    u, info, extra = MEAN(jnp.asarray(g))
    assert float(info.scale) == pytest.approx(2e-20)
    np.testing.assert_allclose(extra.folded.unbiased, np.diag([1, 0.25]) / 3, rtol=1e-5)
    np.testing.assert_allclose(extra.signal, (5 / 12) / (5 / 9), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(u) * 1e20, [0.5, 0.25], rtol=1e-4)  # ¾ of the mean of two thirds


@pytest.mark.parametrize("run", [CROSSFIT, MEAN], ids=["min_norm", "mean"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_non_finite_gradient_gives_no_direction(run, value):
    bad = noisy(oracle.family("shared", 5, 4), 4, 1.0, seed=2)
    bad[2, 1, 7] = value
    u, info, extra = run(jnp.asarray(bad))
    assert not np.any(u)
    assert not np.any(info.weights)
    assert np.all(np.isfinite(info.gram))
    assert float(info.scale) == 1
    assert Status(int(info.status)) is Status.NON_FINITE
    assert float(info.residual) == np.inf
    assert float(extra.signal) == 0


def test_vmap_agrees_with_single_calls():
    folds = np.stack([noisy(oracle.family("shared", 5, seed), 4, 1.0, seed) for seed in range(3)])
    u, info, extra = MEANS(jnp.asarray(folds))
    assert info.status.shape == extra.signal.shape == (3,)
    assert np.ptp(extra.signal) > 0.01
    for i in range(3):
        alone, other, seen = MEAN(jnp.asarray(folds[i]))
        np.testing.assert_allclose(u[i], alone, atol=1e-5)
        np.testing.assert_allclose(info.gram[i], other.gram, atol=1e-6)
        np.testing.assert_allclose(extra.signal[i], seen.signal, rtol=1e-4)
        assert alone.dtype == other.weights.dtype == other.gram.dtype == seen.signal.dtype == jnp.float32


def test_double_precision_is_kept(x64):
    folds = noisy(oracle.family("conflicting", 4, 8, dim=60), 4, 1.0, seed=5).astype(np.float64)
    u, info, extra = CROSSFIT(jnp.asarray(folds))
    assert all(leaf.dtype == jnp.float64 for leaf in (u, info.weights, info.gram, *extra.folded, extra.signal))
    P, _, _ = reference(folds)
    np.testing.assert_allclose(info.gram * info.scale**2, P, atol=1e-12 * np.abs(P).max())
    np.testing.assert_allclose(info.weights, min_norm_points(np.linalg.cholesky(P)[None])[0][0], atol=1e-8)


def test_gradients_without_equal_folds_are_refused_in_one_sentence():
    with pytest.raises(
        ValueError, match=r"^the gradients come from 1 fold; give 2 or more, to tell noise from signal$"
    ):
        crossfit(jnp.ones((1, 3, 4)))
    with pytest.raises(ValueError, match=r"^the gradients are an empty tree; pass a pytree of arrays with a fold and"):
        crossfit_gram({})
    with pytest.raises(ValueError, match=r"^a gradient leaf has fewer than two axes; every leaf needs a fold axis"):
        crossfit_gram({"a": jnp.ones((2, 3)), "b": jnp.ones(2)})
    with pytest.raises(ValueError, match=r"leaves are \[\(2, 3\), \(3, 3\)\]; all must be equal and above 0$"):
        crossfit({"a": jnp.ones((2, 3, 1)), "b": jnp.ones((3, 3, 1))})
    with pytest.raises(ValueError, match=r"leaves are \[\(2, 0\)\]; all must be equal and above 0$"):
        crossfit_gram(jnp.ones((2, 0, 1)))
    with pytest.raises(ValueError, match=r"^unknown operator 'minnorm'; give one of min_norm, "):
        MEAN(jnp.ones((2, 3, 1)), operator="minnorm")
