"""The slot in which GRASP differs from its baseline: per-agent gradients in, a consensus out.

What the consensus covers, in one Gram matrix for each group of parts:

- a hybrid actor: the heads, the backbone, or both (two groups: the backbone's norms would drown the heads');
- a shared or separate actor has no parts of two kinds, so the one group is the whole actor.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp import actor as actors
from grasp import consensus as consensus_library
from grasp.actor import Actor
from grasp.config import Mappo
from grasp.types import GraspError, Key, Metrics, PyTree


class Consensus(NamedTuple):
    """The direction every agent adds, in one agent's shape, zero outside its scope; and what it was made of."""

    u: Actor
    diagnostics: Metrics


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


def groups(hyper: Mappo) -> tuple[tuple[str, ...], ...]:
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


def solve(hyper: Mappo, actor: Actor, gradients: dict[str, PyTree], key: Key) -> Consensus:
    """The consensus of each group (Alg. 1 l. 13–14), from gradients with a leading agent axis."""
    u: dict[str, PyTree] = {}
    diagnostics: Metrics = {}
    for place, parts in enumerate(groups(hyper)):
        group = {name: gradients[name] for name in parts}
        direction, info = consensus_library.consensus(group, hyper.operator, jax.random.fold_in(key, place))
        u |= direction
        found = consensus_library.diagnose(info.gram, info.weights, info.scale)
        cosine = found.pop("cosine")
        found["cosines"] = cosine[jnp.triu_indices(len(cosine), 1)]  # pairs (0,1), (0,2), …
        found |= {"residual": info.residual, "qp_iterations": info.iterations, "qp_status": info.status}
        diagnostics |= {f"{parts[0]}_{name}" if place else name: value for name, value in found.items()}
    outside = {name: zeros(one_agent(part, is_own)) for name, part, is_own in named(hyper, actor) if name not in u}
    return Consensus(Actor(**u, **outside), diagnostics)


def realigned(hyper: Mappo, gradient: Actor, u: Actor, beta: Float[Array, ""] | float) -> Actor:
    """g_i + β u* for every agent that has its own parameters, mean g + β u* for those they share."""
    return Actor(
        **{
            name: jax.tree.map(lambda g, d, own=is_own: g + beta * (d[None] if own else d), part, getattr(u, name))
            for name, part, is_own in named(hyper, gradient)
        }
    )


def named(hyper: Mappo, actor: Actor) -> list[tuple[str, PyTree, bool]]:
    """The actor's parts, and whether each agent has its own."""
    return [(name, getattr(actor, name), getattr(actors.owned(hyper.sharing), name)) for name in Actor._fields]


def one_agent(part: PyTree, is_own: bool) -> PyTree:
    return jax.tree.map(lambda x: x[0], part) if is_own else part


def zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)
