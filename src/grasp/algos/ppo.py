"""The parts of PPO for a team that MAPPO and HAPPO share: state, acting, advantages, gradients, and one step of each.

One loss scale everywhere: the objective is the sum over agents of each agent's mean over its own live steps, so a live
step of an agent weighs one over the number of its live steps (`step_weights`). An agent's own parameters receive its
own gradient g_i, and shared parameters the mean of all g_i (`shared_mean`). Gradients are ascent directions.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from grasp.algos import inputs, losses, returns
from grasp.algos import minibatches as batches
from grasp.algos import value_norm as normalise
from grasp.algos.minibatches import Batch, Steps, accumulate
from grasp.algos.optimiser import ascend, clipped_adam
from grasp.config.hyperparameters import Mappo
from grasp.nn import actor as actors
from grasp.nn import backbone as backbones
from grasp.nn import critic as critics
from grasp.nn.actor import Actor
from grasp.nn.backbone import Front, Recurrence
from grasp.types import Decision, EnvSpec, Key, Metric, Metrics, Observation, PyTree, Trajectory


class Memory(NamedTuple):
    """The team's memory between two steps."""

    actor: Float[Array, "*B N H"]
    critic: Float[Array, "*B Hc"]
    """*B is followed by N where agents have states of their own; so are the values."""
    last_action: Float[Array, "*B N a"] | tuple[()] = ()
    """One-hot; empty without `last_action`."""


class Record(NamedTuple):
    """What the update needs of the policy that acted."""

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


JUDGING = ("critic", "value_norm")
"""The fields of `State` that `Decision.value` needs."""


def optimisers(hyper: Mappo) -> Optimisers:
    """Adam for each network; with `decay`, counted in optimiser steps."""
    iterations = hyper.decay / (hyper.num_envs * hyper.rollout)
    steps = round(iterations * hyper.epochs * hyper.minibatches)
    return Optimisers(
        *(clipped_adam(lr, hyper.adam_eps, hyper.max_grad_norm, steps) for lr in (hyper.lr, hyper.critic_lr))
    )


def init(hyper: Mappo, spec: EnvSpec, optimisers: Optimisers, key: Key) -> State:  # Alg. 1 l. 1–3
    """Fresh networks and optimisers."""
    actor_key, critic_key = jax.random.split(key)
    actor = actors.actor_init(
        actor_key,
        spec,
        hyper.hidden,
        hyper.sharing,
        inputs.width(hyper, spec),
        front(hyper, hyper.actor) or backbones.encoded_init,
        actors.policy_head(hyper.gain),
        hyper.init,
    )
    critic = critics.critic_init(critic_key, spec.state_dim, hyper.hidden, front(hyper, hyper.critic))
    return State(
        actor, critic, optimisers.actor.init(actor), optimisers.critic.init(critic), normalise.value_norm_init()
    )


def front(hyper: Mappo, recurrence: Recurrence) -> Front | None:
    """The backbone of a network; None for the paper's critic without a GRU, which is not one of `nn.backbone`."""
    if hyper.layout == "reference":
        return partial(backbones.blocks_init, number=hyper.blocks, recurrence=recurrence)
    return backbones.encoded_init if recurrence == "gru" else None


def memory(hyper: Mappo, spec: EnvSpec, num_envs: int) -> Memory:
    """The memory at the start of an episode. A network without a GRU has one of width 0."""
    team = (num_envs, spec.num_agents)
    return Memory(
        jnp.zeros((*team, hyper.hidden * (hyper.actor == "gru"))),
        jnp.zeros((num_envs, *spec.state_shape[:-1], hyper.hidden * (hyper.critic == "gru"))),
        jnp.zeros((*team, spec.num_actions)) if hyper.last_action else (),
    )


def decide(
    hyper: Mappo, state: State, memory: Memory, observation: Observation, key: Key, greedy: bool | Bool[Array, " B"]
) -> Decision:
    """Every agent's action from its own policy, sampled or the most probable. A dead agent's input is zeros."""
    seen = inputs.of_agents(hyper, observation.obs, memory.last_action) * observation.alive[..., None]
    actor_memory, features = actors.step(state.actor.backbone, hyper.sharing, memory.actor, seen)
    logits = actors.logits(state.actor.head, hyper.sharing, features)
    log_probs = losses.log_probabilities(logits, observation.avail)
    action = losses.greedy_or(greedy, jnp.argmax(log_probs, -1), jax.random.categorical(key, log_probs))
    value, critic_memory = critics.value_step(state.critic, memory.critic, observation.state)
    record = Record(losses.chosen(log_probs, action), value)
    expected = normalise.denormalise(state.value_norm, value) if hyper.value_norm else value
    last_action = jax.nn.one_hot(action, logits.shape[-1]) if hyper.last_action else ()
    return Decision(action, Memory(actor_memory, critic_memory, last_action), record, jnp.exp(log_probs), expected)


