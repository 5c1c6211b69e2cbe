"""MAPPO; and GRASP-MAPPO, which is MAPPO with a consensus operator.

Algorithm 1 of the paper is `collect` (grasp.rollout) and then `learn`, below, in the paper's order; `docs/paper_map.md`
has a row for every line, and `docs/algorithms/mappo.md` the departures. Gradients point uphill (ascent), as in the
paper; the sign turns once, in `ascend`.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from grasp import actor as actors
from grasp import critic as critics
from grasp import losses, normalise
from grasp.actor import Actor
from grasp.algos import batch as batches
from grasp.algos import ppo, realign
from grasp.algos.batch import Batch
from grasp.algos.realign import Consensus
from grasp.config import Mappo
from grasp.types import Algorithm, Decision, EnvSpec, Key, Metrics, Observation, PyTree, Trajectory


class Memory(NamedTuple):
    """What the team carries from step to step."""

    actor: Float[Array, "*B N H"]
    critic: Float[Array, "*B Hc"]


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


def make(hyper: Mappo, spec: EnvSpec) -> Algorithm:
    """The algorithm for an environment of these sizes."""
    if hyper.operator != "none":
        realign.check_operator(hyper.operator, spec.num_agents)
    optimisers = Optimisers(*(clipped_adam(hyper, lr) for lr in (hyper.lr, hyper.critic_lr)))

    def init(key: Key) -> State:  # Alg. 1 l. 1–3
        actor_key, critic_key = jax.random.split(key)
        actor = actors.actor_init(actor_key, spec, hyper.hidden, hyper.sharing)
        critic = critics.critic_init(critic_key, hyper.critic, spec.state_dim, hyper.hidden)
        return State(
            actor, critic, optimisers.actor.init(actor), optimisers.critic.init(critic), normalise.value_norm_init()
        )

    def memory(num_envs: int) -> Memory:
        return Memory(
            jnp.zeros((num_envs, spec.num_agents, hyper.hidden)),
            critics.critic_memory(hyper.critic, num_envs, hyper.hidden),
        )

    def act(state: State, memory: Memory, observation: Observation, key: Key, greedy: bool) -> Decision:
        return decide(hyper, state, memory, observation, key, greedy)

    def update(state: State, trajectory: Trajectory, key: Key) -> tuple[State, Metrics]:
        return learn(hyper, optimisers, state, trajectory, key)

    return Algorithm(init, memory, act, update, acting=("actor",))


def clipped_adam(hyper: Mappo, lr: float) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(hyper.max_grad_norm), optax.adam(lr, eps=hyper.adam_eps))


def decide(hyper: Mappo, state: State, memory: Memory, observation: Observation, key: Key, greedy: bool) -> Decision:
    """Every agent's action from its own policy, sampled or the likeliest. A dead agent sees zeros (death masking)."""
    obs = observation.obs * observation.alive[..., None]
    actor_memory = actors.step(state.actor.backbone, hyper.sharing, memory.actor, obs)
    preferences = actors.logits(state.actor.head, hyper.sharing, actor_memory)
    log_probs = losses.log_probabilities(preferences, observation.avail)
    action = jnp.argmax(log_probs, -1) if greedy else jax.random.categorical(key, log_probs)
    value, critic_memory = critics.value_step(state.critic, hyper.critic, memory.critic, observation.state)
    record = Record(losses.chosen(log_probs, action), value)
    return Decision(action, Memory(actor_memory, critic_memory), record)


def learn(
    hyper: Mappo, optimisers: Optimisers, state: State, trajectory: Trajectory, key: Key
) -> tuple[State, Metrics]:
    """One iteration on one trajectory: the rest of phase 1, and phases 2 and 3."""
    consensus_key, shuffle_key = jax.random.split(key)
    batch = prepare(hyper, state, trajectory)
    whole = batches.tiled(batch, jnp.arange(batch.steps.first.shape[1]))
    schedule = shuffled(hyper, batch.steps.first.shape[1], shuffle_key)

    def step(carry: tuple[State, Consensus | None], chunks_at: tuple[Array, Array]):
        state, consensus = carry
        index, chunks = chunks_at
        tiles = whole if hyper.minibatches == 1 else batches.tiled(batch, chunks)  # Alg. 1 l. 18
        if hyper.value_norm:
            state = state._replace(value_norm=normalise.value_norm_update(state.value_norm, tiles.steps.target))
        share = ppo.agent_share(hyper, tiles.steps.alive)
        policy, (critic_gradient, value_stats) = gradients(hyper, state, tiles, share)
        gradient = ppo.shared_mean(hyper, policy.actor, share.shape[0])
        if consensus is not None:
            fresh = partial(
                perceive, hyper, state.actor, policy, tiles, whole, jax.random.fold_in(consensus_key, index)
            )
            consensus = jax.lax.cond(realign.is_due(hyper, index), fresh, lambda: consensus)
            beta = jnp.where(index > 0, 0.0, hyper.weight) if hyper.refresh == "first" else hyper.weight
            gradient = realign.realigned(hyper, gradient, consensus.u, beta)  # Alg. 1 l. 25
        critic, critic_opt, critic_stats = ascend(
            optimisers.critic, state.critic, state.critic_opt, critic_gradient
        )  # Alg. 1 l. 21
        actor, actor_opt, actor_stats = ascend(optimisers.actor, state.actor, state.actor_opt, gradient)  # Alg. 1 l. 26
        state = state._replace(actor=actor, critic=critic, actor_opt=actor_opt, critic_opt=critic_opt)
        critic_stats = {f"critic_{name}": value for name, value in critic_stats.items()}
        return (state, consensus), policy.stats | value_stats | actor_stats | critic_stats

    consensus = None if hyper.operator == "none" else no_consensus(hyper, state.actor, whole, consensus_key)
    (state, consensus), stats = jax.lax.scan(step, (state, consensus), schedule)
    return state, summary(stats) | ({} if consensus is None else consensus.diagnostics)


