"""The controls of the consensus: what stands in for u, and steps along the agents' own gradients that are as long."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import qmix_cases as qmixed
from mappo_cases import GRASP, SMALL, SPREAD, iterate, world
from trees import assert_close, cosine, distance, flat, lengths

from grasp.algos import controls, grasp
from grasp.consensus import combine, consensus
from grasp.nn.actor import Actor

replaced = jax.jit(controls.replaced, static_argnums=1)


def some(seed=0, num_agents=4):
    rng = np.random.default_rng(seed)
    return {"a": jnp.float32(rng.normal(size=(num_agents, 3, 2))), "b": jnp.float32(rng.normal(size=(num_agents, 5)))}


def test_a_placebo_is_as_long_as_u_and_has_nothing_to_do_with_it():
    grads = some()
    u, info = consensus(grads)
    drawn = [replaced(u, "placebo", grads, info.weights, jax.random.key(k)) for k in range(200)]
    for other in drawn[:5]:
        assert np.linalg.norm(flat(other)) == pytest.approx(np.linalg.norm(flat(u)), rel=1e-5)
    assert abs(np.mean([cosine(u, other) for other in drawn])) < 4 / np.sqrt(200 * 11)
    assert distance(drawn[0], drawn[1]) > 0.01
    nothing = jax.tree.map(jnp.zeros_like, u)
    assert_close(replaced(nothing, "placebo", grads, info.weights, jax.random.key(0)), nothing)


def test_permuted_gives_every_gradient_the_weight_of_another():
    grads = some()
    u, info = consensus(grads)
    shifted = [combine(grads, jnp.roll(info.weights, shift)) for shift in (1, 2, 3)]
    seen = set()
    for k in range(20):
        other = replaced(u, "permuted", grads, info.weights, jax.random.key(k))
        assert np.linalg.norm(flat(other)) == pytest.approx(np.linalg.norm(flat(u)), rel=1e-5)
        likeness = [cosine(other, candidate) for candidate in shifted]
        assert max(likeness) == pytest.approx(1, abs=1e-5)
        seen.add(int(np.argmax(likeness)))
    assert seen == {0, 1, 2}
    alone, one = consensus(some(num_agents=1))
    assert_close(replaced(alone, "permuted", some(num_agents=1), one.weights, jax.random.key(0)), alone, 1e-6)


@pytest.mark.parametrize("sharing", ["hybrid", "separate", "shared"])
def test_step_size_keeps_every_direction_and_takes_the_length_of_the_sum(sharing):
    """g_i |g_i + u| / |g_i|."""
    hyper = replace(GRASP, sharing=sharing)
    _, _, state, _, _ = world(SPREAD, hyper)
    draw = lambda x, k: np.random.default_rng(k).normal(size=x.shape).astype("float32")  # noqa: E731
    gradient = jax.tree.map(lambda x: draw(x, 1), state.actor)
    u = Actor(
        *(
            jax.tree.map(lambda x: draw(x, 2), grasp.one_agent(part, own))
            for _, part, own in grasp.named(hyper, gradient)
        )
    )
    if sharing == "hybrid":
        u = u._replace(backbone=grasp.zeros(u.backbone))
    plain, control = (grasp.realign(replace(hyper, control=c), gradient, u, 0.7) for c in ("none", "step_size"))
    own = sharing != "shared"
    for group in grasp.groups(hyper):
        parts = [{name: getattr(tree, name) for name in group} for tree in (gradient, plain, control)]
        if not own:
            parts = [jax.tree.map(lambda x: x[None], tree) for tree in parts]
        np.testing.assert_allclose(lengths(parts[2]), lengths(parts[1]), rtol=1e-5)
        for agent in range(len(lengths(parts[0]))):
            one = [jax.tree.map(lambda x, i=agent: x[i], tree) for tree in parts]
            assert cosine(one[0], one[2]) == pytest.approx(1, abs=1e-5)
            assert cosine(one[0], one[1]) < 0.99
    if sharing == "hybrid":
        assert_close(control.backbone, gradient.backbone)


def test_update_size_makes_adam_s_steps_as_long_as_those_along_the_sum():
    """A longer gradient is hardly a longer step of Adam's; here the steps are as long, in g_i's direction."""
    hyper = replace(GRASP, control="update_size")
    _, _, state, _, _ = world(SPREAD, hyper)
    start = jax.tree.map(jnp.zeros_like, state.actor)
    u = jax.tree.map(lambda x: jnp.ones_like(x[0]), start.head)
    u = Actor(grasp.zeros(start.backbone), u)
    adam = optax.adam(1e-3)
    far = controls.match_update_norms(adam, partial(grasp.stretched, hyper))
    memory, along_g, along_sum = far.init(start), adam.init(start), adam.init(start)
    for step in range(20):
        rng = np.random.default_rng(step)
        gradient = jax.tree.map(lambda x, rng=rng: rng.normal(size=x.shape).astype("float32"), start)
        both = grasp.realign(hyper, gradient, u, 1.0)
        moved = grasp.realign(GRASP, gradient, u, 1.0)
        updates, memory = far.update(both, memory)
        plain, along_g = adam.update(gradient, along_g)
        other, along_sum = adam.update(moved, along_sum)
    np.testing.assert_allclose(lengths(updates.head), lengths(other.head), rtol=1e-5)
    assert (
        lengths(updates.head) > 1.5 * lengths(plain.head)
    ).all()  # u stays and noise does not: momentum lengthens it
    for agent in range(len(lengths(plain.head))):
        one = [jax.tree.map(lambda x, i=agent: x[i], tree.head) for tree in (plain, updates)]
        assert cosine(*one) == pytest.approx(1, abs=1e-5)
    assert_close(updates.backbone, plain.backbone)


EVERY_CONTROL = pytest.mark.full("whole iterations of every control")


@pytest.mark.parametrize(
    "control", ["permuted", *(pytest.param(c, marks=EVERY_CONTROL) for c in ("placebo", "step_size", "update_size"))]
)
def test_a_control_trains_and_differs_from_both_of_its_neighbours(control):
    states = [iterate(SPREAD, h, iterations=1)[0] for h in (SMALL, GRASP, replace(GRASP, control=control))]
    assert distance(states[2].actor.head, states[0].actor.head) > 1e-6
    assert distance(states[2].actor.head, states[1].actor.head) > 1e-6
    _, metrics = iterate(SPREAD, replace(GRASP, control=control), iterations=1)
    _, plain = iterate(SPREAD, GRASP, iterations=1)
    np.testing.assert_allclose(metrics["u_norm"], plain["u_norm"], rtol=1e-5)


@pytest.mark.parametrize("scope", ["heads", "both"])
def test_step_size_under_the_off_policy_rule(scope):
    """Γ_i g_i |g_i + u| / |g_i|, for every agent."""
    hyper = replace(qmixed.SMALL, operator="min_norm", scope=scope)
    online, target = qmixed.networks(hyper)
    own = qmixed.gradient(hyper)(online, target, qmixed.episodes())[0].agent
    plain, control = (
        qmixed.off_policy(replace(hyper, control=name))(online.agent, own, jax.random.key(0))
        for name in ("none", "step_size")
    )
    np.testing.assert_allclose(lengths(control.gradient.head), lengths(plain.gradient.head), rtol=1e-4)
    for agent in range(len(lengths(own.head))):
        g, v, w = (
            jax.tree.map(lambda x, i=agent: x[i], tree)
            for tree in (own.head, plain.gradient.head, control.gradient.head)
        )
        assert cosine(g, w) == pytest.approx(1, abs=1e-5)
        assert cosine(g, v) < 0.9999
