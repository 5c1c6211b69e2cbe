"""The paper's claims about u, checked on problems small enough to be exact; docs/theory.md has the verdicts.

Claims about training with u are in test_games.py, claims about gradients of MAPPO's loss in tests/algos/test_mappo.py.
"""

import consensus_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from consensus_sets import all_sets, changes, gammas, min_norm_points, random_sets, results

from grasp.consensus import OPERATORS, gram
from grasp.consensus.nonnegative_qp import Program, _wolfe, rounding


def test_every_agent_projects_at_least_the_square_of_u():
    for g, _, u in all_sets():
        slack = np.einsum("bnd,bd->bn", g, u) - np.sum(u**2, axis=1)[:, None]
        assert np.min(slack / np.sum(g**2, axis=2)) >= -1e-10
        assert np.sum(np.linalg.norm(u, axis=1) > 0.01) > 5


def test_u_is_the_shortest_and_the_factor_stays_in_the_unit_interval():
    for g, _, u in all_sets():
        assert np.max(np.linalg.norm(u, axis=1) - np.linalg.norm(g, axis=2).min(1)) <= 1e-9
        found = gammas(g, u)
        assert found.min() >= -1e-9
        assert found.max() <= 1 + 1e-9


@pytest.mark.parametrize("name", ["mean", "pcgrad"])
def test_the_factor_leaves_the_unit_interval_for_other_operators(name):
    rng = np.random.default_rng(3)
    g = rng.normal(size=(3000, 3, 2)) * np.exp(1.5 * rng.normal(size=(3000, 3, 1)))
    with jax.enable_x64(True):
        G = jnp.asarray(np.einsum("bnd,bmd->bnm", g, g))
        w = np.asarray(jax.jit(jax.vmap(OPERATORS[name], (0, None)))(G, jax.random.key(0)))
    found = gammas(g, np.einsum("bn,bnd->bd", w, g))
    assert found.max() > 1.05
    assert found.min() < -0.05
    assert found.min() >= (1 - 2**0.5) / 2 - 1e-9
    assert found.max() <= (1 + 2**0.5) / 2 + 1e-9


def test_four_algorithms_agree():
    g, _, u = random_sets(6)
    G = np.einsum("bnd,bmd->bnm", g, g)
    norms = np.linalg.norm(g, axis=2)

    def wolfe(H, b):
        return _wolfe(Program(H, b, rounding(H)), -jnp.ones(6, H.dtype), jnp.asarray(0))[0]

    with jax.enable_x64(True):
        cosines = G / norms[:, :, None] / norms[:, None, :]
        x = np.asarray(jax.jit(jax.vmap(wolfe))(jnp.asarray(cosines), jnp.asarray(norms.min(1, keepdims=True) / norms)))
        run = jax.jit(jax.vmap(OPERATORS["frank_wolfe"], (0, None)))
        short = np.einsum("bn,bnd->bd", np.asarray(run(jnp.asarray(G), jax.random.key(0))), g)
    y = x / norms
    active = np.einsum("bn,bnd->bd", y / y.sum(1, keepdims=True), g)
    for i in range(len(g)):
        shortest = u[i] @ u[i]
        assert shortest == pytest.approx(active[i] @ active[i], abs=1e-8)
        assert shortest == pytest.approx(float(np.sum(oracle.min_norm(g[i]) ** 2)), abs=1e-8)
        assert shortest == pytest.approx(float(np.sum(oracle.enumerate_supports(g[i]) ** 2)), abs=1e-8)
        gap = short[i] @ short[i] - np.min(g[i] @ short[i])
        assert -1e-9 <= short[i] @ short[i] - shortest <= 2 * gap + 1e-9


