"""Operators: functions from a Gram matrix and a key to weights, `(G[N,N], key) -> w[N]`, and their names.

Every operator is defined for zero, duplicate, rank-deficient and single gradients. Weights that are all 0 mean "no
direction". Lengths follow the papers, with the mean (not the sum) over agents where a paper adds gradients up.

`CONDITIONS` records which of the paper's three conditions each operator meets: pareto (u·g_i ≥ 0 for every agent),
continuous (u is a continuous function of the gradients alone, so the key must not matter) and hull (u lies in the
convex hull of the gradients). A test searches every "yes" for violations and keeps a counterexample for every "no".
"""

import importlib
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from grasp.consensus.min_norm import Status, cosines, solve
from grasp.consensus.nonnegative_qp import nonnegative

Gram = Float[Array, "N N"]
Weights = Float[Array, " N"]
Weighting = Callable[[Gram, PRNGKeyArray], Weights]
Holds = Literal["yes", "no", "off_stationary"]


class Conditions(NamedTuple):
    """The paper's three conditions. "off_stationary": only where 0 is not in the hull."""

    pareto: Holds
    continuous: Holds
    hull: Holds


def min_norm(G: Gram, key: PRNGKeyArray) -> Weights:
    """The exact shortest vector of the hull, argmin wᵀGw over the simplex (Désidéri 2012); the paper's operator."""
    del key
    return solve(G).weights


def min_norm_unit(G: Gram, key: PRNGKeyArray) -> Weights:
    """Min-norm over the unit gradients, scaled back into the hull: w_i ∝ c_i/‖g_i‖ (normalised MGDA, Désidéri 2012).

    The direction does not depend on the gradients' norms. A zero gradient has no direction and gets all weight.
    """
    del key
    H, norms, zero = cosines(G)
    w = jnp.where(jnp.any(zero), zero, solve(H).weights / jnp.where(zero, 1, norms))
    total = jnp.sum(w)
    return w / jnp.where(total > 0, total, 1)


def frank_wolfe(G: Gram, key: PRNGKeyArray) -> Weights:
    """Min-norm by 100 Frank–Wolfe steps from uniform weights, as MGDA is usually coded (Sener and Koltun 2018).

    t = argmin_j (Gw)_j, then an exact line search between w and e_t. The result is not optimal: an agent may be in
    conflict with u by as much as the duality gap.
    """
    del key

    def step(_: Array, w: Weights) -> Weights:
        Gw = G @ w
        t = jnp.argmin(Gw)
        value, cross, corner = w @ Gw, Gw[t], G[t, t]
        width = value - 2 * cross + corner
        gamma = jnp.clip(jnp.where(width > 0, (value - cross) / jnp.where(width > 0, width, 1), 0), 0, 1)
        return (1 - gamma) * w + gamma * (jnp.arange(len(G)) == t)

    return lax.fori_loop(0, 100, step, _uniform(G))


def mean(G: Gram, key: PRNGKeyArray) -> Weights:
    """w = 1/N: the ordinary averaged gradient."""
    del key
    return _uniform(G)


def pcgrad(G: Gram, key: PRNGKeyArray) -> Weights:
    """Gradient surgery (PCGrad, Yu et al. 2020): each g_i is projected off the gradients it conflicts with.

    v = g_i; for j ≠ i, in a random order per agent: if v·g_j < 0, v ← v − (v·g_j / ‖g_j‖²) g_j. u is the mean of the v.
    """
    num = len(G)
    orders = jax.vmap(lambda k: jax.random.permutation(k, num))(jax.random.split(key, num))

    def surgery(i: Array, order: Array) -> Weights:
        def step(v: Weights, j: Array) -> tuple[Weights, None]:
            dot = G[j] @ v
            hit = (j != i) & (dot < 0) & (G[j, j] > 0)
            return v - jnp.where(hit, dot / jnp.where(hit, G[j, j], 1), 0) * (jnp.arange(num) == j), None

        return lax.scan(step, (jnp.arange(num) == i).astype(G.dtype), order)[0]

    return jnp.mean(jax.vmap(surgery)(jnp.arange(num), orders), axis=0)


