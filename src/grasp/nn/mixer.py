"""The team's value from the agents' values: QMIX's monotonic network, or VDN's sum.

    Q_tot = |W2(s)|ᵀ ELU(|W1(s)|ᵀ q + b1(s)) + b2(s)

Hypernetworks compute weights and biases from the global state s. The weights are non-negative, so Q_tot is
non-decreasing in every agent's value, and the greedy joint action is each agent's own greedy action.
"""

from itertools import pairwise
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from grasp.nn import layers as nets
from grasp.types import EnvSpec, Key, PyTree


def mixer_init(key: Key, kind: Literal["monotone", "sum"], spec: EnvSpec, embed: int, hidden: int) -> PyTree:
    """Initial parameters; none for a sum.

    Weights and biases are uniform within 1/√inputs, as in the reference implementation: the mean absolute value of this
    distribution sets the scale of the initial Q_tot.
    """
    if kind == "sum":
        return {}
    sizes = {
        "weight_1": [spec.state_dim, hidden, spec.num_agents * embed],
        "bias_1": [spec.state_dim, embed],
        "weight_2": [spec.state_dim, hidden, embed],
        "bias_2": [spec.state_dim, embed, 1],
    }
    keys = jax.random.split(key, len(sizes))
    return {name: _uniform_mlp(k, layers) for k, (name, layers) in zip(keys, sizes.items(), strict=True)}


def mix(params: PyTree, q: Float[Array, "*S N"], state: Float[Array, "*S s"]) -> Float[Array, "*S"]:
    """Q_tot from the agents' values."""
    if not params:
        return q.sum(-1)
    weight_1 = jnp.abs(nets.mlp(params["weight_1"], state))
    weight_1 = weight_1.reshape(*q.shape, weight_1.shape[-1] // q.shape[-1])
    hidden = jax.nn.elu((q[..., None] * weight_1).sum(-2) + nets.mlp(params["bias_1"], state))
    weight_2 = jnp.abs(nets.mlp(params["weight_2"], state))
    return (hidden * weight_2).sum(-1) + nets.mlp(params["bias_2"], state)[..., 0]


def _uniform_mlp(key: Key, sizes: list[int]) -> nets.Nested:
    return {
        f"layer_{i}": nets.uniform_init(jax.random.fold_in(key, i), inputs, outputs)
        for i, (inputs, outputs) in enumerate(pairwise(sizes))
    }
