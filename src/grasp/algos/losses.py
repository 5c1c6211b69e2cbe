"""Pieces of the policy and value losses, each a function of one array of samples."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

ILLEGAL = -1e10
"""The logit of an action that may not be taken: its probability is exactly zero in float32."""


def log_probabilities(logits: Float[Array, "*S a"], avail: Bool[Array, "*S a"]) -> Float[Array, "*S a"]:
    """Log-probabilities of a categorical distribution over the legal actions."""
    return jax.nn.log_softmax(jnp.where(avail, logits, ILLEGAL))


def greedy_or(greedy: bool | Bool[Array, " B"], best: Int[Array, "B N"], drawn: Int[Array, "B N"]) -> Int[Array, "B N"]:
    """The best actions where greedy, else the drawn ones."""
    if isinstance(greedy, bool):
        return best if greedy else drawn
    return jnp.where(greedy[:, None], best, drawn)


def chosen(log_probs: Float[Array, "*S a"], action: Int[Array, "*S"]) -> Float[Array, "*S"]:
    """The entry of the action that was taken, read by a one-hot sum: a gather's gradient is a slow scatter on a CPU."""
    picked = action[..., None] == jnp.arange(log_probs.shape[-1]).reshape((1,) * action.ndim + (-1,))
    return jnp.where(picked, log_probs, 0.0).sum(-1)


def entropy(log_probs: Float[Array, "*S a"]) -> Float[Array, "*S"]:
    """Shannon entropy in nats; an illegal action contributes exactly zero (0 · log 0 = 0)."""
    return -(jnp.exp(log_probs) * log_probs).sum(-1)


def surrogate(ratio: Float[Array, "*S"], advantage: Float[Array, "*S"], clip: float) -> Float[Array, "*S"]:
    """PPO's clipped objective min(ρA, clip(ρ, 1−ε, 1+ε)A), to be maximised."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def huber(error: Float[Array, "*S"], delta: float) -> Float[Array, "*S"]:
    """Half the square up to delta, linear beyond."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, 0.5 * jnp.square(error), delta * (size - 0.5 * delta))


def value_loss(
    value: Float[Array, "*S"], value_old: Float[Array, "*S"], target: Float[Array, "*S"], clip: float, delta: float
) -> Float[Array, "*S"]:
    """The larger of the plain and the clipped value error: moving the value further than `clip` gains nothing."""
    clipped = value_old + jnp.clip(value - value_old, -clip, clip)
    return jnp.maximum(huber(value - target, delta), huber(clipped - target, delta))
