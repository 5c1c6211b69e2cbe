"""The optax transformations: what they add, a given u, and non-finite gradients."""

import functools

import consensus_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from grasp.consensus import Status, min_norm, realign, realign_off_policy
from grasp.consensus.transforms import off_policy_factors

RNG = np.random.default_rng(0)
GRADS = {
    "a": jnp.asarray(RNG.normal(size=(3, 2, 2)), jnp.float32),
    "b": jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32),
}
PARAMS = jax.tree.map(jnp.ones_like, GRADS)


def flat(tree):
    return np.concatenate([np.asarray(leaf).reshape(3, -1) for leaf in jax.tree.leaves(tree)], axis=1)


def adam_path(tx, factors=(1.0, -0.5, 2.0, 0.3)):
    """Parameters after every step of a chain, with gradients that change from step to step."""

    @jax.jit
    def step(params, state, factor):
        grads = jax.tree.map(lambda g, p: factor * g + 0.1 * p, GRADS, params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params, state, path = PARAMS, tx.init(PARAMS), []
    for factor in factors:
        params, state = step(params, state, jnp.asarray(factor))
        path.append(flat(params))
    return np.array(path)


def test_weight_zero_is_exactly_the_plain_optimiser():
    plain = adam_path(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01)))
    zero = adam_path(optax.chain(realign(weight=0.0), optax.clip_by_global_norm(1.0), optax.adam(0.01)))
    np.testing.assert_array_equal(zero, plain)
    one = adam_path(optax.chain(realign(), optax.clip_by_global_norm(1.0), optax.adam(0.01)))
    assert np.abs(one - plain).max() > 1e-3


def test_adds_weight_times_u_to_every_agent():
    weight = 0.25
    tx = realign(weight=weight)
    out, state = jax.jit(tx.update)(GRADS, tx.init(PARAMS))
    u = oracle.min_norm(flat(GRADS).astype(np.float64))
    assert np.linalg.norm(u) > 0.1
    np.testing.assert_allclose(flat(out), flat(GRADS) + weight * u, atol=1e-5)
    assert Status(int(state.status)) is Status.CERTIFIED
    assert int(state.count) == 1
    assert int(state.skipped) == int(state.clipped) == 0
    np.testing.assert_allclose(np.asarray(state.weights) @ flat(GRADS), u, atol=1e-5)


def test_a_given_u_is_held():
    tx = realign(weight=0.5)
    u, _ = min_norm(jax.tree.map(lambda g: 3 * g + 1, GRADS))
    before = tx.init(PARAMS)
    out, state = tx.update(GRADS, before, u=u)
    expected = jax.tree.map(lambda g, shared: g + 0.5 * shared[None], GRADS, u)
    np.testing.assert_allclose(flat(out), flat(expected), rtol=1e-6)
    np.testing.assert_array_equal(state.weights, before.weights)
    assert int(state.count) == 1
    assert Status(int(state.status)) is Status.UNCERTIFIED


def test_a_given_u_that_is_not_finite_is_skipped():
    tx = realign()
    u = jax.tree.map(lambda g: jnp.full(g.shape[1:], jnp.inf), GRADS)
    out, state = tx.update(GRADS, tx.init(PARAMS), u=u)
    assert not np.any(flat(out))
    assert int(state.skipped) == 1


def test_the_key_changes_from_call_to_call():
    tx = realign("random")
    _, first = tx.update(GRADS, tx.init(PARAMS))
    _, second = tx.update(GRADS, first)
    assert np.abs(first.weights - second.weights).max() > 1e-3
    _, other = realign("random", seed=1).update(GRADS, realign("random", seed=1).init(PARAMS))
    assert np.abs(first.weights - other.weights).max() > 1e-3


def test_off_policy_scales_the_realigned_gradient():
    tx = realign_off_policy()
    out, state = jax.jit(tx.update)(GRADS, tx.init(PARAMS))
    g = flat(GRADS).astype(np.float64)
    u = oracle.min_norm(g)
    factors = (u @ u + g @ u) / (np.sum(g**2, axis=1) + u @ u)
    assert factors.min() > 0
    assert factors.max() < 1
    np.testing.assert_allclose(flat(out), factors[:, None] * (g + u), atol=1e-5)
    assert int(state.clipped) == 0


