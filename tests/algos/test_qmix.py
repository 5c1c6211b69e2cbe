"""QMIX, VDN and GRASP-QMIX against numpy in loops: one agent, one episode and one step at a time."""

from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from qmix_cases import (
    ADAM,
    OWNED,
    SGD,
    SMALL,
    SPEC,
    acting,
    agent_values,
    apart,
    case,
    changed,
    difference,
    fetched,
    garbage,
    goals,
    gradient,
    holding,
    improve,
    in_loops,
    loss,
    networks,
    noised,
    norm,
    off_policy,
    one_step,
    slope,
    state_of,
    summed,
    team_values,
    uncut,
)
from trees import assert_close, distance

from grasp.algos import qmix, replay_buffer
from grasp.algos.replay_buffer import Episodes
from grasp.envs import base as envs
from grasp.nn import actor as actors
from grasp.nn.actor import Actor
from grasp.training import rollout
from grasp.types import EnvSpec, Observation, Trajectory


@pytest.mark.parametrize(
    ("sharing", "mixer"), [("shared", "monotone"), ("hybrid", "monotone"), ("separate", "monotone"), ("hybrid", "sum")]
)
def test_the_loss_and_every_agent_s_path_gradient_are_those_of_the_loops(sharing, mixer):
    given = case(sharing, mixer)
    online, target = in_loops(given.online, sharing), in_loops(given.target, sharing)
    each = apart(given.batch)
    goal = [goals(given.hyper, online, target, ep) for ep in each]
    team = np.concatenate([team_values(online, ep) for ep in each])
    flat = np.concatenate(goal)
    assert given.metrics["loss"] == pytest.approx(0.5 * np.mean((team - flat) ** 2), rel=1e-5)
    assert given.metrics["td_error"] == pytest.approx(np.mean(np.abs(team - flat)), rel=1e-5)
    assert given.metrics["q_team"] == pytest.approx(np.mean(team), abs=1e-5)
    assert given.metrics["target"] == pytest.approx(np.mean(flat), abs=1e-5)

    uphill = ([[jax.tree.map(lambda x, i=i: x[i], part) for part in given.paths] for i in range(3)], given.mixer)
    rng = np.random.default_rng(0)
    size = norm(uphill)
    assert size > 0.5
    for path, found in jax.tree_util.tree_leaves_with_path(uphill):
        direction = rng.normal(size=found.shape)
        expected = -slope(lambda params: loss(params, each, goal), online, path, direction)
        assert np.vdot(found, direction) == pytest.approx(expected, rel=1e-4, abs=1e-5 * size), path


@pytest.mark.parametrize(("trace", "gamma", "scale"), [(0.0, 1.0, 1.0), (1.0, 0.9, 1.0), (0.6, 0.9, 10.0)])
@pytest.mark.parametrize("time_limit", ["terminal", "bootstrap"])
def test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit(trace, gamma, scale, time_limit):
    given = case("hybrid")
    options = {"td_lambda": trace, "gamma": gamma, "reward_scale": scale, "time_limit": time_limit}
    hyper = replace(given.hyper, **options, operator="none")
    online, target = in_loops(given.online, "hybrid"), in_loops(given.target, "hybrid")
    each = apart(given.batch)
    expected = loss(online, each, [goals(hyper, online, target, ep) for ep in each])
    objective = fetched(partial(qmix.objective, hyper, Actor("hybrid", "hybrid")))
    fed = qmix.inputs_along(SMALL, replay_buffer.time_first(given.batch))
    negated, _ = objective(given.online, given.target, given.batch, fed, given.batch.length.sum())
    assert -negated == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("env_steps", "left"), [(0, 1.0), (250, 0.75), (1000, 0.0), (4000, 0.0)])
@pytest.mark.parametrize("gamma_on", ["gradient", "update"])
def test_with_decay_the_step_size_anneals_linearly_to_zero_over_that_many_environment_steps(gamma_on, env_steps, left):
    given = case("hybrid")
    hyper = replace(given.hyper, gamma_on=gamma_on, scope="heads")
    whole, _ = one_step(hyper, ADAM, *given[:3])
    state = state_of(given.online, given.target, ADAM)._replace(env_steps=jnp.array(env_steps))
    after, _ = improve(replace(hyper, decay=1000), ADAM)(state, holding(given.batch), jax.random.key(0))
    moved = difference(qmix.Networks(after.agent, after.mixer), given.online)
    assert norm(whole) > 1e-3
    assert_close(moved, jax.tree.map(lambda x: left * x, whole), 1e-6)


@pytest.mark.parametrize("sharing", ["shared", "hybrid"])
def test_the_agents_path_gradients_sum_to_the_ordinary_gradient(sharing):
    given = case(sharing)
    plain, metrics = gradient(replace(given.hyper, operator="none", scope="heads"))(*given[:3])
    assert_close(summed(sharing, given.paths), plain.agent, 1e-5)
    assert_close(given.mixer, plain.mixer, 1e-5)
    assert_close(metrics, given.metrics, 1e-5)
    for part in given.paths:
        for leaf in jax.tree.leaves(part):
            assert np.abs(leaf[0] - leaf[1]).max() > 1e-3


