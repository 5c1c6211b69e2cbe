"""The slot in which GRASP differs from its baseline: per-agent gradients in, a consensus out.

What the consensus covers, in one Gram matrix for each group of parts:

- a hybrid actor: the heads, the backbone, or both (two groups: the backbone's norms would drown the heads');
- a shared or separate actor has no parts of two kinds, so the one group is the whole actor.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from grasp import consensus as consensus_library
from grasp.algos import ablations
from grasp.config.hyperparameters import Mappo, Qmix
from grasp.nn import actor as actors
from grasp.nn import sharding
from grasp.nn.actor import Actor
from grasp.types import GraspError, Key, Metric, Metrics, PyTree


class Consensus(NamedTuple):
    """The direction every agent adds, in one agent's shape, zero outside its scope; and what it was made of."""

    u: Actor
    diagnostics: Metrics
    signal: dict[str, Float[Array, ""]]
    """Of each part in scope: the share that u has kept of the direction it was found along (`gram = crossfit`), else 1.
    """


def check_operator(name: str, num_agents: int) -> None:
    """Refuse an operator that does not exist or does not weigh agents, before anything is compiled or written."""
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
        raise GraspError(f"operator '{name}' must return weights of shape ({num_agents},), one an agent")


def groups(hyper: Mappo | Qmix) -> tuple[tuple[str, ...], ...]:
    """The groups of actor parts that find one consensus each."""
    if hyper.sharing != "hybrid":
        return (("backbone", "head"),)
    return {"heads": (("head",),), "backbone": (("backbone",),), "both": (("head",), ("backbone",))}[hyper.scope]


