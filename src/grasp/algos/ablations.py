"""Variants of GRASP-MAPPO for studies: u* recomputed within an iteration, or with the weights of another Gram
matrix; early stopping at a KL divergence.

`learn` is `mappo.learn` with these options: `--refresh epoch | minibatch | first`, `--gram representation | inputs`,
`--trust kl_stop`.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.algos import grasp, inputs, ppo
from grasp.algos import minibatches as batches
from grasp.algos.grasp import Consensus
from grasp.algos.minibatches import Batch
from grasp.algos.optimiser import taken_if
from grasp.algos.ppo import Optimisers, State
from grasp.config.hyperparameters import Mappo
from grasp.nn import actor as actors
from grasp.nn.actor import Actor
from grasp.nn.sharding import Partial
from grasp.types import Key, Metric, Metrics, Trajectory

Carry = tuple[State, Consensus | None, Bool[Array, ""]]
"""Passed from step to step of an iteration; the last entry is whether the actor has stopped."""


def variant(hyper: Mappo) -> Callable | None:
    """`learn` if an option selects it, else None."""
    is_variant = hyper.refresh != "iteration" or hyper.trust == "kl_stop" or hyper.gram in ("representation", "inputs")
    return learn if is_variant else None


def learn(
    hyper: Mappo, optimisers: Optimisers, state: State, trajectory: Trajectory, key: Key
) -> tuple[State, Metrics]:
    """One iteration on one trajectory."""
    consensus_key, shuffle_key = jax.random.split(key)
    batch = ppo.prepare(hyper, state, trajectory)
    whole = batches.whole(batch)
    basis = grasp.basis(hyper, batch, whole)

    def find(actor: Actor, tiles: Batch, index: Int[Array, ""]) -> Consensus:
        data = tiles if hyper.refresh == "minibatch" else basis
        return find_consensus(hyper, actor, data, jax.random.fold_in(consensus_key, index))

    def minibatch(carry: Carry, scheduled: tuple[Array, Array]) -> tuple[Carry, Metrics]:
        state, consensus, stopped = carry
        index, chunks = scheduled
        tiles = whole if hyper.minibatches == 1 else batches.tiled(batch, chunks)
        state, critic_stats = ppo.critic_step(hyper, optimisers.critic, state, tiles)
        gradient, policy_stats = ppo.policy_gradient(hyper, state.actor, tiles)
        if consensus is not None:
            if hyper.refresh in ("epoch", "minibatch"):
                fresh = partial(find, state.actor, tiles, index)
                consensus = jax.lax.cond(is_due(hyper, index), fresh, lambda: consensus)
            beta = jnp.where(index > 0, 0.0, hyper.weight) if hyper.refresh == "first" else hyper.weight
            gradient = grasp.realign(hyper, gradient, consensus.u, beta)
        moved, actor_stats = ppo.actor_step(optimisers.actor, state, gradient)
        if hyper.trust == "kl_stop":
            stopped |= policy_stats[Metric.APPROX_KL] > hyper.kl
            actor, actor_opt = taken_if(~stopped, (moved.actor, moved.actor_opt), (state.actor, state.actor_opt))
            moved = moved._replace(actor=actor, actor_opt=actor_opt)
            actor_stats |= {"halted": stopped.astype(jnp.float32)}
        return (moved, consensus, stopped), policy_stats | critic_stats | actor_stats

    schedule = ppo.shuffled(hyper, batch, shuffle_key)
    consensus = None
    if hyper.operator != "none":
        first = whole if hyper.minibatches == 1 else batches.tiled(batch, schedule[0])
        consensus = find(state.actor, first, jnp.asarray(0))
    start = state, consensus, jnp.array(False)
    (state, consensus, _), stats = jax.lax.scan(minibatch, start, (jnp.arange(len(schedule)), schedule))
    return state, ppo.summary(stats) | ({} if consensus is None else consensus.diagnostics)


def is_due(hyper: Mappo, index: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether this step of an iteration recomputes the consensus. The first step's is computed before the loop."""
    period = {"minibatch": 1, "epoch": hyper.minibatches}.get(hyper.refresh, hyper.epochs * hyper.minibatches)
    return (index > 0) & (index % period == 0)


def find_consensus(hyper: Mappo, actor: Actor, basis: Batch, key: Key) -> Consensus:
    """The consensus on this data, with the Gram matrix of `hyper.gram`."""
    gradients = grasp.agent_gradients(hyper, actor, basis)
    others = {"representation": unit_feature_gradients, "inputs": input_gradients}.get(hyper.gram)
    return grasp.solve(hyper, actor, gradients, key, None if others is None else others(hyper, actor, basis))


def unit_feature_gradients(hyper: Mappo, actor: Actor, tiles: Batch) -> Float[Array, "N H a"]:
    """The heads' gradients if every step's features had length 1: products of two agents' are then sums over pairs of
    steps of (cosine of features) × (product of logit gradients), each bounded."""
    weight = ppo.step_weights(hyper, tiles.steps.alive)

    def one(tile: Batch) -> Partial:
        steps = tile.steps
        features = actors.features(actor.backbone, hyper.sharing, tile.start.actor, steps.obs, steps.first)
        slope = jax.grad(ppo.surrogate_sum, has_aux=True)
        d_logits, _ = slope(actors.logits(actor.head, hyper.sharing, features), steps, weight, hyper.clip)
        length = jnp.linalg.norm(features, axis=-1, keepdims=True)
        return Partial(jnp.einsum("lcnh,lcna->nha", features / jnp.where(length > 0, length, 1.0), d_logits))

    return batches.accumulate(one, tiles).sum


def input_gradients(
    hyper: Mappo, actor: Actor, tiles: Batch, weight: Float[Array, " N"] | None = None
) -> Float[Array, "N K L C o"]:
    """Every agent's gradient of the surrogate with respect to its observations (the paper's Listing 1). It is not in
    parameter space: it can give weights, but no update."""
    weight = ppo.step_weights(hyper, tiles.steps.alive) if weight is None else weight

    def one(tile: Batch) -> Float[Array, "L C N o"]:
        def objective(seen: Float[Array, "L C N i"]) -> Float[Array, ""]:
            logits = ppo.logits_along(hyper, actor, tile._replace(steps=tile.steps._replace(obs=seen)))
            return ppo.surrogate_sum(logits, tile.steps, weight, hyper.clip)[0]

        return inputs.observed(hyper, jax.grad(objective)(tile.steps.obs), tile.steps.avail.shape[-1])

    return jnp.moveaxis(jax.lax.map(one, tiles), -2, 0)
