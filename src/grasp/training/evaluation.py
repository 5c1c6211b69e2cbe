"""Evaluation: complete episodes of a policy, with greedy and with sampled actions."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from grasp.nn import sharding
from grasp.types import Algorithm, Env, Key, Observation, PyTree

PARALLEL = 32
"""Episodes in parallel; more are played in batches, so that 320 need no more memory than 32."""


class Scores(NamedTuple):
    """One entry per episode."""

    returned: Float[Array, " E"]
    length: Int[Array, " E"]
    won: Bool[Array, " E"]
    timed_out: Bool[Array, " E"]
    """Whether the episode was ended by its time limit."""
    played: UInt32[Array, " E"]
    """A hash of the joint actions: equal where the same were played."""


class Evaluation(NamedTuple):
    """The same number of episodes with greedy and with sampled actions."""

    greedy: Scores
    """Every agent's likeliest action, or that of the highest value."""
    sampled: Scores
    """Actions drawn as in training: from the policy, or ε-greedy with the final ε."""


def evaluate(env: Env, algorithm: Algorithm, state: PyTree, key: Key, episodes: int) -> Evaluation:
    """The scores of `episodes` independent episodes of each kind."""
    batches = -(-episodes // PARALLEL)
    width = min(episodes, PARALLEL)
    scores = jax.lax.map(
        lambda batch_key: play(env, algorithm, state, batch_key, width), jax.random.split(key, batches)
    )
    return jax.tree.map(lambda x: x.reshape(-1)[:episodes], scores)


class Episodes(NamedTuple):
    """Parallel episodes at a time step."""

    env_state: PyTree
    observation: Observation
    memory: PyTree
    running: Bool[Array, " E"]
    scores: Scores


def play(env: Env, algorithm: Algorithm, state: PyTree, key: Key, width: int) -> Evaluation:
    """`width` parallel episodes of each kind, from the same starts; those that end early are stepped on, unscored,
    until the last has ended. One program plays both kinds: a second one would have to be compiled."""
    reset_key, play_key = jax.random.split(key)
    starts = jax.vmap(env.reset)(jax.random.split(reset_key, width))
    env_state, observation = jax.tree.map(lambda x: jnp.concatenate([x, x]), starts)
    number, state = 2 * width, algorithm.evaluated(state)
    greedy = jnp.arange(number) < width
    nothing = Scores(*(jnp.zeros(number, kind) for kind in (float, jnp.int32, bool, bool, jnp.uint32)))
    episodes = Episodes(env_state, observation, algorithm.memory(number), jnp.ones(number, bool), nothing)

    def step(time: Int[Array, ""], episodes: Episodes) -> Episodes:
        act_key, env_key = jax.random.split(jax.random.fold_in(play_key, time))
        decision = algorithm.act(state, episodes.memory, episodes.observation, act_key, greedy)
        env_keys = [jax.random.split(each, width) for each in (env_key, jax.random.fold_in(env_key, 1))]
        env_state, after = jax.vmap(env.step)(episodes.env_state, decision.action, jnp.concatenate(env_keys))
        scores = Scores(
            episodes.scores.returned + jnp.where(episodes.running, after.reward, 0.0),
            episodes.scores.length + episodes.running,
            episodes.scores.won | (episodes.running & after.won),
            episodes.scores.timed_out | (episodes.running & after.truncated),
            jnp.where(episodes.running, extended(episodes.scores.played, decision.action), episodes.scores.played),
        )
        running = episodes.running & ~(after.terminated | after.truncated)
        return sharding.shard(Episodes(env_state, after.observation, decision.memory, running, scores))

    scores = sharding.replicate(jax.lax.fori_loop(0, env.spec.horizon, step, sharding.shard(episodes)).scores)
    return Evaluation(Scores(*(x[:width] for x in scores)), Scores(*(x[width:] for x in scores)))


def extended(played: Any, action: Any) -> Any:
    """The hash after one more joint action, of JAX's arrays or NumPy's: `played` [E], `action` [E, N]."""
    joint = ((action + 1).astype(np.uint32) * factors(action.shape[-1])[None]).sum(-1, dtype=np.uint32)
    mixed = (played ^ joint) * np.uint32(16777619)
    return mixed ^ (mixed >> np.uint32(15))


@cache
def factors(num_agents: int) -> np.ndarray:
    """An odd number for each agent, so that it matters which agent did what."""
    return np.random.default_rng(0).integers(2**31, size=num_agents).astype(np.uint32) * 2 + 1
