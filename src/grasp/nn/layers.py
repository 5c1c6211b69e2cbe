"""Networks as pure functions over plain nested dicts of arrays.

Every function contracts the last axis and keeps all others as they are, so `[B, N, o]` and `[L, C, N, o]` both work and
the agent axis is never merged. Separate networks per agent are the same functions under `vmap` over stacked parameters.
"""

from collections.abc import Sequence
from functools import partial
from math import sqrt

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from grasp.types import Key

Params = dict[str, Array]
Nested = dict[str, Params]


def orthogonal(key: Key, shape: tuple[int, int], gain: float = 1.0) -> Float[Array, "rows columns"]:
    """A random matrix whose shorter side is an orthonormal set, times `gain`; uniform over such matrices."""
    rows, columns = shape
    basis = _orthonormal(key, min(shape), max(shape))
    return gain * (basis if rows <= columns else basis.T)


@partial(jax.jit, static_argnames=("count", "dim"))
def _orthonormal(key: Key, count: int, dim: int) -> Float[Array, "count dim"]:
    """Gram–Schmidt on normal vectors, each projected twice because once loses orthogonality to rounding.

    The result is the Q of a QR factorisation with a positive diagonal, but made of plain products: a QR inside a
    jitted `vmap` can hang on the CPU (jax 0.10.2), and this must be safe under `vmap` over agents and seeds.
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


def dense(params: Params, x: Float[Array, "*R i"]) -> Float[Array, "*R o"]:
    """x W + b over the last axis."""
    return x @ params["weight"] + _row(params["bias"], x.ndim)


def compose(inner: Params, outer: Params) -> Params:
    """The one linear layer equal to `outer` after `inner`, with nothing between them.

    For the paper's actor (a dense layer i -> H straight into the GRU's input H -> 3H) applying the composed layer costs
    less than the two while i < 1.5 H, and the gradients of both come back through two small products.
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


def gru_init(key: Key, in_dim: int, hidden: int) -> Nested:
    """Dense maps `input[in, 3H]` and `memory[H, 3H]`, gates in the order reset, update, candidate; gain 1.

    Each map is orthogonal as one whole matrix, as on-policy's `orthogonal_(weight_hh)` is, not gate by gate.
    """
    input_key, memory_key = jax.random.split(key)
    return {"input": dense_init(input_key, in_dim, 3 * hidden), "memory": dense_init(memory_key, hidden, 3 * hidden)}


def gru_step(params: Nested, memory: Float[Array, "*R H"], x: Float[Array, "*R D"]) -> Float[Array, "*R H"]:
    """One step of the GRU in the PyTorch/cuDNN convention: the reset gate multiplies (W_hn h + b_hn), bias included.

    r = σ(x W_ir + b_ir + h W_hr + b_hr),  z = σ(x W_iz + b_iz + h W_hz + b_hz),
    n = tanh(x W_in + b_in + r (h W_hn + b_hn)),  h' = (1 - z) n + z h.
    """
    return _cell(params["memory"], memory, dense(params["input"], x))[0]


def gru(
    params: Nested, memory: Float[Array, "*R H"], x: Float[Array, "L *R D"], first: Bool[Array, "L *R"]
) -> Float[Array, "L *R H"]:
    """The memories after each of L steps; where `first[t]` is true the memory is cleared before step t.

    The input's projection is one product over all steps. The rest has its own derivative (`_recur`): autodiff of the
    scan adds up a weight gradient at every step, and took 1.2 to 1.4 times as long for the paper's actor on one core.
    Tiles matter more: 2304 rows in one piece took more than twice as long as in tiles of 96 to 384 rows.
    """
    return _recur(params["memory"], memory, dense(params["input"], x), first)


def encoded_init(key: Key, in_dim: int, hidden: int) -> dict[str, Nested | Params]:
    """A linear encoder straight into a GRU: the front of the paper's actor, and of a recurrent critic."""
    encoder_key, gru_key = jax.random.split(key)
    return {"encoder": dense_init(encoder_key, in_dim, hidden), "gru": gru_init(gru_key, hidden, hidden)}


def encoded_gru(
    params: dict, memory: Float[Array, "*R H"], x: Float[Array, "L *R D"], first: Bool[Array, "L *R"]
) -> Float[Array, "L *R H"]:
    """`gru` after the encoder, or after the attention."""
    return gru(*_joined(params, memory, x), first)


def encoded_step(params: dict, memory: Float[Array, "*R H"], x: Float[Array, "*R D"]) -> Float[Array, "*R H"]:
    """`gru_step` after the encoder, or after the attention."""
    return gru_step(*_joined(params, memory, x))


