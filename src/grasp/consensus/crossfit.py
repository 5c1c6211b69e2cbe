"""The Gram matrix without its sampling noise, from gradients taken on K independent parts (folds) of the data.

Fold k gives agent i the gradient G^k_i = g_i + noise. The Gram matrix of the means ḡ = Σ_k G^k / K has tr Σ_ij/n added
to every entry, most of it on the diagonal: agents look orthogonal and conflicts are hidden. Different folds have
independent noise, so products of different folds have no such bias:

    P_U = Σ_{k≠l} G^k G^lᵀ / (K(K−1))

P_U may have negative eigenvalues, and its entries have variance. Both are corrected in units of q_i, the root mean
square of agent i's fold norms, in which entries of all agents vary alike: an agent with a large gradient does not
determine how much the others are shrunk.

    C   = P_U,ij / (q_i q_j)                           C₊ = C with negative eigenvalues set to 0
    a   = Σ_{i≠j} Var(C_ij) / Σ_{i≠j} C_ij²            clipped to [0, 1]
    P   = q_i q_j [(1−a) C₊ + a diag(C₊)]_ij

Shrinking towards the diagonal does not change the diagonal, so its variance does not enter a. The delete-one-fold
jackknife estimates the variances. In pure noise its estimate is 2(K−1)/(K−2) times too large, so a errs upwards. Two
folds leave nothing to delete: there G¹G²ᵀ has a symmetric mean, and its antisymmetric part estimates the variance. That
is exact for agents with independent noise and too small for noise they have in common.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from grasp.consensus.aggregate import Info, consensus
from grasp.consensus.gram import combine, gram, rescale
from grasp.consensus.min_norm import Status

PyTree = Any

LARGEST_RATIO = 1000.0
"""The noise ratio reported where no signal is found; the true one is larger, or infinite."""


class Folded(NamedTuple):
    """A Gram matrix estimated across folds."""

    gram: Float[Array, "N N"]
    """P: unbiased, then made positive semi-definite, then shrunk towards its diagonal."""
    unbiased: Float[Array, "N N"]
    """P_U."""
    noise_ratio: Float[Array, ""]
    """Σ‖ḡ_i‖² / Σ P_U,ii: 1 without noise; below about 1.2 the correction is negligible. It is a ratio of sums over
    agents because the expectation of a mean of ratios does not exist. `LARGEST_RATIO` is its maximum, also where the
    denominator is not positive; where all gradients are 0 it is 1."""
    shrinkage: Float[Array, ""]
    """a."""


class Crossfitted(NamedTuple):
    """What the folds show about the noise."""

    folded: Folded
    """Of the gradients divided by `Info.scale`."""
    signal: Float[Array, ""]
    """The factor s of u: the estimated fraction of ‖Σ w_i ḡ_i‖² that is signal; 0 where u is 0."""


def crossfit_gram(fold_grads: PyTree) -> Folded:
    """Estimate g_i·g_j from leaves [K, N, …], the gradients per fold and agent. Rescale first: squares underflow early.

    Folds must be independent and of equal size.
    """
    return _denoise(fold_grads)[0]


def crossfit(
    fold_grads: PyTree, operator: str = "min_norm", key: PRNGKeyArray | None = None
) -> tuple[PyTree, Info, Crossfitted]:
    """u = s Σ w_i ḡ_i with the operator's weights for P, and s = clip(wᵀP_U w / ‖Σ w_i ḡ_i‖², 0, 1).

    As `consensus`, with P in place of the Gram matrix. `Info` describes P: residual and status certify w for P, with
    (Pw)_j for g_j·u; the mean gradients themselves may violate the conditions. `Info.scale` is the largest norm of a
    fold's gradient, which bounds the means. u is 0 where 0 is in the hull described by P, where P_U has no signal along
    w, and where a gradient is not finite (then the weights are 0 too).
    """
    num_folds, num = _axes(fold_grads)
    # One scale for all folds and agents: each is a row.
    rows = jax.tree.map(lambda leaf: jnp.reshape(leaf, (num_folds * num, *leaf.shape[2:])), fold_grads)
    scaled, scale = rescale(rows)
    finite = jnp.isfinite(scale) & jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(fold_grads)]))
    folds = jax.tree.map(lambda row, leaf: jnp.where(finite, jnp.reshape(row, leaf.shape), 0), scaled, fold_grads)
    folded, root = _denoise(folds)
    # The rows of the root are N vectors whose Gram matrix is P, so their consensus is the consensus for P.
    _, info = consensus(jnp.where(finite, root, jnp.nan), operator, key)
    w = info.weights
    mixed = combine(jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), folds), w)
    squared = jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(mixed)]))
    moves = (squared > 0) & (info.status != Status.STATIONARY)
    signal = jnp.where(moves, jnp.clip(w @ folded.unbiased @ w / jnp.where(moves, squared, 1), 0, 1), 0)
    scale = jnp.where(finite, scale, 1)
    u = jax.tree.map(lambda leaf: leaf * (signal * scale).astype(leaf.dtype), mixed)
    return u, info._replace(gram=folded.gram, scale=scale), Crossfitted(folded, signal)


def products(fold_grads: PyTree) -> tuple[Float[Array, "K N N"], Float[Array, " N"]]:
    """A_k = Σ_{l≠k} G^l G^kᵀ, from which P_U and every delete-one estimate follow, and q_i² = Σ_k ‖G^k_i‖² / K."""
    num_folds, num = _axes(fold_grads)
    rows = [jnp.reshape(leaf, (num_folds, num, -1)) for leaf in jax.tree.leaves(fold_grads)]
    others = [jnp.sum(row, axis=0, keepdims=True) - row for row in rows]
    A = [jnp.matmul(o, jnp.swapaxes(r, 1, 2), precision="highest") for o, r in zip(others, rows, strict=True)]
    squares = [jnp.mean(jnp.sum(row**2, axis=2), axis=0) for row in rows]
    return jnp.sum(jnp.stack(A), axis=0), jnp.sum(jnp.stack(squares), axis=0)


def variance(A: Float[Array, "K N N"], total: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """The variance of the off-diagonal entries of P_U, from A and its symmetrised sum over folds."""
    num_folds = len(A)
    if num_folds == 2:
        return ((A[0] - A[0].T) / 2) ** 2
    without = (total[None] - A - jnp.swapaxes(A, 1, 2)) / ((num_folds - 1) * (num_folds - 2))
    return jnp.var(without, axis=0) * (num_folds - 1)


def _denoise(fold_grads: PyTree) -> tuple[Folded, Float[Array, "N _"]]:
    """The estimate, and R with P = R Rᵀ. P is formed from R, so rounding can't make it indefinite."""
    A, squares = products(fold_grads)
    num_folds = len(A)
    q = jnp.sqrt(squares)
    units = jnp.where(q > 0, q, 1)
    A = A / units[None, :, None] / units[None, None, :]
    total = jnp.sum((A + jnp.swapaxes(A, 1, 2)) / 2, axis=0)
    C = total / (num_folds * (num_folds - 1))
    values, vectors = jnp.linalg.eigh(C)
    clipped = vectors * jnp.sqrt(jnp.maximum(values, 0))[None, :]
    a = _shrinkage(C, variance(A, total))
    diagonal = jnp.diag(jnp.sqrt(jnp.sum(clipped**2, axis=1)))
    root = jnp.concatenate([jnp.sqrt(1 - a) * clipped, jnp.sqrt(a) * diagonal], axis=1) * q[:, None]
    unbiased = C * units[:, None] * units[None, :]
    return Folded(gram(root), unbiased, _noise_ratio(unbiased, squares, num_folds), a), root