def test_tiles_do_not_change_the_gradient(monkeypatch):
    given = case("hybrid")
    monkeypatch.setattr(qmix, "TILE_ROWS", 2 * SPEC.num_agents)
    tiled, metrics = fetched(partial(qmix.td_gradient, given.hyper, look=partial(qmix.inputs_along, given.hyper)))(
        *given[:3]
    )
    assert_close(given.paths, tiled.agent, 1e-5)
    assert_close(given.mixer, tiled.mixer, 1e-5)
    assert_close(given.metrics, metrics, 1e-5)


@pytest.mark.parametrize("longest", range(1, SPEC.horizon + 1))
def test_a_batch_of_short_episodes_cut_to_its_length_has_the_loops_loss_and_gradient(longest):
    given = case("hybrid")
    batch = given.batch._replace(length=np.minimum(given.batch.length, longest).astype(np.int32))
    found, metrics = gradient(given.hyper)(given.online, given.target, batch)
    online, target, each = in_loops(given.online, "hybrid"), in_loops(given.target, "hybrid"), apart(batch)
    goal = [goals(given.hyper, online, target, ep) for ep in each]
    assert metrics["loss"] == pytest.approx(loss(online, each, goal), rel=1e-5)
    weight = found.agent.backbone["encoder"]["weight"][1]
    direction = np.random.default_rng(longest).normal(size=weight.shape)
    keys = jax.tree_util
    path = (*map(keys.SequenceKey, (0, 1, 0)), *map(keys.DictKey, ("encoder", "weight")))
    expected = -slope(lambda params: loss(params, each, goal), online, path, direction)
    assert np.vdot(weight, direction) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("operator", ["none", "min_norm"])
def test_what_stands_in_the_padding_of_an_episode_changes_nothing_at_all(operator):
    given = case("hybrid")
    hyper = given.hyper if operator == "min_norm" else replace(given.hyper, operator="none", scope="heads")
    found = gradient(hyper)(*given[:3])
    for value in (0.0, -7.0, 1e4):
        assert_close(found, gradient(hyper)(given.online, given.target, garbage(given.batch, value)))


def test_the_terminal_transition_has_its_share():
    """Episode 0 is one terminal step: one more reward there changes the gradient by that of its Q_tot."""
    given = case("hybrid")
    assert bool(given.batch.terminated[0])
    assert int(given.batch.length[0]) == 1
    richer = given.batch._replace(reward=changed(given.batch.reward, (0, 0), given.batch.reward[0, 0] + 1))
    after, _ = gradient(given.hyper)(given.online, given.target, richer)
    total = int(given.batch.length.sum())
    online, episode = in_loops(given.online, "hybrid"), apart(given.batch)[0]
    rng = np.random.default_rng(0)
    for agent in range(SPEC.num_agents):
        change = jax.tree.map(lambda x, y, i=agent: total * (x - y)[i], after.agent.head, given.paths.head)
        for name, leaf in change.items():
            direction = rng.normal(size=leaf.shape)
            path = tuple(map(jax.tree_util.SequenceKey, (0, agent, 1))) + (jax.tree_util.DictKey(name),)
            expected = slope(lambda params: team_values(params, episode)[0], online, path, direction)
            assert np.vdot(leaf, direction) == pytest.approx(expected, rel=1e-3, abs=1e-4)
            assert abs(expected) > 1e-3


def test_what_followed_the_last_step_counts_where_an_episode_was_truncated_and_not_where_it_terminated():
    given = case("hybrid")
    for e in range(SMALL.batch):
        last = int(given.batch.length[e])
        other = given.batch._replace(
            obs=changed(given.batch.obs, (e, last), given.batch.obs[e, last] + 1),
            state=changed(given.batch.state, (e, last), given.batch.state[e, last] + 1),
            avail=changed(given.batch.avail, (e, last), True),
        )
        found, _ = gradient(given.hyper)(given.online, given.target, other)
        if given.batch.terminated[e]:
            assert_close(found.agent, given.paths)
        else:
            assert distance(found.agent, given.paths) > 0


def test_the_online_network_s_order_of_actions_reaches_the_targets_and_nothing_else_of_it():
    given = case("hybrid", "sum")

    def with_head(factor):
        head = jax.tree.map(lambda x: factor * x, given.online.agent.head)
        return gradient(given.hyper)(
            given.online._replace(agent=given.online.agent._replace(head=head)), given.target, given.batch
        )[1]

    assert with_head(2.0)["target"] == given.metrics["target"]
    assert with_head(2.0)["q_team"] != given.metrics["q_team"]
    assert with_head(-1.0)["target"] != given.metrics["target"]


