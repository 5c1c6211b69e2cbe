"""Advantages and value targets from rewards and values."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def gae(
    reward: Float[Array, "T B *#V"],
    value: Float[Array, "T B *V"],
    next_value: Float[Array, "T B *V"],
    terminated: Bool[Array, "T B *#V"],
    truncated: Bool[Array, "T B *#V"],
    gamma: float,
    gae_lambda: float,
) -> Float[Array, "T B *V"]:
    """Generalised advantage estimates; `*V` is the agent axis where each agent has a value of its own.

    `next_value[t]` is the value of the true next state, before any reset. A terminated step has no future; a
    truncated one bootstraps from it but ends the sum, since the next row belongs to another episode.

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


def td_lambda(
    reward: Float[Array, "H E"],
    next_value: Float[Array, "H E"],
    length: Int[Array, " E"],
    terminated: Bool[Array, " E"],
    gamma: float,
    trace: float,
) -> Float[Array, "H E"]:
    """TD(λ) targets of whole episodes; `next_value[t]` is the value of the state after step t. Zero beyond an
    episode's length.

        G_t = r_t + γ ((1 − λ) V'_t + λ G_{t+1})        inside the episode
        G_t = r_t + γ V'_t  if it was truncated there,  r_t  if it terminated

    Both cases are explicit: pymarl2's recursion lets values of padding into a truncated episode.
    """
    time = jnp.arange(reward.shape[0])[:, None]
    last, inside = time == length[None] - 1, time < length[None]

    def backward(target_next: Array, inputs: tuple) -> tuple[Array, Array]:
        reward, next_value, last, inside = inputs
        following = jnp.where(
            last, jnp.where(terminated, 0.0, next_value), (1 - trace) * next_value + trace * target_next
        )
        target = jnp.where(inside, reward + gamma * following, 0.0)
        return target, target

    return jax.lax.scan(backward, jnp.zeros_like(reward[0]), (reward, next_value, last, inside), reverse=True)[1]


def masked_moments(x: Float[Array, "*S"], mask: Float[Array, "*S"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and standard deviation of x where each entry counts `mask` times."""
    count = jnp.maximum(mask.sum(), 1.0)
    mean = (x * mask).sum() / count
    return mean, jnp.sqrt((jnp.square(x - mean) * mask).sum() / count)