def cagrad(G: Gram, key: PRNGKeyArray, c: float = 0.5) -> Weights:
    """Conflict-averse gradient (Liu et al. 2021): max_d min_i g_i·d with ‖d − m‖ ≤ c‖m‖, m the mean gradient.

    Its dual is min over the simplex of m·v + κ‖v‖, v = Σ w_i g_i, κ = c‖m‖; then d = m + κ v/‖v‖. Writing
    κ‖v‖ = min_t ‖v‖²/2t + κ²t/2, the inner minimum for a fixed t is the min-norm point of the hull of g_i + t m, which
    the exact solver finds; the outer one is convex in t and is found by bisection on ‖v‖ = κt. With 0 in the hull, or
    m = 0, there is no direction to add and d = m.
    """
    del key
    m = jnp.mean(G, axis=1)
    squared = jnp.maximum(jnp.mean(m), 0)
    kappa = c * jnp.sqrt(squared)
    safe = jnp.where(kappa > 0, kappa, 1)

    def inner(t: Array) -> tuple[Weights, Array]:
        w = solve(G + t * (m[:, None] + m[None, :]) + t**2 * squared).weights
        return w, jnp.sqrt(jnp.maximum(w @ G @ w, 0))

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        short = kappa * middle < inner(middle)[1]
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    top = jnp.sqrt(jnp.max(jnp.diagonal(G))) / safe
    low, high = lax.fori_loop(0, 40, halve, (jnp.zeros_like(top), top))
    w, length = inner((low + high) / 2)
    usable = (kappa > 0) & (length > 0) & (solve(G).status != Status.STATIONARY)
    return _uniform(G) + jnp.where(usable, kappa / jnp.where(usable, length, 1), 0) * w


def nash(G: Gram, key: PRNGKeyArray) -> Weights:
    """Nash bargaining (Navon et al. 2022): G α = 1/α, so every agent gains g_i·u = 1/α_i > 0, and ‖u‖² = N.

    α minimises the self-concordant ½ αᵀGα − Σ log α_i, by damped Newton with step 1/(1 + decrement), at most 200 steps.
    With 0 in the hull there is no solution and the weights are 0.
    """
    del key
    H, relative, zero = cosines(G)
    num = len(G)

    def newton(state: tuple[Weights, Array, Array]) -> tuple[Weights, Array, Array]:
        beta, _, iterations = state
        gradient = H @ beta - 1 / beta
        factor = lax.linalg.cholesky(H + jnp.diag(beta**-2), symmetrize_input=False)
        half = lax.linalg.triangular_solve(factor, gradient[:, None], left_side=True, lower=True)
        step = lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)[:, 0]
        decrement = jnp.sqrt(jnp.sum(half**2))
        # In the region of quadratic convergence a full step keeps beta positive.
        beta = beta - step / jnp.where(decrement < 0.25, 1, 1 + decrement)
        return beta, decrement, iterations + 1

    def unfinished(state: tuple[Weights, Array, Array]) -> Array:
        return (state[1] > jnp.finfo(G.dtype).eps) & (state[2] < 200)

    start = jnp.full(num, (num / jnp.maximum(jnp.sum(H), 1 / num)) ** 0.5, G.dtype)
    beta, _, _ = lax.while_loop(unfinished, newton, (start, jnp.asarray(jnp.inf, G.dtype), jnp.asarray(0)))
    largest = jnp.sqrt(jnp.max(jnp.diagonal(G)))
    alpha = beta / jnp.where(zero, 1, relative * largest)
    solvable = (solve(G).status != Status.STATIONARY) & jnp.all(jnp.isfinite(alpha))
    return jnp.where(solvable, alpha, 0)


def nash_normalised(G: Gram, key: PRNGKeyArray) -> Weights:
    """Nash bargaining with weights divided by their sum, which puts u in the hull; u = 0 where 0 is in the hull.

    That value makes it continuous, since ‖u‖ ≤ N² ‖u_min‖ with u_min the min-norm point. Scaling one gradient by a
    positive number changes the length of u but not its direction.
    """
    alpha = nash(G, key)
    total = jnp.sum(alpha)
    return alpha / jnp.where(total > 0, total, 1)


def upgrad(G: Gram, key: PRNGKeyArray) -> Weights:
    """Unconflicting projection (Quinton and Rey 2024): the mean of the g_i, each projected on {v : v·g_j ≥ 0 ∀j}."""
    del key
    return jnp.mean(jax.vmap(lambda preference: _onto_dual_cone(G, preference))(jnp.eye(len(G), dtype=G.dtype)), axis=0)


def dualproj(G: Gram, key: PRNGKeyArray) -> Weights:
    """The mean gradient projected on {v : v·g_j ≥ 0 ∀j} (gradient episodic memory, Lopez-Paz and Ranzato 2017)."""
    del key
    return _onto_dual_cone(G, _uniform(G))


