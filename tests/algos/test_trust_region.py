"""Trust regions: stopping an epoch by its divergence, and the constrained step along the consensus."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mappo_cases import GRASP, SMALL, SPREAD, find_consensus, iterate, tiles_of, world
from trees import assert_close, distance, flat

from grasp.algos import grasp, ppo, trust_region
from grasp.config import configure
from grasp.nn.actor import Actor
from grasp.types import GraspError


@pytest.mark.parametrize("options", [{"control": "step_size"}, {"control": "update_size"}, {"weight": 0.5}])
def test_the_trust_region_s_own_step_takes_no_option_that_it_would_ignore(options):
    with pytest.raises(GraspError, match="trust trcco .* leave "):
        configure("grasp-mappo", SPREAD, {"trust": "trcco", **options})


def test_kl_stop_halts_the_actor_and_not_the_critic():
    hyper = replace(SMALL, lr=3e-2, epochs=8)
    free, moved = iterate(SPREAD, hyper, iterations=1)
    tight, held = iterate(SPREAD, replace(hyper, trust="kl_stop", kl=1e-3), iterations=1)
    loose, _ = iterate(SPREAD, replace(hyper, trust="kl_stop", kl=1e3), iterations=1)
    assert_close(loose, free, 1e-5)  # another program, so not bit for bit
    assert float(moved["approx_kl_last"]) > 5e-3, "the test's steps are large enough to be stopped"
    assert 0 < float(held["halted"]) < 1
    assert_close(tight.critic, free.critic, 1e-5)
    # the steps before the halt are those of a run that had only so many epochs
    steps = round(8 * (1 - float(held["halted"])))
    short, _ = iterate(SPREAD, replace(hyper, epochs=steps), iterations=1)
    assert_close(tight.actor, short.actor, 1e-5)
    assert distance(tight.actor, iterate(SPREAD, replace(hyper, epochs=steps + 1), iterations=1)[0].actor) > 1e-4


divergence = jax.jit(trust_region.divergence, static_argnums=0)
constrained = jax.jit(trust_region.constrained, static_argnums=0)


@pytest.fixture
def region():
    hyper = replace(GRASP, trust="trcco", kl=1e-3)
    _, _, state, _, trajectory = world(SPREAD, hyper)
    tiles = tiles_of(hyper, state, trajectory)
    return hyper, state, tiles, ppo.step_weights(hyper, tiles.steps.alive)


def test_the_curvature_is_that_of_the_divergence(region):
    """v·Fv / 2 is the divergence of a small step along v."""
    hyper, state, tiles, weight = region
    rng = np.random.default_rng(1)
    v = {"head": jax.tree.map(lambda x: jnp.float32(rng.normal(size=x.shape)), state.actor.head)}
    curve = jax.jit(trust_region.curvature(hyper, state.actor, {"head": state.actor.head}, tiles, weight))
    expected = 0.5 * float(optax.tree.vdot(v, curve(v)))
    size = 3e-2
    near = state.actor._replace(head=jax.tree.map(lambda p, d: p + size * d, state.actor.head, v["head"]))
    assert float(divergence(hyper, state.actor, near, tiles, weight)) / size**2 == pytest.approx(expected, rel=0.05)


def test_trcco_goes_to_the_edge_of_the_trust_region_uphill_and_no_direction_does_better(region):
    hyper, state, tiles, weight = region
    found = find_consensus(hyper, state.actor, tiles, jax.random.key(0))
    actor, stats = constrained(hyper, state.actor, found.u, tiles)
    kl = float(divergence(hyper, state.actor, actor, tiles, weight))
    assert 0.5 * hyper.kl < kl <= hyper.kl
    assert float(stats["trust_kl"]) == pytest.approx(kl, rel=1e-4)
    assert_close(actor.backbone, state.actor.backbone)

    def gain(new):
        step = jax.tree.map(jnp.subtract, new.head, state.actor.head)
        return sum(float((s * u[None]).sum()) for s, u in zip(*map(jax.tree.leaves, (step, found.u.head)), strict=True))

    def along(direction, size):
        moved = jax.tree.map(lambda p, d: p + np.float32(size) * d, state.actor.head, direction)
        return state.actor._replace(head=moved)

    best = gain(actor)
    assert best > 0
    step = jax.tree.map(jnp.subtract, actor.head, state.actor.head)
    along_u = jax.tree.map(lambda u: jnp.broadcast_to(u, (3, *u.shape)), found.u.head)
    others = [along_u, *(beside(step, k) for k in range(6))]
    for other in others:
        low, high = 0.0, 100.0 / np.linalg.norm(flat(other))
        for _ in range(40):  # as far as the same divergence allows
            middle = (low + high) / 2
            near = state.actor._replace(
                head=jax.tree.map(lambda p, d, k=middle: p + np.float32(k) * d, state.actor.head, other)
            )
            inside = float(divergence(hyper, state.actor, near, tiles, weight)) <= kl
            low, high = (middle, high) if inside else (low, middle)
        assert (
            gain(
                state.actor._replace(
                    head=jax.tree.map(lambda p, d, k=low: p + np.float32(k) * d, state.actor.head, other)
                )
            )
            < best * 1.01
        )


def beside(step, seed):
    """A direction at some angle to the step's."""
    rng = np.random.default_rng(seed)
    noise = jax.tree.map(lambda x: rng.normal(size=x.shape).astype("float32"), step)
    size = 0.5 * np.linalg.norm(flat(step)) / np.linalg.norm(flat(noise))
    return jax.tree.map(lambda s, n: np.asarray(s) + size * n, step, noise)