def _shrinkage(C: Float[Array, "N N"], variances: Float[Array, "N N"]) -> Float[Array, ""]:
    """a; 0 where all off-diagonal entries are 0."""
    off = ~jnp.eye(len(C), dtype=bool)
    size = jnp.sum(jnp.where(off, C**2, 0))
    spread = jnp.sum(jnp.where(off, variances, 0))
    return jnp.where(size > 0, jnp.clip(spread / jnp.where(size > 0, size, 1), 0, 1), 0)


def _noise_ratio(unbiased: Float[Array, "N N"], squares: Float[Array, " N"], num_folds: int) -> Float[Array, ""]:
    signal = jnp.trace(unbiased)
    everything = jnp.sum(squares)
    naive = (everything + (num_folds - 1) * signal) / num_folds  # Σ‖ḡ_i‖², since K²‖ḡ_i‖² sums over all pairs of folds
    found = signal > naive / LARGEST_RATIO
    ratio = jnp.where(found, naive / jnp.where(found, signal, 1), LARGEST_RATIO)
    return jnp.where(everything > 0, ratio, 1)


def _axes(fold_grads: PyTree) -> tuple[int, int]:
    """Folds and agents: the two leading axes, which every leaf must share."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(fold_grads)]
    if not shapes:
        raise ValueError("the gradients are an empty tree; pass a pytree of arrays with a fold and an agent axis")
    if any(len(shape) < 2 for shape in shapes):
        raise ValueError("a gradient leaf has fewer than two axes; every leaf needs a fold axis, then an agent axis")
    leading = sorted({(shape[0], shape[1]) for shape in shapes})
    if len(leading) > 1 or 0 in leading[0]:
        raise ValueError(f"the leading axes (folds, agents) of the leaves are {leading}; all must be equal and above 0")
    if leading[0][0] == 1:
        raise ValueError("the gradients come from 1 fold; give 2 or more, to tell noise from signal")
    return leading[0]
