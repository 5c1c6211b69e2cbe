"""Reference results in plain numpy: quadratic programs, families of gradients, exact team games."""

import itertools

import numpy as np
from scipy.optimize import nnls

FAMILIES = ("orthogonal", "conflicting", "deficient", "aligned", "stationary", "duplicate", "zero", "scaled", "shared")


def family(name: str, num: int, seed: int, dim: int = 300) -> np.ndarray:
    """Gradients [num, dim] in float64 of one named kind."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(num, dim))
    rank = max(2, num // 2)
    thin = rng.normal(size=(num, rank))
    if name == "conflicting":  # the mean gradient shrinks to a twentieth
        return g - 0.95 * g.mean(0)
    if name == "deficient":
        return (thin + 3.0) @ rng.normal(size=(rank, dim))
    if name == "aligned":
        return rng.normal(size=(1, dim)) + 1e-3 * g
    if name == "stationary":
        return np.zeros((1, dim)) if num == 1 else (thin - thin.mean(0)) @ rng.normal(size=(rank, dim))
    if name == "duplicate":
        g[num // 2 :] = g[: num - num // 2]
    if name == "zero":
        g[num // 3] = 0.0
    if name == "scaled":
        g = g * 10 ** rng.uniform(-6, 3, size=(num, 1))
    if name == "shared":
        g = g + 3 * rng.normal(size=(1, dim))
    return g


def min_norm(g: np.ndarray) -> np.ndarray:
    """The min-norm point by non-negative least squares: min ‖Σ y_i ĝ_i‖² + (Σ y_i b_i − 1)², a different algorithm."""
    norms = np.linalg.norm(g, axis=1)
    if np.any(norms == 0):
        return np.zeros(g.shape[1])
    b = norms.min() / norms
    unit = g / norms[:, None]
    x, _ = nnls(np.vstack([unit.T, b]), np.append(np.zeros(g.shape[1]), 1.0), maxiter=100 * len(g))
    y = x / norms
    return (y / y.sum()) @ g


def enumerate_supports(g: np.ndarray) -> np.ndarray:
    """The min-norm point by trying every support; exact and slow (N ≤ 8)."""
    best = g[np.argmin(np.linalg.norm(g, axis=1))]
    for size in range(2, len(g) + 1):
        for support in map(list, itertools.combinations(range(len(g)), size)):
            rows = g[support]
            matrix = np.block([[rows @ rows.T, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            w = np.linalg.lstsq(matrix, np.append(np.zeros(size), 1.0), rcond=None)[0][:size]
            u = w @ rows
            if w.min() >= -1e-12 and abs(w.sum() - 1) < 1e-9 and u @ u < best @ best:
                best = u
    return best


def pcgrad_results(g: np.ndarray) -> np.ndarray:
    """The mean of the projected gradients for every combination of one order per agent."""
    choices = []
    for i, own in enumerate(g):
        results = []
        for order in itertools.permutations([j for j in range(len(g)) if j != i]):
            v = own
            for j in order:
                v = v - min(v @ g[j], 0) / (g[j] @ g[j]) * g[j]
            results.append(v)
        choices.append(np.unique(np.array(results).round(12), axis=0))
    return np.array([np.mean(rows, axis=0) for rows in itertools.product(*choices)])


def random_set(rng: np.random.Generator, most: int = 11, widest: int = 19) -> np.ndarray:
    num, dim = rng.integers(2, most + 1), rng.integers(1, widest + 1)
    return rng.normal(size=(num, dim)) * np.exp(rng.normal(size=(num, 1)))


def violation(g: np.ndarray, u: np.ndarray) -> float:
    """max_j (‖u‖² − g_j·u)/(‖g_j‖‖u‖) in float64."""
    norms, length = np.linalg.norm(g, axis=1), np.linalg.norm(u)
    return 0.0 if length == 0 else float(np.max(length / norms - g @ u / (norms * length)))


def softmax(theta: np.ndarray) -> np.ndarray:
    e = np.exp(theta - theta.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def team_value(payoff: np.ndarray, theta: np.ndarray) -> float:
    """J = E[payoff] of independent softmax choices theta[N, A]."""
    for p in softmax(theta):
        payoff = np.tensordot(p, payoff, axes=1)
    return float(payoff)


def team_gradient(payoff: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Closed form g_i = p_i ∘ (Q_i − p_i·Q_i), Q_i(a) the mean payoff over the others' choices."""
    p = softmax(theta)
    rows = []
    for i in range(len(theta)):
        q = np.moveaxis(payoff, i, -1)
        for j in [j for j in range(len(theta)) if j != i]:
            q = np.tensordot(p[j], q, axes=1)
        rows.append(p[i] * (q - p[i] @ q))
    return np.array(rows)
