"""The paper's claims about training with u, checked in games small enough to be exact."""

import functools

import consensus_games as games
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from consensus_sets import gammas, min_norm_points


def test_the_off_policy_factor_stalls_where_u_is_zero():
    with jax.enable_x64(True):
        payoff, start = jnp.asarray(games.ONE_CELL), jnp.zeros((1, 2, 2))
        g = np.asarray(games.gradients(payoff, start[0]))
        end = {rule: float(games.final_values(payoff, start, 0.5, rule)[0]) for rule in ("plain", "grasp", "factor")}
    assert np.abs(min_norm_points(g[None])[1]).max() < 1e-12
    assert np.abs(g).max() > 0.1
    assert end["plain"] > 0.99
    assert end["grasp"] > 0.99
    assert end["factor"] == pytest.approx(0.25, abs=1e-9)


def test_u_depends_on_how_actions_are_numbered():
    payoffs = [games.ONE_CELL, games.ONE_CELL[:, ::-1]]  # agent 2's actions renumbered: the same game
    with jax.enable_x64(True):
        start = jnp.zeros((1, 2, 2))
        plain = [float(games.final_values(jnp.asarray(p), start, 0.5, "plain", steps=50)[0]) for p in payoffs]
        g = np.stack([games.gradients(jnp.asarray(p), start[0]) for p in payoffs])
    assert plain[0] == pytest.approx(plain[1], abs=1e-12)
    np.testing.assert_allclose(np.abs(min_norm_points(g)[1]).max(1), [0, 0.125], atol=1e-12)


def test_a_better_average_can_be_worse_in_one_state():
    """Two equally likely contexts share one logit: the gaps are +2 and −1."""
    gaps, x, rate = np.array([2.0, -1.0]), 0.0, 0.5

    def values(x: float) -> np.ndarray:
        return gaps / (1 + np.exp(-x))

    slope = gaps.mean() * 0.25
    before, after = values(x), values(x + rate * slope)
    assert after.mean() > before.mean()
    assert after[1] < before[1]


def test_in_a_box_the_iteration_can_stop_at_the_boundary():
    payoff = np.array([[1.0, 0], [0, 0.5]])
    with jax.enable_x64(True):

        def step(theta, _):
            return jnp.clip(theta + 0.5 * games.direction("grasp", games.gradients(payoff, theta)), -3, 3), None

        start = jnp.array([[0.5, 0.0], [0.2, 0.0]])
        theta, _ = jax.jit(lambda t: jax.lax.scan(step, t, None, length=4000))(start)
        again, _ = step(theta, None)
        g = np.asarray(games.gradients(payoff, theta))
    np.testing.assert_allclose(again, theta, atol=1e-14)
    assert np.abs(np.asarray(theta)).max() == 3
    assert np.linalg.norm(g) > 1e-3
    assert np.linalg.norm(min_norm_points(g[None])[1]) > 1e-3


def test_clipping_does_not_bound_what_u_adds():
    """A two-armed bandit at p = 1/2, clip 0.2, advantage ±1: the ratio's maximum is 2."""

    def ratio(constant: float, updates: int) -> float:
        x = 0.0
        for _ in range(updates):
            p = 1 / (1 + np.exp(-x))
            # arm 1 has advantage +1 (clipped above 1.2), arm 2 has −1 (clipped below 0.8); each is drawn half the time
            up = 2 * p * (1 - p) * 0.5 * ((2 * p < 1.2) + (2 * (1 - p) > 0.8))
            x += 0.5 * (up + constant)
        return 2 / (1 + np.exp(-x))

    assert 1.2 <= ratio(0.0, 200) < 1.3
    assert ratio(0.1, 20) > 1.3
    assert ratio(0.1, 200) > ratio(0.1, 20)
    assert ratio(0.1, 400) == pytest.approx(2, abs=1e-3)


@pytest.mark.parametrize(("size", "expected"), [(1.0, 0.0250), (1e-3, 0.0248), (1e-6, 0.0023)])
def test_adam_moves_by_the_learning_rate_whatever_the_gradient(size, expected):
    tx = optax.adam(5e-4, eps=1e-5)

    def step(carry, _):
        x, state = carry
        update, state = tx.update(jnp.asarray(size, jnp.float32), state)
        return (x + update, state), None

    start = jnp.asarray(0.0)
    (x, _), _ = jax.jit(lambda: jax.lax.scan(step, (start, tx.init(start)), None, length=50))()
    assert -float(x) == pytest.approx(expected, abs=6e-5)


def test_one_agent_with_a_tiny_gradient_gets_all_weight():
    g = np.random.default_rng(16).normal(size=(5, 6, 50))
    g[:, 2] *= 1e-3
    w, u = min_norm_points(g)
    assert w[:, 2].min() > 0.999
    assert np.all(np.linalg.norm(u, axis=1) <= np.linalg.norm(g[:, 2], axis=1))
    others = [0, 1, 3, 4, 5]
    assert gammas(g, u)[:, others].max() < 2e-3


def test_no_advantage_of_direction_in_climbing_and_penalty():
    """60 starts. At a fixed learning rate u acts as a longer step; at a fixed step length it does not help."""
    starts = np.random.default_rng(17).normal(size=(60, 2, 3))
    with jax.enable_x64(True):
        for payoff in (games.CLIMBING, games.PENALTY):
            run = functools.partial(games.final_values, jnp.asarray(payoff), jnp.asarray(starts))
            fixed = {rule: float(run(0.05, rule, steps=600).mean()) for rule in ("plain", "mean", "grasp", "factor")}
            unit = {rule: float(run(0.05, rule, unit=True, steps=600).mean()) for rule in ("plain", "grasp")}
            print({rule: round(value, 2) for rule, value in fixed.items()}, "unit steps:", unit)
            assert fixed["factor"] < fixed["plain"]
            assert unit["grasp"] <= unit["plain"] + 0.1
            if payoff is games.CLIMBING:  # as docs/theory.md has them
                expected = {"plain": 7.06, "mean": 7.11, "grasp": 7.01, "factor": 5.61}
                assert fixed == pytest.approx(expected, abs=0.006)
                assert unit == pytest.approx({"plain": 7.85, "grasp": 7.71}, abs=0.006)