def imtl_g(G: Gram, key: PRNGKeyArray) -> Weights:
    """Impartial learning (Liu et al. 2021): the affine combination with equal cosines to all g_i.

    w ∝ G⁺ n with n_i = ‖g_i‖, divided by the (signed) sum; 0 where that sum vanishes.
    """
    del key
    values, vectors = jnp.linalg.eigh(G)
    inverse = jnp.where(_nonzero(values), 1 / jnp.where(_nonzero(values), values, 1), 0)
    v = vectors @ (inverse * (vectors.T @ jnp.sqrt(jnp.maximum(jnp.diagonal(G), 0))))
    total = jnp.sum(v)
    usable = jnp.abs(total) > 8 * jnp.finfo(G.dtype).eps * jnp.sum(jnp.abs(v))
    return jnp.where(usable, v / jnp.where(usable, total, 1), 0)


def aligned_mtl(G: Gram, key: PRNGKeyArray) -> Weights:
    """Aligned-MTL, minimal scaling (Senushkin et al. 2023): the mean after all singular values are made equal.

    w = √λ_min G^{-1/2} 1/N over the non-zero part of the spectrum, λ_min its smallest eigenvalue.
    """
    del key
    values, vectors = jnp.linalg.eigh(G)
    kept = _nonzero(values)
    smallest = jnp.min(jnp.where(kept, values, jnp.inf))
    balance = jnp.where(kept, jnp.sqrt(smallest / jnp.where(kept, values, 1)), 0)
    return vectors @ (balance * (vectors.T @ _uniform(G)))


def random(G: Gram, key: PRNGKeyArray) -> Weights:
    """w uniform on the simplex, Dirichlet(1) (random loss weighting, Lin et al. 2022): a control."""
    return jax.random.dirichlet(key, jnp.ones(len(G), G.dtype))


OPERATORS: dict[str, Weighting] = {
    "min_norm": min_norm,
    "min_norm_unit": min_norm_unit,
    "frank_wolfe": frank_wolfe,
    "mean": mean,
    "pcgrad": pcgrad,
    "cagrad": cagrad,
    "nash": nash,
    "nash_normalised": nash_normalised,
    "upgrad": upgrad,
    "dualproj": dualproj,
    "imtl_g": imtl_g,
    "aligned_mtl": aligned_mtl,
    "random": random,
}

CONDITIONS: dict[str, Conditions] = {
    "min_norm": Conditions("yes", "yes", "yes"),
    "min_norm_unit": Conditions("yes", "off_stationary", "yes"),
    "frank_wolfe": Conditions("no", "no", "yes"),
    "mean": Conditions("no", "yes", "yes"),
    "pcgrad": Conditions("no", "no", "no"),
    "cagrad": Conditions("no", "off_stationary", "no"),
    "nash": Conditions("yes", "off_stationary", "no"),
    "nash_normalised": Conditions("yes", "yes", "yes"),
    "upgrad": Conditions("yes", "off_stationary", "no"),
    "dualproj": Conditions("yes", "off_stationary", "no"),
    "imtl_g": Conditions("no", "no", "no"),
    "aligned_mtl": Conditions("no", "no", "no"),
    "random": Conditions("no", "no", "yes"),
}


def weighting(name: str) -> Weighting:
    """The operator of that name, or a user's own given as `package.module:function`."""
    if name in OPERATORS:
        return OPERATORS[name]
    if ":" in name:
        return _load(name)
    raise ValueError(f"unknown operator {name!r}; give one of {', '.join(OPERATORS)}, or 'package.module:function'")


def _load(name: str) -> Weighting:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"can't load operator {name!r} ({error}); give it as 'package.module:function'") from error
    if not callable(found):
        raise ValueError(f"operator {name!r} is not a function; give one that maps (G, key) to weights")
    return cast(Weighting, found)


def _uniform(G: Gram) -> Weights:
    return jnp.full(len(G), 1 / len(G), G.dtype)


def _nonzero(values: Weights) -> Array:
    return values > 8 * len(values) * jnp.finfo(values.dtype).eps * jnp.maximum(jnp.max(values), 0)


def _onto_dual_cone(G: Gram, preference: Weights) -> Weights:
    """The weights of Σ p_i g_i after projection on the dual cone: argmin vᵀGv over v ≥ p, solved for s = v − p ≥ 0."""
    H, norms, zero = cosines(G)
    wanted = jnp.where(zero, 0, preference * norms)
    s, _ = nonnegative(H, -(jnp.where(zero[:, None] | zero[None, :], 0, H) @ wanted))
    return preference + jnp.where(zero, 0, s / jnp.where(zero, 1, norms))
