"""MAPPO and GRASP-MAPPO on real rollouts of small environments: stored values, minibatches, parity, permutation,
one agent."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mappo_cases import MASKED, SMALL, iterate, policy_gradient, prepare, surrogate_gradients, tiles_of, world
from trees import assert_close, distance

from grasp.algos import ablations, losses, mappo, ppo, value_norm
from grasp.algos import minibatches as batches
from grasp.consensus import consensus
from grasp.nn import actor as actors
from grasp.nn import critic as critics
from grasp.nn import gru, layers
from grasp.types import Observation

SHARINGS = ("shared", "hybrid", "separate")


def diagonal(rows, columns, others):
    """All pairs. In the fast tests every row and every column is in one pair at least; `others` says what else there
    is to the rest."""
    steps = max(len(rows), len(columns))
    kept = {(rows[i % len(rows)], columns[i % len(columns)]) for i in range(steps)}
    mark = pytest.mark.full(others)
    return [pytest.param(r, c, marks=() if (r, c) in kept else mark) for c in columns for r in rows]


@pytest.mark.parametrize(
    ("env_name", "sharing"),
    diagonal(("probe/memory", MASKED, "mpe/simple_spread"), SHARINGS, "every way to share in every environment"),
)
def test_the_update_sees_the_log_probabilities_of_the_rollout(env_name, sharing):
    hyper = replace(SMALL, sharing=sharing)
    _, _, state, _, trajectory = world(env_name, hyper)
    steps = prepare(hyper, state, trajectory).steps
    start = prepare(hyper, state, trajectory).start
    memory = actors.features(state.actor.backbone, sharing, start.actor, steps.obs, steps.first)
    log_probs = losses.log_probabilities(actors.logits(state.actor.head, sharing, memory), steps.avail)
    np.testing.assert_allclose(losses.chosen(log_probs, steps.action), steps.log_prob, atol=1e-5)


REFERENCE = replace(SMALL, layout="reference", critic="gru", gain=1.0, agent_id=True, last_action=True)
"""A gain of 1, so that the policy is not uniform and every input shows in it."""


@pytest.mark.parametrize("sharing", ["shared", "separate"])
def test_the_update_of_the_reference_layout_sees_the_rollout_s_inputs_log_probabilities_and_values(sharing):
    """`probe/mask_death`: deaths, and several episodes in a rollout, so that last actions are cleared between them."""
    hyper = replace(REFERENCE, sharing=sharing)
    _, _, state, _, trajectory = world(MASKED, hyper)
    batch = prepare(hyper, state, trajectory)
    steps, start = batch.steps, batch.start
    features = actors.features(state.actor.backbone, sharing, start.actor, steps.obs, steps.first)
    log_probs = losses.log_probabilities(actors.logits(state.actor.head, sharing, features), steps.avail)
    alive = np.asarray(steps.alive, bool)
    assert not alive.all()
    np.testing.assert_allclose(losses.chosen(log_probs, steps.action), steps.log_prob, atol=1e-5)
    values = critics.values(state.critic, start.critic, steps.state, steps.first)
    np.testing.assert_allclose(values, steps.value, atol=1e-5)
    spec_obs, num_actions = trajectory.observation.obs.shape[-1], trajectory.observation.avail.shape[-1]
    by_hand = np.asarray(ppo.inputs_along(hyper, trajectory))
    for t, b, i in np.ndindex(trajectory.action.shape):
        last, agent_id = np.zeros(num_actions), np.zeros(by_hand.shape[-2])
        agent_id[i] = 1
        if t and not trajectory.first[t, b]:
            last[trajectory.action[t - 1, b, i]] = 1
        expected = np.concatenate([trajectory.observation.obs[t, b, i], last, agent_id])
        np.testing.assert_array_equal(by_hand[t, b, i], expected * trajectory.observation.alive[t, b, i])
    assert by_hand[1:, ..., spec_obs : spec_obs + num_actions].any()


@pytest.mark.parametrize("sharing", ["hybrid", "separate"])
def test_initial_parameters_of_the_agents_are_one_draw_or_one_for_each(sharing):
    for init, equal in (("common", True), ("separate", False)):
        actor = world("probe/memory", replace(SMALL, sharing=sharing, init=init))[2].actor
        part = actor.head["weight"] if sharing == "hybrid" else actor.backbone["gru"]["memory"]["weight"]
        assert (np.abs(part[0] - part[1]).max() == 0) == equal


def test_the_gain_scales_the_initial_head():
    small, large = (world("probe/memory", replace(SMALL, gain=gain))[2].actor.head["weight"] for gain in (0.01, 1.0))
    np.testing.assert_allclose(100 * small, large, rtol=1e-5)


def test_without_a_gru_a_policy_and_a_critic_have_no_memory_and_learn():
    hyper = replace(SMALL, layout="reference", actor="mlp", critic="mlp", blocks=1)
    _, _, state, _, trajectory = world("probe/memory", hyper)
    assert trajectory.memory.actor.shape[-1] == trajectory.memory.critic.shape[-1] == 0
    assert "gru" not in state.actor.backbone
    assert state.critic["front"].keys() == {"blocks"}
    after, metrics = iterate("probe/memory", hyper)
    assert distance(after.actor, state.actor) > 0
    assert np.isfinite(metrics["grad_norm"])


def test_the_recurrent_critic_sees_the_values_of_the_rollout():
    hyper = replace(SMALL, critic="gru")
    _, _, state, _, trajectory = world("probe/truncation", hyper)
    batch = prepare(hyper, state, trajectory)
    values = critics.values(state.critic, batch.start.critic, batch.steps.state, batch.steps.first)
    np.testing.assert_allclose(values, batch.steps.value, atol=1e-5)
    # inside an episode the next value is the value of the next step; this is what a truncated step bootstraps with
    next_value, _ = critics.value_step(state.critic, trajectory.memory.critic[1:], trajectory.next_observation.state)
    inside = ~np.asarray(trajectory.first[1:])
    np.testing.assert_allclose(next_value[:-1][inside], trajectory.record.value[1:][inside], atol=1e-5)
    assert (np.abs(next_value[:-1] - trajectory.record.value[1:])[~inside] > 1e-4).any()


def test_the_recurrent_critic_bootstraps_from_its_memory_after_the_step():
    """With lambda 0 a target is the reward and the discounted value of what follows, for which the critic remembers
    the step itself. Step by step, from the start."""
    hyper = replace(SMALL, critic="gru", gae_lambda=0.0, value_norm=False)
    _, _, state, _, trajectory = world("probe/truncation", hyper)
    memory, seen, after = jnp.zeros_like(trajectory.memory.critic[0]), trajectory.observation, []
    for t in range(hyper.rollout):
        memory = jnp.where(trajectory.first[t][:, None], 0.0, memory)
        _, memory = critics.value_step(state.critic, memory, seen.state[t])
        after.append(critics.value_step(state.critic, memory, trajectory.next_observation.state[t])[0])
    following = np.where(trajectory.terminated, 0.0, np.stack(after))
    advantage, target = ppo.estimate(hyper, state, trajectory)
    np.testing.assert_allclose(target, trajectory.reward + hyper.gamma * following, atol=1e-5)
    np.testing.assert_allclose(advantage, target - trajectory.record.value, atol=1e-5)
    assert trajectory.truncated.any()


def test_value_norm_follows_the_targets_and_not_the_values():
    rng = np.random.default_rng(0)
    seen, value = rng.normal(size=(2, 3, 4, 5)).astype(np.float32), rng.normal(size=(2, 3, 4)).astype(np.float32)
    target = jnp.asarray(7 + 3 * value)
    steps = batches.Steps(*[()] * 10)._replace(
        state=jnp.asarray(seen), value=jnp.asarray(value), target=target, first=jnp.zeros((2, 3, 4), bool)
    )
    critic, sgd = critics.critic_init(jax.random.key(0), 5, SMALL.hidden), optax.sgd(0.1)
    state = ppo.State((), critic, (), sgd.init(critic), value_norm.value_norm_init())
    tiles = batches.Batch(steps, ppo.Memory(jnp.zeros((2, 4, 1, 8)), jnp.zeros((2, 4, 0))))
    after, _ = jax.jit(partial(ppo.critic_step, SMALL, sgd))(state, tiles)
    mean, spread = value_norm.moments(after.value_norm)
    assert mean == pytest.approx(float(target.mean()), rel=1e-3)
    assert spread == pytest.approx(float(target.std()), rel=1e-3)


def test_every_epoch_shuffles_all_chunks_anew():
    number = 12
    hyper = replace(SMALL, epochs=3, minibatches=4)
    batch = batches.Batch(batches.Steps(*[()] * 10)._replace(first=jnp.zeros((5, number), bool)), ())
    schedule = ppo.shuffled(hyper, batch, jax.random.key(0))
    assert schedule.shape == (3 * 4, number // 4)
    epochs = [tuple(epoch) for epoch in np.asarray(schedule.reshape(3, number)).tolist()]
    assert all(sorted(epoch) == list(range(number)) for epoch in epochs)
    other = ppo.shuffled(hyper, batch, jax.random.key(1)).reshape(3, number)
    orders = {tuple(range(number)), *epochs, *map(tuple, np.asarray(other).tolist())}
    assert len(orders) == 1 + 3 + 3, "neither in order nor twice in the same order"


def looked(state, obs, alive, greedy, copies=1):
    """The decision of two agents on the same observation in every copy; both have the first two actions of three."""
    avail = jnp.broadcast_to(jnp.array([True, True, False]), (copies, 2, 3))
    seen = Observation(
        jnp.broadcast_to(obs, (copies, *obs.shape)), jnp.zeros((copies, 6)), avail, jnp.broadcast_to(alive, (copies, 2))
    )
    memory = ppo.Memory(jnp.zeros((copies, 2, SMALL.hidden)), jnp.zeros((copies, 0)))
    return ppo.decide(SMALL, state, memory, seen, jax.random.key(3), greedy)


def decided():
    """A state whose policies are far from uniform, and two agents' observations."""
    _, _, state, _, _ = world(MASKED, SMALL)
    noise = jax.random.normal(jax.random.key(1), state.actor.head["weight"].shape)
    head = state.actor.head | {"weight": 3 * noise}
    return state._replace(actor=state.actor._replace(head=head)), jax.random.normal(jax.random.key(2), (2, 4))


