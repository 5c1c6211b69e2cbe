"""The update rules g_i + βu and Γ_i (g_i + u), as plain functions and as optax transformations.

`add_consensus` and `scale_consensus` are the rules, which the algorithms of `grasp.algos` call too. `realign`
and `realign_off_policy` compute u and apply a rule as the FIRST transformation of an optax chain, while the gradients
still carry the leading agent axis and no moment has been taken, like `optax.contrib.differentially_private_aggregate`
with its batch axis:

    tx = optax.chain(realign(), optax.adam(5e-4))

A non-finite gradient gives an update of zeros and is counted in `skipped`. Later transformations still act: Adam
keeps moving by its momentum. To freeze everything, wrap the whole chain: `optax.apply_if_finite(tx, max_errors)`, which
looks at the gradients before this transformation sees them.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from grasp.consensus.aggregate import consensus
from grasp.consensus.gram import gram, num_agents, rescale
from grasp.consensus.min_norm import Status
from grasp.consensus.operators import weighting

PyTree = Any


class RealignState(NamedTuple):
    """What the last call did."""

    count: Int[Array, ""]  # pyright: ignore[reportIncompatibleMethodOverride]  # the name all of optax uses
    """Calls so far."""
    skipped: Int[Array, ""]
    """Calls whose gradients (or given u) were not finite."""
    clipped: Int[Array, ""]
    """Factors Γ_i that lay outside [0, 1] and were clipped, over all calls; always 0 for `realign`."""
    key: PRNGKeyArray
    weights: Float[Array, " N"]
    """Weights, residual and status are those of the last u computed here; a given u does not change them."""
    residual: Float[Array, ""]
    status: Int[Array, ""]
    """A `Status`."""


class ScaledConsensus(NamedTuple):
    """What the off-policy rule returns."""

    updates: PyTree
    """Γ_i (g_i + u), or g_i + u where Γ multiplies the optimiser's update."""
    factors: Float[Array, " N"]
    """Γ_i after clipping."""
    update_factors: Float[Array, " N"]
    """Factors for the optimiser's update: 1 where `updates` contains Γ already."""
    clipped: Int[Array, ""]
    """How many Γ_i lay outside [0, 1]."""


def add_consensus(grads: PyTree, u: PyTree, beta: Float[Array, ""] | float = 1.0) -> PyTree:
    """g_i + βu for every agent (paper, Algorithm 1, line 25). β may be traced."""
    return jax.tree.map(lambda g, shared: g + beta * shared[None], grads, u)


def scale_consensus(
    grads: PyTree,
    u: PyTree,
    *,
    clip: bool = True,
    gamma_on: Literal["gradient", "update"] = "gradient",
    signal: Float[Array, ""] | None = None,
) -> ScaledConsensus:
    """Γ_i (g_i + u), Γ_i = (‖u‖² + g_i·u)/(‖g_i‖² + ‖u‖²) (paper, appendix on off-policy GRASP).

    Without `clip` the Γ_i stay as they are: for the min-norm u they lie in [0, 1], for any other u in
    [(1−√2)/2, (1+√2)/2]. With `gamma_on = "update"` the updates are g_i + u, and the caller multiplies the optimiser's
    update by `update_factors`: under Adam a constant Γ_i on the gradient has no effect.

    `signal` is the factor s by which `crossfit` scaled u, the fraction of it that is signal. The rule is then
    (1 − s) g_i + s Γ_i (g_i + u/s): a batch without signal gives the plain gradient, where Γ_i of u = 0 would give 0.
    """
    direction = u if signal is None else undamped(u, signal)
    raw = off_policy_factors(grads, direction)
    factors = jnp.clip(raw, 0, 1) if clip else raw
    updates, update_factors = add_consensus(grads, direction), factors
    if gamma_on == "gradient":
        updates, update_factors = scale_agents(factors, updates), jnp.ones_like(factors)
    if signal is not None:
        updates = jax.tree.map(lambda g, v: (1 - signal) * g + signal * v, grads, updates)
        update_factors = 1 - signal * (1 - update_factors)
    clipped = jnp.sum(factors != raw) if clip else jnp.asarray(0)
    return ScaledConsensus(updates, factors, update_factors, clipped)