def attended_init(key: Key, in_dim: int, hidden: int) -> dict[str, Nested]:
    """Attention straight into a GRU: the front of MA2E's agent. `in_dim` is one row's width."""
    query_key, key_key, value_key, team_key, own_key, gru_key = jax.random.split(key, 6)
    attention = {
        "query": dense_init(query_key, in_dim, in_dim),
        "key": {"weight": orthogonal(key_key, (in_dim, in_dim))},  # a bias would shift all of a query's logits alike
        "value": dense_init(value_key, in_dim, in_dim),
        "team": dense_init(team_key, in_dim, hidden // 2),
        "own": dense_init(own_key, in_dim, hidden - hidden // 2),
    }
    return {"attention": attention, "gru": gru_init(gru_key, hidden, hidden)}


def attend(params: Nested, x: Float[Array, "*R r"]) -> Float[Array, "*R H"]:
    """ReLU features of what the first row attends to among all rows, beside those of the first row itself.

    One query only, so keys and values are never made: q·(W_k r) = (W_kᵀ q)·r and Σ w (W_v r) = W_v Σ w r.
    """
    width = params["own"]["weight"].shape[-2]
    rows = x.reshape(*x.shape[:-1], -1, width)
    query = dense(params["query"], rows[..., 0, :]) @ params["key"]["weight"].T
    weight = jax.nn.softmax(jnp.einsum("...ri,...i->...r", rows, query) / sqrt(width))
    attended = dense(params["value"], jnp.einsum("...r,...ri->...i", weight, rows))
    features = (dense(params["team"], attended), dense(params["own"], rows[..., 0, :]))
    return jax.nn.relu(jnp.concatenate(features, -1))


def _joined(params: dict, memory: Array, x: Array) -> tuple[Nested, Array, Array]:
    """Encoder and input projection as one map where that is less work (see `compose`), else one after the other."""
    if "attention" in params:
        return params["gru"], memory, attend(params["attention"], x)
    encoder, cell = params["encoder"], params["gru"]
    if x.shape[-1] < 1.5 * memory.shape[-1]:
        return cell | {"input": compose(encoder, cell["input"])}, memory, x
    return cell, memory, dense(encoder, x)


@jax.custom_vjp
def _recur(params: Params, memory: Array, projected: Array, first: Array) -> Array:
    # When no gates are stored, the scan took 2.7 times as long step by step as unrolled by five (CPU, jax 0.10.2);
    # when they are, as for the gradient, unrolling gained nothing.
    return _recur_forward(params, memory, projected, first, unroll=5)[0]


def _recur_forward(
    params: Params, memory: Array, projected: Array, first: Array, unroll: int = 1
) -> tuple[Array, tuple]:
    def step(memory: Array, inputs: tuple) -> tuple[Array, tuple]:
        projected, first = inputs
        before = jnp.where(first[..., None], 0.0, memory)
        after, gates = _cell(params, before, projected)
        return after, (after, before, gates)

    _, (after, before, gates) = lax.scan(step, memory, (projected, first), unroll=unroll)
    return after, (params["weight"], first, before, gates)


def _recur_backward(saved: tuple, d_after: Array) -> tuple[Params, Array, Array, None]:
    """Back through time with one small product a step; the weight's gradient is one product after it."""
    weight, first, before, gates = saved

    def step(d_memory: Array, inputs: tuple) -> tuple[Array, tuple]:
        d_after, first, before, (reset, update, candidate, recalled) = inputs
        d_memory = d_memory + d_after
        d_candidate = d_memory * (1 - update) * (1 - candidate * candidate)
        d_recalled = d_candidate * reset
        d_reset = d_recalled * recalled * (1 - reset)
        d_update = d_memory * (before - candidate) * update * (1 - update)
        d_gates = jnp.concatenate([d_reset, d_update, d_recalled], axis=-1)
        d_before = d_memory * update + d_gates @ weight.T
        return jnp.where(first[..., None], 0.0, d_before), (d_gates, d_candidate)

    start = jnp.zeros_like(before[0])
    d_start, (d_gates, d_candidate) = lax.scan(step, start, (d_after, first, before, gates), reverse=True)
    rows = tuple(range(before.ndim - 1))
    d_params = {"weight": jnp.tensordot(before, d_gates, (rows, rows)), "bias": d_gates.sum(rows)}
    hidden = before.shape[-1]
    d_projected = jnp.concatenate([d_gates[..., : 2 * hidden], d_candidate], axis=-1)
    return d_params, d_start, d_projected, None


_recur.defvjp(_recur_forward, _recur_backward)


def _cell(params: Params, memory: Array, projected: Array) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    """The next memory and what its derivative needs: reset, update, candidate and the recalled W_hn h + b_hn."""
    hidden = memory.shape[-1]
    recurrent = dense(params, memory)
    reset = jax.nn.sigmoid(projected[..., :hidden] + recurrent[..., :hidden])
    update = jax.nn.sigmoid(projected[..., hidden : 2 * hidden] + recurrent[..., hidden : 2 * hidden])
    recalled = recurrent[..., 2 * hidden :]
    candidate = jnp.tanh(projected[..., 2 * hidden :] + reset * recalled)
    return candidate + update * (memory - candidate), (reset, update, candidate, recalled)


def _row(vector: Array, ndim: int) -> Array:
    """Broadcasting is spelled out: the tests forbid silent rank promotion."""
    return jnp.expand_dims(vector, tuple(range(ndim - 1)))
