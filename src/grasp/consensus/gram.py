"""From per-agent gradients to the N×N Gram matrix, and from weights back to one gradient.

`grads` is any pytree whose leaves all carry the agent axis first. Whatever the leaves' sizes, an operator sees only
G_ij = g_i·g_j. Every diagnostic is a function of G and w, so its cost depends on N alone.

With `axis_name`, every device of that axis holds a slice of each gradient, and sums run over all slices.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from grasp.consensus.min_norm import cosines, residual

PyTree = Any


def num_agents(grads: PyTree) -> int:
    """The size of the leading agent axis, which every leaf must share."""
    leaves = jax.tree.leaves(grads)
    if not leaves:
        raise ValueError("the gradients are an empty tree; pass a pytree of arrays with a leading agent axis")
    if any(jnp.ndim(leaf) == 0 for leaf in leaves):
        raise ValueError("a gradient leaf is a scalar; every leaf needs a leading agent axis")
    sizes = sorted({jnp.shape(leaf)[0] for leaf in leaves})
    if len(sizes) > 1 or sizes[0] == 0:
        raise ValueError(f"the leading agent axes of the gradient leaves are {sizes}; they must be equal and above 0")
    return sizes[0]


def total(x: Array, axis_name: str | None) -> Array:
    """x summed over the devices of `axis_name`; x itself where that is None."""
    return x if axis_name is None else lax.psum(x, axis_name)


def gram(grads: PyTree, axis_name: str | None = None) -> Float[Array, "N N"]:
    """G_ij = g_i·g_j, summed over leaves in the highest matrix precision. Rescale first: squares underflow early."""
    products = [jnp.matmul(row, row.T, precision="highest") for row in _rows(grads)]  # Alg. 2 l. 4–6
    return total(jnp.sum(jnp.stack(products), axis=0), axis_name)


def combine(grads: PyTree, w: Float[Array, " N"]) -> PyTree:
    """u = Σ w_i g_i: a pytree without the agent axis."""
    num_agents(grads)

    def weigh(leaf: Float[Array, "N ..."]) -> Float[Array, "..."]:
        return jnp.tensordot(w.astype(leaf.dtype), leaf, axes=1, precision="highest")  # Alg. 2 l. 16–17

    return jax.tree.map(weigh, grads)


def project(grads: PyTree, u: PyTree, axis_name: str | None = None) -> Float[Array, " N"]:
    """g_i·u for every agent, computed from the gradients and not from G."""
    flat = [jnp.ravel(leaf) for leaf in jax.tree.leaves(u)]
    products = [jnp.matmul(row, leaf, precision="highest") for row, leaf in zip(_rows(grads), flat, strict=True)]
    return total(jnp.sum(jnp.stack(products), axis=0), axis_name)


def rescale(grads: PyTree, axis_name: str | None = None) -> tuple[PyTree, Float[Array, ""]]:
    """Divide all gradients by the largest gradient norm (1 where all are zero); return them and that scale.

    The norm is computed after dividing by the largest entry, so it neither under- nor overflows.
    """
    peak = jnp.max(jnp.stack([jnp.max(jnp.abs(row), initial=0) for row in _rows(grads)]))
    peak = peak if axis_name is None else lax.pmax(peak, axis_name)
    peak = jnp.where(peak > 0, peak, 1)
    shrunk = jax.tree.map(lambda leaf: leaf / peak.astype(leaf.dtype), grads)
    squares = jnp.stack([jnp.sum(row**2, axis=1) for row in _rows(shrunk)])
    longest = jnp.sqrt(jnp.max(total(jnp.sum(squares, axis=0), axis_name)))
    longest = jnp.where(longest > 0, longest, 1)
    return jax.tree.map(lambda leaf: leaf / longest.astype(leaf.dtype), shrunk), peak * longest


def diagnose(G: Float[Array, "N N"], w: Float[Array, " N"], scale: Float[Array, ""]) -> dict[str, Array]:
    """Cosines, conflicts, norms and the certificate as functions of G and w.

    G is the Gram matrix of gradients divided by `scale`; norms are returned in the gradients' own units. Cosines with a
    zero vector are 0, and so is a mean over no pairs.
    """
    num = len(G)
    H, relative, zero = cosines(G)
    either = zero[:, None] | zero[None, :]
    cosine = jnp.where(either, 0, H)
    largest = jnp.sqrt(jnp.maximum(jnp.max(jnp.diagonal(G)), 0))
    norms = relative * largest
    pairs = jnp.triu(jnp.ones((num, num), bool), 1)
    num_pairs = max(num * (num - 1) // 2, 1)
    projections = cosine @ (w * norms)
    length = jnp.sqrt(jnp.maximum((w * norms) @ projections, 0))
    uniform = norms / num
    mean_length = jnp.sqrt(jnp.maximum(uniform @ (cosine @ uniform), 0))
    alignment = _ratio(projections, length)
    return {
        "cosine": cosine,
        "conflict_rate": jnp.sum(pairs & (cosine < 0)) / num_pairs,
        "mean_cosine": jnp.sum(jnp.where(pairs, cosine, 0)) / num_pairs,
        "weights": w,
        "norms": norms * scale,
        "u_norm": length * scale,
        "u_ratio": _ratio(length, jnp.mean(norms)),
        "residual": residual(projections, length, norms),
        "min_alignment": jnp.min(alignment),
        "weight_entropy": -jnp.sum(jnp.where(w > 0, w * jnp.log(jnp.where(w > 0, w, 1)), 0)),
        "cosine_to_mean": _ratio(uniform @ projections, length * mean_length),
    }


def _rows(grads: PyTree) -> list[Float[Array, "N _"]]:
    num = num_agents(grads)
    return [jnp.reshape(leaf, (num, -1)) for leaf in jax.tree.leaves(grads)]


def _ratio(top: Float[Array, "*n"], bottom: Float[Array, ""]) -> Float[Array, "*n"]:
    return jnp.where(bottom > 0, top / jnp.where(bottom > 0, bottom, 1), 0)