def test_closed_forms_for_orthogonal_and_equicorrelated_gradients():
    norms = np.random.default_rng(5).uniform(0.5, 3, size=(5, 6))
    w, u = min_norm_points(norms[:, :, None] * np.eye(6))
    np.testing.assert_allclose(np.sum(u**2, axis=1), 1 / np.sum(norms**-2, axis=1), rtol=1e-8)
    np.testing.assert_allclose(w, norms**-2 / np.sum(norms**-2, axis=1, keepdims=True), rtol=1e-8)
    rho = np.array([-0.15, 0.0, 0.3, 0.6, 0.95])
    matrices = 4 * (rho[:, None, None] + (1 - rho[:, None, None]) * np.eye(6))
    _, u = min_norm_points(np.linalg.cholesky(matrices))
    np.testing.assert_allclose(np.sum(u**2, axis=1), 4 * (1 + 5 * rho) / 6, rtol=1e-8)


@pytest.mark.parametrize("name", ["min_norm", "nash_normalised"])
def test_continuous_also_through_a_stationary_point(name):
    """Steps of 1e-2, 1e-4, 1e-6 off the point: the change of u shrinks with them."""
    for group in ("smooth", "stationary"):
        change = changes(name, group).max(0)
        assert np.all(change <= np.array([0.3, 3e-3, 3e-5]))


@pytest.mark.parametrize("name", ["upgrad", "dualproj"])
def test_projections_on_the_dual_cone_jump(name):
    assert changes(name, "jump")[:, -1].min() > 0.1
    _, _, u = results(name)["jump"]
    np.testing.assert_allclose(u[-1, :2], [0, 0], atol=1e-5)
    assert u[0, 1] < -0.2


