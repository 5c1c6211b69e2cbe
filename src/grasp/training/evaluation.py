"""Whole episodes of a policy, from reset to end."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.nn import sharding
from grasp.types import Algorithm, Env, Key, Observation, PyTree

PARALLEL = 32
"""Episodes played at once; more are played in turns, so that 320 need no more memory than 32."""


class Scores(NamedTuple):
    """One entry an episode."""

    returned: Float[Array, " E"]
    length: Int[Array, " E"]
    won: Bool[Array, " E"]


def evaluate(env: Env, algorithm: Algorithm, state: PyTree, key: Key, episodes: int, greedy: bool = True) -> Scores:
    """The scores of `episodes` independent episodes; greedy takes every agent's likeliest action."""
    turns = -(-episodes // PARALLEL)
    width = min(episodes, PARALLEL)
    scores = jax.lax.map(
        lambda turn_key: play(env, algorithm, state, turn_key, width, greedy), jax.random.split(key, turns)
    )
    return Scores(*(x.reshape(-1)[:episodes] for x in scores))


class Stage(NamedTuple):
    """Episodes side by side, in mid-play."""

    env_state: PyTree
    observation: Observation
    memory: PyTree
    running: Bool[Array, " E"]
    scores: Scores


def play(env: Env, algorithm: Algorithm, state: PyTree, key: Key, width: int, greedy: bool) -> Scores:
    """`width` episodes side by side; those that ended early wait, unscored, for the last."""
    reset_key, play_key = jax.random.split(key)
    env_state, observation = jax.vmap(env.reset)(jax.random.split(reset_key, width))
    nothing = Scores(jnp.zeros(width), jnp.zeros(width, jnp.int32), jnp.zeros(width, bool))
    stage = Stage(env_state, observation, algorithm.memory(width), jnp.ones(width, bool), nothing)

    def step(time: Int[Array, ""], stage: Stage) -> Stage:
        act_key, env_key = jax.random.split(jax.random.fold_in(play_key, time))
        decision = algorithm.act(state, stage.memory, stage.observation, act_key, greedy)
        env_state, after = jax.vmap(env.step)(stage.env_state, decision.action, jax.random.split(env_key, width))
        scores = Scores(
            stage.scores.returned + jnp.where(stage.running, after.reward, 0.0),
            stage.scores.length + stage.running,
            stage.scores.won | (stage.running & after.won),
        )
        running = stage.running & ~(after.terminated | after.truncated)
        return sharding.shard(Stage(env_state, after.observation, decision.memory, running, scores))

    return sharding.replicate(jax.lax.fori_loop(0, env.spec.horizon, step, sharding.shard(stage)).scores)