def test_off_policy_factors_are_clipped_and_counted_for_the_mean():
    # The mean is (2, 0): the agent at 1 gets Γ = (4 + 2)/(1 + 4) = 1.2.
    g = np.array([[5.0, 0], [1.0, 0], [-0.6, 0], [2.6, 0]])
    u = g.mean(0)
    raw = (u @ u + g @ u) / (np.sum(g**2, axis=1) + u @ u)
    assert np.sum(raw > 1) == 1
    assert np.sum(raw < 0) == 0
    tx = realign_off_policy("mean")
    grads = jnp.asarray(g, jnp.float32)
    update = jax.jit(tx.update)
    out, state = update(grads, tx.init(grads))
    np.testing.assert_allclose(out, np.clip(raw, 0, 1)[:, None] * (g + u), atol=1e-5)
    assert int(state.clipped) == 1
    _, state = update(grads, state)
    assert int(state.clipped) == 2
    opposed = jnp.asarray([[5.0, 0], [-2.5, 0], [5.0, 0], [-2.5, 0]], jnp.float32)
    out, state = update(opposed, tx.init(opposed))
    np.testing.assert_array_equal(np.asarray(out)[1::2], 0)
    assert int(state.clipped) == 2


def test_off_policy_factors_of_a_given_direction_are_clipped_and_counted():
    """A u that is passed in need not be the min-norm point, whatever the operator."""
    grads = jnp.asarray([[3.0, 0], [1.0, 0]])
    tx = realign_off_policy()
    out, state = tx.update(grads, tx.init(grads), u=jnp.asarray([-2.0, 0]))  # Γ = (4 - 6)/13 and (4 - 2)/5
    np.testing.assert_allclose(out, [[0, 0], [-0.4, 0]], atol=1e-6)
    assert int(state.clipped) == 1


def test_off_policy_factors_by_hand():
    grads = jnp.array([[1.0, 0], [0, 0], [0, 3]])
    np.testing.assert_allclose(off_policy_factors(grads, jnp.array([1.0, 1])), [3 / 3, 2 / 2, 5 / 11], rtol=1e-6)
    np.testing.assert_array_equal(off_policy_factors(jnp.zeros((2, 2)), jnp.zeros(2)), [0, 0])
    tiny, huge = (off_policy_factors(grads * scale, jnp.array([1.0, 1]) * scale) for scale in (1e-30, 1e30))
    np.testing.assert_allclose(tiny, [1, 1, 5 / 11], rtol=1e-6)
    np.testing.assert_allclose(huge, [1, 1, 5 / 11], rtol=1e-6)


NON_FINITE = jax.tree.map(lambda g: g.at[1].set(jnp.nan), GRADS)


@functools.cache
def chain_step(name: str):
    tx = optax.chain({"on": realign, "off": realign_off_policy}[name](), optax.adam(0.01))

    @jax.jit
    def step(grads, state, params):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, updates

    return tx, step


@pytest.mark.parametrize("name", ["on", "off"])
def test_a_non_finite_gradient_is_skipped_and_counted(name):
    tx, step = chain_step(name)
    params, state, _ = step(NON_FINITE, tx.init(PARAMS), PARAMS)
    np.testing.assert_array_equal(flat(params), flat(PARAMS))  # Adam without momentum does not move
    assert int(state[0].skipped) == 1
    assert Status(int(state[0].status)) is Status.NON_FINITE
    params, state, updates = step(GRADS, state, params)
    assert np.all(np.isfinite(flat(params)))
    assert np.abs(flat(updates)).max() > 1e-4
    assert int(state[0].skipped) == 1
    assert int(state[0].count) == 2
    momentum, state, _ = step(NON_FINITE, state, params)  # with momentum Adam keeps moving, as the docstring warns
    assert np.abs(flat(momentum) - flat(params)).max() > 1e-4
    assert np.all(np.isfinite(flat(momentum)))
    assert int(state[0].skipped) == 2


def test_apply_if_finite_freezes_everything():
    tx = optax.apply_if_finite(optax.chain(realign(), optax.adam(0.01)), max_consecutive_errors=5)
    step = jax.jit(tx.update)
    _, state = step(GRADS, tx.init(PARAMS), PARAMS)
    updates, after = step(NON_FINITE, state, PARAMS)
    assert not np.any(flat(updates))
    assert int(after.total_notfinite) == 1
    before, kept = (jax.tree.leaves(s.inner_state[1]) for s in (state, after))
    for old, new in zip(before, kept, strict=True):
        np.testing.assert_array_equal(old, new)
    assert int(after.inner_state[0].count) == int(state.inner_state[0].count) == 1


def test_an_unknown_operator_fails_when_built():
    with pytest.raises(ValueError, match=r"^unknown operator 'meen'; give one of min_norm, "):
        realign("meen")
    with pytest.raises(ValueError, match=r"^unknown operator 'meen'; give one of min_norm, "):
        realign_off_policy("meen")
