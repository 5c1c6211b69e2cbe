"""The centralised critic: the value of the global state, or of one state per agent, in the units of ValueNorm.

The paper's hyperparameter table lists an MLP of three ReLU layers, its text an RNN: `mlp` is the default, `gru` the
alternative. A critic of the reference layout is on-policy's and HARL's, with a GRU or without.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grasp.nn import backbone, layers
from grasp.nn.backbone import Front
from grasp.types import Key, PyTree


def critic_init(key: Key, state_dim: int, hidden: int, front: Front | None = None) -> PyTree:
    """Initial parameters: of the paper's MLP, or of a backbone and a linear layer."""
    if front is None:
        return layers.mlp_init(key, [state_dim, hidden, hidden, hidden, 1])
    front_key, value_key = jax.random.split(key)
    return {"front": front(front_key, state_dim, hidden), "value": layers.dense_init(value_key, hidden, 1)}


def values(
    params: PyTree, memory: Float[Array, "*R M"], state: Float[Array, "L *R s"], first: Bool[Array, "L *C"]
) -> Float[Array, "L *R"]:
    """Values along sequences from stored memories. Where states are per agent, `first` holds for all agents."""
    if "front" not in params:
        return layers.mlp(params, state)[..., 0]
    first = jnp.broadcast_to(first.reshape(*first.shape, *[1] * (state.ndim - 1 - first.ndim)), state.shape[:-1])
    return layers.dense(params["value"], backbone.sequence(params["front"], memory, state, first))[..., 0]


def value_step(
    params: PyTree, memory: Float[Array, "*B M"], state: Float[Array, "*B s"]
) -> tuple[Float[Array, "*B"], Float[Array, "*B M"]]:
    """The value of one state, and the memory after it."""
    if "front" not in params:
        return layers.mlp(params, state)[..., 0], memory
    memory, features = backbone.step(params["front"], memory, state)
    return layers.dense(params["value"], features)[..., 0], memory
