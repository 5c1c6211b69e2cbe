"""Dense layers as pure functions over plain nested dicts of arrays.

Every function contracts the last axis and keeps all others as they are, so `[B, N, o]` and `[L, C, N, o]` both work and
the agent axis is never merged. Separate networks per agent are the same functions under `vmap` over stacked parameters.
"""

from collections.abc import Sequence
from functools import partial
from math import sqrt

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from grasp.types import Key

Params = dict[str, Array]
Nested = dict[str, Params]
NORM_EPSILON = 1e-5
"""Added to the variance in layer norm, as in PyTorch."""


def orthogonal(key: Key, shape: tuple[int, int], gain: float = 1.0) -> Float[Array, "rows columns"]:
    """A random matrix whose shorter side is an orthonormal set, times `gain`; uniform over such matrices."""
    rows, columns = shape
    basis = _orthonormal(key, min(shape), max(shape))
    return gain * (basis if rows <= columns else basis.T)


@partial(jax.jit, static_argnames=("count", "dim"))
def _orthonormal(key: Key, count: int, dim: int) -> Float[Array, "count dim"]:
    """Gram–Schmidt on normal vectors, each projected twice because one projection loses orthogonality to rounding.

    The result is the Q of a QR factorisation with a positive diagonal. It is computed by plain products because a QR
    inside a jitted `vmap` can hang on the CPU (jax 0.10.2), and initialisation runs under `vmap` over agents and seeds.
    """
    normals = jax.random.normal(key, (count, dim))

    def append(basis: Array, index: Array) -> tuple[Array, None]:
        vector = normals[index]
        for _ in range(2):
            vector = vector - (basis @ vector) @ basis
        return basis.at[index].set(vector / jnp.linalg.norm(vector)), None

    return lax.scan(append, jnp.zeros_like(normals), jnp.arange(count))[0]


def dense_init(key: Key, in_dim: int, out_dim: int, gain: float = 1.0) -> Params:
    """A linear layer: orthogonal `weight[in, out]` and a zero `bias[out]`."""
    return {"weight": orthogonal(key, (in_dim, out_dim), gain), "bias": jnp.zeros(out_dim)}


def uniform_init(key: Key, in_dim: int, out_dim: int, bound: float | None = None) -> Params:
    """A linear layer with PyTorch's initial distribution: uniform within 1/√in_dim, or the weight within `bound`."""
    weight_key, bias_key = jax.random.split(key)
    usual = 1.0 / sqrt(in_dim)
    within = usual if bound is None else bound
    return {
        "weight": jax.random.uniform(weight_key, (in_dim, out_dim), minval=-within, maxval=within),
        "bias": jax.random.uniform(bias_key, (out_dim,), minval=-usual, maxval=usual),
    }


def dense(params: Params, x: Float[Array, "*R i"]) -> Float[Array, "*R o"]:
    """x W + b over the last axis."""
    return x @ params["weight"] + _row(params["bias"], x.ndim)


def norm_init(dim: int) -> Params:
    """A layer norm."""
    return {"scale": jnp.ones(dim), "bias": jnp.zeros(dim)}


def norm(params: Params, x: Float[Array, "*R d"]) -> Float[Array, "*R d"]:
    """Layer norm over the last axis: mean 0 and variance 1, then scale and bias."""
    centred = x - x.mean(-1, keepdims=True)
    unit = centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + NORM_EPSILON)
    return unit * jnp.broadcast_to(params["scale"], x.shape) + jnp.broadcast_to(params["bias"], x.shape)


def compose(inner: Params, outer: Params) -> Params:
    """The one linear layer equal to `outer` after `inner`, with no activation between them.

    In the paper's actor (a dense layer i -> H, then the GRU's input map H -> 3H) the composed layer costs less than the
    two while i < 1.5 H, and the gradients of both layers follow from two small products.
    """
    return {"weight": inner["weight"] @ outer["weight"], "bias": dense(outer, inner["bias"])}


def mlp_init(key: Key, sizes: Sequence[int], gain: float = sqrt(2.0), output_gain: float = 1.0) -> Nested:
    """Layers between consecutive `sizes`. The paper's critic is `(state_dim, 64, 64, 64, 1)`."""
    gains = [gain] * (len(sizes) - 2) + [output_gain]
    keys = jax.random.split(key, len(gains))
    return {f"layer_{i}": dense_init(layer_key, sizes[i], sizes[i + 1], gains[i]) for i, layer_key in enumerate(keys)}


def mlp(params: Nested, x: Float[Array, "*R i"]) -> Float[Array, "*R o"]:
    """ReLU after every layer but the last, which is linear."""
    last = len(params) - 1
    for i in range(last):
        x = jax.nn.relu(dense(params[f"layer_{i}"], x))
    return dense(params[f"layer_{last}"], x)


def _row(vector: Array, ndim: int) -> Array:
    """The vector with leading axes of size 1: tests raise on implicit rank promotion."""
    return jnp.expand_dims(vector, tuple(range(ndim - 1)))
