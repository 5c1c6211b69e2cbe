"""The mixer: monotonic in every agent's value, equal to its formula written out in numpy; VDN is the sum."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.nn import mixer
from grasp.types import EnvSpec

SPEC = EnvSpec(name="toy", num_agents=3, obs_dim=4, state_dim=6, num_actions=5, horizon=7)
EMBED, HIDDEN = 8, 10

mix = jax.jit(mixer.mix)
slopes = jax.jit(jax.vmap(jax.grad(mixer.mix, 1), (None, 0, 0)))


def monotone(seed=0, gain=1.0):
    """Initial parameters times `gain`; with a large gain, units are on both sides of the ELU's kink."""
    params = mixer.mixer_init(jax.random.key(seed), "monotone", SPEC, EMBED, HIDDEN)
    return jax.tree.map(lambda x: gain * x, params)


def by_hand(params, q, state):
    """The formula of the module's docstring in float64, one state at a time."""

    def linear(layer, x):
        return np.asarray(layer["weight"], np.float64).T @ x + np.asarray(layer["bias"], np.float64)

    def two_layers(net, x):
        return linear(net["layer_1"], np.maximum(linear(net["layer_0"], x), 0))

    weight_1 = np.abs(two_layers(params["weight_1"], state)).reshape(len(q), EMBED)
    hidden = linear(params["bias_1"]["layer_0"], state)
    for agent, value in enumerate(q):
        hidden = hidden + value * weight_1[agent]
    hidden = np.where(hidden > 0, hidden, np.exp(np.minimum(hidden, 0)) - 1)
    return hidden @ np.abs(two_layers(params["weight_2"], state)) + two_layers(params["bias_2"], state)[0]


def draws(seed, *shape):
    rng = np.random.default_rng(seed)
    return (
        3 * rng.normal(size=(*shape, SPEC.num_agents)).astype(np.float32),
        rng.normal(size=(*shape, SPEC.state_dim)).astype(np.float32),
    )


@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_the_mixer_is_monotonic_in_every_agents_value(gain):
    q, state = draws(0, 400)
    params = monotone(gain=gain)
    slope = np.asarray(slopes(params, jnp.asarray(q), jnp.asarray(state)))
    assert (slope >= 0).all()
    assert (slope > 0).any(0).all()


def test_the_mixer_is_monotonic_over_large_increases():
    q, state = draws(1, 200)
    params = monotone(gain=3.0)
    low = mix(params, jnp.asarray(q), jnp.asarray(state))
    for agent in range(SPEC.num_agents):
        high = mix(params, jnp.asarray(q).at[:, agent].add(10.0), jnp.asarray(state))
        assert (high >= low).all()
        assert (high > low).any()


def test_the_greedy_joint_action_is_each_agents_own_greedy_action():
    rng = np.random.default_rng(2)
    table = jnp.asarray(rng.normal(size=(SPEC.num_agents, SPEC.num_actions)).astype(np.float32))
    joint = np.array(list(product(range(SPEC.num_actions), repeat=SPEC.num_agents)))
    q = table[np.arange(SPEC.num_agents)[None], joint]
    best = joint == np.asarray(table.argmax(-1))
    for state in draws(3, 20)[1]:
        value = mix(monotone(gain=2.0), q, jnp.broadcast_to(state, (len(joint), SPEC.state_dim)))
        assert value[best.all(-1)] == value.max()
        assert value.max() > value.min()


@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_the_formula_against_numpy(gain):
    q, state = draws(4, 5, 7)
    params = monotone(seed=1, gain=gain)
    found = mix(params, jnp.asarray(q), jnp.asarray(state))
    expected = [[by_hand(params, q[i, j], state[i, j]) for j in range(7)] for i in range(5)]
    assert found.shape == (5, 7)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_the_mixing_depends_on_the_state():
    q, state = draws(5, 2)
    slope = slopes(monotone(), jnp.asarray(q[:1].repeat(2, 0)), state)
    assert jnp.abs(slope[0] - slope[1]).max() > 1e-2


def test_vdn_is_the_sum_and_has_no_parameters():
    params = mixer.mixer_init(jax.random.key(0), "sum", SPEC, EMBED, HIDDEN)
    q, state = draws(6, 4, 3)
    assert jax.tree.leaves(params) == []
    value = mix(params, jnp.asarray(q), jnp.asarray(state))
    np.testing.assert_allclose(value, q.astype(float).sum(-1), atol=1e-5)
    np.testing.assert_array_equal(mix(params, jnp.asarray(q), jnp.full_like(state, jnp.nan)), value)


def test_weights_and_biases_start_uniform_within_one_over_root_inputs():
    spec = EnvSpec(name="wide", num_agents=5, obs_dim=4, state_dim=50, num_actions=5, horizon=7)
    params = mixer.mixer_init(jax.random.key(3), "monotone", spec, 32, 64)
    shapes = {name: [net[f"layer_{i}"]["weight"].shape for i in range(len(net))] for name, net in params.items()}
    assert shapes == {
        "weight_1": [(50, 64), (64, 5 * 32)],
        "bias_1": [(50, 32)],
        "weight_2": [(50, 64), (64, 32)],
        "bias_2": [(50, 32), (32, 1)],
    }
    for net in params.values():
        for layer in net.values():
            inputs, outputs = layer["weight"].shape
            assert layer["bias"].shape == (outputs,)
            for entries in (layer["weight"].ravel(), layer["bias"]):
                scaled = np.asarray(entries) * np.sqrt(inputs)
                assert np.abs(scaled).max() <= 1 + 1e-6
                assert np.abs(scaled).max() > 0 if scaled.size < 30 else np.abs(scaled).max() > 0.85
                assert scaled.size < 1000 or abs(np.mean(scaled**2) - 1 / 3) < 0.03
                assert scaled.size < 1000 or abs(np.mean(scaled)) < 0.06


def test_all_networks_start_different():
    params = monotone()
    drawn = [np.asarray(net["layer_0"]["weight"]) for net in params.values()]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            width = min(one.shape[1], other.shape[1])
            assert np.abs(one[:, :width] - other[:, :width]).max() > 1e-2
    first, second = (monotone(seed)["bias_1"]["layer_0"]["weight"] for seed in (0, 1))
    assert jnp.abs(first - second).max() > 1e-2
    assert jnp.abs(params["weight_1"]["layer_0"]["bias"]).max() > 1e-2
