"""The gradients of one tile: what every PPO-like algorithm here shares.

One loss scale everywhere (ALGORITHMS 8.4): the objective is the sum over agents of each agent's mean over its own live
steps. `share[N]` is what one live step of an agent weighs in that sum. An agent's own parameters so receive its own
gradient g_i, and shared parameters, by `shared_mean`, the mean of all g_i. Gradients point uphill.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from grasp.algos import losses, value_norm
from grasp.algos.minibatches import Batch, Steps, accumulate
from grasp.config.hyperparameters import Mappo
from grasp.nn import actor as actors
from grasp.nn import critic as critics
from grasp.nn.actor import Actor
from grasp.nn.sharding import Partial
from grasp.types import Metrics, PyTree


class PolicyGradient(NamedTuple):
    """Sums over one tile."""

    actor: Actor
    """Of surrogate and entropy bonus, for all agents together."""
    surrogate_head: Partial
    """Of the surrogate alone, for the head: every agent's own g_i where each has a head of its own."""
    stats: Metrics


def agent_share(hyper: Mappo, alive: Float[Array, "*S N"]) -> Float[Array, " N"]:
    """The weight of one live step of each agent; with `common`, agents weigh by how long they lived."""
    steps = alive.sum(range(alive.ndim - 1))
    if hyper.denominator == "common":
        steps = jnp.full_like(steps, steps.mean())
    return 1.0 / jnp.maximum(steps, 1.0)


def surrogate_sum(
    logits: Float[Array, "L C N a"], steps: Steps, share: Float[Array, " N"], clip: float
) -> tuple[Float[Array, ""], Metrics]:
    """The clipped surrogate, summed over agents (Alg. 1 l. 24), and how far the policy has moved."""
    log_prob = losses.chosen(losses.log_probabilities(logits, steps.avail), steps.action)
    log_ratio = log_prob - steps.log_prob
    ratio = jnp.exp(log_ratio)
    weight = steps.alive * share[None, None]
    objective = (weight * losses.surrogate(ratio, steps.advantage, clip)).sum()
    mean = weight / share.shape[0]
    stats = {
        "approx_kl": (mean * (ratio - 1.0 - log_ratio)).sum(),
        "clip_fraction": (mean * (jnp.abs(ratio - 1.0) > clip)).sum(),
    }
    return objective, stats


def entropy_sum(
    logits: Float[Array, "L C N a"], steps: Steps, share: Float[Array, " N"]
) -> tuple[Float[Array, ""], Metrics]:
    """The policies' entropy, summed over agents."""
    weight = steps.alive * share[None, None]
    total = (weight * losses.entropy(losses.log_probabilities(logits, steps.avail))).sum()
    return total, {"entropy": total / share.shape[0]}


def policy_gradient(hyper: Mappo, actor: Actor, tile: Batch, share: Float[Array, " N"]) -> PolicyGradient:
    """One forward and one backward pass.

    Surrogate and entropy are told apart at the logits, so the heads' surrogate gradients need no second pass through
    time.
    """
    steps = tile.steps

    def through_time(backbone):
        return actors.features(backbone, hyper.sharing, tile.start.actor, steps.obs, steps.first)

    memory, pull_backbone = jax.vjp(through_time, actor.backbone)
    logits, pull_head = jax.vjp(lambda head, m: actors.logits(head, hyper.sharing, m), actor.head, memory)
    d_surrogate, moved = jax.grad(surrogate_sum, has_aux=True)(logits, steps, share, hyper.clip)
    d_entropy, spread = jax.grad(entropy_sum, has_aux=True)(logits, steps, share)
    head, d_memory = pull_head(d_surrogate + hyper.entropy * d_entropy)
    (backbone,) = pull_backbone(d_memory)
    surrogate_head, _ = pull_head(d_surrogate)
    return PolicyGradient(Actor(backbone, head), Partial(surrogate_head), moved | spread)


