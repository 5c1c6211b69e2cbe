"""The exact minimum-norm point of a convex hull, from the Gram matrix of its corners.

    u = Σ w_i g_i,   w = argmin wᵀGw,   w ≥ 0,   Σ w_i = 1,   G_ij = g_i·g_j

The simplex falls away by homogeneity: with y = argmin ½ yᵀGy − 1ᵀy over y ≥ 0, w = y / Σy. Substituting
x_i = ‖g_i‖ y_i turns G into the matrix H of cosines, so gradients of very different norms lose no precision:

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
    """What is known about an answer. `Status(int(code)).name` gives the word."""

    CERTIFIED = 0
    """The residual is within `strict(dtype)`: g_j·u ≥ ‖u‖² for every agent. In the hull, only min-norm does that."""
    STATIONARY = 1
    """u = 0 up to rounding. From min-norm this says that 0 lies in the hull."""
    ROUNDING = 2
    """u is so small beside the gradients that this precision can't certify it; the violation is within rounding."""
    UNCERTIFIED = 3
    """The conditions do not hold: the ordinary answer of operators other than min-norm, a failure of the solver."""
    NOT_PSD = 4
    """G has an eigenvalue below zero by more than rounding, so it is nobody's Gram matrix. The weights are 0."""
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
    """The residual below which an answer counts as certified: 1e-5 in float32, 1e-10 in float64."""
    return 1e-5 if jnp.finfo(dtype).bits <= 32 else 1e-10


def cosines(G: Float[Array, "N N"]) -> Cosines:
    """Split a Gram matrix into cosines and relative norms. Zero gradients get the row of a unit vector of their own."""
    diagonal = jnp.diagonal(G)
    largest = jnp.max(diagonal)
    relative = diagonal / jnp.where(largest > 0, largest, 1)
    # Squared norms this small relative to the largest are products of denormals: their cosines carry no digits.
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

    Rounding moves ‖u‖² by some slack · Σ parts² and (g_j/‖g_j‖)·u by some slack · max parts.
    """
    stationary = length**2 <= slack * jnp.sum(parts**2)
    certified = violation <= strict(parts.dtype)
    explained = violation * length <= 4 * slack * jnp.max(parts)
    otherwise = jnp.where(explained, Status.ROUNDING, Status.UNCERTIFIED)
    return jnp.where(stationary, Status.STATIONARY, jnp.where(certified, Status.CERTIFIED, otherwise))


def certify(
    G: Float[Array, "N N"], w: Float[Array, " N"], inner: Float[Array, " N"], length: Float[Array, ""]
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The residual and the status of a u whose g_i·u (`inner`) and length were read off the gradients themselves."""
    norms = jnp.sqrt(jnp.diagonal(G))
    violation = residual(inner / jnp.where(norms > 0, norms, 1), length, norms)
    status = classify(violation, length, jnp.abs(w) * norms, rounding(G))
    # The residual can't see a zero gradient, but beside one only u = 0 meets the conditions.
    missed = jnp.any(norms == 0) & (length > 0)
    return violation, jnp.where(missed, Status.UNCERTIFIED, status)


def solve(G: Float[Array, "N N"]) -> Solution:
    """Minimise wᵀGw over the simplex (Alg. 2 l. 11–14). Runs under `jit` and `vmap`, in G's dtype, and always ends.

    A zero gradient takes all weight (u = 0, stationary). Without an answer (`NOT_PSD`, `NON_FINITE`) the weights are 0.
    """
    H, norms, zero = cosines(G)
    slack = rounding(H)
    b = jnp.min(jnp.where(zero, jnp.inf, norms)) / jnp.where(zero, jnp.inf, norms)
    x, iterations = nonnegative(H, b)

    # Alg. 2 l. 7–9: x ≥ 0 by the program, Σw = 1 by the division.
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
    answered = finite & psd
    return Solution(
        jnp.where(answered, w, 0),
        jnp.where(answered & (status != Status.STATIONARY), violation, jnp.where(answered, 0, jnp.inf)),
        iterations,
        status,
    )
