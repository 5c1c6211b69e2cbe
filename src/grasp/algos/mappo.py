"""MAPPO; and GRASP-MAPPO, which is MAPPO with a consensus operator.

Algorithm 1 of the paper is `collect` (grasp.training.rollout) and then `learn`, below, in the paper's order;
`docs/paper_map.md`
has a row for every line, and `docs/algorithms/mappo.md` the departures. Gradients point uphill (ascent), as in the
paper; the sign turns once, in `ascend`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grasp.algos import grasp, onpolicy, ppo, trust_region, value_norm
from grasp.algos import minibatches as batches
from grasp.algos.grasp import Consensus
from grasp.algos.minibatches import Batch
from grasp.algos.onpolicy import Optimisers, State
from grasp.algos.optimiser import ascend
from grasp.config.hyperparameters import Mappo
from grasp.nn import actor as actors
from grasp.nn import sharding
from grasp.nn.actor import Actor
from grasp.types import Algorithm, EnvSpec, Key, Metrics, PyTree, Trajectory

Carry = tuple[State, Consensus | None, Bool[Array, ""]]
"""From step to step of an iteration; whether the actor has been halted."""


def make(hyper: Mappo, spec: EnvSpec) -> Algorithm:
    """The algorithm for an environment of these sizes."""
    if hyper.operator != "none":
        grasp.check_operator(hyper.operator, spec.num_agents)
    optimisers = onpolicy.optimisers(hyper)
    if hyper.control == "update_size":
        optimisers = optimisers._replace(actor=grasp.as_far(hyper, optimisers.actor))
    return Algorithm(
        init=partial(onpolicy.init, hyper, spec, optimisers),
        memory=partial(onpolicy.memory, hyper, spec),
        act=partial(onpolicy.decide, hyper),
        update=partial(learn, hyper, optimisers),
        acting=("actor",),
        judging=onpolicy.JUDGING,
    )


def prepare(hyper: Mappo, state: State, trajectory: Trajectory) -> Batch:
    """Targets and advantages, normalised once over all live agents' steps; cut into chunks."""
    advantage, target = onpolicy.estimate(hyper, state, trajectory)
    alive = trajectory.observation.alive
    if advantage.ndim == alive.ndim:
        advantage = batches.normalised(advantage, alive.astype(jnp.float32))
    else:
        shared = batches.normalised(advantage, alive.sum(-1).astype(jnp.float32))
        advantage = jnp.broadcast_to(shared[..., None], alive.shape)
    return batches.chunked(trajectory, advantage, target, hyper.chunk, hyper.minibatches)