def test_plain_qmix_takes_a_step_of_clipped_adam_along_the_gradient():
    given = case("hybrid")
    plain = qmix.Networks(summed("hybrid", given.paths), given.mixer)
    hyper = replace(given.hyper, operator="none", scope="heads")
    moved, metrics = one_step(hyper, ADAM, *given[:3])
    assert_close(moved, adam_by_hand(plain), 1e-6)
    assert metrics["grad_norm"] == pytest.approx(norm(plain), rel=1e-5)
    assert metrics["grad_norm"] > SMALL.max_grad_norm
    assert metrics["loss"] == pytest.approx(float(given.metrics["loss"]), rel=1e-5)
    assert metrics["skipped_steps"] == 0


def adam_by_hand(tree):
    """The first update of clipped Adam: its moments are the gradient and its square."""
    size = norm(tree)
    clipped = jax.tree.map(lambda g: g * min(1.0, SMALL.max_grad_norm / size), tree)
    return jax.tree.map(lambda g: SMALL.lr * g / (np.abs(g) + SMALL.adam_eps), clipped)


# GRASP-QMIX

GROUPS = {
    ("hybrid", "heads"): (("head",),),
    ("hybrid", "backbone"): (("backbone",),),
    ("hybrid", "both"): (("head",), ("backbone",)),
    ("shared", "heads"): (("backbone", "head"),),
    ("separate", "heads"): (("backbone", "head"),),
}


def rows(group):
    """Every agent's gradient as one long vector."""
    leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(group)]
    return np.concatenate([x.reshape(len(x), -1) for x in leaves], 1)


def shortest(G):
    """Weights of the hull's shortest vector, by trying every set of corners."""
    found = []
    for size in range(1, len(G) + 1):
        for corners in map(list, combinations(range(len(G)), size)):
            y = np.linalg.solve(G[np.ix_(corners, corners)], np.ones(size))
            if (y >= 0).all():
                w = np.zeros(len(G))
                w[corners] = y / y.sum()
                found.append(w)
    return min(found, key=lambda w: w @ G @ w)


def factors_of(g, u):
    return (u @ u + g @ u) / ((g * g).sum(1) + u @ u)


def scaled(values, tree):
    return jax.tree.map(lambda x: np.stack([v * row for v, row in zip(values, x, strict=True)]), tree)


class ByHand(NamedTuple):
    direction: Actor
    """g_i + u* in scope, g_i outside."""
    factors: dict[str, np.ndarray]
    """Γ of the parts in scope."""


def by_hand(sharing, scope, paths):
    direction, factors = paths._asdict(), {}
    for group in GROUPS[sharing, scope]:
        chosen = {name: getattr(paths, name) for name in group}
        g = rows(chosen)
        w = shortest(g @ g.T)
        factors |= dict.fromkeys(group, factors_of(g, w @ g))
        mixed = jax.tree.map(lambda x, w=w: np.tensordot(w, x, 1), chosen)
        direction |= jax.tree.map(lambda x, d: np.stack([row + d for row in x]), chosen, mixed)
    return ByHand(Actor(**direction), factors)


def by_gamma(found):
    """Γ_i (g_i + u*)."""
    parts = found.direction._asdict()
    return Actor(**parts | {name: scaled(values, parts[name]) for name, values in found.factors.items()})


def out_of_scope_summed(sharing, scope, paths):
    """What `td_gradient` gives: agents' own in scope, in the parameters' shapes outside."""
    inside = [name for group in GROUPS[sharing, scope] for name in group]
    plain = summed(sharing, paths)._asdict()
    return Actor(**{name: part if name in inside else plain[name] for name, part in paths._asdict().items()})


@pytest.mark.parametrize(("sharing", "scope"), GROUPS)
def test_the_rule_is_gamma_times_g_plus_u_and_the_sum_where_parameters_are_shared(sharing, scope):
    given = case(sharing)
    hyper = replace(given.hyper, scope=scope)
    expected = by_hand(sharing, scope, given.paths)
    found = off_policy(hyper)(given.online.agent, out_of_scope_summed(sharing, scope, given.paths), jax.random.key(0))
    assert_close(found.gradient, summed(sharing, by_gamma(expected)), 1e-5)
    assert found.factor is None
    factors = expected.factors[GROUPS[sharing, scope][0][0]]
    np.testing.assert_allclose(found.diagnostics["factors"], factors, atol=1e-5)
    counts = ("clipped_factors", "frozen_steps", "uncertified_steps")
    assert [float(found.diagnostics[name]) for name in counts] == [0, 0, 0]
    assert (factors > 1e-3).all()
    assert np.ptp(factors) > 1e-3
    assert distance(found.gradient, summed(sharing, given.paths)) > 1e-2