def test_greedy_actions_are_the_most_probable_legal_ones_and_others_are_drawn():
    state, obs = decided()
    alive, copies = jnp.array([True, True]), 4000
    best = np.asarray(looked(state, obs, alive, True).preference[0])
    assert (np.asarray(looked(state, obs, alive, True, 5).action) == best.argmax(-1)).all()
    drawn = np.asarray(looked(state, obs, alive, False, copies).action)
    share = np.stack([np.bincount(drawn[:, agent], minlength=3) for agent in range(2)]) / copies
    np.testing.assert_allclose(share, best, atol=4 * np.sqrt(0.25 / copies))
    assert (share[:, :2] > 0.02).all()
    assert (share[:, 2] == 0).all()


def test_a_dead_agent_with_several_legal_actions_acts_on_zeros():
    state, obs = decided()
    alive = jnp.array([True, False])
    found, blind = (looked(state, seen, alive, False) for seen in (obs, obs.at[1].set(0.0)))
    assert_close(found._replace(memory=found.memory.actor), blind._replace(memory=blind.memory.actor))
    living = looked(state, obs, jnp.array([True, True]), False)
    assert distance(found.memory.actor, living.memory.actor) > 1e-2


@pytest.mark.parametrize("part", ["surrogate", "entropy"])
def test_the_steps_of_a_dead_agent_with_several_legal_actions_do_not_count(part):
    rng = np.random.default_rng(0)
    shape = (3, 4, 2)
    logits = rng.normal(size=(*shape, 3)).astype(np.float32)
    advantage, log_prob = rng.normal(size=(2, *shape)).astype(np.float32)
    alive = (rng.random(shape) < 0.6).astype(np.float32)
    steps = batches.Steps(*[()] * 10)._replace(
        avail=jnp.ones((*shape, 3), bool),
        alive=jnp.asarray(alive),
        action=jnp.asarray(rng.integers(3, size=shape)),
        advantage=jnp.asarray(advantage),
        log_prob=jnp.asarray(log_prob),
    )
    weight = ppo.step_weights(SMALL, steps.alive)

    def total(logits):
        if part == "entropy":
            return ppo.entropy_sum(logits, steps, weight)[0]
        return ppo.surrogate_sum(logits, steps, weight, 1e9)[0]

    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    taken = np.take_along_axis(log_probs, np.asarray(steps.action)[..., None], -1)[..., 0]
    gain = np.exp(taken - log_prob) * advantage if part == "surrogate" else -(np.exp(log_probs) * log_probs).sum(-1)
    expected = sum(gain[..., agent][alive[..., agent] > 0].mean() for agent in range(2))
    assert float(total(jnp.asarray(logits))) == pytest.approx(expected, rel=1e-5)
    slope = np.abs(jax.grad(total)(jnp.asarray(logits))).max(-1)
    assert ((slope > 0) == (alive > 0)).all()


