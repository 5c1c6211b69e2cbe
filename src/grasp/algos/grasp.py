"""Where GRASP differs from its baseline: per-agent gradients in, a consensus out, and the rule that adds it.

The consensus covers the actor's parts in groups, one Gram matrix for each group:

- a hybrid actor: the heads, the backbone, or both (two groups: the backbone's norms would dominate the heads');
- a shared or separate actor has no parts of two kinds, so its one group is the whole actor.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from grasp import consensus as consensus_library
from grasp.algos import controls, ppo
from grasp.algos import minibatches as batches
from grasp.algos.minibatches import Batch
from grasp.config.hyperparameters import Mappo, Qmix
from grasp.nn import actor as actors
from grasp.nn import sharding
from grasp.nn.actor import Actor
from grasp.nn.sharding import Partial
from grasp.types import GraspError, Key, Metric, Metrics, PyTree, suggest


class Consensus(NamedTuple):
    """The direction that every agent adds, in one agent's shape and zero outside its scope; and its diagnostics."""

    u: Actor
    diagnostics: Metrics
    signal: dict[str, Float[Array, ""]]
    """For each part in scope the factor in u: with `gram = crossfit` the fraction that is signal, else 1."""


def check_operator(name: str, num_agents: int) -> None:
    """Refuse an operator that does not exist or does not return weights, before anything is compiled or written."""
    if ":" not in name and name not in consensus_library.OPERATORS:
        raise GraspError(f"unknown operator '{name}'; {suggest(name, consensus_library.OPERATORS)}")
    try:
        weigh = consensus_library.weighting(name)
    except ValueError as mistake:
        raise GraspError(str(mistake)) from None
    try:
        weights = jax.eval_shape(weigh, jnp.eye(num_agents), jax.random.key(0))
        right = weights.shape == (num_agents,) and jnp.issubdtype(weights.dtype, jnp.floating)
    except Exception as error:  # whatever the user's own function raises
        raise GraspError(f"operator '{name}' does not take (G[N, N], key): {str(error).splitlines()[0]}") from error
    if not right:
        raise GraspError(f"operator '{name}' must return weights of shape ({num_agents},), one per agent")


def groups(hyper: Mappo | Qmix) -> tuple[tuple[str, ...], ...]:
    """The groups of actor parts that find one consensus each."""
    if hyper.sharing != "hybrid":
        return (("backbone", "head"),)
    return {"heads": (("head",),), "backbone": (("backbone",),), "both": (("head",), ("backbone",))}[hyper.scope]


def parts_in_scope(hyper: Mappo | Qmix) -> tuple[str, ...]:
    return tuple(name for group in groups(hyper) for name in group)


