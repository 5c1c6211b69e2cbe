"""ValueNorm: value targets normalised by their running mean and standard deviation."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

DECAY = 0.99999
VARIANCE_FLOOR = 1e-2
DEBIAS_FLOOR = 1e-5


class ValueNorm(NamedTuple):
    """Exponential moving moments, and their accumulated weight for debiasing (zero at the start)."""

    mean: Float[Array, ""]
    square: Float[Array, ""]
    weight: Float[Array, ""]


def value_norm_init() -> ValueNorm:
    zero = jnp.zeros((), jnp.float32)
    return ValueNorm(zero, zero, zero)


def value_norm_update(norm: ValueNorm, returns: Float[Array, "*S"]) -> ValueNorm:
    """Update with one batch of raw returns; a non-finite batch changes nothing."""
    usable = jnp.isfinite(jnp.square(returns).mean())
    returns = jnp.where(usable, returns, 0.0)
    step = jnp.where(usable, jnp.float32(1 - DECAY), 0.0)  # one rounded number for all three keeps their ratios exact
    return ValueNorm(
        norm.mean + step * (returns.mean() - norm.mean),
        norm.square + step * (jnp.square(returns).mean() - norm.square),
        norm.weight + step * (1.0 - norm.weight),
    )


def moments(norm: ValueNorm) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Debiased mean and standard deviation; (0, 0.1) before the first update."""
    weight = jnp.maximum(norm.weight, DEBIAS_FLOOR)
    mean = norm.mean / weight
    variance = jnp.maximum(norm.square / weight - jnp.square(mean), VARIANCE_FLOOR)
    return mean, jnp.sqrt(variance)


def normalise(norm: ValueNorm, returns: Float[Array, "*S"]) -> Float[Array, "*S"]:
    mean, spread = moments(norm)
    return (returns - mean) / spread


def denormalise(norm: ValueNorm, values: Float[Array, "*S"]) -> Float[Array, "*S"]:
    mean, spread = moments(norm)
    return values * spread + mean
