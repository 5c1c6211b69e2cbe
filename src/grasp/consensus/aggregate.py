"""From gradients to their consensus u: the functions that users call. Operators on Gram matrices are in `operators`.

`grads` is any pytree whose leaves carry the agent axis first; u is that pytree without it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from grasp.consensus.gram import combine, gram, project, rescale, total
from grasp.consensus.min_norm import Status, certify, solve
from grasp.consensus.operators import weighting

PyTree = Any


class Info(NamedTuple):
    """The weights of u, the Gram matrix they come from, and the certificate."""

    weights: Float[Array, " N"]
    gram: Float[Array, "N N"]
    """Gram matrix of the gradients divided by `scale`."""
    scale: Float[Array, ""]
    """The largest gradient norm."""
    residual: Float[Array, ""]
    """max_j (‖u‖² − g_j·u)/(‖g_j‖‖u‖), from the gradients and u themselves; above 0 off the min-norm point."""
    iterations: Int[Array, ""]
    """Factorisations by the exact solver; 0 for other operators."""
    status: Int[Array, ""]
    """A `Status`."""


def min_norm(grads: PyTree, key: PRNGKeyArray | None = None) -> tuple[PyTree, Info]:
    """The shortest vector of the gradients' convex hull. The key is unused: every operator takes one.

    >>> u, info = min_norm({"layer": jnp.array([[2.0, 0.0], [0.0, 1.0]])})
    >>> [round(float(value), 4) for value in u["layer"]]
    [0.4, 0.8]
    >>> [round(float(weight), 4) for weight in info.weights]
    [0.2, 0.8]
    >>> Status(int(info.status)).name
    'CERTIFIED'
    """
    return consensus(grads, "min_norm", key)


def consensus(
    grads: PyTree, operator: str = "min_norm", key: PRNGKeyArray | None = None, axis_name: str | None = None
) -> tuple[PyTree, Info]:
    """u = Σ w_i g_i with the operator's weights, and its `Info` (Alg. 2 l. 1–2 for min-norm).

    Without a key, random operators use seed 0.

    Operators see the Gram matrix of the gradients divided by the largest norm, so every u scales with the gradients
    (Nash bargaining's √N is in units of the largest norm). Where 0 is in the hull, min-norm gives u = 0 exactly. A
    non-finite gradient gives u = 0 and weights 0, whatever the operator.

    With `axis_name`, under `jax.shard_map`, every device passes a slice of each gradient and receives its slice of u.
    """
    weigh = weighting(operator)
    scaled, scale = rescale(grads, axis_name)
    finite = jnp.isfinite(scale) & jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]))
    if axis_name is not None:
        finite = lax.pmin(finite.astype(jnp.int32), axis_name) == 1
    scaled = jax.tree.map(lambda g: jnp.where(finite, g, 0), scaled)
    G = gram(scaled, axis_name)
    if operator == "min_norm":
        w, _, iterations, found = solve(G)
        zero = found == Status.STATIONARY
    else:
        w, iterations = weigh(G, jax.random.key(0) if key is None else key), jnp.asarray(0)
        zero, found = jnp.asarray(False), jnp.asarray(Status.UNCERTIFIED)
    w = jnp.where(finite, w, 0)
    u = jax.tree.map(lambda leaf: jnp.where(zero | ~finite, 0, leaf), combine(scaled, w))
    length = jnp.sqrt(total(jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(u)])), axis_name))
    violation, checked = certify(G, w, project(scaled, u, axis_name), length)
    # Only the solver can tell that 0 is in the hull or that G is indefinite; the rest is checked on the gradients.
    solver_only = (found == Status.STATIONARY) | (found == Status.NOT_PSD)
    status = jnp.where(finite, jnp.where(solver_only, found, checked), Status.NON_FINITE)
    scale = jnp.where(finite, scale, 1)
    return (
        jax.tree.map(lambda leaf: leaf * scale.astype(leaf.dtype), u),
        Info(w, G, scale, jnp.where(finite, violation, jnp.inf), iterations, status),
    )