def off_policy_factors(grads: PyTree, u: PyTree) -> Float[Array, " N"]:
    """Γ_i = (‖u‖² + g_i·u)/(‖g_i‖² + ‖u‖²) before any clipping; 0 where both vectors are 0."""
    # Γ does not change when all vectors are divided by one number, and the squares then can't under- or overflow.
    both, _ = rescale(jax.tree.map(lambda g, shared: jnp.concatenate([g, shared[None]]), grads, u))
    G = gram(both)
    squared, inner, own = G[-1, -1], G[:-1, -1], jnp.diagonal(G)[:-1]
    total = own + squared
    return jnp.where(total > 0, (squared + inner) / jnp.where(total > 0, total, 1), 0)


def scale_agents(factors: Float[Array, " N"], tree: PyTree) -> PyTree:
    """Every agent's part of leaves [N, …] times its own factor."""
    return jax.tree.map(lambda x: jnp.reshape(factors, (-1, *[1] * (x.ndim - 1))).astype(x.dtype) * x, tree)


def undamped(u: PyTree, signal: Float[Array, ""]) -> PyTree:
    """u/s: the direction that `crossfit` scaled by its signal s; 0 where s is 0."""
    return jax.tree.map(lambda x: x / jnp.where(signal > 0, signal, 1), u)


def realign(operator: str = "min_norm", weight: float = 1.0, seed: int = 0) -> optax.GradientTransformationExtraArgs:
    """g_i + weight·u for every agent (paper, Algorithm 1). Must come first in the chain; see the module's docstring.

    `update(grads, state, params)` computes u from `grads`; `update(grads, state, params, u=u)` uses the given u,
    a pytree like `grads` without the agent axis.
    """

    def rule(grads: PyTree, u: PyTree, given: bool) -> tuple[PyTree, Array]:
        del given
        return add_consensus(grads, u, weight), jnp.asarray(0)

    return _transformation(operator, seed, rule)


def realign_off_policy(operator: str = "min_norm", seed: int = 0) -> optax.GradientTransformationExtraArgs:
    """Γ_i (g_i + u) for every agent (`scale_consensus`). Must come first in the chain.

    Γ_i is clipped to [0, 1], and the clipped factors counted, unless u is the min-norm point, which needs no clipping.
    Under Adam a constant Γ_i has no effect; only its changes do.
    """

    def rule(grads: PyTree, u: PyTree, given: bool) -> tuple[PyTree, Array]:
        scaled = scale_consensus(grads, u, clip=given or operator != "min_norm")
        return scaled.updates, scaled.clipped

    return _transformation(operator, seed, rule)


def _transformation(
    operator: str, seed: int, rule: Callable[[PyTree, PyTree, bool], tuple[PyTree, Array]]
) -> optax.GradientTransformationExtraArgs:
    weighting(operator)  # a misspelt name fails here, not inside a trace

    def init(params: PyTree) -> RealignState:
        dtype = jnp.result_type(*jax.tree.leaves(params))
        zero = jnp.asarray(0)
        return RealignState(
            count=zero,
            skipped=zero,
            clipped=zero,
            key=jax.random.key(seed),
            weights=jnp.zeros(num_agents(params), dtype),
            residual=jnp.asarray(0, dtype),
            status=jnp.asarray(Status.UNCERTIFIED),
        )

    def update(
        updates: PyTree, state: Any, params: PyTree | None = None, *, u: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, RealignState]:
        del params, extra
        next_key, draw_key = jax.random.split(state.key)
        state = state._replace(key=next_key)
        given = u is not None
        if u is None:
            u, info = consensus(updates, operator, draw_key)
            state = state._replace(weights=info.weights, residual=info.residual, status=info.status)
        leaves = [*jax.tree.leaves(updates), *jax.tree.leaves(u)]
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
        out, clipped = rule(updates, u, given)
        return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0), out), state._replace(
            count=state.count + 1,
            skipped=state.skipped + jnp.where(finite, 0, 1),
            clipped=state.clipped + jnp.where(finite, clipped, 0),
        )

    return optax.GradientTransformationExtraArgs(init, update)