def agent_gradients(
    hyper: Mappo, actor: Actor, parts: tuple[str, ...], tiles: Batch, share: Float[Array, " N"]
) -> dict[str, PyTree]:
    """Every agent's gradient of its own surrogate with respect to its own copy of the named parts: leaves [N, ...],
    or what each device adds to them (`Partial`)."""
    alone, sharing = actors.apart(actor, hyper.sharing, parts, share.shape[0])
    chosen = {name: getattr(alone, name) for name in parts}

    def objective(chosen: dict[str, PyTree], tile: Batch) -> Float[Array, ""]:
        agent, steps = actor._replace(**chosen), tile.steps
        memory = actors.features(agent.backbone, sharing.backbone, tile.start.actor, steps.obs, steps.first)
        return surrogate_sum(actors.logits(agent.head, sharing.head, memory), steps, share, hyper.clip)[0]

    return accumulate(lambda tile: Partial(jax.grad(objective)(chosen, tile)), tiles).sum


def fold_gradients(hyper: Mappo, actor: Actor, parts: tuple[str, ...], folds: Batch) -> dict[str, PyTree]:
    """`agent_gradients` of every fold (`grasp.algos.minibatches.folded`), each a mean over its own steps: [K, N,
    ...]."""

    def one(tiles: Batch) -> dict[str, PyTree]:
        return agent_gradients(hyper, actor, parts, tiles, agent_share(hyper, tiles.steps.alive))

    return jax.lax.map(one, folds)


def unit_feature_gradients(
    hyper: Mappo, actor: Actor, tiles: Batch, share: Float[Array, " N"]
) -> Float[Array, "N H a"]:
    """What the heads' gradients would be if every step's features had length 1: products of two agents' are then sums
    over pairs of steps of (cosine of features) × (product of logit gradients), each bounded (ALGORITHMS 13.2)."""

    def one(tile: Batch) -> Partial:
        steps = tile.steps
        memory = actors.features(actor.backbone, hyper.sharing, tile.start.actor, steps.obs, steps.first)
        slope = jax.grad(surrogate_sum, has_aux=True)
        d_logits, _ = slope(actors.logits(actor.head, hyper.sharing, memory), steps, share, hyper.clip)
        features = jax.nn.relu(memory)
        length = jnp.linalg.norm(features, axis=-1, keepdims=True)
        return Partial(jnp.einsum("lcnh,lcna->nha", features / jnp.where(length > 0, length, 1.0), d_logits))

    return accumulate(one, tiles).sum


def input_gradients(hyper: Mappo, actor: Actor, tiles: Batch, share: Float[Array, " N"]) -> Float[Array, "N K L C o"]:
    """Every agent's gradient of the surrogate with respect to what it saw (the paper's Listing 1). It lives in another
    space than the parameters, so that it can weigh agents but not move them (A3)."""

    def one(tile: Batch) -> Float[Array, "L C N o"]:
        def objective(obs: Float[Array, "L C N o"]) -> Float[Array, ""]:
            memory = actors.features(actor.backbone, hyper.sharing, tile.start.actor, obs, tile.steps.first)
            return surrogate_sum(actors.logits(actor.head, hyper.sharing, memory), tile.steps, share, hyper.clip)[0]

        return jax.grad(objective)(tile.steps.obs)

    return jnp.moveaxis(jax.lax.map(one, tiles), -2, 0)


def shared_mean(hyper: Mappo, gradient: Actor, num_agents: int) -> Actor:
    """Shared parameters take the mean of the agents' gradients, where an agent's own take its own."""
    own = actors.owned(hyper.sharing)
    return Actor(
        *(
            part if is_own else jax.tree.map(lambda g: g / num_agents, part)
            for part, is_own in zip(gradient, own, strict=True)
        )
    )


def value_gradient(
    hyper: Mappo, critic: PyTree, norm: value_norm.ValueNorm, tile: Batch, num_samples: int
) -> tuple[PyTree, Metrics]:
    """The critic's gradient of the negated loss (Alg. 1 l. 20), in the units of ValueNorm."""
    steps = tile.steps
    target = value_norm.normalise(norm, steps.target) if hyper.value_norm else steps.target

    def objective(critic: PyTree) -> tuple[Array, Metrics]:
        value = critics.values(critic, hyper.critic, tile.start.critic, steps.state, steps.first)
        loss = losses.value_loss(value, steps.value, target, hyper.clip, hyper.huber).sum() / num_samples
        return -loss, {"value_loss": loss}

    return jax.grad(objective, has_aux=True)(critic)
