"""`--control`: ablations that replace the consensus.

Other directions of the same norm (`placebo`, `permuted`), and its norm without its direction (`step_size`,
`update_size`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from grasp import consensus as consensus_library
from grasp.nn import sharding
from grasp.types import Key, PyTree


def replaced(u: PyTree, control: str, gradients: PyTree, weights: Float[Array, " N"], key: Key) -> PyTree:
    """The direction added to every agent's gradient instead of u.

    `placebo` is a random direction. `permuted` gives every agent's gradient the weight of another agent: renaming the
    agents alone would change nothing, since u does not depend on their order.
    """
    if control == "placebo":
        leaves, shape = jax.tree.flatten(u)
        keys = jax.random.split(key, len(leaves))
        other = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
        return with_norm_of(u, jax.tree.unflatten(shape, other))
    if control == "permuted":
        shift = jax.random.randint(key, (), 1, max(len(weights), 2))
        return with_norm_of(u, weighted_sum(gradients, jnp.roll(weights, shift)))
    return u


def weighted_sum(gradients: PyTree, weights: Float[Array, " N"]) -> PyTree:
    """Σ w_i g_i. Over many devices each sums its own part, so that they exchange one gradient and not N."""
    if sharding.num_devices() == 1:
        return consensus_library.combine(gradients, weights)
    parts = jax.vmap(consensus_library.combine, in_axes=(0, None))(gradients, weights)
    return jax.tree.map(lambda x: x.sum(0), parts)


def with_norm_of(u: PyTree, other: PyTree) -> PyTree:
    """`other`, scaled to the norm of u."""
    length = optax.tree.norm(other)
    return optax.tree.scale(jnp.where(length > 0, optax.tree.norm(u) / jnp.where(length > 0, length, 1.0), 0.0), other)


def stretch(gradients: PyTree, like: PyTree) -> PyTree:
    """Every agent's gradient [N, ...], scaled to the norm of that agent's gradient in `like`."""
    own, other = (jax.vmap(optax.tree.norm)(tree) for tree in (gradients, like))
    factor = jnp.where(own > 0, other / jnp.where(own > 0, own, 1.0), 1.0)
    return consensus_library.scale_agents(factor, gradients)


class Pair(NamedTuple):
    """A gradient to follow, and the one whose optimiser update it must match in norm (`match_update_norms`)."""

    own: Any
    other: Any


def match_update_norms(
    optimiser: optax.GradientTransformation, stretched: Callable[[PyTree, PyTree], PyTree]
) -> optax.GradientTransformation:
    """The optimiser's update for `Pair.own`, scaled to the norm of its update for `Pair.other`, agent by agent.

    Adam divides a gradient by a running estimate of its size, so a longer gradient is hardly a longer step. Here each
    gradient of the pair has an optimiser state of its own, and the lengths of the updates themselves are made equal.
    """

    def init(params: Any) -> Any:
        return optimiser.init(params), optimiser.init(params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        own, other = (optimiser.update(g, s, params) for g, s in zip(updates, state, strict=True))
        return stretched(own[0], other[0]), (own[1], other[1])

    return optax.GradientTransformation(init, update)
