"""What tells the consensus from what comes with it (ALGORITHMS E3, E4): other directions of the same length in its
place, and its length without its direction."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from grasp import consensus as consensus_library
from grasp.nn import sharding
from grasp.types import Key, PyTree


def in_place_of(u: PyTree, control: str, gradients: PyTree, weights: Float[Array, " N"], key: Key) -> PyTree:
    """What is added to every agent's gradient instead of u.

    `placebo` is a random direction. `permuted` gives every agent's gradient the weight of another: renaming agents
    alone would change nothing, since u does not depend on their order.
    """
    if control == "placebo":
        leaves, shape = jax.tree.flatten(u)
        keys = jax.random.split(key, len(leaves))
        other = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
        return as_long_as(u, jax.tree.unflatten(shape, other))
    if control == "permuted":
        shift = jax.random.randint(key, (), 1, max(len(weights), 2))
        return as_long_as(u, mixed(gradients, jnp.roll(weights, shift)))
    return u


def mixed(gradients: PyTree, weights: Float[Array, " N"]) -> PyTree:
    """Σ w_i g_i. Over many devices each mixes what it adds, so that they exchange one gradient and not N."""
    if sharding.number() == 1:
        return consensus_library.combine(gradients, weights)
    parts = jax.vmap(consensus_library.combine, in_axes=(0, None))(gradients, weights)
    return jax.tree.map(lambda x: x.sum(0), parts)


def as_long_as(u: PyTree, other: PyTree) -> PyTree:
    """The other's direction with the length of u."""
    length = optax.tree.norm(other)
    return optax.tree.scale(jnp.where(length > 0, optax.tree.norm(u) / jnp.where(length > 0, length, 1.0), 0.0), other)


def stretch(gradients: PyTree, like: PyTree) -> PyTree:
    """Every agent's gradient [N, ...] in its own direction, with the length of the other's."""
    own, other = (jax.vmap(optax.tree.norm)(tree) for tree in (gradients, like))
    factor = jnp.where(own > 0, other / jnp.where(own > 0, own, 1.0), 1.0)
    return jax.tree.map(lambda g: agentwise(factor, g) * g, gradients)


def agentwise(values: Float[Array, " N"], like: Float[Array, "N ..."]) -> Float[Array, "N ..."]:
    """One number an agent, shaped to multiply an array with the agent axis first."""
    return values.reshape(-1, *[1] * (like.ndim - 1))