@pytest.mark.parametrize(("sharing", "scope"), [("hybrid", "heads"), ("separate", "heads")])
def test_grasp_moves_by_the_rule_and_the_mixer_by_its_own_gradient(sharing, scope):
    given = case(sharing)
    moved, metrics = one_step(replace(given.hyper, scope=scope), SGD, *given[:3])
    expected = qmix.Networks(summed(sharing, by_gamma(by_hand(sharing, scope, given.paths))), given.mixer)
    assert_close(moved, expected, 1e-5)
    assert metrics["grad_norm"] == pytest.approx(norm(expected), rel=1e-5)


def test_gamma_on_update_multiplies_what_the_optimiser_makes():
    given = case("hybrid")
    expected = by_hand("hybrid", "both", given.paths)
    update = adam_by_hand(qmix.Networks(summed("hybrid", expected.direction), given.mixer))
    mean = float(expected.factors["backbone"].mean())
    agent = Actor(
        backbone=jax.tree.map(lambda x: mean * x, update.agent.backbone),
        head=scaled(expected.factors["head"], update.agent.head),
    )
    moved, metrics = one_step(replace(given.hyper, gamma_on="update"), ADAM, *given[:3])
    assert_close(moved, qmix.Networks(agent, update.mixer), 1e-6)
    np.testing.assert_allclose(metrics["factors"], expected.factors["head"], atol=1e-5)
    assert abs(mean - 1) > 0.1


def test_gamma_on_update_gives_parameters_that_all_share_the_mean_factor():
    given = case("shared")
    expected = by_hand("shared", "heads", given.paths)
    found = off_policy(replace(given.hyper, gamma_on="update"))(given.online.agent, given.paths, jax.random.key(0))
    assert_close(found.gradient, summed("shared", expected.direction), 1e-5)
    for factor in jax.tree.leaves(found.factor):
        assert factor == pytest.approx(expected.factors["head"].mean(), abs=1e-5)


def test_no_agent_is_moved_against_its_own_gradient_or_the_consensus():
    given = case("separate")
    for seed in range(8):
        each = noised(given.paths, seed, scale=0.1 * 2.0**seed)
        v = rows(off_policy(replace(given.hyper, scope="heads"))(given.online.agent, each, jax.random.key(0)).gradient)
        g = rows(each)
        u = shortest(g @ g.T) @ g
        size = np.linalg.norm(v, axis=1)
        assert ((g * v).sum(1) >= -1e-6 * size * np.linalg.norm(g, axis=1)).all()
        assert (v @ u >= -1e-6 * size * np.linalg.norm(u)).all()
        assert (size > 0).all()


def realigned(g, operator, gamma_on="gradient", control="none", seed=0):
    """The rule on heads with these gradients, beside a backbone that is not in scope."""
    agent = Actor({"weight": np.float32([0.5, -0.5])}, {"weight": np.float32(g)})
    hyper = replace(SMALL, operator=operator, gamma_on=gamma_on, control=control)
    return off_policy(hyper)(jax.tree.map(np.zeros_like, agent), agent, jax.random.key(seed))


def test_factors_of_other_operators_are_clipped_to_0_and_1_and_counted():
    g = np.array([[-3.0, 0, 0, 0], [2.0, 0, 0, 0], [2.0, 0, 0, 0], [0.1, 0, 0, 0], [0.4, 1.0, 0, 0]])
    u = g.mean(0)
    raw = factors_of(g, u)
    kept = np.clip(raw, 0, 1)
    assert (raw < 0).any()
    assert (raw > 1).any()
    found = realigned(g, "mean")
    np.testing.assert_allclose(found.gradient.head["weight"], kept[:, None] * (g + u), atol=1e-6)
    np.testing.assert_array_equal(found.gradient.backbone["weight"], [0.5, -0.5])
    np.testing.assert_allclose(found.diagnostics["factors"], kept, atol=1e-6)
    assert found.diagnostics["clipped_factors"] == (raw != kept).sum()
    apart = realigned(g, "mean", "update")
    np.testing.assert_allclose(apart.gradient.head["weight"], g + u, atol=1e-6)
    np.testing.assert_allclose(apart.factor.head["weight"], kept[:, None], atol=1e-6)
    assert apart.factor.backbone["weight"] == 1


@pytest.mark.parametrize("control", ["placebo", "permuted"])
def test_factors_of_what_stands_in_for_the_consensus_are_clipped_too(control):
    """It is not the shortest vector, and may point away from an agent: a negative Γ would turn that agent around."""
    g, clipped = np.array([[40.0, 1, 0, 0], [-30.0, 1, 0, 0], [0, 5.0, 0, 0], [0, 5.0, 1, 0], [0, 5.0, 0, 1]]), 0
    for seed in range(10):
        found = realigned(g, "min_norm", control=control, seed=seed).diagnostics
        assert (found["factors"] >= 0).all()
        assert (found["factors"] <= 1).all()
        clipped += found["clipped_factors"]
    assert clipped > 0