def test_garbage_in_a_dead_agent_s_entries_changes_nothing():
    hyper = replace(SMALL, operator="min_norm")
    _, algorithm, state, _, trajectory = world(MASKED, hyper)
    dead = ~trajectory.observation.alive
    assert dead.any()
    seen = trajectory.observation
    spoiled = trajectory._replace(
        observation=seen._replace(obs=jnp.where(dead[..., None], 1e3, seen.obs)),
        action=jnp.where(dead, 0, trajectory.action),
        record=trajectory.record._replace(log_prob=jnp.where(dead, -7.0, trajectory.record.log_prob)),
    )
    update = jax.jit(algorithm.update)
    key = jax.random.key(1)
    assert_close(update(state, trajectory, key)[0], update(state, spoiled, key)[0])


@pytest.mark.parametrize(
    "sharing", ["hybrid", *(pytest.param(s, marks=pytest.mark.full("every sharing")) for s in ("shared", "separate"))]
)
def test_grasp_with_weight_0_is_mappo(sharing):
    plain, _ = iterate("mpe/simple_spread", replace(SMALL, sharing=sharing))
    grasp, metrics = iterate("mpe/simple_spread", replace(SMALL, sharing=sharing, operator="min_norm", weight=0.0))
    assert_close(plain, grasp, 1e-6)
    assert metrics["u_norm"] > 0