def inputs_along(hyper: Mappo, trajectory: Trajectory) -> Float[Array, "T B N i"]:
    """The actors' inputs along a trajectory, as `decide` had them."""
    seen, last_action = trajectory.observation, trajectory.memory.last_action
    if hyper.last_action:
        last_action = jnp.where(trajectory.first[..., None, None], 0.0, last_action[:-1])
    return inputs.of_agents(hyper, seen.obs, last_action) * seen.alive[..., None]


def prepare(hyper: Mappo, state: State, trajectory: Trajectory, per_agent: bool = False) -> Batch:
    """The trajectory in chunks, with value targets and advantages.

    The team's advantages are normalised over all agents' live steps at once, or, `per_agent`, over each agent's own.
    Advantages of agents that have states of their own are normalised over all agents' live steps.
    """
    advantage, target = estimate(hyper, state, trajectory)
    alive = trajectory.observation.alive.astype(jnp.float32)
    if advantage.ndim == alive.ndim:
        advantage = batches.normalised(advantage, alive)
    elif per_agent:
        advantage = jax.vmap(batches.normalised, in_axes=(None, -1), out_axes=-1)(advantage, alive)
    else:
        shared = batches.normalised(advantage, alive.sum(-1))
        advantage = jnp.broadcast_to(shared[..., None], alive.shape)
    seen = trajectory.observation._replace(obs=inputs_along(hyper, trajectory))
    return batches.chunked(trajectory._replace(observation=seen), advantage, target, hyper.chunk, hyper.minibatches)


def estimate(
    hyper: Mappo, state: State, trajectory: Trajectory
) -> tuple[Float[Array, "T B *V"], Float[Array, "T B *V"]]:
    """Advantages by GAE and the returns that the critic learns, from the shared reward: the team's, or each agent's
    where agents have states of their own (Alg. 1 l. 7). With `time_limit = terminal` nothing follows a time-out."""
    value, after = trajectory.record.value, trajectory.next_observation.state
    next_value, _ = critics.value_step(state.critic, trajectory.memory.critic[1:], after)
    if hyper.value_norm:
        value, next_value = (normalise.denormalise(state.value_norm, v) for v in (value, next_value))
    outcome = (trajectory.reward, trajectory.terminated, trajectory.truncated)
    if value.ndim > trajectory.reward.ndim:
        outcome = jax.tree.map(lambda x: x[..., None], outcome)
    reward, terminated, truncated = outcome
    if hyper.time_limit == "terminal":
        terminated = terminated | truncated
    advantage = returns.gae(reward, value, next_value, terminated, truncated, hyper.gamma, hyper.gae_lambda)
    return advantage, advantage + value


def shuffled(hyper: Mappo, batch: Batch, key: Key) -> Int[Array, "steps C"]:
    """The chunks of every minibatch of every epoch (Alg. 1 l. 16–17). A single minibatch needs no shuffling."""
    order = jnp.tile(jnp.arange(batch.steps.first.shape[1]), (hyper.epochs, 1))
    if hyper.minibatches > 1:
        order = jax.random.permutation(key, order, axis=1, independent=True)
    return order.reshape(hyper.epochs * hyper.minibatches, -1)


def critic_step(
    hyper: Mappo, optimiser: optax.GradientTransformation, state: State, tiles: Batch
) -> tuple[State, Metrics]:
    """One step of the critic (Alg. 1 l. 20–21), after its normalisation has seen the minibatch's targets."""
    if hyper.value_norm:
        state = state._replace(value_norm=normalise.value_norm_update(state.value_norm, tiles.steps.target))
    value_of_tile = partial(value_gradient, hyper, state.critic, state.value_norm, num_samples=tiles.steps.target.size)
    gradient, value_stats = accumulate(value_of_tile, tiles)
    critic, critic_opt, stats = ascend(optimiser, state.critic, state.critic_opt, gradient)
    stats = {f"critic_{name}": value for name, value in stats.items()}
    return state._replace(critic=critic, critic_opt=critic_opt), value_stats | stats


