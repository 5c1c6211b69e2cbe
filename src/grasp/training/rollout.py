"""Rollouts of environments in JAX: acting and stepping in one scan."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.nn import sharding
from grasp.types import Algorithm, Env, Key, Metric, Metrics, Observation, PyTree, Trajectory


class Arena(NamedTuple):
    """B running environments: the state from which the next rollout continues.

    A reset is computed for every environment in advance and used when its episode ends. Used resets are replaced all at
    once, when an environment needs a second one: the other steps compute no reset.
    """

    env_state: PyTree
    observation: Observation
    memory: PyTree
    first: Bool[Array, " B"]
    fresh_state: PyTree
    fresh_observation: Observation
    used: Bool[Array, " B"]
    """Whether the prepared reset has been used."""
    returned: Float[Array, " B"]
    """Return of the running episode so far."""
    length: Int[Array, " B"]


class Outcome(NamedTuple):
    """The episodes that ended at each step, where `ended`."""

    ended: Bool[Array, "*T B"]
    returned: Float[Array, "*T B"]
    length: Int[Array, "*T B"]
    won: Bool[Array, "*T B"]


def where(mask: Bool[Array, " B"], chosen: PyTree, other: PyTree) -> PyTree:
    """Select between two trees, per environment."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(pick, chosen, other)


def cleared(memory: PyTree, first: Bool[Array, " B"]) -> PyTree:
    """The memory, set to zero where an episode starts."""
    return where(first, jax.tree.map(jnp.zeros_like, memory), memory)


def open_arena(env: Env, algorithm: Algorithm, num_envs: int, key: Key) -> Arena:
    """B environments at their first step."""
    reset_key, fresh_key = jax.random.split(key)
    env_state, observation = jax.vmap(env.reset)(jax.random.split(reset_key, num_envs))
    fresh_state, fresh_observation = jax.vmap(env.reset)(jax.random.split(fresh_key, num_envs))
    return Arena(
        env_state=env_state,
        observation=observation,
        memory=algorithm.memory(num_envs),
        first=jnp.ones(num_envs, bool),
        fresh_state=fresh_state,
        fresh_observation=fresh_observation,
        used=jnp.zeros(num_envs, bool),
        returned=jnp.zeros(num_envs),
        length=jnp.zeros(num_envs, jnp.int32),
    )


def collect(
    env: Env, algorithm: Algorithm, state: PyTree, arena: Arena, key: Key, num_steps: int
) -> tuple[Arena, Trajectory, Metrics]:
    """T steps of the current policy in every environment (Alg. 1 l. 6)."""

    def step(arena: Arena, step_key: Key):
        act_key, env_key, reset_key = jax.random.split(step_key, 3)
        memory = cleared(arena.memory, arena.first)
        decision = algorithm.act(state, memory, arena.observation, act_key, False)
        num_envs = arena.first.shape[0]
        env_state, after = jax.vmap(env.step)(arena.env_state, decision.action, jax.random.split(env_key, num_envs))
        seen = Trajectory(
            observation=arena.observation,
            memory=arena.memory,
            first=arena.first,
            action=decision.action,
            record=decision.record,
            reward=after.reward,
            terminated=after.terminated,
            truncated=after.truncated,
            next_observation=after.observation,
        )
        arena = arena._replace(
            env_state=env_state,
            observation=after.observation,
            memory=decision.memory,
            first=after.terminated | after.truncated,
            returned=arena.returned + after.reward,
            length=arena.length + 1,
        )
        outcome = Outcome(arena.first, arena.returned, arena.length, after.won)
        return sharding.shard(reopen(env, arena, reset_key)), (seen, outcome)

    arena, (trajectory, outcome) = jax.lax.scan(step, sharding.shard(arena), jax.random.split(key, num_steps))
    memory = jax.tree.map(lambda m, last: jnp.concatenate([m, last[None]]), trajectory.memory, arena.memory)
    return arena, trajectory._replace(memory=memory), finished(outcome, env.spec.has_wins)


def reopen(env: Env, arena: Arena, key: Key) -> Arena:
    """Start a new episode wherever one has ended (`first`)."""

    def refill() -> tuple[PyTree, Observation, Array]:
        state, observation = jax.vmap(env.reset)(jax.random.split(key, arena.used.shape[0]))
        return (
            where(arena.used, state, arena.fresh_state),
            where(arena.used, observation, arena.fresh_observation),
            jnp.zeros_like(arena.used),
        )

    def keep() -> tuple[PyTree, Observation, Array]:
        return arena.fresh_state, arena.fresh_observation, arena.used

    fresh_state, fresh_observation, used = jax.lax.cond((arena.first & arena.used).any(), refill, keep)
    return arena._replace(
        env_state=where(arena.first, fresh_state, arena.env_state),
        observation=where(arena.first, fresh_observation, arena.observation),
        fresh_state=fresh_state,
        fresh_observation=fresh_observation,
        used=used | arena.first,
        returned=jnp.where(arena.first, 0.0, arena.returned),
        length=jnp.where(arena.first, 0, arena.length),
    )


def finished(outcome: Outcome, has_wins: bool) -> Metrics:
    """Metrics of the episodes that ended in a rollout; NaN where none did."""
    count = outcome.ended.sum()

    def mean(x: Array) -> Array:
        return jnp.where(outcome.ended, x, 0).sum() / jnp.where(count > 0, count, jnp.nan)

    metrics = {
        Metric.EPISODES: count,
        Metric.TRAIN_RETURN: mean(outcome.returned),
        "train_length": mean(outcome.length),
    }
    return metrics | ({Metric.TRAIN_WIN_RATE: mean(outcome.won)} if has_wins else {})