@pytest.mark.parametrize(
    "scope", ["heads", *(pytest.param(s, marks=pytest.mark.full("every scope")) for s in ("backbone", "both"))]
)
def test_grasp_with_weight_1_is_not_mappo(scope):
    plain, _ = iterate("mpe/simple_spread", SMALL)
    grasp, _ = iterate("mpe/simple_spread", replace(SMALL, operator="min_norm", scope=scope))
    moved = {name: distance(getattr(plain.actor, name), getattr(grasp.actor, name)) for name in ("backbone", "head")}
    assert max(moved.values()) > 1e-4


def test_tiles_do_not_change_the_result(monkeypatch):
    whole, _ = iterate("mpe/simple_spread", replace(SMALL, operator="min_norm"))
    monkeypatch.setattr(batches, "TILE_ROWS", 9)
    tiled, _ = iterate("mpe/simple_spread", replace(SMALL, operator="min_norm"))
    assert_close(whole, tiled, 1e-5)


@partial(jax.jit, static_argnums=0)
def reference_gradients(hyper, state, trajectory):
    """g_i by plain autodiff of the policy gradient A · log π, agent by agent, over whole sequences of chunks."""
    batch = prepare(hyper, state, trajectory)
    steps = batch.steps

    def objective(head, agent):
        memory = actors.features(state.actor.backbone, hyper.sharing, batch.start.actor, steps.obs, steps.first)
        log_probs = losses.log_probabilities(actors.logits(head, hyper.sharing, memory), steps.avail)
        weighted = losses.chosen(log_probs, steps.action) * steps.advantage * steps.alive
        return weighted[..., agent].sum() / steps.alive[..., agent].sum()

    rows = [
        jax.tree.map(lambda g, i=i: g[i], jax.grad(objective)(state.actor.head, i))
        for i in range(steps.alive.shape[-1])
    ]
    return jax.tree.map(lambda *g: jnp.stack(g), *rows)