def test_factors_of_min_norm_need_no_clipping():
    rng = np.random.default_rng(0)
    for _ in range(10):
        found = realigned(rng.normal(size=(5, 4)) * np.exp(2 * rng.normal(size=(5, 1))), "min_norm").diagnostics
        assert found["clipped_factors"] == 0
        assert (found["factors"] > -1e-6).all()
        assert (found["factors"] < 1 + 1e-6).all()


def test_an_almost_inert_agent_holds_the_others_back_and_is_not_counted_as_frozen():
    found = realigned(np.diag([1, 1, 1, 1, 1e-3]) @ np.eye(5), "min_norm").diagnostics
    ratio = float(found["u_norm"])
    assert found["frozen_steps"] == 0
    assert 0 < ratio <= 1e-3
    assert (found["factors"][:4] <= ratio * (1 + ratio) + 1e-7).all()
    assert (found["factors"][:4] > 0).all()


def test_no_gradient_at_all_is_not_counted_as_frozen():
    found = realigned(np.zeros((5, 4)), "min_norm")
    assert found.diagnostics["frozen_steps"] == 0
    assert norm(found.gradient.head) == 0


DUEL = EnvSpec(name="duel", num_agents=2, obs_dim=2, state_dim=1, num_actions=2, horizon=1)


def duel():
    """Two episodes of one step. The agents' features change places from one to the other and so does the sign of the
    error, all values being zero: the head gradients are exactly opposite."""
    hyper = replace(SMALL, mixer="sum", batch=2)
    online, target = networks(hyper, DUEL)
    encoder = online.agent.backbone["encoder"]
    blind = encoder | {"weight": changed(encoder["weight"], slice(DUEL.obs_dim, None), 0)}
    agent = Actor(online.agent.backbone | {"encoder": blind}, jax.tree.map(np.zeros_like, online.agent.head))
    x, y = [2.0, -1.0], [-0.5, 3.0]
    batch = Episodes(
        obs=np.float32([[[x, y], [x, x]], [[y, x], [x, x]]]),
        state=np.ones((2, 2, 1), np.float32),
        avail=np.ones((2, 2, 2, 2), bool),
        action=np.zeros((2, 1, 2), np.int32),
        reward=np.float32([[1], [-1]]),
        length=np.ones(2, np.int32),
        terminated=np.ones(2, bool),
    )
    return hyper, online._replace(agent=agent), target, batch


def test_opposite_gradients_freeze_what_is_in_scope_which_plain_qmix_moves():
    hyper, online, target, batch = duel()
    grasp = replace(hyper, operator="min_norm")
    moved, metrics = one_step(grasp, ADAM, online, target, batch)
    assert norm(moved.agent.head) == 0
    assert metrics["frozen_steps"] == 1
    assert metrics["conflict_rate"] == 1
    np.testing.assert_array_equal(metrics["factors"], [0, 0])
    np.testing.assert_array_equal(metrics["cosines"], [-1])
    assert (metrics["norms"] > 0.01).all()  # of the heads' gradients, along which plain QMIX moves


def test_one_inert_agent_freezes_all():
    given = case("separate")
    net, embed = given.online.mixer["weight_1"], SMALL.mixer_embed
    deaf = jax.tree.map(lambda x: changed(x, (..., slice(-embed, None)), 0), net["layer_1"])
    online = given.online._replace(mixer=given.online.mixer | {"weight_1": net | {"layer_1": deaf}})
    hyper = replace(given.hyper, scope="heads")
    moved, metrics = one_step(hyper, SGD, online, given.target, given.batch)
    assert norm(moved.agent) == 0
    assert norm(moved.mixer) > 0.1
    assert metrics["frozen_steps"] == 1
    np.testing.assert_array_equal(metrics["norms"] == 0, [False, False, True])
    np.testing.assert_array_equal(metrics["weights"], [0, 0, 1])
    plain, _ = gradient(given.hyper)(online, given.target, given.batch)
    assert norm(plain.agent) > 0.1


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["plain", "gradient", "update"])
def test_a_reward_that_is_not_finite_changes_nothing_and_is_counted(kind, poison):
    given = case("hybrid")
    hyper, optimiser = {
        "plain": (replace(given.hyper, operator="none", scope="heads"), ADAM),
        "gradient": (replace(given.hyper, scope="heads"), SGD),
        "update": (replace(given.hyper, gamma_on="update"), ADAM),
    }[kind]
    before = state_of(given.online, given.target, optimiser)
    step, key = improve(hyper, optimiser), jax.random.key(0)
    poisoned = given.batch._replace(reward=changed(given.batch.reward, (3, 1), poison))
    after, metrics = step(before, holding(poisoned), key)
    assert_close(before, after)
    assert metrics["skipped_steps"] == 1
    assert metrics.get("frozen_steps", 0) == 0
    healthy, metrics = step(after, holding(given.batch), key)
    assert metrics["skipped_steps"] == 0
    assert distance(before.agent, healthy.agent) > 1e-3
    assert np.isfinite(norm(healthy.agent))


