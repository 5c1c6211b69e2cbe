"""The ablations of the consensus: other Gram matrices and folds, on real rollouts."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import qmix_cases as qmixed
from mappo_cases import (
    GRASP,
    SMALL,
    SPREAD,
    agent_gradients,
    find_consensus,
    input_gradients,
    iterate,
    prepare,
    solve,
    surrogate_gradients,
    tiles_of,
    unit_feature_gradients,
    world,
)
from trees import assert_close, distance, lengths

from grasp.algos import grasp, happo, losses, ppo, qmix
from grasp.algos import minibatches as batches
from grasp.config import configure
from grasp.consensus import combine, consensus, crossfit
from grasp.nn import actor as actors
from grasp.nn.actor import Actor
from grasp.training import rollout
from grasp.types import GraspError


def test_unit_features_are_the_heads_gradients_over_normalised_memories():
    """Step by step in numpy, and unlike the heads' own gradients."""
    hyper = replace(GRASP, gram="representation")
    _, _, state, _, trajectory = world(SPREAD, hyper)
    tiles = tiles_of(hyper, state, trajectory)
    weight = ppo.step_weights(hyper, tiles.steps.alive)
    found = np.asarray(unit_feature_gradients(hyper, state.actor, tiles))
    expected = np.zeros_like(found)
    for k in range(tiles.steps.first.shape[0]):
        tile = jax.tree.map(lambda x, k=k: x[k], tiles)
        steps = tile.steps
        features = actors.features(state.actor.backbone, hyper.sharing, tile.start.actor, steps.obs, steps.first)
        logits = actors.logits(state.actor.head, hyper.sharing, features)
        p = np.asarray(jax.nn.softmax(jnp.where(steps.avail, logits, losses.ILLEGAL)))
        hot = np.eye(p.shape[-1])[np.asarray(steps.action)]
        # at θ_old every ratio is 1, and d log p(a) / d logits = 1[a] − p
        d_logits = np.asarray(steps.alive * weight[None, None] * steps.advantage)[..., None] * (hot - p)
        features = np.asarray(features)
        features = features / np.maximum(np.linalg.norm(features, axis=-1, keepdims=True), 1e-30)
        expected += np.einsum("lcnh,lcna->nha", features, d_logits)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-6)
    heads = np.asarray(surrogate_gradients(hyper, state.actor, ("head",), tiles)["head"]["weight"])
    assert np.abs(found - heads).max() > 1e-4


def test_input_gradients_are_finite_differences_of_the_surrogate():
    hyper = replace(GRASP, sharing="shared", gram="inputs")
    _, _, state, _, trajectory = world(SPREAD, hyper)
    tiles = tiles_of(hyper, state, trajectory)
    weight = ppo.step_weights(hyper, tiles.steps.alive)
    found = input_gradients(hyper, state.actor, tiles)
    tile = jax.tree.map(lambda x: x[0], tiles)

    def objective(obs):
        steps = tile.steps._replace(obs=obs)
        return ppo.surrogate_sum(
            ppo.logits_along(hyper, state.actor, tile._replace(steps=steps)), steps, weight, hyper.clip
        )[0]

    assert found.shape == (3, tiles.steps.first.shape[0], *tile.steps.first.shape, tile.steps.obs.shape[-1])
    for agent in range(3):
        direction = jnp.zeros_like(tile.steps.obs).at[:, :, agent].set(found[agent, 0])
        size = 1e-2 / float(jnp.linalg.norm(direction))
        rise = float(objective(tile.steps.obs + size * direction) - objective(tile.steps.obs - size * direction)) / (
            2 * size
        )
        assert rise == pytest.approx(float((direction**2).sum()), rel=0.05)


@pytest.mark.parametrize(("gram", "sharing"), [("representation", "hybrid"), ("inputs", "shared")])
def test_another_likeness_weighs_agents_whose_own_gradients_are_added(gram, sharing):
    hyper = replace(GRASP, gram=gram, sharing=sharing)
    _, _, state, _, trajectory = world(SPREAD, hyper)
    tiles = tiles_of(hyper, state, trajectory)
    parts = grasp.parts_in_scope(hyper)
    grads = surrogate_gradients(hyper, state.actor, parts, tiles)
    likeness = {"representation": unit_feature_gradients, "inputs": input_gradients}[gram]
    alike = likeness(hyper, state.actor, tiles)
    found = find_consensus(hyper, state.actor, tiles, jax.random.key(0))
    weights = consensus(alike)[1].weights
    np.testing.assert_allclose(found.diagnostics["weights"], weights, atol=1e-6)
    expected = combine(grads, weights)
    for name in parts:
        assert_close(getattr(found.u, name), expected[name], 1e-6)
    assert float(jnp.abs(weights - consensus(grads)[1].weights).max()) > 1e-3, "the weights are its own"
    described_as_they_are(found, grads)


