"""One step of an optimiser uphill, which every algorithm takes."""

import jax
import jax.numpy as jnp
import optax

from grasp.types import Metric, Metrics, PyTree


def ascend(
    optimiser: optax.GradientTransformation,
    params: PyTree,
    opt_state: optax.OptState,
    gradient: PyTree,
    factor: PyTree | None = None,
) -> tuple[PyTree, optax.OptState, Metrics]:
    """Move along the gradient; one that is not finite changes nothing and is counted.

    `factor`, a tree like the gradient's, multiplies what the optimiser makes of it.
    """
    norm = optax.tree.norm(gradient)
    usable = jnp.isfinite(norm)
    updates, next_opt_state = optimiser.update(jax.tree.map(jnp.negative, gradient), opt_state, params)
    if factor is not None:
        updates = jax.tree.map(jnp.multiply, updates, factor)
    proposed = (optax.apply_updates(params, updates), next_opt_state)
    params, opt_state = jax.tree.map(lambda new, old: jnp.where(usable, new, old), proposed, (params, opt_state))
    return params, opt_state, {"grad_norm": norm, Metric.SKIPPED_STEPS: 1.0 - usable}
