"""Evaluation: complete episodes of a policy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.nn import sharding
from grasp.types import Algorithm, Env, Key, Observation, PyTree

PARALLEL = 32
"""Episodes in parallel; more are played in batches, so that 320 need no more memory than 32."""


class Scores(NamedTuple):
    """One entry per episode."""

    returned: Float[Array, " E"]
    length: Int[Array, " E"]
    won: Bool[Array, " E"]


def evaluate(env: Env, algorithm: Algorithm, state: PyTree, key: Key, episodes: int, greedy: bool = True) -> Scores:
    """The scores of `episodes` independent episodes; greedy takes every agent's likeliest action."""
    batches = -(-episodes // PARALLEL)
    width = min(episodes, PARALLEL)
    scores = jax.lax.map(
        lambda batch_key: play(env, algorithm, state, batch_key, width, greedy), jax.random.split(key, batches)
    )
    return Scores(*(x.reshape(-1)[:episodes] for x in scores))


class Episodes(NamedTuple):
    """Parallel episodes at a time step."""

    env_state: PyTree
    observation: Observation
    memory: PyTree
    running: Bool[Array, " E"]
    scores: Scores


def play(env: Env, algorithm: Algorithm, state: PyTree, key: Key, width: int, greedy: bool) -> Scores:
    """`width` parallel episodes; those that end early are stepped on, unscored, until the last has ended."""
    reset_key, play_key = jax.random.split(key)
    env_state, observation = jax.vmap(env.reset)(jax.random.split(reset_key, width))
    nothing = Scores(jnp.zeros(width), jnp.zeros(width, jnp.int32), jnp.zeros(width, bool))
    episodes = Episodes(env_state, observation, algorithm.memory(width), jnp.ones(width, bool), nothing)

    def step(time: Int[Array, ""], episodes: Episodes) -> Episodes:
        act_key, env_key = jax.random.split(jax.random.fold_in(play_key, time))
        decision = algorithm.act(state, episodes.memory, episodes.observation, act_key, greedy)
        env_state, after = jax.vmap(env.step)(episodes.env_state, decision.action, jax.random.split(env_key, width))
        scores = Scores(
            episodes.scores.returned + jnp.where(episodes.running, after.reward, 0.0),
            episodes.scores.length + episodes.running,
            episodes.scores.won | (episodes.running & after.won),
        )
        running = episodes.running & ~(after.terminated | after.truncated)
        return sharding.shard(Episodes(env_state, after.observation, decision.memory, running, scores))

    return sharding.replicate(jax.lax.fori_loop(0, env.spec.horizon, step, sharding.shard(episodes)).scores)