def permuted(networks, order, sharing):
    """Networks in which agent j is what agent order[j] was: its parameters, the weights that read who it is, and its
    place in the mixer."""
    parts = {
        name: jax.tree.map(lambda x: x[order], part) if own else part
        for (name, part), own in zip(networks.agent._asdict().items(), OWNED[sharing], strict=True)
    }
    encoder = parts["backbone"]["encoder"]
    ids = np.arange(encoder["weight"].shape[-2])
    ids[-len(order) :] = ids[-len(order) :][order]
    parts["backbone"] |= {"encoder": encoder | {"weight": encoder["weight"][..., ids, :]}}
    net = networks.mixer["weight_1"]
    places = np.arange(len(order) * SMALL.mixer_embed).reshape(len(order), -1)[order].ravel()
    moved = jax.tree.map(lambda x: x[..., places], net["layer_1"])
    return qmix.Networks(Actor(**parts), networks.mixer | {"weight_1": net | {"layer_1": moved}})


@pytest.mark.parametrize("sharing", ["hybrid", "separate"])
def test_agents_in_another_order_learn_the_same(sharing):
    given, order = case(sharing), np.array([2, 0, 1])
    hyper = replace(given.hyper, scope="heads")
    obs, avail, action = (x[:, :, order] for x in (given.batch.obs, given.batch.avail, given.batch.action))
    batch = given.batch._replace(obs=obs, avail=avail, action=action)
    moved, metrics = one_step(hyper, SGD, *given[:3])
    online, target = (permuted(nets, order, sharing) for nets in (given.online, given.target))
    turned, turned_metrics = one_step(hyper, SGD, online, target, batch)
    assert_close(permuted(moved, order, sharing), turned, 1e-5)
    assert distance(moved, turned) > 1e-2
    np.testing.assert_allclose(turned_metrics["weights"], metrics["weights"][order], atol=1e-4)


# Acting


@pytest.mark.parametrize("sharing", ["shared", "hybrid", "separate"])
def test_acting_step_by_step_sees_the_values_that_learning_sees(sharing):
    """Dead agents with nonsense for an observation, exploring, the last action remembered."""
    given, rng = case(sharing), np.random.default_rng(0)
    state = state_of(given.online, given.target, SGD)._replace(env_steps=np.int32(50))
    alive = rng.random((6, SPEC.horizon + 1, 3)) < 0.8
    batch = given.batch._replace(length=np.full(6, SPEC.horizon), terminated=np.zeros(6, bool))
    memory = qmix.Memory(np.zeros((6, 3, SMALL.hidden), np.float32), np.zeros((6, 3, 3), np.float32))
    hidden, actions = [], []
    for t in range(SPEC.horizon + 1):
        obs = np.where(alive[:, t, :, None], batch.obs[:, t], np.float32(1e4))
        seen = Observation(obs, batch.state[:, t], batch.avail[:, t], alive[:, t])
        decision = acting(sharing)(state, memory, seen, jax.random.key(t))
        memory = decision.memory
        hidden.append(memory.agent)
        actions.append(decision.action)
    stored = batch._replace(obs=np.where(alive[..., None], batch.obs, np.float32(0)), action=np.stack(actions[:-1], 1))
    first = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0) if x.ndim > 1 else jnp.asarray(x), stored)
    both = Actor(sharing, sharing)
    learned = fetched(lambda agent, batch: qmix.values(agent, both, qmix.inputs_along(SMALL, batch)))(
        given.online.agent, first
    )
    acted = fetched(lambda head, memory: actors.logits(head, sharing, jax.nn.relu(memory)))(
        given.online.agent.head, np.stack(hidden)
    )
    np.testing.assert_allclose(acted, learned, atol=1e-5)
    team, _ = in_loops(given.online, sharing)
    by_loops = [[agent_values(team[i], i, episode) for i in range(3)] for episode in apart(stored)]
    np.testing.assert_allclose(np.moveaxis(learned, 0, 2), by_loops, atol=1e-4)


def test_the_replay_of_real_rollouts_gives_the_values_of_the_rollout():
    """Episodes that run over the border of a rollout, deaths and resets: `probe/mask_death`, four steps an episode."""
    env = envs.make("probe/mask_death")
    hyper = replace(SMALL, num_envs=3, rollout=6, buffer=18)
    algorithm = qmix.make(hyper, env.spec)
    nothing = replay_buffer.empty(env.spec, hyper.buffer, hyper.num_envs)
    agent, _ = networks(hyper, env.spec)[0]

    def play(agent, memory):
        state = qmix.State(agent, (), (), (), (), jnp.zeros((), jnp.int32), ())
        arena = rollout.open_arena(env, algorithm, 3, jax.random.key(1))
        acted = []
        for i in range(2):
            arena, found, _ = rollout.collect(env, algorithm, state, arena, jax.random.key(i), hyper.rollout)
            memory = replay_buffer.append(memory, found)
            acted.append(actors.logits(agent.head, "hybrid", jax.nn.relu(found.memory.agent[1:])))
        stored = replay_buffer.numbered(memory, jnp.arange(9))
        first = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0) if x.ndim > 1 else x, stored)
        learned = qmix.values(agent, Actor("hybrid", "hybrid"), qmix.inputs_along(hyper, first))
        return jnp.concatenate(acted), learned, stored, memory.finished

    acted, learned, stored, finished = fetched(play)(agent, nothing)
    assert finished == 9
    assert (stored.obs[:, 2:, 1] == 0).all()
    for e in range(9):
        round_, place = divmod(e, 3)  # all three environments finish together
        np.testing.assert_allclose(learned[:4, e], acted[4 * round_ : 4 * round_ + 4, place], atol=1e-5)
    assert np.ptp(acted) > 0.1


