"""How agents with values of their actions choose one: the best, or sometimes any."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp import losses
from grasp.hyper import Qmix
from grasp.types import Key


def choose(
    q: Float[Array, "*S N a"], avail: Bool[Array, "*S N a"], epsilon: Float[Array, ""] | None, key: Key
) -> Int[Array, "*S N"]:
    """The best legal action, or any of them with probability ε."""
    action = best(q, avail)
    if epsilon is None:
        return action
    choice_key, random_key = jax.random.split(key)
    explores = jax.random.uniform(choice_key, action.shape) < epsilon
    anything = jax.random.categorical(random_key, jnp.where(avail, 0.0, losses.ILLEGAL))
    return jnp.where(explores, anything, action)


def share(hyper: Qmix, env_steps: Int[Array, ""]) -> Float[Array, ""]:
    """ε: from 1 to its end in a line over `anneal` environment steps."""
    return jnp.maximum(hyper.epsilon, 1.0 - (1.0 - hyper.epsilon) * env_steps / hyper.anneal)


def best(q: Float[Array, "*S a"], avail: Bool[Array, "*S a"]) -> Int[Array, "*S"]:
    return jnp.argmax(jnp.where(avail, q, losses.ILLEGAL), -1)