def described_as_they_are(found, grads):
    """The metrics are of the agents' gradients and of the u that is added, not of what weighed them."""
    norms = np.asarray(lengths(grads))
    u_norm = float(optax.tree.norm({name: getattr(found.u, name) for name in grads}))
    np.testing.assert_allclose(np.asarray(found.diagnostics["norms"]), norms, rtol=1e-4)
    assert float(found.diagnostics["u_norm"]) == pytest.approx(u_norm, rel=1e-4)
    assert float(found.diagnostics["u_ratio"]) == pytest.approx(u_norm / np.mean(norms), rel=1e-4)
    assert 0 <= float(found.diagnostics["estimated_conflict_rate"]) <= 1


def test_the_metrics_of_a_crossfitted_consensus_are_of_the_u_that_is_added():
    hyper = replace(GRASP, gram="crossfit", folds=3)
    _, _, state, _, trajectory = world(SPREAD, hyper)
    batch = prepare(hyper, state, trajectory)
    folds = agent_gradients(hyper, state.actor, batches.folded(batch, 10 // hyper.chunk, 3))
    # more of what the folds have in common, so that there is a signal to be found
    folds = jax.tree.map(lambda g: g + 2 * g.mean(0, keepdims=True), folds)
    found = solve(hyper, state.actor, folds, jax.random.key(0))
    assert 0.01 < float(found.diagnostics["signal"]) < 0.99
    described_as_they_are(found, jax.tree.map(lambda g: g.mean(0), folds))


def test_folds_part_the_environments_and_their_mean_is_the_gradient():
    hyper = replace(GRASP, gram="crossfit", folds=3)
    _, _, state, _, trajectory = world(SPREAD, hyper)
    batch = prepare(hyper, state, trajectory)
    marked = batch._replace(
        steps=batch.steps._replace(value=batches.cut(jnp.tile(jnp.arange(6.0), (10, 1)), hyper.chunk))
    )
    pieces = 10 // hyper.chunk
    envs = [set(np.unique(np.asarray(x)).tolist()) for x in batches.folded(marked, pieces, 3).steps.value]
    assert sorted(map(sorted, envs)) == [[0, 3], [1, 4], [2, 5]]
    folds = agent_gradients(hyper, state.actor, batches.folded(batch, pieces, 3))
    tiles = tiles_of(hyper, state, trajectory)
    whole = surrogate_gradients(hyper, state.actor, ("head",), tiles)
    assert_close(jax.tree.map(lambda g: g.mean(0), folds), whole, 1e-6)  # every agent lives: folds are equally large


@pytest.mark.full("whole iterations with folds")
@pytest.mark.parametrize(
    "hyper", [replace(GRASP, scope="both"), replace(GRASP, sharing="separate")], ids=["both", "separate"]
)
def test_crossfit_trains_and_tells_how_noisy_it_was(hyper):
    state, metrics = iterate(SPREAD, replace(hyper, gram="crossfit", folds=3), iterations=2)
    plain, _ = iterate(SPREAD, hyper, iterations=2)
    assert distance(state.actor, plain.actor) > 1e-7
    for name in ("noise_ratio", "shrinkage", "signal"):
        assert np.isfinite(float(metrics[name])), name
    assert float(metrics["noise_ratio"]) > 1
    assert 0 <= float(metrics["signal"]) <= 1


@pytest.mark.parametrize(
    ("algo", "options", "sentence"),
    [
        ("mappo", {"control": "placebo"}, "control placebo needs a consensus; add operator min_norm"),
        ("mappo", {"trust": "trcco"}, "trust trcco needs a consensus; add operator min_norm"),
        ("qmix", {"gram": "crossfit"}, "gram crossfit needs a consensus; add operator min_norm"),
        ("grasp-mappo", {"gram": "crossfit", "folds": 5}, "folds 5 does not divide num_envs 32"),
        ("grasp-mappo", {"folds": 1}, "folds must be at least 2, not 1"),
        ("grasp-qmix", {"gram": "crossfit", "folds": 5}, "folds 5 does not divide batch 128"),
        ("grasp-mappo", {"gram": "crossfit", "refresh": "minibatch"}, "use refresh epoch"),
        ("grasp-mappo", {"gram": "representation", "scope": "both"}, "use sharing hybrid and scope heads"),
        ("grasp-mappo", {"gram": "inputs"}, "use sharing shared"),
        ("grasp-happo", {"trust": "trcco"}, "trust must be one of clip, not 'trcco'"),
        ("grasp-happo", {"gram": "inputs"}, "gram must be one of batch, crossfit, not 'inputs'"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence(algo, options, sentence):
    with pytest.raises(GraspError, match=sentence):
        configure(algo, SPREAD, options)


def test_happo_folds_its_consensus():
    hyper = configure(
        "grasp-happo", SPREAD, {"gram": "crossfit", "folds": 2, "num_envs": 4, "rollout": 10, "hidden": 8}
    ).hyper
    env, _, _, _, _ = world(SPREAD, SMALL)
    algorithm = happo.make(hyper, env.spec)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    arena = jax.jit(partial(rollout.open_arena, env, algorithm, 4))(jax.random.key(1))
    collect = jax.jit(partial(rollout.collect, env, algorithm, num_steps=10))
    _, trajectory, _ = collect(state, arena, jax.random.key(2))
    batch = prepare(hyper, state, trajectory, per_agent=True)
    found = jax.jit(partial(happo.find_consensus, hyper))(state.actor, batch, jax.random.key(3))
    assert found is not None
    folds = agent_gradients(hyper, state.actor, batches.folded(batch, batch.steps.first.shape[1] // 4, 2))
    expected = solve(hyper, state.actor, folds, jax.random.key(3))
    assert_close(found.u, expected.u)
    assert float(found.diagnostics["noise_ratio"]) > 1


def test_the_folds_of_a_replayed_batch_make_up_its_gradient():
    hyper = replace(qmixed.SMALL, operator="min_norm", gram="crossfit", folds=2)
    online, target = qmixed.networks(hyper)
    batch = qmixed.episodes()
    found, stats, folds = jax.jit(partial(qmix.gradients, hyper, look=partial(qmix.inputs_along, hyper)))(
        online, target, batch
    )
    whole, alone = qmixed.gradient(replace(hyper, gram="batch"))(online, target, batch)
    assert_close(found, whole, 1e-5)
    assert float(stats["loss"]) == pytest.approx(float(alone["loss"]), rel=1e-5)
    half = jax.tree.map(lambda x: x[: len(x) // 2], batch)
    first, _ = qmixed.gradient(replace(hyper, gram="batch"))(online, target, half)
    assert_close(jax.tree.map(lambda x: x[0], folds.head), first.agent.head, 1e-5)


def crossfitted(folds, gamma_on="gradient"):
    """The off-policy rule on heads whose folds [K, N, D] these are."""
    agent = Actor({"weight": jnp.float32([0.5, -0.5])}, {"weight": jnp.float32(folds.mean(0))})
    noisy = Actor(agent.backbone, {"weight": jnp.float32(folds)})
    hyper = replace(qmixed.SMALL, operator="min_norm", gram="crossfit", folds=len(folds), gamma_on=gamma_on)
    return grasp.off_policy(hyper, grasp.zeros(agent), agent, jax.random.key(0), noisy)


@pytest.mark.parametrize("gamma_on", ["gradient", "update"])
def test_the_off_policy_rule_has_the_share_of_the_update_that_is_signal(gamma_on):
    """(1 − s) g_i + s Γ_i (g_i + û), with û as long as it was found."""
    rng = np.random.default_rng(3)
    folds = rng.normal(size=(4, 3, 30)) + 0.6 * rng.normal(size=(1, 3, 30))
    u, _, (_, s) = crossfit({"weight": jnp.float32(folds)})
    g, full = folds.mean(0), np.asarray(u["weight"]) / float(s)
    assert 0.1 < s < 0.9
    Gamma = np.clip((full @ full + g @ full) / ((g * g).sum(1) + full @ full), 0, 1)[:, None]
    found = crossfitted(folds, gamma_on)
    np.testing.assert_allclose(found.diagnostics["factors"], Gamma[:, 0], rtol=1e-4)
    if gamma_on == "update":
        np.testing.assert_allclose(found.gradient.head["weight"], g + float(s) * full, atol=1e-5)
        np.testing.assert_allclose(found.factor.head["weight"], 1 - s * (1 - Gamma), rtol=1e-4)
    else:
        np.testing.assert_allclose(found.gradient.head["weight"], (1 - s) * g + s * Gamma * (g + full), atol=1e-5)


def test_without_a_signal_the_off_policy_rule_is_qmix_and_does_not_stand_still():
    rng = np.random.default_rng(0)
    g, apart = rng.normal(size=(3, 8)), 5 * rng.normal(size=(3, 8))
    found = crossfitted(np.stack([g + apart, g - apart]))
    assert found.diagnostics["signal"] == 0
    assert found.diagnostics["frozen_steps"] == 0
    np.testing.assert_allclose(found.gradient.head["weight"], g, atol=1e-6)
    np.testing.assert_array_equal(found.gradient.backbone["weight"], [0.5, -0.5])
