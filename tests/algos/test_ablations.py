"""The ablations of the consensus: controls, other Gram matrices and other trust regions, on real rollouts."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import qmix_cases as qmixed
from mappo_cases import (
    SMALL,
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
from trees import assert_close, distance

from grasp.algos import controls, grasp, happo, losses, ppo, qmix, trust_region
from grasp.algos import minibatches as batches
from grasp.config import configure
from grasp.consensus import combine, consensus, crossfit
from grasp.nn import actor as actors
from grasp.nn.actor import Actor
from grasp.training import rollout
from grasp.types import GraspError

SPREAD = "mpe/simple_spread"
GRASP = replace(SMALL, operator="min_norm")


replaced = jax.jit(controls.replaced, static_argnums=1)


def some(seed=0, num_agents=4):
    rng = np.random.default_rng(seed)
    return {"a": jnp.float32(rng.normal(size=(num_agents, 3, 2))), "b": jnp.float32(rng.normal(size=(num_agents, 5)))}


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def cosine(a, b):
    x, y = flat(a), flat(b)
    return x @ y / (np.linalg.norm(x) * np.linalg.norm(y))


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


def lengths(tree):
    """The norm of every agent's part of leaves [N, ...]."""
    return np.sqrt(sum(np.square(x).reshape(len(x), -1).sum(1) for x in jax.tree.leaves(jax.device_get(tree))))


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


@pytest.mark.parametrize("options", [{"control": "step_size"}, {"control": "update_size"}, {"weight": 0.5}])
def test_the_trust_region_s_own_step_takes_no_option_that_it_would_ignore(options):
    with pytest.raises(GraspError, match="trust trcco .* leave "):
        configure("grasp-mappo", SPREAD, {"trust": "trcco", **options})


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


def test_mappo_may_stop_by_divergence_without_a_consensus():
    assert configure("mappo", SPREAD, {"trust": "kl_stop"}).hyper.trust == "kl_stop"


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
