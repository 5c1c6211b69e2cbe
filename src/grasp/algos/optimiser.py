"""The optimiser of every algorithm, and one gradient-ascent step."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool

from grasp.types import Metric, Metrics, PyTree


def clipped_adam(lr: float, eps: float, max_grad_norm: float, decay_steps: int = 0) -> optax.GradientTransformation:
    """Adam after a global-norm clip. The learning rate anneals linearly to 0 over `decay_steps`; 0: it is constant."""
    rate = optax.linear_schedule(lr, 0.0, decay_steps) if decay_steps else lr
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optax.adam(rate, eps=eps))


def ascend(
    optimiser: optax.GradientTransformation,
    params: PyTree,
    opt_state: optax.OptState,
    gradient: PyTree,
    factor: PyTree | None = None,
) -> tuple[PyTree, optax.OptState, Metrics]:
    """Step along the gradient; a non-finite gradient changes nothing and is counted.

    `factor`, a tree like the gradient, multiplies the optimiser's update.
    """
    norm = optax.tree.norm(gradient)
    usable = jnp.isfinite(norm)
    updates, next_opt_state = optimiser.update(jax.tree.map(jnp.negative, gradient), opt_state, params)
    if factor is not None:
        updates = jax.tree.map(jnp.multiply, updates, factor)
    proposed = (optax.apply_updates(params, updates), next_opt_state)
    params, opt_state = taken_if(usable, proposed, (params, opt_state))
    return params, opt_state, {"grad_norm": norm, Metric.SKIPPED_STEPS: 1.0 - usable}


def taken_if(condition: Bool[Array, ""], after: PyTree, before: PyTree) -> PyTree:
    """The trees after a step if the condition holds, else those before it. A learning-rate schedule counts the step
    either way: it anneals over the steps of training, not over those that were taken."""

    def is_counter(tree: PyTree) -> bool:
        return isinstance(tree, optax.ScaleByScheduleState)

    def one(new: PyTree, old: PyTree) -> PyTree:
        return new if is_counter(new) else jnp.where(condition, new, old)

    return jax.tree.map(one, after, before, is_leaf=is_counter)