def learn(
    hyper: Mappo, optimisers: Optimisers, state: State, trajectory: Trajectory, key: Key
) -> tuple[State, Metrics]:
    """One iteration on one trajectory: the rest of phase 1, and phases 2 and 3."""
    consensus_key, shuffle_key = jax.random.split(key)
    batch = prepare(hyper, state, trajectory)
    whole = batches.whole(batch)
    basis = batches.folded(batch, hyper.rollout // hyper.chunk, hyper.folds) if hyper.gram == "crossfit" else whole
    schedule = onpolicy.shuffled(hyper, batch.steps.first.shape[1], shuffle_key)

    def step(carry: Carry, chunks_at: tuple[Array, Array]) -> tuple[Carry, Metrics]:
        state, consensus, halted = carry
        index, chunks = chunks_at
        tiles = whole if hyper.minibatches == 1 else batches.tiled(batch, chunks)  # Alg. 1 l. 18
        if hyper.value_norm:
            state = state._replace(value_norm=value_norm.value_norm_update(state.value_norm, tiles.steps.target))
        share = ppo.agent_share(hyper, tiles.steps.alive)
        policy, (critic_gradient, value_stats) = gradients(hyper, state, tiles, share)
        gradient = ppo.shared_mean(hyper, policy.actor, share.shape[0])
        if hyper.trust == "trcco":
            gradient = trust_region.outside(hyper, gradient)
        elif consensus is not None:
            fresh = partial(
                perceive, hyper, state.actor, policy, tiles, basis, jax.random.fold_in(consensus_key, index)
            )
            consensus = jax.lax.cond(grasp.is_due(hyper, index), fresh, lambda: consensus)
            beta = jnp.where(index > 0, 0.0, hyper.weight) if hyper.refresh == "first" else hyper.weight
            gradient = grasp.realigned(hyper, gradient, consensus.u, beta)  # Alg. 1 l. 25
        critic, critic_opt, critic_stats = ascend(
            optimisers.critic, state.critic, state.critic_opt, critic_gradient
        )  # Alg. 1 l. 21
        *actor, actor_stats = ascend(optimisers.actor, state.actor, state.actor_opt, gradient)  # Alg. 1 l. 26
        if hyper.trust == "kl_stop":
            halted |= policy.stats["approx_kl"] > hyper.kl
            actor = jax.tree.map(partial(jnp.where, halted), [state.actor, state.actor_opt], actor)
            actor_stats |= {"halted": halted.astype(jnp.float32)}
        state = state._replace(actor=actor[0], critic=critic, actor_opt=actor[1], critic_opt=critic_opt)
        critic_stats = {f"critic_{name}": value for name, value in critic_stats.items()}
        return (state, consensus, halted), policy.stats | value_stats | actor_stats | critic_stats

    consensus = None if hyper.operator == "none" else no_consensus(hyper, state.actor, whole, consensus_key)
    moved: Metrics = {}
    if hyper.trust == "trcco":
        consensus = perceive(hyper, state.actor, None, whole, basis, consensus_key)
        share = ppo.agent_share(hyper, whole.steps.alive)
        actor, moved = trust_region.constrained(hyper, state.actor, consensus.u, whole, share)
        state = state._replace(actor=actor)
    start = state, consensus, jnp.array(False)
    (state, consensus, _), stats = jax.lax.scan(step, start, (jnp.arange(len(schedule)), schedule))
    return state, onpolicy.summary(stats) | moved | ({} if consensus is None else consensus.diagnostics)


def gradients(
    hyper: Mappo, state: State, tiles: Batch, share: Float[Array, " N"]
) -> tuple[ppo.PolicyGradient, tuple[PyTree, Metrics]]:
    """The minibatch's gradients, uphill, for both networks."""
    num_samples = tiles.steps.target.size

    def one(tile: Batch):
        policy = ppo.policy_gradient(hyper, state.actor, tile, share)
        return policy, ppo.value_gradient(hyper, state.critic, state.value_norm, tile, num_samples)

    return batches.accumulate(one, tiles)


def perceive(
    hyper: Mappo, actor: Actor, policy: ppo.PolicyGradient | None, tiles: Batch, basis: Batch, key: Key
) -> Consensus:
    """Phase 2: every agent's own gradient (Alg. 1 l. 9–11), and the direction they agree on.

    With one minibatch the first step's surrogate gradient, at θ_old, where all ratios are 1, is g_i itself: the heads'
    consensus then costs no pass of its own.
    """
    parts = tuple(part for group in grasp.groups(hyper) for part in group)
    if hyper.gram == "crossfit":
        return grasp.solve(hyper, actor, ppo.fold_gradients(hyper, actor, parts, basis), key)
    data = tiles if hyper.refresh == "minibatch" else basis
    share = ppo.agent_share(hyper, data.steps.alive)
    if policy is not None and parts == ("head",) and data is tiles:
        gradients = {"head": policy.surrogate_head.sum}
    else:
        gradients = ppo.agent_gradients(hyper, actor, parts, data, share)
    return grasp.solve(hyper, actor, gradients, key, likeness(hyper, actor, data, share))


def likeness(hyper: Mappo, actor: Actor, data: Batch, share: Float[Array, " N"]) -> PyTree:
    """What weighs the agents where their gradients do not."""
    if hyper.gram == "representation":
        return ppo.unit_feature_gradients(hyper, actor, data, share)
    return ppo.input_gradients(hyper, actor, data, share) if hyper.gram == "inputs" else None


def no_consensus(hyper: Mappo, actor: Actor, whole: Batch, key: Key) -> Consensus:
    """What the scan carries before its first step: zeros of the right shapes."""
    num_agents = whole.steps.alive.shape[-1]
    every = {name: part if own else actors.copies(part, num_agents) for name, part, own in grasp.named(hyper, actor)}
    if hyper.gram == "crossfit":
        every = actors.copies(every, hyper.folds)
    if sharding.number() > 1:
        every = actors.copies(every, sharding.number())
    shapes = jax.eval_shape(lambda: grasp.solve(hyper, actor, every, key))
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