@pytest.mark.parametrize("env_name", [MASKED, "mpe/simple_spread"])
def test_at_theta_old_the_surrogates_head_gradient_is_the_policy_gradient(env_name):
    hyper = replace(SMALL, operator="min_norm")
    _, _, state, _, trajectory = world(env_name, hyper)
    tiles = tiles_of(hyper, state, trajectory)
    found = surrogate_gradients(hyper, state.actor, ("head",), tiles)["head"]
    assert_close(found, reference_gradients(hyper, state, trajectory), 1e-6)


@pytest.mark.parametrize("sharing", ["shared", "hybrid"])
def test_per_agent_gradients_average_to_the_shared_gradient(sharing):
    hyper = replace(SMALL, sharing=sharing, entropy=0.0)
    _, _, state, _, trajectory = world(MASKED, hyper)
    tiles = tiles_of(hyper, state, trajectory)
    mean = policy_gradient(hyper, state.actor, tiles)[0].backbone
    each = surrogate_gradients(hyper, state.actor, ("backbone",), tiles)["backbone"]
    assert_close(mean, jax.tree.map(lambda g: g.mean(0), each), 1e-6)
    assert distance(mean, jax.tree.map(lambda g: g[0], each)) > 1e-5


def test_the_common_denominator_is_the_pooled_mean():
    hyper = replace(SMALL, sharing="shared", denominator="common", entropy=0.0)
    _, _, state, _, trajectory = world(MASKED, hyper)
    tiles = tiles_of(hyper, state, trajectory)
    found, _ = policy_gradient(hyper, state.actor, tiles)
    batch = prepare(hyper, state, trajectory)
    steps = batch.steps

    def pooled(actor):
        memory = actors.features(actor.backbone, "shared", batch.start.actor, steps.obs, steps.first)
        log_probs = losses.log_probabilities(actors.logits(actor.head, "shared", memory), steps.avail)
        weighted = losses.chosen(log_probs, steps.action) * steps.advantage * steps.alive
        return weighted.sum() / steps.alive.sum()

    assert_close(found, jax.jit(jax.grad(pooled))(state.actor), 1e-6)


@cache
def one_step(hyper, env_name="mpe/simple_spread"):
    """The state before and after one update of a single epoch with plain SGD, and what the consensus should be."""
    _, _, state, _, trajectory = world(env_name, hyper)
    sgd = ppo.Optimisers(optax.sgd(1.0), optax.sgd(1.0))
    state = state._replace(actor_opt=sgd.actor.init(state.actor), critic_opt=sgd.critic.init(state.critic))
    after, metrics = jax.jit(partial(mappo.learn, hyper, sgd))(state, trajectory, jax.random.key(0))
    return state, after, metrics, trajectory


@pytest.mark.parametrize("minibatches", [1, pytest.param(2, marks=pytest.mark.full("two minibatches"))])
def test_the_head_moves_by_g_i_plus_beta_u(minibatches):
    """Alg. 1 l. 25 as displayed: at θ_old, Δθ_i = η (∇J_i + β u*), u* of the whole batch."""
    hyper = replace(SMALL, operator="min_norm", epochs=1, minibatches=minibatches, weight=0.5)
    before, after, metrics, trajectory = one_step(hyper)
    _, plain, _, _ = one_step(replace(hyper, weight=0.0))
    u, info = consensus(reference_gradients(hyper, before, trajectory))
    if minibatches == 1:
        extra = jax.tree.map(lambda a, b: a - b, after.actor.head, plain.actor.head)
        expected = jax.tree.map(lambda d: jnp.broadcast_to(0.5 * d, (3, *d.shape)), u)
        assert_close(extra, expected, 1e-6)
        assert_close(after.actor.backbone, plain.actor.backbone)
    np.testing.assert_allclose(metrics["weights"], info.weights, atol=1e-4)
    assert metrics["u_norm"] == pytest.approx(float(optax.tree.norm(u)), rel=1e-4)