# The schedule

LONG = replace(SPEC, horizon=16)
LEARN = replace(SMALL, batch=8, interval=3, target_interval=9, epsilon=0.2, anneal=70)
ENDINGS = (2, 5, 0, 1, 1, 2, 6, 1, 8, 8, 0)
"""Episodes that end in each rollout: 2, 7, 7, 8, 9, 11, 17, 18, 26, 34, 34 in all."""
STEPS = (0, 0, 0, 0, 1, 0, 2, 1, 2, 3, 0)
"""Gradient steps: one for each multiple of 3 passed, none while fewer than 8 are stored."""
COPIES = (0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0)
"""Target copies: at the first gradient step that finds 9 more finished episodes than the last copy did."""


def trajectory(index, endings):
    """Four steps of two environments in which so many episodes end, the latest steps first."""
    rng = np.random.default_rng(index)
    order = [(t, b) for t in reversed(range(4)) for b in ((0, 1) if index % 2 else (1, 0))]
    ended = np.zeros((4, 2), bool)
    for cell in order[:endings]:
        ended[cell] = True
    terminated = ended & (rng.random((4, 2)) < 0.5)

    def seen():
        return Observation(
            rng.normal(size=(4, 2, 3, SPEC.obs_dim)).astype(np.float32),
            rng.normal(size=(4, 2, SPEC.state_dim)).astype(np.float32),
            np.ones((4, 2, 3, 3), bool),
            np.ones((4, 2, 3), bool),
        )

    return Trajectory(
        observation=seen(),
        memory=(),
        first=np.zeros((4, 2), bool),
        action=rng.integers(3, size=(4, 2, 3), dtype=np.int32),
        record=(),
        reward=rng.normal(size=(4, 2)).astype(np.float32),
        terminated=terminated,
        truncated=ended & ~terminated,
        next_observation=seen(),
    )


@cache
def fresh():
    return fetched(qmix.make(LEARN, LONG).init)(jax.random.key(0))


@cache
def schedule():
    """The states before and after every rollout, and the metrics."""
    algorithm, state = qmix.make(LEARN, LONG), fresh()
    state = state._replace(agent=noised(state.agent, 1, 0.5), target=noised(state.target, 2, 0.5))
    update = uncut(fetched(algorithm.update))
    states, found = [state], []
    for index, endings in enumerate(ENDINGS):
        state, metrics = update(states[-1], trajectory(index, endings), jax.random.key(index))
        states.append(state)
        found.append(metrics)
    return states, found


def test_one_gradient_step_for_every_interval_of_episodes_and_none_before_a_batch_is_stored():
    states, metrics = schedule()
    assert [int(m["gradient_steps"]) for m in metrics] == list(STEPS)
    counts = [int(optax.tree.get(state.opt, "count")) for state in states]
    assert counts == [0, *np.cumsum(STEPS)]
    for before, after, steps, found in zip(states, states[1:], STEPS, metrics, strict=False):
        learned = [(state.agent, state.mixer, state.opt) for state in (before, after)]
        if steps:
            assert distance(*learned) > 1e-5
        else:
            assert_close(*learned)
        assert np.isnan(found["loss"]) == (steps == 0)
        assert found["skipped_steps"] == 0
    np.testing.assert_array_equal([m["finished_episodes"] for m in metrics], np.cumsum(ENDINGS))


def test_targets_are_copied_every_so_many_episodes_and_constant_in_between():
    states, metrics = schedule()
    assert [int(m["target_copies"]) for m in metrics] == list(COPIES)
    for before, after, steps, copies in zip(states, states[1:], STEPS, COPIES, strict=False):
        if not copies:
            assert_close(before.target, after.target)
        elif steps == 1:
            assert_close(after.target, (after.agent, after.mixer))
        else:  # at the first of its steps, which went on
            assert distance(before.target, after.target) > 1e-4
            assert distance(after.target, (before.agent, before.mixer)) > 1e-4
            assert distance(after.target, (after.agent, after.mixer)) > 1e-4


