"""The part of an actor or a critic before its last layer: layers on the input, a GRU, and what follows it.

The parameters say which backbone it is, so the same two functions run them all:

====================  ==========================================================================================
parameters            backbone
====================  ==========================================================================================
encoder, gru          linear → GRU → ReLU, the GRASP paper's
blocks, gru, norm     layer norm, blocks of (linear, ReLU, layer norm) → GRU → layer norm, on-policy's and HARL's
blocks                the same without the GRU
rectified, gru        linear → ReLU → GRU, pymarl2's
attention, gru        attention over rows → ReLU → GRU → ReLU, MA2E's
====================  ==========================================================================================

Axes are as in `layers`; the time axis L of a sequence comes first. A backbone without a GRU has a memory of width 0.
"""

from collections.abc import Callable
from math import sqrt
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grasp.nn import gru, layers
from grasp.nn.layers import Nested, compose, dense, dense_init, orthogonal
from grasp.types import Key, PyTree

Recurrence = Literal["mlp", "gru"]
Front = Callable[[Key, int, int], PyTree]
"""(key, inputs, hidden) -> the initial parameters of a backbone"""


def encoded_init(key: Key, in_dim: int, hidden: int) -> PyTree:
    """The paper's: a linear encoder before a GRU."""
    encoder_key, gru_key = jax.random.split(key)
    return {"encoder": dense_init(encoder_key, in_dim, hidden), "gru": gru.gru_init(gru_key, hidden, hidden)}


def blocks_init(key: Key, in_dim: int, hidden: int, number: int, recurrence: Recurrence) -> PyTree:
    """on-policy's and HARL's: normalised input, `number` blocks, and, unless it is an MLP, a normalised GRU."""
    *keys, gru_key = jax.random.split(key, number + 1)
    sizes = [in_dim, *[hidden] * number]
    blocks = {
        f"block_{i}": dense_init(k, sizes[i], hidden, sqrt(2.0)) | {"norm": layers.norm_init(hidden)}
        for i, k in enumerate(keys)
    }
    front: PyTree = {"blocks": {"norm": layers.norm_init(in_dim)} | blocks}
    if recurrence == "mlp":
        return front
    return front | {"gru": gru.gru_init(gru_key, hidden, hidden), "norm": layers.norm_init(hidden)}


def rectified_init(key: Key, in_dim: int, hidden: int) -> PyTree:
    """pymarl2's, with PyTorch's initial distributions."""
    front_key, input_key, memory_key = jax.random.split(key, 3)
    return {
        "rectified": layers.uniform_init(front_key, in_dim, hidden),
        "gru": {
            "input": layers.uniform_init(input_key, hidden, 3 * hidden),
            "memory": layers.uniform_init(memory_key, hidden, 3 * hidden),
        },
    }


def attended_init(key: Key, in_dim: int, hidden: int) -> dict[str, Nested]:
    """MA2E's: attention before a GRU. `in_dim` is the width of one row."""
    query_key, key_key, value_key, team_key, own_key, gru_key = jax.random.split(key, 6)
    attention = {
        "query": dense_init(query_key, in_dim, in_dim),
        "key": {"weight": orthogonal(key_key, (in_dim, in_dim))},  # a bias would shift all logits of a query equally
        "value": dense_init(value_key, in_dim, in_dim),
        "team": dense_init(team_key, in_dim, hidden // 2),
        "own": dense_init(own_key, in_dim, hidden - hidden // 2),
    }
    return {"attention": attention, "gru": gru.gru_init(gru_key, hidden, hidden)}


def memory_width(params: PyTree) -> int:
    """The width of the memory."""
    return params["gru"]["memory"]["weight"].shape[-2] if "gru" in params else 0


def sequence(
    params: PyTree, memory: Float[Array, "*R M"], x: Float[Array, "L *R D"], first: Bool[Array, "L *R"]
) -> Float[Array, "L *R H"]:
    """The last layer's input over L steps from a stored memory, which is cleared before step t where `first[t]`."""
    if "gru" not in params:
        return normalised_blocks(params["blocks"], x)
    cell, fed = _fed(params, x)
    return _after(params, gru.gru(cell, memory, fed, first))


def step(
    params: PyTree, memory: Float[Array, "*R M"], x: Float[Array, "*R D"]
) -> tuple[Float[Array, "*R M"], Float[Array, "*R H"]]:
    """One step: the new memory, and the last layer's input."""
    if "gru" not in params:
        return memory, normalised_blocks(params["blocks"], x)
    cell, fed = _fed(params, x)
    memory = gru.gru_step(cell, memory, fed)
    return memory, _after(params, memory)


def normalised_blocks(params: PyTree, x: Float[Array, "*R D"]) -> Float[Array, "*R H"]:
    """Layer norm of the input, then linear, ReLU and layer norm, several times."""
    x = layers.norm(params["norm"], x)
    for i in range(len(params) - 1):
        block = params[f"block_{i}"]
        x = layers.norm(block["norm"], jax.nn.relu(dense(block, x)))
    return x


def attend(params: Nested, x: Float[Array, "*R r"]) -> Float[Array, "*R H"]:
    """ReLU features of the first row's attention over all rows, concatenated with features of the first row itself.

    There is one query, so keys and values need not be computed: q·(W_k r) = (W_kᵀ q)·r and Σ w (W_v r) = W_v Σ w r.
    """
    width = params["own"]["weight"].shape[-2]
    rows = x.reshape(*x.shape[:-1], -1, width)
    query = dense(params["query"], rows[..., 0, :]) @ params["key"]["weight"].T
    weight = jax.nn.softmax(jnp.einsum("...ri,...i->...r", rows, query) / sqrt(width))
    attended = dense(params["value"], jnp.einsum("...r,...ri->...i", weight, rows))
    features = (dense(params["team"], attended), dense(params["own"], rows[..., 0, :]))
    return jax.nn.relu(jnp.concatenate(features, -1))


def _fed(params: PyTree, x: Array) -> tuple[Nested, Array]:
    """The GRU's parameters and input. The encoder is composed into the input map where that is less work."""
    cell = params["gru"]
    if "attention" in params:
        return cell, attend(params["attention"], x)
    if "blocks" in params:
        return cell, normalised_blocks(params["blocks"], x)
    if "rectified" in params:
        return cell, jax.nn.relu(dense(params["rectified"], x))
    encoder = params["encoder"]
    if x.shape[-1] < 1.5 * memory_width(params):
        return cell | {"input": compose(encoder, cell["input"])}, x
    return cell, dense(encoder, x)


def _after(params: PyTree, memory: Array) -> Array:
    """What the last layer receives from the GRU."""
    if "norm" in params:
        return layers.norm(params["norm"], memory)
    return memory if "rectified" in params else jax.nn.relu(memory)
