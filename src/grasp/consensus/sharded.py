"""The consensus of gradients that are sums over devices, without gathering them on any device.

Every device has a part of each agent's gradient, summed over its own data. With n devices, N agents, D parameters:

    parts[N, D] --reduce-scatter--> slices[N, D/n] --gram--> all-reduce G[N, N] --weighting--> w
                                    slices --combine--> u[D/n] --all-gather--> u[D]

A device receives N·D/n numbers of gradients, N² of the Gram matrix and D of u; gathering the gradients would take N·D.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from grasp.consensus.aggregate import Info, consensus

PyTree = Any


def consensus_of_parts(
    parts: PyTree, operator: str = "min_norm", key: PRNGKeyArray | None = None, *, axis_name: str
) -> tuple[PyTree, Info]:
    """`consensus` of the sum of all devices' parts, equal on every device. Call it under `jax.shard_map`."""
    slices = scatter(parts, axis_name)
    u, info = consensus(slices, operator, key, axis_name)
    _, restore = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], parts))
    size = sum(leaf[0].size for leaf in jax.tree.leaves(parts))
    return restore(lax.all_gather(u, axis_name, tiled=True)[:size]), info


def scatter(parts: PyTree, axis_name: str) -> Float[Array, "N _"]:
    """This device's slice of the summed gradients, with one row per agent of all leaves; zeros pad the last slice."""
    rows = jax.vmap(lambda part: ravel_pytree(part)[0])(parts)
    missing = -rows.shape[1] % lax.axis_size(axis_name)
    return lax.psum_scatter(jnp.pad(rows, ((0, 0), (0, missing))), axis_name, scatter_dimension=1, tiled=True)