@pytest.mark.parametrize("sharing", ["shared", pytest.param("separate", marks=pytest.mark.full("every sharing"))])
def test_without_heads_of_their_own_the_consensus_covers_the_whole_actor(sharing):
    hyper = replace(SMALL, operator="min_norm", epochs=1, sharing=sharing)
    before, after, _, trajectory = one_step(hyper)
    _, plain, _, _ = one_step(replace(hyper, weight=0.0))
    tiles = tiles_of(hyper, before, trajectory)
    u, _ = consensus(surrogate_gradients(hyper, before.actor, ("backbone", "head"), tiles))
    extra = jax.tree.map(lambda a, b: a - b, after.actor, plain.actor)
    spread = jax.tree.map(lambda e, d: e - (d[None] if sharing == "separate" else d), extra._asdict(), u)
    assert_close(spread, jax.tree.map(jnp.zeros_like, spread), 1e-6)
    assert optax.tree.norm(u["backbone"]) > 0


def test_the_mean_operator_on_a_shared_backbone_doubles_the_plain_gradient():
    """The mean of the agents' gradients in the backbone is the plain surrogate gradient itself."""
    hyper = replace(SMALL, operator="mean", scope="backbone", epochs=1, entropy=0.0)
    before, after, _, _ = one_step(hyper)
    _, plain, _, _ = one_step(replace(hyper, weight=0.0))
    step = jax.tree.map(lambda a, b: a - b, plain.actor.backbone, before.actor.backbone)
    double = jax.tree.map(lambda a, b: a - b, after.actor.backbone, before.actor.backbone)
    assert_close(double, jax.tree.map(lambda g: 2 * g, step), 1e-6)


@pytest.mark.parametrize(("refresh", "applied"), [("iteration", 3), ("first", 1)])
def test_a_held_consensus_is_added_at_every_step_or_at_the_first_only(refresh, applied):
    """With steps so small that nothing else changes, the head gains exactly β u* for every step that adds it."""
    hyper = replace(SMALL, operator="min_norm", epochs=3, refresh=refresh)
    _, _, state, _, trajectory = world("mpe/simple_spread", hyper)
    tiny = ppo.Optimisers(optax.sgd(1e-4), optax.sgd(1e-4))
    state = state._replace(actor_opt=tiny.actor.init(state.actor), critic_opt=tiny.critic.init(state.critic))
    after, plain = (
        jax.jit(partial(mappo.variant(hyper), replace(hyper, weight=weight), tiny))(
            state, trajectory, jax.random.key(0)
        )[0].actor.head
        for weight in (1.0, 0.0)
    )
    u, _ = consensus(reference_gradients(hyper, state, trajectory))
    extra = jax.tree.map(lambda a, b: (a - b) / 1e-4, after, plain)
    expected = jax.tree.map(lambda d: jnp.broadcast_to(applied * d, (3, *d.shape)), u)
    assert_close(extra, expected, 2e-2 * float(optax.tree.norm(u)))


@pytest.mark.parametrize(
    ("refresh", "minibatches", "due"),
    [
        ("iteration", 2, []), ("first", 2, []), ("epoch", 2, [2, 4]), ("minibatch", 2, [1, 2, 3, 4, 5]),
        ("epoch", 1, [1, 2]),
    ],
)  # fmt: skip
def test_the_consensus_is_computed_anew_when_refresh_says(refresh, minibatches, due):
    hyper = replace(SMALL, refresh=refresh, minibatches=minibatches, epochs=3)
    steps = range(hyper.epochs * minibatches)
    assert [i for i in steps if ablations.is_due(hyper, jnp.array(i))] == due