def test_trcco_stands_still_where_nothing_is_agreed_on_and_halves_a_step_that_is_too_long(region, monkeypatch):
    hyper, state, tiles, _ = region
    nothing = Actor(*(grasp.zeros(grasp.one_agent(p, own)) for _, p, own in grasp.named(hyper, state.actor)))
    still, stats = constrained(hyper, state.actor, nothing, tiles)
    assert_close(still, state.actor)
    assert float(stats["trust_kl"]) == 0
    found = find_consensus(hyper, state.actor, tiles, jax.random.key(0))
    first, _ = constrained(hyper, state.actor, found.u, tiles)
    newton = trust_region.newton
    monkeypatch.setattr(trust_region, "newton", lambda *args: (lambda d, s: (d, 4.1 * s))(*newton(*args)))
    _, stats = trust_region.constrained(hyper, state.actor, found.u, tiles)
    assert float(stats["trust_halvings"]) >= 2
    assert float(stats["trust_kl"]) <= hyper.kl
    monkeypatch.setattr(trust_region, "newton", lambda *args: (lambda d, s: (d, jnp.inf * s))(*newton(*args)))
    lost, stats = trust_region.constrained(hyper, state.actor, found.u, tiles)
    assert_close(lost, state.actor)  # a step that never obeys is not taken
    assert distance(first, state.actor) > 0


def test_trcco_leaves_the_backbone_to_ppo_and_the_heads_to_the_region():
    hyper = replace(GRASP, trust="trcco", kl=1e-3)
    _, _, state, _, trajectory = world(SPREAD, hyper)
    after, metrics = jax.jit(partial(trust_region.learn, hyper, ppo.optimisers(hyper)))(
        state, trajectory, jax.random.key(3)
    )
    consensus_key, _ = jax.random.split(jax.random.key(3))
    tiles = tiles_of(hyper, state, trajectory)
    found = find_consensus(hyper, state.actor, tiles, consensus_key)
    expected, _ = constrained(hyper, state.actor, found.u, tiles)
    assert_close(after.actor.head, expected.head, 1e-5)
    assert distance(after.actor.backbone, state.actor.backbone) > 1e-4
    assert 0 < float(metrics["trust_kl"]) <= hyper.kl


def test_mappo_may_stop_by_divergence_without_a_consensus():
    assert configure("mappo", SPREAD, {"trust": "kl_stop"}).hyper.trust == "kl_stop"