def basis(hyper: Mappo, batch: Batch, whole: Batch) -> Batch:
    """The data of the consensus: the whole batch as tiles, or, with `gram = crossfit`, the tiles of every fold."""
    if hyper.gram != "crossfit":
        return whole
    return batches.folded(batch, hyper.rollout // hyper.chunk, hyper.folds)


def agent_gradients(hyper: Mappo, actor: Actor, basis: Batch) -> dict[str, PyTree]:
    """Every agent's own surrogate gradient (Alg. 1 l. 9–11) for the parts in scope: leaves [N, ...], or, with `gram =
    crossfit`, [K, N, ...], one per fold."""
    gradients = partial(surrogate_gradients, hyper, actor, parts_in_scope(hyper))
    return jax.lax.map(gradients, basis) if hyper.gram == "crossfit" else gradients(basis)


def surrogate_gradients(hyper: Mappo, actor: Actor, parts: tuple[str, ...], tiles: Batch) -> dict[str, PyTree]:
    """Every agent's gradient of its own surrogate for its own copy of the named parts: leaves [N, ...], or what each
    device adds to them (`Partial`)."""
    weight = ppo.step_weights(hyper, tiles.steps.alive)
    alone, sharing = actors.unshare(actor, hyper.sharing, parts, weight.shape[0])
    chosen = {name: getattr(alone, name) for name in parts}

    def objective(chosen: dict[str, PyTree], tile: Batch) -> Float[Array, ""]:
        agent, steps = actor._replace(**chosen), tile.steps
        features = actors.features(agent.backbone, sharing.backbone, tile.start.actor, steps.obs, steps.first)
        return ppo.surrogate_sum(actors.logits(agent.head, sharing.head, features), steps, weight, hyper.clip)[0]

    return batches.accumulate(lambda tile: Partial(jax.grad(objective)(chosen, tile)), tiles).sum


def solve(
    hyper: Mappo | Qmix, actor: Actor, gradients: dict[str, PyTree], key: Key, gram_gradients: PyTree = None
) -> Consensus:
    """The consensus of each group (Alg. 1 l. 13–14), from gradients with a leading agent axis.

    With `gram = crossfit` the gradients have a fold axis before the agent axis. `gram_gradients`, where given, replace
    the gradients in the Gram matrix. Over many devices both are what each device adds
    (`grasp.nn.sharding.Partial`).
    """
    u: dict[str, PyTree] = {}
    diagnostics: Metrics = {}
    signals: dict[str, Float[Array, ""]] = {}
    for index, parts in enumerate(groups(hyper)):
        group = {name: gradients[name] for name in parts}
        group_key = jax.random.fold_in(key, index)
        found: Metrics = {}
        signal = jnp.ones(())
        if hyper.gram == "crossfit":
            direction, info, (folded, signal) = consensus_library.crossfit(group, hyper.operator, group_key)
            found = {Metric.NOISE_RATIO: folded.noise_ratio, "shrinkage": folded.shrinkage, Metric.SIGNAL: signal}
            group = jax.tree.map(lambda g: g.mean(0), group)
        elif gram_gradients is None:
            direction, info = agree(group, hyper.operator, group_key)
        else:
            info = agree(gram_gradients, hyper.operator, group_key)[1]
            direction = controls.weighted_sum(group, info.weights)
        u |= controls.replaced(direction, hyper.control, group, info.weights, jax.random.fold_in(group_key, 1))
        signals |= dict.fromkeys(parts, signal)
        found |= described(hyper, group, info, signal, group_key)
        cosine = found.pop("cosine")
        found[Metric.COSINES] = cosine[jnp.triu_indices(len(cosine), 1)]  # pairs (0,1), (0,2), …
        found |= {Metric.RESIDUAL: info.residual, "qp_iterations": info.iterations, Metric.QP_STATUS: info.status}
        diagnostics |= {f"{parts[0]}_{name}" if index else name: value for name, value in found.items()}
    outside = {name: zeros(one_agent(part, is_own)) for name, part, is_own in named(hyper, actor) if name not in u}
    return Consensus(Actor(**u, **outside), diagnostics, signals)


def described(
    hyper: Mappo | Qmix, gradients: PyTree, info: consensus_library.Info, signal: Float[Array, ""], key: Key
) -> Metrics:
    """Diagnostics of the agents' gradients and of u = `signal` Σ w_i g_i. Where another Gram matrix gave the weights,
    also the conflict rate in that matrix."""
    own, found = info, {}
    if hyper.gram != "batch":
        own = agree(gradients, "mean", key)[1]
        seen = consensus_library.diagnose(info.gram, info.weights, info.scale)
        found = {"estimated_conflict_rate": seen[Metric.CONFLICT_RATE]}
    found |= consensus_library.diagnose(own.gram, info.weights, own.scale)
    return found | {name: signal * found[name] for name in (Metric.U_NORM, Metric.U_RATIO)}


def agree(gradients: PyTree, operator: str, key: Key) -> tuple[PyTree, consensus_library.Info]:
    """The library's consensus; over many devices, of the sum of what each adds to the gradients."""
    if sharding.num_devices() == 1:
        return consensus_library.consensus(gradients, operator, key)

    def together(parts: PyTree, key: Key) -> tuple[PyTree, consensus_library.Info]:
        own = jax.tree.map(lambda x: x[0], parts)
        return consensus_library.consensus_of_parts(own, operator, key, axis_name=sharding.AXIS)

    return sharding.per_device(together, (sharding.FIRST_AXIS, sharding.REPLICATED), sharding.REPLICATED)(
        gradients, key
    )


def realign(hyper: Mappo | Qmix, gradient: Actor, u: Actor, beta: Float[Array, ""] | float) -> Actor | controls.Pair:
    """g_i + βu* for every agent that has its own parameters, mean g + βu* for shared ones (Alg. 1 l. 25).

    With `control = step_size`, `gradient` scaled to the norm of that sum; with `update_size`, both as a `Pair`.
    """
    moved = {}
    for name, part, is_own in named(hyper, gradient):
        rows = part if is_own else jax.tree.map(lambda g: g[None], part)  # shared parameters: as one agent's
        rows = consensus_library.add_consensus(rows, getattr(u, name), beta)
        moved[name] = one_agent(rows, not is_own)
    if hyper.control == "update_size":
        return controls.Pair(gradient, Actor(**moved))
    return stretched(hyper, gradient, Actor(**moved)) if hyper.control == "step_size" else Actor(**moved)


def optimisers(hyper: Mappo) -> ppo.Optimisers:
    """PPO's optimisers; with `control = update_size`, the actor's update is scaled to the norm of the realigned one."""
    found = ppo.optimisers(hyper)
    if hyper.control != "update_size":
        return found
    return found._replace(actor=controls.match_update_norms(found.actor, partial(stretched, hyper)))


def stretched(hyper: Mappo | Qmix, gradient: Actor, moved: Actor) -> Actor:
    """The gradient scaled to the norm of `moved`, per agent and per group."""
    own = actors.owned(hyper.sharing)
    found = gradient._asdict()
    for group in groups(hyper):
        pair = [{name: getattr(tree, name) for name in group} for tree in (gradient, moved)]
        is_shared = not getattr(own, group[0])  # shared parameters: as one agent's
        longer = controls.stretch(*(jax.tree.map(lambda x: x[None], tree) if is_shared else tree for tree in pair))
        found |= one_agent(longer, is_shared)
    return Actor(**found)


class Realigned(NamedTuple):
    """The result of the off-policy rule."""

    gradient: Actor
    factor: Actor | None
    """Factors for the optimiser's update, with `gamma_on = update`."""
    diagnostics: Metrics


def off_policy(hyper: Qmix, actor: Actor, gradient: Actor, key: Key, folds: Actor | None = None) -> Realigned:
    """Γ_i (g_i + u*) from gradients [N, ...] of the parts in scope, in the shapes of the parameters; u* from `folds`,
    [K, N, ...], where the batch was folded.

    Parameters that agents share take the sum of their agents' gradients, as in the joint loss. With `gamma_on = update`
    the gradient is g_i + u* and the factors come back apart; shared parameters then have the mean of the factors.
    """
    evidence = gradient if folds is None else folds
    consensus = solve(hyper, actor, {name: getattr(evidence, name) for name in parts_in_scope(hyper)}, key)
    # Only the min-norm point of these gradients guarantees Γ in [0, 1].
    is_min_norm = hyper.operator == "min_norm" and hyper.gram == "batch" and hyper.control in ("none", "step_size")
    moved, factor, stats = gradient._asdict(), {}, dict(consensus.diagnostics)
    clipped, frozen = jnp.zeros(()), jnp.array(False)
    for index, group in enumerate(groups(hyper)):
        own = {name: getattr(gradient, name) for name in group}
        u = {name: getattr(consensus.u, name) for name in group}
        signal = consensus.signal[group[0]] if hyper.gram == "crossfit" else None
        scaled = consensus_library.scale_consensus(own, u, clip=not is_min_norm, gamma_on=hyper.gamma_on, signal=signal)
        updates = controls.stretch(own, scaled.updates) if hyper.control == "step_size" else scaled.updates
        moved |= updates
        factor |= dict.fromkeys(group, scaled.update_factors)
        clipped += scaled.clipped
        frozen |= is_frozen(own, u) if signal is None else False
        stats[f"{group[0]}_factors" if index else Metric.FACTORS] = scaled.factors
    statuses = [stats.pop(name) for name in list(stats) if name.endswith(Metric.QP_STATUS)]
    stats |= {
        Metric.FROZEN_STEPS: frozen.astype(jnp.float32),
        Metric.CLIPPED_FACTORS: clipped,
        Metric.UNCERTIFIED_STEPS: (jnp.stack(statuses).max() > consensus_library.Status.ROUNDING).astype(jnp.float32),
    }
    for name, _, is_own in named(hyper, actor):
        if name in factor and not is_own:
            moved[name] = jax.tree.map(lambda v: v.sum(0), moved[name])
    if hyper.gamma_on == "gradient":
        return Realigned(Actor(**moved), None, stats)
    ones = jnp.ones(stats[Metric.NORMS].shape)
    factors = {name: update_factor(factor.get(name, ones), part, is_own) for name, part, is_own in named(hyper, actor)}
    return Realigned(Actor(**moved), Actor(**factors), stats)


def is_frozen(gradients: PyTree, u: PyTree) -> Bool[Array, ""]:
    """Whether a group does not move although it has gradients: its u* is 0, and so are its factors."""
    return (optax.tree.norm(u) == 0) & (optax.tree.norm(gradients) > 0)


def update_factor(factors: Float[Array, " N"], part: PyTree, is_own: bool) -> PyTree:
    """Γ as a tree that multiplies the optimiser's update of a part."""
    if is_own:
        return jax.tree.map(lambda x: factors.reshape(-1, *[1] * (x.ndim - 1)), part)
    return jax.tree.map(lambda _: factors.mean(), part)


def named(hyper: Mappo | Qmix, actor: Actor) -> list[tuple[str, PyTree, bool]]:
    """The actor's parts, and whether each agent has its own."""
    return [(name, getattr(actor, name), getattr(actors.owned(hyper.sharing), name)) for name in Actor._fields]


def one_agent(part: PyTree, is_own: bool) -> PyTree:
    return jax.tree.map(lambda x: x[0], part) if is_own else part


def zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)
