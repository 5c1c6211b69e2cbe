"""The centralised critic: the value of the global state, or of one state per agent, in the units of ValueNorm.

The paper's hyperparameter table lists an MLP of three ReLU layers, its text an RNN: `mlp` is the default, `gru` the
alternative.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grasp.nn import gru, layers
from grasp.types import Key, PyTree

Kind = Literal["mlp", "gru"]


def critic_init(key: Key, kind: Kind, state_dim: int, hidden: int) -> PyTree:
    """Initial parameters."""
    if kind == "mlp":
        return layers.mlp_init(key, [state_dim, hidden, hidden, hidden, 1])
    front_key, value_key = jax.random.split(key)
    return {
        "front": gru.encoded_init(front_key, state_dim, hidden),
        "value": layers.dense_init(value_key, hidden, 1),
    }


def critic_memory(kind: Kind, states: tuple[int, ...], hidden: int) -> Float[Array, "*B H"]:
    """The memory at the start of an episode, for an array of states; an MLP's has width 0."""
    return jnp.zeros((*states, hidden if kind == "gru" else 0))


def values(
    params: PyTree, kind: Kind, memory: Float[Array, "*R H"], state: Float[Array, "L *R s"], first: Bool[Array, "L *C"]
) -> Float[Array, "L *R"]:
    """Values along sequences from stored memories. Where states are per agent, `first` holds for all agents."""
    if kind == "mlp":
        return layers.mlp(params, state)[..., 0]
    first = jnp.broadcast_to(first.reshape(*first.shape, *[1] * (state.ndim - 1 - first.ndim)), state.shape[:-1])
    return _value(params, gru.encoded_gru(params["front"], memory, state, first))


def value_step(
    params: PyTree, kind: Kind, memory: Float[Array, "*B H"], state: Float[Array, "*B s"]
) -> tuple[Float[Array, "*B"], Float[Array, "*B H"]]:
    """The value of one state, and the memory after it."""
    if kind == "mlp":
        return layers.mlp(params, state)[..., 0], memory
    memory = gru.encoded_step(params["front"], memory, state)
    return _value(params, memory), memory


def _value(params: PyTree, memory: Array) -> Array:
    return layers.dense(params["value"], jax.nn.relu(memory))[..., 0]
