"""Sets of gradients, and the consensus that the exact solver and every operator find for them.

Compilation dominates the cost, so each operator gets all its sets, of four gradients in six dimensions each, in one
call, and the exact solver gets forty sets at a time.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from grasp.consensus import OPERATORS, Status, solve

NAMES = sorted(OPERATORS)
SOLVE = jax.jit(jax.vmap(solve))
SIZES = (2, 3, 6, 11)


def embed(rows: np.ndarray | list[list[float]]) -> np.ndarray:
    """Up to four gradients in a few dimensions, as four in six: the last is repeated, the rest are zeros."""
    g = np.zeros((4, 6))
    g[: len(rows), : len(rows[0])] = rows
    g[len(rows) :] = g[len(rows) - 1]
    return g


def search_sets() -> np.ndarray:
    """Independent gradients: of very different norms, with much in common, nearly cancelling, opposed in pairs."""
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(60, 4, 6)) * np.exp(rng.normal(size=(60, 4, 1)))
    shared = rng.normal(size=(20, 4, 6)) + 1.5 * rng.normal(size=(20, 1, 6))
    opposed = spread - 0.9 * spread.mean(1, keepdims=True)
    slow = embed([[-1, 1e-3, 0, 0], [1, 1e-3, 0, 0], [0, 1, 1e-3, 0], [0, 2, 0, 1e-3]])
    return np.concatenate([spread, shared, opposed, slow[None]])


def thin_sets() -> np.ndarray:
    """Gradients in two or three dimensions, many with 0 in the hull."""
    rng = np.random.default_rng(1)
    g = np.zeros((40, 4, 6))
    g[:20, :, :2], g[20:, :, :3] = rng.normal(size=(20, 4, 2)), rng.normal(size=(20, 4, 3))
    return g


THREE = (embed([[1, 0, 0], [-1, 0, 0], [0, -1, 1]]), embed([[0, 1], [0, 1], [0, 0]]))
"""Pareto-stationary in its first two rows, and a way off the stationary set."""

STATIONARY_POINTS = [
    THREE,
    (embed([[1, 0], [0, 1], [0, 0]]), embed([[0, 0], [0, 0], [1, 1]])),
    (embed([[1, 0], [-1, 0]]), embed([[0, 1], [0, 1]])),
]
JUMPS = {
    # g_3 and g_4 → 0 outside the support of the unit hull; at 0 they take all weight.
    "min_norm_unit": (embed([[1, 0, 0], [0, 1, 0], [0, 0, 0]]), embed([[0, 0, 0], [0, 0, 0], [3, 3, 0]])),
    "cagrad": THREE,
    "nash": THREE,
    "upgrad": THREE,
    "dualproj": THREE,
    "imtl_g": (embed([[1, 0], [2, 0]]), embed([[0, 0], [0, 1]])),
    "aligned_mtl": (embed([[1, 0], [1, 0]]), embed([[0, 0], [0, 1]])),
    # The first step ties between the first two agents; which one a truncated zigzag starts with shows in its end.
    "frank_wolfe": (embed([[-1, 0.5], [1, 0.5], [-1e-9, 1], [0, 2]]), embed([[0, 0], [0, 0], [1, 0], [0, 0]])),
    "pcgrad": (embed([[1, 0, 0], [-1, 1, 0], [-1, -1, 1]]), np.zeros((4, 6))),
    "random": (np.eye(4, 6), np.zeros((4, 6))),
}
"""Where continuity fails: a point and a direction into it. For operators that draw, the key alone suffices."""

SHRINKING = (1e-2, 1e-4, 1e-6)
"""Steps off a point; below 1e-7 float64 can't tell the stationary set from its surroundings."""


def smooth_points() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(5)
    points = [(rng.normal(size=(4, 6)), rng.normal(size=(4, 6))) for _ in range(8)]
    # With fewer dimensions than agents: the weights are not unique and may jump, u must not.
    flat = [(embed(rng.normal(size=(4, 2)) + np.array([2.0, 0])), embed(rng.normal(size=(4, 2)))) for _ in range(4)]
    return points + flat


@functools.cache
def results(name: str) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(sets, weights, u) for every group of sets, in one compiled call in float64."""
    groups = {"search": search_sets(), "thin": thin_sets()}
    for group, points in {
        "smooth": smooth_points(),
        "stationary": STATIONARY_POINTS,
        "jump": [JUMPS.get(name, THREE)],
    }.items():
        groups[group] = np.stack([base + e * direction for base, direction in points for e in (0, *SHRINKING)])
    g = np.concatenate(list(groups.values()))
    scale = np.linalg.norm(g, axis=2).max(1)[:, None, None]
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(7), len(g))
        G = jnp.asarray(np.einsum("bnd,bmd->bnm", g / scale, g / scale))
        w = np.asarray(jax.jit(jax.vmap(OPERATORS[name]))(G, keys))
    parts = np.cumsum([len(group) for group in groups.values()])[:-1]
    u = np.einsum("bn,bnd->bd", w, g)
    return dict(zip(groups, zip(np.split(g, parts), np.split(w, parts), np.split(u, parts), strict=True), strict=True))


def changes(name: str, group: str) -> np.ndarray:
    """‖u(base + ε·direction) − u(base)‖ over the longest gradient's norm: a row per point, a column per ε."""
    g, _, u = results(name)[group]
    scale = np.linalg.norm(g, axis=2).max(1).reshape(-1, 1 + len(SHRINKING))[:, :1]
    u = u.reshape(len(scale), 1 + len(SHRINKING), -1)
    return np.linalg.norm(u[:, 1:] - u[:, :1], axis=2) / scale


@functools.cache
def random_sets(num: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(g[40, num, 19], w, u) in float64; the gradients span one to nineteen dimensions and have log-normal norms."""
    rng = np.random.default_rng(num)
    g = rng.normal(size=(40, num, 19)) * np.exp(rng.normal(size=(40, num, 1)))
    g *= np.arange(19) < rng.integers(1, 20, size=(40, 1, 1))
    return g, *min_norm_points(g)


def min_norm_points(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and u for a batch of sets, in float64; u = 0 where 0 is in the hull, as in `min_norm`."""
    G = np.einsum("bnd,bmd->bnm", g, g)
    # Always forty at a time, the rest filled up with copies: one compilation for each number of agents.
    chunks = np.resize(G, (-(-len(G) // 40), 40, *G.shape[1:]))
    with jax.enable_x64(True):
        solutions = [SOLVE(jnp.asarray(chunk)) for chunk in chunks]
    w = np.concatenate([solution.weights for solution in solutions])[: len(G)]
    stationary = np.concatenate([solution.status for solution in solutions])[: len(G)] == Status.STATIONARY
    return w, np.where(stationary[:, None], 0, np.einsum("bn,bnd->bd", w, g))


def gammas(g: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Γ_i = (‖u‖² + g_i·u)/(‖g_i‖² + ‖u‖²) for a batch of sets."""
    squared = np.sum(u**2, axis=1)[:, None]
    return (squared + np.einsum("bnd,bd->bn", g, u)) / (np.sum(g**2, axis=2) + squared)


def all_sets() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """`random_sets` of every size."""
    return [random_sets(num) for num in SIZES]