@pytest.mark.parametrize("refresh", [pytest.param("epoch", marks=pytest.mark.full("every refresh")), "minibatch"])
def test_a_consensus_computed_anew_is_another(refresh):
    hyper = replace(SMALL, operator="min_norm", minibatches=3)
    held, _ = iterate("mpe/simple_spread", hyper, iterations=1)
    found, _ = iterate("mpe/simple_spread", replace(hyper, refresh=refresh), iterations=1)
    assert distance(held, found) > 0


def test_without_value_norm_the_critic_learns_raw_returns():
    hyper = replace(SMALL, value_norm=False)
    state, metrics = iterate("mpe/simple_spread", hyper)
    assert_close(state.value_norm, value_norm.value_norm_init())
    assert metrics["value_loss"] > 10  # returns of simple_spread are tens, and no unit shrinks them


@pytest.mark.parametrize(
    ("sharing", "operator"), diagonal(SHARINGS, ("none", "min_norm"), "every way to share with and without a consensus")
)
def test_permuting_agents_permutes_the_result(sharing, operator):
    hyper = replace(SMALL, sharing=sharing, operator=operator)
    _, algorithm, state, _, trajectory = world("mpe/simple_spread", hyper)
    order = jnp.array([2, 0, 1])
    seen, record, memory = trajectory.observation, trajectory.record, trajectory.memory
    swapped = trajectory._replace(
        observation=seen._replace(
            obs=seen.obs[:, :, order], avail=seen.avail[:, :, order], alive=seen.alive[:, :, order]
        ),
        memory=memory._replace(actor=memory.actor[:, :, order]),
        action=trajectory.action[:, :, order],
        record=record._replace(log_prob=record.log_prob[:, :, order]),
    )
    update = jax.jit(algorithm.update)
    one, other = (update(state, t, jax.random.key(3))[0].actor for t in (trajectory, swapped))
    own = actors.owned(sharing)
    for part, is_own in zip(actors.Actor._fields, own, strict=True):
        expected = jax.tree.map(lambda x, o=is_own: x[order] if o else x, getattr(one, part))
        assert_close(expected, getattr(other, part), 1e-5)
    if own.head:
        assert distance(one.head, other.head) > 1e-4


