"""The exact minimum-norm point of a convex hull, from the Gram matrix of its corners.

    u = Σ w_i g_i,   w = argmin wᵀGw,   w ≥ 0,   Σ w_i = 1,   G_ij = g_i·g_j

The constraint Σ w_i = 1 is removed by homogeneity: with y = argmin ½ yᵀGy − 1ᵀy over y ≥ 0, w = y / Σy. Substituting
x_i = ‖g_i‖ y_i replaces G by the matrix H of cosines, so norms of very different size cost no precision:

    x = argmin ½ xᵀHx − bᵀx,  x ≥ 0,  b_i = 1/‖g_i‖

u is optimal exactly when g_j·u ≥ ‖u‖² for all j. The certificate is the largest violation as a difference of cosines,

    residual = max_j (‖u‖² − g_j·u) / (‖g_j‖ ‖u‖)   over g_j ≠ 0.
"""

from enum import IntEnum
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from grasp.consensus.nonnegative_qp import nonnegative, rounding


class Status(IntEnum):
    """What is known about a solution. `Status(int(code)).name` is its name."""

    CERTIFIED = 0
    """The residual is within `strict(dtype)`: g_j·u ≥ ‖u‖² for every agent. In the hull, only min-norm does that."""
    STATIONARY = 1
    """u = 0 up to rounding. For min-norm this means that 0 lies in the hull."""
    ROUNDING = 2
    """u is too small relative to the gradients to be certified in this precision; the violation is within rounding."""
    UNCERTIFIED = 3
    """The conditions do not hold. Expected of operators other than min-norm; for min-norm the solver has failed."""
    NOT_PSD = 4
    """G has an eigenvalue below zero by more than rounding, so it is not a Gram matrix. The weights are 0."""
    NON_FINITE = 5
    """G contains NaN or infinity. The weights are 0."""


class Solution(NamedTuple):
    """Weights with their certificate."""

    weights: Float[Array, " N"]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]
    status: Int[Array, ""]


class Cosines(NamedTuple):
    """G = scale · diag(norms) H diag(norms), the largest norm being 1."""

    H: Float[Array, "N N"]
    norms: Float[Array, " N"]
    zero: Bool[Array, " N"]


def strict(dtype: jnp.dtype) -> float:
    """The largest residual that counts as certified: 1e-5 in float32, 1e-10 in float64."""
    return 1e-5 if jnp.finfo(dtype).bits <= 32 else 1e-10


def cosines(G: Float[Array, "N N"]) -> Cosines:
    """Split a Gram matrix into cosines and relative norms. A zero gradient gets its row of the identity matrix."""
    diagonal = jnp.diagonal(G)
    largest = jnp.max(diagonal)
    relative = diagonal / jnp.where(largest > 0, largest, 1)
    # Squared norms this small relative to the largest are products of denormals: their cosines have no correct digits.
    zero = relative <= 1e4 * jnp.finfo(G.dtype).tiny
    norms = jnp.sqrt(jnp.where(zero, 1, relative))
    H = G / jnp.where(largest > 0, largest, 1) / norms[:, None] / norms[None, :]
    H = jnp.where(zero[:, None] | zero[None, :], 0, (H + H.T) / 2)
    return Cosines(jnp.where(jnp.eye(len(G), dtype=bool), 1, H), jnp.where(zero, 0, norms), zero)


def residual(projections: Float[Array, " N"], length: Float[Array, ""], norms: Float[Array, " N"]) -> Float[Array, ""]:
    """The certificate from (g_j/‖g_j‖)·u, ‖u‖ and ‖g_j‖; 0 where u or every g_j is 0."""
    counted = (norms > 0) & (length > 0)
    gap = length / jnp.where(counted, norms, 1) - projections / jnp.where(length > 0, length, 1)
    return jnp.maximum(jnp.max(jnp.where(counted, gap, 0)), 0)


def classify(
    violation: Float[Array, ""], length: Float[Array, ""], parts: Float[Array, " N"], slack: Float[Array, ""]
) -> Int[Array, ""]:
    """The status of u = Σ w_i g_i from its residual, ‖u‖ and parts_i = w_i‖g_i‖, which nearly cancel if u is small.

    Rounding changes ‖u‖² by about slack · Σ parts² and (g_j/‖g_j‖)·u by about slack · max parts.
    """
    stationary = length**2 <= slack * jnp.sum(parts**2)
    certified = violation <= strict(parts.dtype)
    explained = violation * length <= 4 * slack * jnp.max(parts)
    otherwise = jnp.where(explained, Status.ROUNDING, Status.UNCERTIFIED)
    return jnp.where(stationary, Status.STATIONARY, jnp.where(certified, Status.CERTIFIED, otherwise))


def certify(
    G: Float[Array, "N N"], w: Float[Array, " N"], inner: Float[Array, " N"], length: Float[Array, ""]
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The residual and the status of u, from g_i·u (`inner`) and ‖u‖ as computed from the gradients themselves."""
    norms = jnp.sqrt(jnp.diagonal(G))
    violation = residual(inner / jnp.where(norms > 0, norms, 1), length, norms)
    status = classify(violation, length, jnp.abs(w) * norms, rounding(G))
    # The residual leaves out zero gradients, but with one in the set only u = 0 meets the conditions.
    missed = jnp.any(norms == 0) & (length > 0)
    return violation, jnp.where(missed, Status.UNCERTIFIED, status)


def solve(G: Float[Array, "N N"]) -> Solution:
    """Minimise wᵀGw over the simplex. Runs under `jit` and `vmap`, in G's dtype; always terminates.

    The constraints (Alg. 2 l. 7–9) are met by construction: the program for x (Alg. 2 l. 11–14) ensures x ≥ 0, and the
    division by its sum Σw = 1.

    A zero gradient gets all weight (u = 0, stationary). Without a solution (`NOT_PSD`, `NON_FINITE`) weights are 0.
    """
    H, norms, zero = cosines(G)
    slack = rounding(H)
    b = jnp.min(jnp.where(zero, jnp.inf, norms)) / jnp.where(zero, jnp.inf, norms)
    x, iterations = nonnegative(H, b)

    y = jnp.where(jnp.any(zero), zero.astype(G.dtype), x * b)
    total = jnp.sum(y)
    w = y / jnp.where(total > 0, total, 1)
    parts = w * norms
    projections = H @ parts
    length = jnp.sqrt(jnp.maximum(parts @ projections, 0))
    violation = residual(projections, length, norms)
    status = classify(violation, length, parts, slack)

    finite = jnp.all(jnp.isfinite(G))
    psd = jnp.all(jnp.isfinite(lax.linalg.cholesky(H + 8 * slack * jnp.eye(len(G), dtype=G.dtype))))
    psd &= jnp.min(jnp.diagonal(G)) >= 0
    status = jnp.where(finite, jnp.where(psd, status, Status.NOT_PSD), Status.NON_FINITE)
    solved = finite & psd
    return Solution(
        jnp.where(solved, w, 0),
        jnp.where(solved & (status != Status.STATIONARY), violation, jnp.where(solved, 0, jnp.inf)),
        iterations,
        status,
    )