def prepare(hyper: Mappo, state: State, trajectory: Trajectory) -> Batch:
    """Value targets and advantages from the shared reward, cut into chunks."""
    value = trajectory.record.value
    next_value, _ = critics.value_step(state.critic, hyper.critic, trajectory.memory.critic[1:], trajectory.next_state)
    if hyper.value_norm:
        value, next_value = (normalise.denormalise(state.value_norm, v) for v in (value, next_value))
    advantage, target = batches.advantages(trajectory, value, next_value, hyper.gamma, hyper.gae_lambda)  # Alg. 1 l. 7
    return batches.chunked(trajectory, advantage, target, hyper.chunk)


def shuffled(hyper: Mappo, num_chunks: int, key: Key) -> tuple[Int[Array, " steps"], Int[Array, "steps C"]]:
    """Which chunks each step of the iteration takes (Alg. 1 l. 16–17). One minibatch needs no shuffling."""
    order = jnp.tile(jnp.arange(num_chunks), (hyper.epochs, 1))
    if hyper.minibatches > 1:
        order = jax.random.permutation(key, order, axis=1, independent=True)
    steps = hyper.epochs * hyper.minibatches
    return jnp.arange(steps), order.reshape(steps, -1)


def gradients(
    hyper: Mappo, state: State, tiles: Batch, share: Float[Array, " N"]
) -> tuple[ppo.PolicyGradient, tuple[PyTree, Metrics]]:
    """The minibatch's gradients, uphill, for both networks."""
    num_samples = tiles.steps.target.size

    def one(tile: Batch):
        policy = ppo.policy_gradient(hyper, state.actor, tile, share)
        return policy, ppo.value_gradient(hyper, state.critic, state.value_norm, tile, num_samples)

    return batches.accumulate(one, tiles)


def perceive(hyper: Mappo, actor: Actor, policy: ppo.PolicyGradient, tiles: Batch, whole: Batch, key: Key) -> Consensus:
    """Phase 2: every agent's own gradient (Alg. 1 l. 9–11), and the direction they agree on.

    With one minibatch the first step's surrogate gradient, at θ_old, where all ratios are 1, is g_i itself: the heads'
    consensus then costs no pass of its own.
    """
    data = tiles if hyper.refresh == "minibatch" else whole
    parts = tuple(part for group in realign.groups(hyper) for part in group)
    if parts == ("head",) and data is tiles:
        return realign.solve(hyper, actor, {"head": policy.surrogate_head}, key)
    share = ppo.agent_share(hyper, data.steps.alive)
    return realign.solve(hyper, actor, ppo.agent_gradients(hyper, actor, parts, data, share), key)


def no_consensus(hyper: Mappo, actor: Actor, whole: Batch, key: Key) -> Consensus:
    """What the scan carries before its first step: zeros of the right shapes."""
    num_agents = whole.steps.alive.shape[-1]
    every = {name: part if own else actors.copies(part, num_agents) for name, part, own in realign.named(hyper, actor)}
    shapes = jax.eval_shape(lambda: realign.solve(hyper, actor, every, key))
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def ascend(
    optimiser: optax.GradientTransformation, params: PyTree, opt_state: optax.OptState, gradient: PyTree
) -> tuple[PyTree, optax.OptState, Metrics]:
    """One step uphill; a gradient that is not finite changes nothing and is counted."""
    norm = optax.tree.norm(gradient)
    usable = jnp.isfinite(norm)
    updates, next_opt_state = optimiser.update(jax.tree.map(jnp.negative, gradient), opt_state, params)
    proposed = (optax.apply_updates(params, updates), next_opt_state)
    params, opt_state = jax.tree.map(lambda new, old: jnp.where(usable, new, old), proposed, (params, opt_state))
    return params, opt_state, {"grad_norm": norm, "skipped_steps": 1.0 - usable}


def summary(stats: Metrics) -> Metrics:
    """One number a metric for the iteration: means over its steps, sums of counts, the divergence where it ended."""
    total = {name: value.sum() if name.endswith("skipped_steps") else value.mean() for name, value in stats.items()}
    return total | {"approx_kl_last": stats["approx_kl"][-1]}
