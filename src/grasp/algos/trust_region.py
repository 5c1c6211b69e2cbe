"""`trust = trcco`: the problem of which the paper's update is a relaxation, solved as it is written.

    max <u*, Δθ>    subject to    E[ KL(π_old ‖ π_new) ] ≤ δ        (Trust-Region Constrained Consensus Optimization)

To second order its answer is Δθ = √(2δ / x·Fx) x with F x = u*, F the Fisher matrix of the joint policy. x comes from
conjugate gradients; the step is halved until the divergence itself obeys. It follows u* alone: an agent's own gradient
counts only as far as it is in u*.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from grasp.algos import grasp, losses
from grasp.algos.minibatches import Batch, Steps, accumulate
from grasp.config.hyperparameters import Mappo
from grasp.nn import actor as actors
from grasp.nn.actor import Actor
from grasp.types import Metrics, PyTree

CONJUGATE_STEPS = 10
DAMPING = 0.01
"""Of the Fisher matrix, as a share of its curvature along u*: for directions that the batch says nothing about."""
HALVINGS = 10


def outside(hyper: Mappo, gradient: Actor) -> Actor:
    """The gradient of the parts that find no consensus, which are left to PPO."""
    inside = {name for group in grasp.groups(hyper) for name in group}
    parts = gradient._asdict().items()
    return Actor(**{name: grasp.zeros(part) if name in inside else part for name, part in parts})


def constrained(hyper: Mappo, actor: Actor, u: Actor, tiles: Batch, share: Float[Array, " N"]) -> tuple[Actor, Metrics]:
    """The parts that find a consensus, moved as far along it as the divergence allows."""
    inside = [part for part in grasp.named(hyper, actor) if any(part[0] in group for group in grasp.groups(hyper))]
    chosen = {name: part for name, part, _ in inside}
    uphill = {
        name: actors.copies(getattr(u, name), share.shape[0]) if is_own else getattr(u, name)
        for name, _, is_own in inside
    }
    direction, longest = newton(curvature(hyper, actor, chosen, tiles, share), uphill, hyper.kl)

    def at(scale: Float[Array, ""]) -> Actor:
        return actor._replace(**jax.tree.map(lambda p, d: p + scale * d, chosen, direction))

    def too_far(carry: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        _, kl, halvings = carry
        return ~(kl <= hyper.kl) & (halvings < HALVINGS)

    def halve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        scale, _, halvings = carry
        return scale / 2, divergence(hyper, actor, at(scale / 2), tiles, share), halvings + 1

    first = longest, divergence(hyper, actor, at(longest), tiles, share), jnp.zeros(())
    scale, kl, halvings = jax.lax.while_loop(too_far, halve, first)
    obeys = kl <= hyper.kl
    return at(jnp.where(obeys, scale, 0.0)), {"trust_kl": jnp.where(obeys, kl, 0.0), "trust_halvings": halvings}


def newton(curve: Callable[[PyTree], PyTree], uphill: PyTree, kl: float) -> tuple[PyTree, Float[Array, ""]]:
    """F⁻¹u, and how often it fits into the trust region of the second order; nothing where u is 0."""
    squared = jnp.asarray(optax.tree.vdot(uphill, uphill))
    damping = DAMPING * optax.tree.vdot(uphill, curve(uphill)) / jnp.where(squared > 0, squared, 1.0)

    def damped(v: PyTree) -> PyTree:
        return jax.tree.map(lambda f, x: f + damping * x, curve(v), v)

    direction, _ = jax.scipy.sparse.linalg.cg(damped, uphill, maxiter=CONJUGATE_STEPS, tol=0.0)
    length = jnp.asarray(optax.tree.vdot(direction, curve(direction)))
    usable = jnp.isfinite(length) & (length > 0)
    scale = jnp.where(usable, jnp.sqrt(2 * kl / jnp.where(usable, length, 1.0)), 0.0)
    return jax.tree.map(lambda d: jnp.where(usable, d, 0.0), direction), scale


def curvature(
    hyper: Mappo, actor: Actor, chosen: dict[str, PyTree], tiles: Batch, share: Float[Array, " N"]
) -> Callable[[dict[str, PyTree]], dict[str, PyTree]]:
    """v -> F v for the chosen parts. At the logits the Fisher matrix is diag(p) − p pᵀ."""

    def product(v: dict[str, PyTree]) -> dict[str, PyTree]:
        def one(tile: Batch) -> dict[str, PyTree]:
            def policy(parts: dict[str, PyTree]) -> Float[Array, "L C N a"]:
                return preferences(hyper, actor._replace(**parts), tile)

            logits, change = jax.jvp(policy, (chosen,), (v,))
            p = jnp.exp(losses.log_probabilities(logits, tile.steps.avail))
            spread = p * (change - (p * change).sum(-1, keepdims=True))
            _, pull = jax.vjp(policy, chosen)
            return pull(weight(tile.steps, share)[..., None] * spread)[0]

        return accumulate(one, tiles)

    return product


def divergence(hyper: Mappo, old: Actor, new: Actor, tiles: Batch, share: Float[Array, " N"]) -> Float[Array, ""]:
    """KL(π_old ‖ π_new) of the joint policy: the sum over agents of each one's mean over its live steps."""

    def one(tile: Batch) -> Float[Array, ""]:
        before, after = (
            losses.log_probabilities(preferences(hyper, actor, tile), tile.steps.avail) for actor in (old, new)
        )
        each = jnp.where(tile.steps.avail, jnp.exp(before) * (before - after), 0.0).sum(-1)
        return (weight(tile.steps, share) * each).sum()

    return accumulate(one, tiles)


def preferences(hyper: Mappo, actor: Actor, tile: Batch) -> Float[Array, "L C N a"]:
    memory = actors.features(actor.backbone, hyper.sharing, tile.start.actor, tile.steps.obs, tile.steps.first)
    return actors.logits(actor.head, hyper.sharing, memory)


def weight(steps: Steps, share: Float[Array, " N"]) -> Float[Array, "L C N"]:
    return steps.alive * share[None, None]
