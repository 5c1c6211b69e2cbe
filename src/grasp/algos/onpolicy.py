"""What MAPPO and HAPPO share: what learning changes, how the team acts, the batch, and one step uphill."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from grasp.algos import losses, returns
from grasp.algos import value_norm as normalise
from grasp.config.hyperparameters import Mappo
from grasp.nn import actor as actors
from grasp.nn import critic as critics
from grasp.nn.actor import Actor
from grasp.types import Decision, EnvSpec, Key, Metric, Metrics, Observation, PyTree, Trajectory


class Memory(NamedTuple):
    """What the team carries from step to step."""

    actor: Float[Array, "*B N H"]
    critic: Float[Array, "*B Hc"]
    """*B is followed by N where agents have states of their own; so with the values."""


class Record(NamedTuple):
    """What the update wants to find again of the policy that acted."""

    log_prob: Float[Array, "*B N"]
    value: Float[Array, "*B"]


class State(NamedTuple):
    """Everything that learning changes."""

    actor: Actor
    critic: PyTree
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    value_norm: normalise.ValueNorm


class Optimisers(NamedTuple):
    actor: optax.GradientTransformation
    critic: optax.GradientTransformation


def optimisers(hyper: Mappo) -> Optimisers:
    return Optimisers(*(clipped_adam(hyper, lr) for lr in (hyper.lr, hyper.critic_lr)))


def init(hyper: Mappo, spec: EnvSpec, optimisers: Optimisers, key: Key) -> State:  # Alg. 1 l. 1–3
    """Fresh networks and optimisers."""
    actor_key, critic_key = jax.random.split(key)
    actor = actors.actor_init(actor_key, spec, hyper.hidden, hyper.sharing)
    critic = critics.critic_init(critic_key, hyper.critic, spec.state_dim, hyper.hidden)
    return State(
        actor, critic, optimisers.actor.init(actor), optimisers.critic.init(critic), normalise.value_norm_init()
    )


def memory(hyper: Mappo, spec: EnvSpec, num_envs: int) -> Memory:
    """Nothing remembered yet."""
    return Memory(
        jnp.zeros((num_envs, spec.num_agents, hyper.hidden)),
        critics.critic_memory(hyper.critic, (num_envs, *spec.state_shape[:-1]), hyper.hidden),
    )


def clipped_adam(hyper: Mappo, lr: float) -> optax.GradientTransformation:
    """Adam behind a global-norm clip; with `decay`, its step falls to zero in a line, counted in optimiser steps."""
    iterations = hyper.decay / (hyper.num_envs * hyper.rollout)
    step = optax.linear_schedule(lr, 0.0, round(iterations * hyper.epochs * hyper.minibatches)) if hyper.decay else lr
    return optax.chain(optax.clip_by_global_norm(hyper.max_grad_norm), optax.adam(step, eps=hyper.adam_eps))


def decide(hyper: Mappo, state: State, memory: Memory, observation: Observation, key: Key, greedy: bool) -> Decision:
    """Every agent's action from its own policy, sampled or the likeliest. A dead agent sees zeros (death masking)."""
    obs = observation.obs * observation.alive[..., None]
    actor_memory = actors.step(state.actor.backbone, hyper.sharing, memory.actor, obs)
    preferences = actors.logits(state.actor.head, hyper.sharing, actor_memory)
    log_probs = losses.log_probabilities(preferences, observation.avail)
    action = jnp.argmax(log_probs, -1) if greedy else jax.random.categorical(key, log_probs)
    value, critic_memory = critics.value_step(state.critic, hyper.critic, memory.critic, observation.state)
    record = Record(losses.chosen(log_probs, action), value)
    expected = normalise.denormalise(state.value_norm, value) if hyper.value_norm else value
    return Decision(action, Memory(actor_memory, critic_memory), record, jnp.exp(log_probs), expected)


JUDGING = ("critic", "value_norm")


def estimate(
    hyper: Mappo, state: State, trajectory: Trajectory
) -> tuple[Float[Array, "T B *V"], Float[Array, "T B *V"]]:
    """Advantages and the returns the critic learns, from the shared reward (Alg. 1 l. 7): the team's, or each agent's
    where agents have states of their own."""
    value, after = trajectory.record.value, trajectory.next_observation.state
    next_value, _ = critics.value_step(state.critic, hyper.critic, trajectory.memory.critic[1:], after)
    if hyper.value_norm:
        value, next_value = (normalise.denormalise(state.value_norm, v) for v in (value, next_value))
    happened = (trajectory.reward, trajectory.terminated, trajectory.truncated)
    if value.ndim > trajectory.reward.ndim:
        happened = jax.tree.map(lambda x: x[..., None], happened)
    reward, terminated, truncated = happened
    advantage = returns.gae(reward, value, next_value, terminated, truncated, hyper.gamma, hyper.gae_lambda)
    return advantage, advantage + value


def shuffled(hyper: Mappo, num_chunks: int, key: Key) -> Int[Array, "steps C"]:
    """Which chunks each step of the iteration takes (Alg. 1 l. 16–17). One minibatch needs no shuffling."""
    order = jnp.tile(jnp.arange(num_chunks), (hyper.epochs, 1))
    if hyper.minibatches > 1:
        order = jax.random.permutation(key, order, axis=1, independent=True)
    return order.reshape(hyper.epochs * hyper.minibatches, -1)


def summary(stats: Metrics) -> Metrics:
    """One number a metric for the iteration: means over its steps, sums of counts, the divergence where it ended."""
    total = {
        name: value.sum() if name.endswith(Metric.SKIPPED_STEPS) else value.mean() for name, value in stats.items()
    }
    return total | {"approx_kl_last": stats["approx_kl"][..., -1].mean()}