def ppo_oracle(hyper, state, trajectory):
    """One iteration of single-agent recurrent PPO, written out: step by step, autodiff, no tiles, no agent axis."""
    seen, record = trajectory.observation, trajectory.record
    spread = 0.1  # of ValueNorm before its first update
    value = spread * np.asarray(record.value)
    following = spread * np.asarray(layers.mlp(state.critic, trajectory.next_observation.state)[..., 0])
    advantage, carried = np.zeros_like(value), 0.0
    for t in reversed(range(hyper.rollout)):
        delta = trajectory.reward[t] + hyper.gamma * following[t] * ~trajectory.terminated[t] - value[t]
        ends = trajectory.terminated[t] | trajectory.truncated[t]
        advantage[t] = carried = np.asarray(delta + hyper.gamma * hyper.gae_lambda * carried * ~ends)
    target = jnp.asarray(advantage + value)
    advantage = jnp.asarray((advantage - advantage.mean()) / (advantage.std() + 1e-5))

    def policy_loss(actor):
        total = 0.0
        for t in range(hyper.rollout):
            if t % hyper.chunk == 0:
                memory = trajectory.memory.actor[t, :, 0]
            memory = jnp.where(trajectory.first[t][:, None], 0.0, memory)
            encoded = layers.dense(actor.backbone["encoder"], seen.obs[t, :, 0])
            memory = gru.gru_step(actor.backbone["gru"], memory, encoded)
            log_probs = jax.nn.log_softmax(layers.dense(actor.head, jax.nn.relu(memory)))
            ratio = jnp.exp(
                log_probs[jnp.arange(hyper.num_envs), trajectory.action[t, :, 0]] - record.log_prob[t, :, 0]
            )
            gain = jnp.minimum(ratio * advantage[t], jnp.clip(ratio, 0.8, 1.2) * advantage[t])
            total += (gain - hyper.entropy * (jnp.exp(log_probs) * log_probs).sum(-1)).sum()
        return -total / advantage.size

    def value_loss(critic, goal):
        value = layers.mlp(critic, seen.state)[..., 0]
        near = record.value + jnp.clip(value - record.value, -0.2, 0.2)
        huber = lambda e: jnp.where(jnp.abs(e) <= 10, 0.5 * e**2, 10 * (jnp.abs(e) - 5))  # noqa: E731
        return jnp.maximum(huber(value - goal), huber(near - goal)).mean()

    @jax.jit
    def step(params, opt_state):
        mean, deviation = target.mean(), jnp.sqrt(jnp.maximum(target.var(), 1e-2))  # all updates see the same batch
        goal = (target - mean) / deviation
        gradient = {
            "actor": jax.grad(policy_loss)(params["actor"]),
            "critic": jax.grad(value_loss)(params["critic"], goal),
        }
        moves = {}
        for name in params:
            moves[name], opt_state[name] = optimiser.update(gradient[name], opt_state[name], params[name])
        return optax.apply_updates(params, moves), opt_state

    optimiser = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(hyper.lr, eps=1e-5))
    params = {"actor": state.actor, "critic": state.critic}
    opt_state = {name: optimiser.init(part) for name, part in params.items()}
    for _ in range(hyper.epochs):
        params, opt_state = step(params, opt_state)
    return params


def test_mappo_is_ppo():
    hyper = replace(SMALL, sharing="shared", critic_lr=SMALL.lr)
    env, algorithm, state, _, trajectory = world("mpe/simple", hyper)
    assert env.spec.num_agents == 1
    expected = ppo_oracle(hyper, state, trajectory)
    after, _ = jax.jit(algorithm.update)(state, trajectory, jax.random.key(0))
    assert_close(after.actor, expected["actor"], 1e-5)
    assert_close(after.critic, expected["critic"], 1e-5)
    assert distance(after.actor, state.actor) > 1e-3


@pytest.mark.full("three ways to share parameters")
def test_all_ways_to_share_are_one_and_u_is_the_gradient_itself():
    results = [iterate("mpe/simple", replace(SMALL, sharing=s)) for s in ("shared", "hybrid", "separate")]
    for state, _ in results[1:]:
        assert_close(jax.tree.map(jnp.squeeze, results[0][0].actor), jax.tree.map(jnp.squeeze, state.actor), 1e-6)
    hyper = replace(SMALL, operator="min_norm", epochs=1)
    before, _, metrics, trajectory = one_step(hyper, "mpe/simple")
    np.testing.assert_allclose(metrics["weights"], [1.0])
    g = reference_gradients(hyper, before, trajectory)
    assert metrics["u_norm"] == pytest.approx(float(optax.tree.norm(g)), rel=1e-4)


def test_a_gradient_that_is_not_finite_changes_no_parameter_and_is_counted():
    hyper = replace(SMALL, operator="min_norm")
    _, algorithm, state, _, trajectory = world("mpe/simple_spread", hyper)
    poisoned = trajectory._replace(reward=trajectory.reward.at[3, 2].set(jnp.nan))
    after, metrics = jax.jit(algorithm.update)(state, poisoned, jax.random.key(0))
    assert_close(state.actor, after.actor)
    assert_close(state.actor_opt, after.actor_opt)
    assert_close(state.critic, after.critic)
    assert metrics["skipped_steps"] == hyper.epochs
    assert_close(state.value_norm, after.value_norm)
    healthy, metrics = jax.jit(algorithm.update)(after, trajectory, jax.random.key(0))
    assert metrics["skipped_steps"] == 0
    assert np.isfinite(optax.tree.norm(healthy.actor))
