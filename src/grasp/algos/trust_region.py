"""`trust = trcco`: the constrained problem that the paper's update relaxes, solved as the paper writes it.

    max <u*, Δθ>    subject to    E[ KL(π_old ‖ π_new) ] ≤ δ        (Trust-Region Constrained Consensus Optimization)

To second order the solution is Δθ = √(2δ / x·Fx) x with F x = u*, F the Fisher matrix of the joint policy. x comes from
conjugate gradients; the step is halved until the divergence itself obeys the bound. The step follows u* alone: an
agent's own gradient counts only as far as it is in u*. The parts outside the scope of the consensus learn by PPO.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from grasp.algos import ablations, grasp, losses, ppo
from grasp.algos import minibatches as batches
from grasp.algos.minibatches import Batch, accumulate
from grasp.algos.ppo import Optimisers, State
from grasp.config.hyperparameters import Mappo
from grasp.nn import actor as actors
from grasp.nn.actor import Actor
from grasp.types import Key, Metrics, PyTree, Trajectory

CONJUGATE_STEPS = 10
DAMPING = 0.01
"""Added to the Fisher matrix, as a fraction of its curvature along u*: for directions that the batch does not cover."""
HALVINGS = 10


def variant(hyper: Mappo) -> Callable | None:
    """`learn` if the option selects it, else None."""
    return learn if hyper.trust == "trcco" else None


def learn(
    hyper: Mappo, optimisers: Optimisers, state: State, trajectory: Trajectory, key: Key
) -> tuple[State, Metrics]:
    """One iteration on one trajectory: one constrained step along u*, then PPO for the rest."""
    consensus_key, shuffle_key = jax.random.split(key)
    batch = ppo.prepare(hyper, state, trajectory)
    whole = batches.whole(batch)
    consensus = ablations.find_consensus(hyper, state.actor, grasp.basis(hyper, batch, whole), consensus_key)
    actor, moved = constrained(hyper, state.actor, consensus.u, whole)
    state = state._replace(actor=actor)

    def minibatch(state: State, chunks: Array) -> tuple[State, Metrics]:
        tiles = whole if hyper.minibatches == 1 else batches.tiled(batch, chunks)
        state, critic_stats = ppo.critic_step(hyper, optimisers.critic, state, tiles)
        gradient, policy_stats = ppo.policy_gradient(hyper, state.actor, tiles)
        state, actor_stats = ppo.actor_step(optimisers.actor, state, outside(hyper, gradient))
        return state, policy_stats | critic_stats | actor_stats

    state, stats = jax.lax.scan(minibatch, state, ppo.shuffled(hyper, batch, shuffle_key))
    return state, ppo.summary(stats) | moved | consensus.diagnostics


def outside(hyper: Mappo, gradient: Actor) -> Actor:
    """The gradient of the parts outside the scope of the consensus; zeros for the others."""
    inside = grasp.parts_in_scope(hyper)
    parts = gradient._asdict().items()
    return Actor(**{name: grasp.zeros(part) if name in inside else part for name, part in parts})


def constrained(hyper: Mappo, actor: Actor, u: Actor, tiles: Batch) -> tuple[Actor, Metrics]:
    """The parts in scope, moved as far along u as the divergence allows."""
    weight = ppo.step_weights(hyper, tiles.steps.alive)
    inside = [part for part in grasp.named(hyper, actor) if part[0] in grasp.parts_in_scope(hyper)]
    chosen = {name: part for name, part, _ in inside}
    uphill = {
        name: actors.copies(getattr(u, name), weight.shape[0]) if is_own else getattr(u, name)
        for name, _, is_own in inside
    }
    direction, longest = newton(curvature(hyper, actor, chosen, tiles, weight), uphill, hyper.kl)

    def at(scale: Float[Array, ""]) -> Actor:
        return actor._replace(**jax.tree.map(lambda p, d: p + scale * d, chosen, direction))

    def too_far(carry: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        _, kl, halvings = carry
        return ~(kl <= hyper.kl) & (halvings < HALVINGS)

    def halve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        scale, _, halvings = carry
        return scale / 2, divergence(hyper, actor, at(scale / 2), tiles, weight), halvings + 1

    first = longest, divergence(hyper, actor, at(longest), tiles, weight), jnp.zeros(())
    scale, kl, halvings = jax.lax.while_loop(too_far, halve, first)
    obeys = kl <= hyper.kl
    return at(jnp.where(obeys, scale, 0.0)), {"trust_kl": jnp.where(obeys, kl, 0.0), "trust_halvings": halvings}


def newton(curve: Callable[[PyTree], PyTree], uphill: PyTree, kl: float) -> tuple[PyTree, Float[Array, ""]]:
    """F⁻¹u, and its largest multiple within the second-order trust region; 0 where u is 0."""
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
    hyper: Mappo, actor: Actor, chosen: dict[str, PyTree], tiles: Batch, weight: Float[Array, " N"]
) -> Callable[[dict[str, PyTree]], dict[str, PyTree]]:
    """v -> F v for the chosen parts. At the logits the Fisher matrix is diag(p) − p pᵀ."""

    def product(v: dict[str, PyTree]) -> dict[str, PyTree]:
        def one(tile: Batch) -> dict[str, PyTree]:
            def policy(parts: dict[str, PyTree]) -> Float[Array, "L C N a"]:
                return ppo.logits_along(hyper, actor._replace(**parts), tile)

            logits, change = jax.jvp(policy, (chosen,), (v,))
            p = jnp.exp(losses.log_probabilities(logits, tile.steps.avail))
            spread = p * (change - (p * change).sum(-1, keepdims=True))
            _, pull = jax.vjp(policy, chosen)
            return pull((tile.steps.alive * weight[None, None])[..., None] * spread)[0]

        return accumulate(one, tiles)

    return product


def divergence(hyper: Mappo, old: Actor, new: Actor, tiles: Batch, weight: Float[Array, " N"]) -> Float[Array, ""]:
    """KL(π_old ‖ π_new) of the joint policy: the sum over agents of each one's mean over its live steps."""

    def one(tile: Batch) -> Float[Array, ""]:
        before, after = (
            losses.log_probabilities(ppo.logits_along(hyper, actor, tile), tile.steps.avail) for actor in (old, new)
        )
        each = jnp.where(tile.steps.avail, jnp.exp(before) * (before - after), 0.0).sum(-1)
        return (tile.steps.alive * weight[None, None] * each).sum()

    return accumulate(one, tiles)