def team_games(count: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(payoffs, logits, g, u) of random games of three agents with three choices."""
    rng = np.random.default_rng(7)
    payoffs, logits = rng.normal(size=(count, 3, 3, 3)), rng.normal(size=(count, 3, 3))
    g = np.stack([oracle.team_gradient(*pair) for pair in zip(payoffs, logits, strict=True)])
    return payoffs, logits, g, min_norm_points(g)[1]


def test_first_order_gain_is_S_plus_U():
    for payoff, theta, g, u in zip(*team_games(), strict=True):
        gain = np.sum(g**2) + np.sum(g @ u)
        ahead, behind = (oracle.team_value(payoff, theta + e * (g + u)) for e in (1e-5, -1e-5))
        assert (ahead - behind) / 2e-5 == pytest.approx(gain, rel=1e-5)
        assert gain >= np.sum(g**2) + 3 * u @ u - 1e-12


def test_no_step_up_to_one_over_L_lowers_J():
    rng = np.random.default_rng(8)
    A = rng.normal(size=(400, 12, 12))
    A = (A + A.transpose(0, 2, 1)) / 2
    slope = rng.normal(size=(400, 12))  # J(θ) = slope·θ + θᵀAθ/2 around θ = 0
    g = slope.reshape(400, 3, 4)
    v = (g + min_norm_points(g)[1][:, None]).reshape(400, 12)
    for fraction in (0.2, 1.0):
        step = fraction * v / np.abs(np.linalg.eigvalsh(A)).max(1)[:, None]
        gain = np.sum(slope * step, axis=1) + np.einsum("bi,bij,bj->b", step, A, step) / 2
        assert gain.min() > 0


def efficiency(g: np.ndarray, u: np.ndarray) -> np.ndarray:
    """First-order gain of (g_i + u) over that of (g_i), both per unit length."""
    moved = g + u[:, None]
    return np.sum(g * moved, axis=(1, 2)) / np.sqrt(np.sum(g**2, axis=(1, 2)) * np.sum(moved**2, axis=(1, 2)))


def test_per_unit_length_the_plain_gradient_gains_most():
    for g, _, u in all_sets():
        assert efficiency(g, u).max() <= 1 + 1e-12
        assert efficiency(g, u).min() < 0.999
    for num in (2, 3, 6, 11):
        _, u = min_norm_points(np.eye(num)[None])
        np.testing.assert_allclose(efficiency(np.eye(num)[None], u), (num + 1) / (num * (num + 3)) ** 0.5, rtol=1e-9)


def test_sampling_noise_lands_on_the_diagonal_of_the_gram():
    """With n samples the naive Gram's diagonal gains tr Σ / n; products of different samples are unbiased."""
    rng = np.random.default_rng(18)
    trials, n, dim = 400, 8, 30
    signal = rng.normal(size=(2, dim)) * 0.3
    samples = signal + rng.normal(size=(trials, n, 2, dim))
    naive = np.asarray(jax.vmap(gram)(jnp.asarray(samples.mean(1), jnp.float32)))
    total = samples.sum(1)
    crossed = np.einsum("tid,tjd->tij", total, total) - np.einsum("tnid,tnjd->tij", samples, samples)
    crossed = crossed / (n * (n - 1))
    for i in range(2):
        bias = naive[:, i, i] - signal[i] @ signal[i]
        assert abs(bias.mean() - dim / n) < 3 * bias.std() / trials**0.5
        error = crossed[:, i, i] - signal[i] @ signal[i]
        assert abs(error.mean()) < 3 * error.std() / trials**0.5
    off = naive[:, 0, 1] - signal[0] @ signal[1]
    assert abs(off.mean()) < 3 * off.std() / trials**0.5


def test_autodiff_over_heads_gives_the_closed_form():
    """A linear head per agent on one-hot features; J and its gradient by summing over all joint actions."""
    payoffs, logits, g, _ = team_games(5)
    one_hot = jnp.asarray([0.0, 1.0])

    def expected(heads, payoff):
        p = jax.nn.softmax(jnp.einsum("nfa,f->na", heads, one_hot), axis=-1)
        return jnp.einsum("abc,a,b,c->", payoff, p[0], p[1], p[2])

    heads = np.stack([np.zeros_like(logits), logits], axis=2)
    found = np.asarray(
        jax.jit(jax.vmap(jax.grad(expected)))(jnp.asarray(heads, jnp.float32), jnp.asarray(payoffs, jnp.float32))
    )
    np.testing.assert_allclose(found[:, :, 1], g, atol=1e-6)
    assert not np.any(found[:, :, 0])


def test_the_off_policy_step_conflicts_with_neither_its_agent_nor_the_consensus():
    for g, _, u in all_sets():
        v = gammas(g, u)[:, :, None] * (g + u[:, None])
        assert np.sum(g * v, axis=2).min() >= -1e-9
        assert np.einsum("bnd,bd->bn", v, u).min() >= -1e-9


def test_exact_evaluation_contracts_by_the_discount():
    rng = np.random.default_rng(23)
    gamma = 0.9
    for _ in range(50):
        transition = rng.dirichlet(np.ones(6), size=6)
        payoff, a, b = rng.normal(size=(3, 6))
        after = [payoff + gamma * transition @ v for v in (a, b)]
        assert np.abs(after[0] - after[1]).max() <= gamma * np.abs(a - b).max() + 1e-12


def test_a_fixed_point_of_the_on_policy_rule_is_a_stationary_point():
    """‖g_i + u‖ ≥ ‖g_i‖, so v_i = 0 for all i needs g_i = 0. And u = 0 alone is no fixed point."""
    for g, _, u in all_sets():
        assert np.all(np.linalg.norm(g + u[:, None], axis=2) >= np.linalg.norm(g, axis=2) - 1e-12)
    same = np.repeat(np.random.default_rng(24).normal(size=(3, 1, 4)), 3, axis=1)
    _, u = min_norm_points(same)
    np.testing.assert_allclose(same + u[:, None], 2 * same, atol=1e-12)
    opposed = np.array([[[1.0, 0], [-1, 0]]])
    _, u = min_norm_points(opposed)
    assert np.abs(u).max() < 1e-12
    np.testing.assert_allclose(opposed + u[:, None], opposed, atol=1e-12)
    assert np.abs(min_norm_points(np.zeros((1, 2, 2)))[1]).max() == 0