def is_due(hyper: Mappo, index: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether this step of an iteration computes the consensus anew."""
    if hyper.refresh == "minibatch":
        return jnp.array(True)
    period = hyper.minibatches if hyper.refresh == "epoch" else hyper.minibatches * hyper.epochs
    return index % period == 0


def solve(
    hyper: Mappo | Qmix, actor: Actor, gradients: dict[str, PyTree], key: Key, likeness: PyTree = None
) -> Consensus:
    """The consensus of each group (Alg. 1 l. 13–14), from gradients with a leading agent axis.

    `likeness`, where given, has the Gram matrix that weighs the agents; with `gram = crossfit` the gradients have an
    axis of folds before that of the agents. Over many devices both are what each device adds
    (`grasp.nn.sharding.Partial`).
    """
    u: dict[str, PyTree] = {}
    diagnostics: Metrics = {}
    kept: dict[str, Float[Array, ""]] = {}
    for place, parts in enumerate(groups(hyper)):
        group = {name: gradients[name] for name in parts}
        group_key = jax.random.fold_in(key, place)
        found: Metrics = {}
        length = jnp.ones(())
        if hyper.gram == "crossfit":
            direction, info, (folded, signal) = consensus_library.crossfit(group, hyper.operator, group_key)
            found = {Metric.NOISE_RATIO: folded.noise_ratio, "shrinkage": folded.shrinkage, Metric.SIGNAL: signal}
            group, length = jax.tree.map(lambda g: g.mean(0), group), signal
        elif likeness is None:
            direction, info = agree(group, hyper.operator, group_key)
        else:
            info = agree(likeness, hyper.operator, group_key)[1]
            direction = ablations.mixed(group, info.weights)
        u |= ablations.in_place_of(direction, hyper.control, group, info.weights, jax.random.fold_in(group_key, 1))
        kept |= dict.fromkeys(parts, length)
        found |= described(hyper, group, info, length, group_key)
        cosine = found.pop("cosine")
        found[Metric.COSINES] = cosine[jnp.triu_indices(len(cosine), 1)]  # pairs (0,1), (0,2), …
        found |= {Metric.RESIDUAL: info.residual, "qp_iterations": info.iterations, Metric.QP_STATUS: info.status}
        diagnostics |= {f"{parts[0]}_{name}" if place else name: value for name, value in found.items()}
    outside = {name: zeros(one_agent(part, is_own)) for name, part, is_own in named(hyper, actor) if name not in u}
    return Consensus(Actor(**u, **outside), diagnostics, kept)


def described(
    hyper: Mappo | Qmix, gradients: PyTree, info: consensus_library.Info, length: Float[Array, ""], key: Key
) -> Metrics:
    """The agents' gradients and u = `length` Σ w_i g_i, whatever weighed them; and, where that was not their own Gram
    matrix, the conflicts that it saw."""
    own, found = info, {}
    if hyper.gram != "batch":
        own = agree(gradients, "mean", key)[1]
        seen = consensus_library.diagnose(info.gram, info.weights, info.scale)
        found = {"estimated_conflict_rate": seen[Metric.CONFLICT_RATE]}
    found |= consensus_library.diagnose(own.gram, info.weights, own.scale)
    return found | {name: length * found[name] for name in (Metric.U_NORM, Metric.U_RATIO)}


def agree(gradients: PyTree, operator: str, key: Key) -> tuple[PyTree, consensus_library.Info]:
    """The library's consensus; over many devices, of what each adds to the gradients."""
    if sharding.number() == 1:
        return consensus_library.consensus(gradients, operator, key)

    def together(parts: PyTree, key: Key) -> tuple[PyTree, consensus_library.Info]:
        own = jax.tree.map(lambda x: x[0], parts)
        return consensus_library.consensus_of_parts(own, operator, key, axis_name=sharding.AXIS)

    return sharding.each(together, (sharding.HERE, sharding.SAME), sharding.SAME)(gradients, key)


class Beside(NamedTuple):
    """A gradient to follow, and the one whose step of the optimiser it is to be as long as (`as_far`)."""

    own: Actor
    other: Actor


def realigned(hyper: Mappo | Qmix, gradient: Actor, u: Actor, beta: Float[Array, ""] | float) -> Actor | Beside:
    """g_i + β u* for every agent that has its own parameters, mean g + β u* for those they share.

    With `control = step_size`: only as long as that (E4). With `update_size`: both, for `as_far`.
    """
    moved = Actor(
        **{
            name: jax.tree.map(lambda g, d, own=is_own: g + beta * (d[None] if own else d), part, getattr(u, name))
            for name, part, is_own in named(hyper, gradient)
        }
    )
    if hyper.control == "update_size":
        return Beside(gradient, moved)
    return stretched(hyper, gradient, moved) if hyper.control == "step_size" else moved


def as_far(hyper: Mappo, optimiser: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimiser's step along a gradient, as long as its step along the other one, agent by agent.

    Adam divides a gradient by what it remembers of its size, so that a longer gradient (E4) is hardly a longer step.
    Here it keeps one memory for either gradient, and the lengths of the steps themselves are made equal.
    """

    def init(params: Any) -> Any:
        return optimiser.init(params), optimiser.init(params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        own, other = (optimiser.update(g, s, params) for g, s in zip(updates, state, strict=True))
        return stretched(hyper, cast(Actor, own[0]), cast(Actor, other[0])), (own[1], other[1])

    return optax.GradientTransformation(init, update)


def stretched(hyper: Mappo | Qmix, gradient: Actor, moved: Actor) -> Actor:
    """The gradient as long as the moved one, agent by agent and group by group."""
    own = actors.owned(hyper.sharing)
    found = gradient._asdict()
    for group in groups(hyper):
        pair = [{name: getattr(tree, name) for name in group} for tree in (gradient, moved)]
        # what agents share is as one agent's
        alone = not getattr(own, group[0])
        longer = ablations.stretch(*(jax.tree.map(lambda x: x[None], tree) if alone else tree for tree in pair))
        found |= jax.tree.map(lambda x: x[0], longer) if alone else longer
    return Actor(**found)


def undamped(consensus: Consensus) -> Actor:
    """u as long as the direction that it was found along; 0 where nothing of that was signal."""
    parts = consensus.u._asdict()
    for name, signal in consensus.signal.items():
        parts[name] = jax.tree.map(lambda x, s=signal: x / jnp.where(s > 0, s, 1), parts[name])
    return Actor(**parts)


class Realigned(NamedTuple):
    """What the off-policy rule makes of a gradient."""

    gradient: Actor
    factor: Actor | None
    """What the optimiser's update is to be multiplied by, where that is asked for."""
    diagnostics: Metrics


def off_policy(hyper: Qmix, actor: Actor, gradient: Actor, key: Key, folds: Actor | None = None) -> Realigned:
    """Γ_i (g_i + u*) from gradients [N, ...] of the parts in scope, in the shapes of the parameters; u* from `folds`,
    [K, N, ...], where the batch was folded.

    Parameters that agents share take the sum of theirs, as in the joint loss. With `gamma_on = update` the gradient is
    g_i + u* and the factors come back apart; parameters that agents share then have the mean of theirs.

    Where only a share s of a direction is signal, the rule has that share of the update and g_i alone the rest:
    (1 − s) g_i + s Γ_i (g_i + u/s). The on-policy rule, g_i + u, is the same mixture; and a batch without any signal is
    learned from as QMIX does, where Γ_i of u = 0 would stand still.
    """
    chosen = {name: getattr(gradient, name) for group in groups(hyper) for name in group}
    basis = gradient if folds is None else folds
    consensus = solve(hyper, actor, {name: getattr(basis, name) for name in chosen}, key)
    u = undamped(consensus)
    factors, clipped, frozen = off_policy_factors(hyper, chosen, u)
    on_gradient, ones = hyper.gamma_on == "gradient", jnp.ones(consensus.diagnostics[Metric.NORMS].shape)
    aims = {name: jax.tree.map(lambda g, d: g + d[None], g_i, getattr(u, name)) for name, g_i in chosen.items()}
    if hyper.control == "step_size":
        for group in groups(hyper):
            aims |= ablations.stretch({name: chosen[name] for name in group}, {name: aims[name] for name in group})
    moved, factor = gradient._asdict(), {}
    for name, part, is_own in named(hyper, actor):
        Gamma = factors.get(name, ones)
        if name in chosen:
            scale = Gamma if on_gradient else ones
            each = jax.tree.map(lambda v, s=scale: ablations.agentwise(s, v) * v, aims[name])
            if hyper.gram == "crossfit":
                signal = consensus.signal[name]
                each = jax.tree.map(lambda g, v, s=signal: (1 - s) * g + s * v, chosen[name], each)
                Gamma = 1 - signal * (1 - Gamma)
            moved[name] = each if is_own else jax.tree.map(lambda v: v.sum(0), each)
        factor[name] = jax.tree.map(lambda x, f=Gamma, own=is_own: ablations.agentwise(f, x) if own else f.mean(), part)
    statuses = [consensus.diagnostics.pop(n) for n in list(consensus.diagnostics) if n.endswith(Metric.QP_STATUS)]
    counts = {
        Metric.FROZEN_STEPS: frozen.astype(jnp.float32),
        Metric.CLIPPED_FACTORS: clipped,
        Metric.UNCERTIFIED_STEPS: (jnp.stack(statuses).max() > consensus_library.Status.ROUNDING).astype(jnp.float32),
    }
    factors = {f"{g[0]}_factors" if place else Metric.FACTORS: factors[g[0]] for place, g in enumerate(groups(hyper))}
    return Realigned(Actor(**moved), None if on_gradient else Actor(**factor), consensus.diagnostics | factors | counts)


def off_policy_factors(
    hyper: Qmix, gradients: dict[str, PyTree], u: Actor
) -> tuple[dict[str, Float[Array, " N"]], Float[Array, ""], Bool[Array, ""]]:
    """Γ of every part in scope, one for each of its group; how many had to be clipped to [0, 1]; and whether some group
    stands still, because its u* is 0, while it has a gradient."""
    factors, clipped, frozen = {}, jnp.zeros(()), jnp.array(False)
    # the shortest vector in the hull of these gradients keeps Γ in [0, 1] by itself; no other direction does
    shortest = hyper.operator == "min_norm" and hyper.gram == "batch" and hyper.control in ("none", "step_size")
    for group in groups(hyper):
        parts, direction = {name: gradients[name] for name in group}, {name: getattr(u, name) for name in group}
        raw = consensus_library.off_policy_factors(parts, direction)
        kept = raw if shortest else jnp.clip(raw, 0.0, 1.0)
        factors |= dict.fromkeys(group, kept)
        clipped += (kept != raw).sum()
        if hyper.gram == "batch":  # without a signal the rule has no share of the update
            frozen |= (optax.tree.norm(direction) == 0) & (optax.tree.norm(parts) > 0)
    return factors, clipped, frozen


def named(hyper: Mappo | Qmix, actor: Actor) -> list[tuple[str, PyTree, bool]]:
    """The actor's parts, and whether each agent has its own."""
    return [(name, getattr(actor, name), getattr(actors.owned(hyper.sharing), name)) for name in Actor._fields]


def one_agent(part: PyTree, is_own: bool) -> PyTree:
    return jax.tree.map(lambda x: x[0], part) if is_own else part


def zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)
