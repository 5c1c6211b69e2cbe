"""A plain recurrent MAPPO in the style of the public JAX baselines, for comparisons of speed.

Agents are flattened into the batch, the actor and a recurrent critic (evaluated once per agent) process whole rollouts,
gradients are autodiff's through a `lax.scan` of a GRU cell, a reset is computed at every step, and everything runs in
one program on all cores. It is only used for its speed, where the originals cannot be installed. Sizes are those of our
MAPPO: encoder and GRU of one width, one minibatch, the same number of epochs. JaxMARL's recurrent MAPPO reaches about
5.1k environment steps per second at these settings on two quiet cores.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from grasp.envs import base
from grasp.nn.gru import gru_init, gru_step
from grasp.nn.layers import dense, dense_init
from grasp.training.rollout import where
from grasp.types import Env, Key, Observation

OPTIMISER = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(5e-4))


class Playing(NamedTuple):
    env_state: Any
    seen: Observation
    ended: jax.Array
    memory: jax.Array
    value_memory: jax.Array


class Record(NamedTuple):
    """A rollout: [T, environments × agents, ...]."""

    obs: jax.Array
    state: jax.Array
    first: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    ended: jax.Array


class Learner(NamedTuple):
    params: Any
    opt_state: Any
    playing: Playing
    key: Key


def network_init(key: Key, in_dim: int, hidden: int, out_dim: int) -> dict[str, Any]:
    keys = jax.random.split(key, 3)
    return {
        "encoder": dense_init(keys[0], in_dim, hidden),
        "gru": gru_init(keys[1], hidden, hidden),
        "head": dense_init(keys[2], hidden, out_dim),
    }


def network(params: dict[str, Any], memory: jax.Array, x: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[T, actors, features] -> the last memory and the outputs, step by step."""

    def step(memory: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        features, first = inputs
        memory = gru_step(params["gru"], jnp.where(first[:, None], 0.0, memory), features)
        return memory, memory

    memory, outputs = jax.lax.scan(step, memory, (jax.nn.relu(dense(params["encoder"], x)), first))
    return memory, dense(params["head"], jax.nn.relu(outputs))


def play(env: Env, params: Any, playing: Playing, key: Key) -> tuple[Playing, Record]:
    """One step of every environment; a reset is computed at every step, as in the baselines."""
    num_envs, num_agents = playing.seen.alive.shape
    act_key, env_key, reset_key = jax.random.split(key, 3)
    obs = playing.seen.obs.reshape(num_envs * num_agents, -1)
    state = jnp.repeat(playing.seen.state, num_agents, axis=0)
    first = jnp.repeat(playing.ended, num_agents)
    memory, logits = network(params["actor"], playing.memory, obs[None], first[None])
    value_memory, value = network(params["critic"], playing.value_memory, state[None], first[None])
    action = jax.random.categorical(act_key, logits[0])
    env_state, after = jax.vmap(env.step)(
        playing.env_state, action.reshape(num_envs, num_agents), jax.random.split(env_key, num_envs)
    )
    ended = after.terminated | after.truncated
    fresh = jax.vmap(env.reset)(jax.random.split(reset_key, num_envs))
    env_state, seen = where(ended, fresh, (env_state, after.observation))
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits[0]), action[:, None], 1)[:, 0]
    reward, last = jnp.repeat(after.reward, num_agents), jnp.repeat(ended, num_agents).astype(jnp.float32)
    record = Record(obs, state, first, action, log_prob, value[0, :, 0], reward, last)
    return Playing(env_state, seen, ended, memory, value_memory), record


def advantages(record: Record) -> jax.Array:
    following = jnp.concatenate([record.value[1:], record.value[-1:]]) * (1 - record.ended)

    def back(total: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, ended = inputs
        total = delta + 0.99 * 0.95 * (1 - ended) * total
        return total, total

    delta = record.reward + 0.99 * following - record.value
    return jax.lax.scan(back, 0 * record.value[0], (delta, record.ended), reverse=True)[1]


def loss(params: Any, record: Record, advantage: jax.Array, target: jax.Array, start: Playing) -> jax.Array:
    _, logits = network(params["actor"], start.memory, record.obs, record.first)
    log_probs = jax.nn.log_softmax(logits)
    ratio = jnp.exp(jnp.take_along_axis(log_probs, record.action[..., None], -1)[..., 0] - record.log_prob)
    surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    _, value = network(params["critic"], start.value_memory, record.state, record.first)
    clipped = record.value + jnp.clip(value[..., 0] - record.value, -0.2, 0.2)
    error = jnp.maximum(jnp.square(value[..., 0] - target), jnp.square(clipped - target)).mean()
    return -surrogate - 0.01 * entropy + 0.5 * error


def iterate(env: Env, rollout: int, epochs: int, learner: Learner) -> Learner:
    """A rollout, and `epochs` steps on all of it."""
    next_key, play_key = jax.random.split(learner.key)
    start = learner.playing
    end, record = jax.lax.scan(partial(play, env, learner.params), start, jax.random.split(play_key, rollout))
    advantage = advantages(record)
    target = advantage + record.value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    def epoch(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        params, opt_state = carry
        gradient = jax.grad(loss)(params, record, advantage, target, start)
        updates, opt_state = OPTIMISER.update(gradient, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    (params, opt_state), _ = jax.lax.scan(epoch, (learner.params, learner.opt_state), None, length=epochs)
    return Learner(params, opt_state, end, next_key)


def trainer(env_name: str, num_envs: int, rollout: int, epochs: int, hidden: int) -> tuple[Callable[[], Any], int]:
    """A function that runs one more iteration each time it is called, and the environment steps of one."""
    env = base.compiled(env_name)
    spec = env.spec
    actor_key, critic_key, reset_key, run_key = jax.random.split(jax.random.key(0), 4)
    params = {
        "actor": network_init(actor_key, spec.obs_dim, hidden, spec.num_actions),
        "critic": network_init(critic_key, spec.state_dim, hidden, 1),
    }
    env_state, seen = jax.vmap(env.reset)(jax.random.split(reset_key, num_envs))
    memory = jnp.zeros((num_envs * spec.num_agents, hidden))
    playing = Playing(env_state, seen, jnp.zeros(num_envs, bool), memory, memory)
    learner = [Learner(params, OPTIMISER.init(params), playing, run_key)]
    compiled = jax.jit(partial(iterate, env, rollout, epochs))

    def advance() -> Any:
        learner[0] = compiled(learner[0])
        return learner[0].params

    return advance, num_envs * rollout
