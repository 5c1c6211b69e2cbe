"""Our solver of the quadratic program compared with others."""

import importlib.util
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from grasp.bench.measure import Line, interleaved, peak_mb
from grasp.consensus import OPERATORS, solve

SIZES = (3, 10, 27, 64)
DIMENSION = 1000
PROBLEMS = 64


def problems(num: int, family: str) -> np.ndarray:
    """Gram matrices of random gradients: nearly orthogonal ones, or ones in strong conflict."""
    rng = np.random.default_rng(num)
    g = rng.normal(size=(PROBLEMS, num, DIMENSION)) / np.sqrt(DIMENSION)
    if family == "conflicting":
        g[:, num // 2 :] -= 1.5 * g[:, : num - num // 2]
    return np.einsum("pid,pjd->pij", g, g).astype(np.float32)


def by_nnls(grams: np.ndarray) -> Callable[[], None]:
    """scipy's active set in float64: y ≥ 0 that minimises ½yᵀGy − 1ᵀy, as a least-squares problem."""
    from scipy.optimize import nnls

    factors = [np.linalg.cholesky(G.astype(np.float64) + 1e-10 * np.eye(len(G))) for G in grams]

    def solve_all() -> None:
        for factor in factors:
            nnls(factor.T, np.linalg.solve(factor, np.ones(len(factor))))

    return solve_all


def run(smoke: bool) -> Iterator[Line]:
    """Microseconds per solve, 64 problems in one jitted loop; scipy's solver is called from Python."""
    for num in SIZES[:2] if smoke else SIZES:
        for family in ("orthogonal", "conflicting"):
            grams = problems(num, family)
            ours = jax.jit(lambda G: jax.lax.map(lambda g: solve(g).weights, G))
            theirs = jax.jit(lambda G: jax.lax.map(lambda g: OPERATORS["frank_wolfe"](g, jax.random.key(0)), G))
            on_device = jnp.asarray(grams)
            actions = {"ours": lambda f=ours, G=on_device: f(G), "frank_wolfe": lambda f=theirs, G=on_device: f(G)}
            taken = interleaved(actions, rounds=3 if smoke else 20)
            each = {name: 1e6 * seconds / PROBLEMS for name, seconds in taken.items()}
            if importlib.util.find_spec("scipy"):
                solve_all = by_nnls(grams)
                solve_all()
                began = time.perf_counter()
                solve_all()
                each["scipy nnls, float64"] = 1e6 * (time.perf_counter() - began) / PROBLEMS
            for name, value in each.items():
                ratio = None if name == "ours" else value / each["ours"]
                against = "" if name == "ours" else "times ours"
                yield Line(f"N = {num}, {family}: {name}", value, "µs", ratio, against, peak_mb())