def test_epsilon_is_that_of_the_environment_steps_so_far():
    states, metrics = schedule()
    assert [int(state.env_steps) for state in states] == [8 * i for i in range(len(states))]
    expected = [max(0.2, 1 - 0.8 * 8 * (i + 1) / 70) for i in range(len(metrics))]
    np.testing.assert_allclose([m["epsilon"] for m in metrics], expected, rtol=1e-5)


def test_a_whole_update_is_one_step_of_clipped_adam_on_the_stored_episodes():
    """The ring and the batch hold eight: the sample is all that is stored, in some order."""
    states, metrics = schedule()
    at = STEPS.index(1)
    before, after = states[at], states[at + 1]
    stored = jax.device_get(replay_buffer.numbered(after.replay, jnp.arange(1, 9)))
    online = qmix.Networks(before.agent, before.mixer)
    uphill, parts = gradient(LEARN)(online, before.target, stored)
    assert metrics[at]["loss"] == pytest.approx(float(parts["loss"]), rel=1e-5)
    moved = difference(qmix.Networks(after.agent, after.mixer), online)
    assert_close(moved, adam_by_hand(uphill), 1e-6)


def test_every_gradient_step_of_an_update_draws_by_itself(monkeypatch):
    """The mean of squares is above the square of the mean only if the three steps had different keys."""

    def drawing(hyper, optimiser, state, episodes, key, see):
        draw = jax.random.uniform(key)
        return state, {"draw": draw, "square": draw**2}

    monkeypatch.setattr(qmix, "improve", drawing)
    at = STEPS.index(3)
    states, _ = schedule()
    update = fetched(partial(qmix.learn, LEARN, SGD))
    found = [update(states[at], trajectory(at, ENDINGS[at]), jax.random.key(seed))[1] for seed in (0, 1)]
    assert found[0]["gradient_steps"] == 3
    assert found[0]["square"] - found[0]["draw"] ** 2 > 1e-3
    assert found[0]["draw"] != found[1]["draw"]


@pytest.mark.parametrize("name", ["frozen_steps", "clipped_factors", "uncertified_steps", "skipped_steps"])
def test_what_is_counted_adds_up_over_an_update_and_the_rest_is_a_mean(monkeypatch, name):
    def counting(hyper, optimiser, state, episodes, key, see):
        return state, {name: jnp.ones(()), "loss": jnp.ones(())}

    monkeypatch.setattr(qmix, "improve", counting)
    at = STEPS.index(3)
    _, found = fetched(partial(qmix.learn, LEARN, SGD))(
        schedule()[0][at], trajectory(at, ENDINGS[at]), jax.random.key(0)
    )
    assert (found[name], found["loss"]) == (3, 1)


def test_seeds_at_once_learn_as_each_alone():
    """One seed has a gradient step to take, the other three."""
    states, metrics = schedule()
    at = [STEPS.index(1), STEPS.index(3)]
    rollouts = [trajectory(i, ENDINGS[i]) for i in at]
    stacked = jax.tree.map(lambda *x: np.stack(x), *[(states[i], r) for i, r in zip(at, rollouts, strict=True)])
    keys = jnp.stack([jax.random.key(i) for i in at])
    after, found = fetched(jax.vmap(qmix.make(LEARN, LONG).update))(*stacked, keys)
    for place, i in enumerate(at):
        alone = states[i + 1]
        mine = jax.tree.map(lambda x, p=place: x[p], after)
        assert_close((alone.agent, alone.mixer, alone.target), (mine.agent, mine.mixer, mine.target), 1e-5)
        assert found["gradient_steps"][place] == metrics[i]["gradient_steps"]
        assert found["loss"][place] == pytest.approx(float(metrics[i]["loss"]), rel=1e-4)


def test_a_fresh_state_has_equal_targets_equal_heads_and_no_memory():
    state = fresh()
    assert_close(state.target, (state.agent, state.mixer))
    for leaf in jax.tree.leaves(state.agent.head):
        assert (leaf[0] == leaf[1]).all()
    assert norm(qmix.make(LEARN, LONG).memory(4)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_frozen_also_where_the_gradients_cancel_only_up_to_rounding(seed):
    g = np.random.default_rng(seed).normal(size=(2, 4))
    found = realigned(np.stack([g[0], g[1], -0.3 * g[0] - 0.9 * g[1]]), "min_norm")
    assert norm(found.gradient.head) == 0
    assert found.diagnostics["frozen_steps"] == 1


def test_a_frozen_backbone_is_counted_while_the_heads_move():
    hyper = replace(SMALL, operator="min_norm", scope="both")
    g = Actor({"weight": np.float32([[1, 2], [-1, -2]])}, {"weight": np.float32([[1, 0], [0, 1]])})
    actor = Actor({"weight": np.zeros(2, np.float32)}, {"weight": np.zeros((2, 2), np.float32)})
    found = off_policy(hyper)(actor, g, jax.random.key(0))
    assert norm(found.gradient.backbone) == 0
    assert norm(found.gradient.head) > 0
    assert found.diagnostics["frozen_steps"] == 1
