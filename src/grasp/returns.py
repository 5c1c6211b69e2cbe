"""Advantages from rewards and values."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    reward: Float[Array, "T B"],
    value: Float[Array, "T B"],
    next_value: Float[Array, "T B"],
    terminated: Bool[Array, "T B"],
    truncated: Bool[Array, "T B"],
    gamma: float,
    gae_lambda: float,
) -> Float[Array, "T B"]:
    """Generalised advantage estimates.

    `next_value[t]` is the value of the true next state, before any reset. A terminated step has no future; a truncated
    one keeps its value but ends the sum, since the next row belongs to another episode.

        δ_t = r_t + γ (1 − terminated_t) V'_t − V_t
        Â_t = δ_t + γλ (1 − terminated_t)(1 − truncated_t) Â_{t+1}
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    carries_on = gamma * gae_lambda * (1.0 - (terminated | truncated))

    def backward(advantage_next, inputs):
        delta_t, carries_on_t = inputs
        advantage = delta_t + carries_on_t * advantage_next
        return advantage, advantage

    return jax.lax.scan(backward, jnp.zeros_like(value[0]), (delta, carries_on), reverse=True)[1]


def masked_moments(x: Float[Array, "*S"], mask: Float[Array, "*S"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and standard deviation of x where each entry counts `mask` times."""
    count = jnp.maximum(mask.sum(), 1.0)
    mean = (x * mask).sum() / count
    return mean, jnp.sqrt((jnp.square(x - mean) * mask).sum() / count)
