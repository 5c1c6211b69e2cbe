"""ε-greedy action selection from action values, and the values that `grasp play --overlay` shows."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.algos import losses
from grasp.config.hyperparameters import Qmix
from grasp.nn import mixer as mixers
from grasp.types import Key, Observation, PyTree


def choose(
    q: Float[Array, "*S N a"], avail: Bool[Array, "*S N a"], epsilon: Float[Array, "*e"], key: Key
) -> Int[Array, "*S N"]:
    """The best legal action; with probability ε a uniformly random legal one."""
    choice_key, random_key = jax.random.split(key)
    action = best(q, avail)
    explores = jax.random.uniform(choice_key, action.shape) < epsilon
    anything = jax.random.categorical(random_key, jnp.where(avail, 0.0, losses.ILLEGAL))
    return jnp.where(explores, anything, action)


def epsilon(hyper: Qmix, env_steps: Int[Array, ""]) -> Float[Array, ""]:
    """ε, annealed linearly from 1 to `epsilon` over `anneal` environment steps."""
    return jnp.maximum(hyper.epsilon, 1.0 - (1.0 - hyper.epsilon) * env_steps / hyper.anneal)


def act(
    hyper: Qmix,
    q: Float[Array, "B N a"],
    avail: Bool[Array, "B N a"],
    env_steps: Int[Array, ""],
    key: Key,
    greedy: bool | Bool[Array, " B"],
) -> Int[Array, "B N"]:
    """The best legal actions where greedy, else ε-greedy ones."""
    return losses.greedy_or(greedy, best(q, avail), choose(q, avail, epsilon(hyper, env_steps), key))


def annealed(hyper: Qmix, state: Any) -> Any:
    """The state with ε at its final value."""
    return state._replace(env_steps=jnp.full_like(state.env_steps, hyper.anneal))


def best(q: Float[Array, "*S a"], avail: Bool[Array, "*S a"]) -> Int[Array, "*S"]:
    return jnp.argmax(jnp.where(avail, q, losses.ILLEGAL), -1)


def judged(
    hyper: Qmix, mixer: PyTree, q: Float[Array, "B N a"], observation: Observation
) -> tuple[Float[Array, "B N a"], Float[Array, " B"]]:
    """Each agent's preference for each action, and the team's value of the best actions, in units of the return."""
    team = mixers.mix(mixer, losses.chosen(q, best(q, observation.avail)), observation.state)
    return preference(q, observation.avail), team / hyper.reward_scale


def preference(q: Float[Array, "*S a"], avail: Bool[Array, "*S a"]) -> Float[Array, "*S a"]:
    """Action values rescaled from 0, the worst legal action, to 1, the best; 1 where all are equal."""
    low = jnp.where(avail, q, jnp.inf).min(-1, keepdims=True)
    high = jnp.where(avail, q, -jnp.inf).max(-1, keepdims=True)
    scaled = jnp.where(high > low, (q - low) / jnp.where(high > low, high - low, 1.0), 1.0)
    return jnp.where(avail, scaled, 0.0)