def value_gradient(
    hyper: Mappo, critic: PyTree, norm: normalise.ValueNorm, tile: Batch, num_samples: int
) -> tuple[PyTree, Metrics]:
    """The gradient of the negated value loss on one tile, in normalised units."""
    steps = tile.steps
    target = normalise.normalise(norm, steps.target) if hyper.value_norm else steps.target

    def objective(critic: PyTree) -> tuple[Array, Metrics]:
        value = critics.values(critic, tile.start.critic, steps.state, steps.first)
        loss = losses.value_loss(value, steps.value, target, hyper.clip, hyper.huber).sum() / num_samples
        return -loss, {"value_loss": loss}

    return jax.grad(objective, has_aux=True)(critic)


def policy_gradient(hyper: Mappo, actor: Actor, tiles: Batch) -> tuple[Actor, Metrics]:
    """The gradient of clipped surrogate and entropy bonus: every agent's own for its own parameters, the mean over
    agents for shared ones."""
    weight = step_weights(hyper, tiles.steps.alive)

    def one(tile: Batch) -> tuple[Actor, Metrics]:
        def objective(actor: Actor) -> tuple[Float[Array, ""], Metrics]:
            logits = logits_along(hyper, actor, tile)
            surrogate, moved = surrogate_sum(logits, tile.steps, weight, hyper.clip)
            entropy, spread = entropy_sum(logits, tile.steps, weight)
            return surrogate + hyper.entropy * entropy, moved | spread

        return jax.grad(objective, has_aux=True)(actor)

    gradient, stats = accumulate(one, tiles)
    return shared_mean(hyper, gradient, weight.shape[0]), stats


def logits_along(hyper: Mappo, actor: Actor, tile: Batch) -> Float[Array, "L C N a"]:
    """Every agent's logits along a tile, each chunk from its stored memory."""
    features = actors.features(actor.backbone, hyper.sharing, tile.start.actor, tile.steps.obs, tile.steps.first)
    return actors.logits(actor.head, hyper.sharing, features)


def step_weights(hyper: Mappo, alive: Float[Array, "*S N"]) -> Float[Array, " N"]:
    """The weight of one live step of each agent; with `denominator = common`, agents weigh by how long they lived."""
    steps = alive.sum(range(alive.ndim - 1))
    if hyper.denominator == "common":
        steps = jnp.full_like(steps, steps.mean())
    return 1.0 / jnp.maximum(steps, 1.0)


def surrogate_sum(
    logits: Float[Array, "L C N a"], steps: Steps, weight: Float[Array, " N"], clip: float
) -> tuple[Float[Array, ""], Metrics]:
    """The clipped surrogate (Alg. 1 l. 24), summed over agents, and how far the policy has moved."""
    log_prob = losses.chosen(losses.log_probabilities(logits, steps.avail), steps.action)
    log_ratio = log_prob - steps.log_prob
    ratio = jnp.exp(log_ratio)
    each = steps.alive * weight[None, None]
    objective = (each * losses.surrogate(ratio, steps.advantage, clip)).sum()
    mean = each / weight.shape[0]
    stats = {
        Metric.APPROX_KL: (mean * (ratio - 1.0 - log_ratio)).sum(),
        "clip_fraction": (mean * (jnp.abs(ratio - 1.0) > clip)).sum(),
    }
    return objective, stats


def entropy_sum(
    logits: Float[Array, "L C N a"], steps: Steps, weight: Float[Array, " N"]
) -> tuple[Float[Array, ""], Metrics]:
    """The policies' entropy, summed over agents."""
    each = steps.alive * weight[None, None]
    total = (each * losses.entropy(losses.log_probabilities(logits, steps.avail))).sum()
    return total, {"entropy": total / weight.shape[0]}


def shared_mean(hyper: Mappo, gradient: Actor, num_agents: int) -> Actor:
    """Shared parameters take the mean of the agents' gradients; an agent's own parameters take its own gradient."""
    own = actors.owned(hyper.sharing)
    return Actor(
        *(
            part if is_own else jax.tree.map(lambda g: g / num_agents, part)
            for part, is_own in zip(gradient, own, strict=True)
        )
    )


def actor_step(optimiser: optax.GradientTransformation, state: State, gradient: PyTree) -> tuple[State, Metrics]:
    """One step of the actor along the gradient (Alg. 1 l. 26)."""
    actor, actor_opt, stats = ascend(optimiser, state.actor, state.actor_opt, gradient)
    return state._replace(actor=actor, actor_opt=actor_opt), stats


def summary(stats: Metrics) -> Metrics:
    """One number per metric for the iteration: means over its steps, sums of counts, and the last step's divergence."""
    total = {
        name: value.sum() if name.endswith(Metric.SKIPPED_STEPS) else value.mean() for name, value in stats.items()
    }
    return total | {Metric.APPROX_KL_LAST: stats[Metric.APPROX_KL][..., -1].mean()}
