"""The GRU: its derivative against autodiff and its cell against PyTorch's equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.nn import gru

HIDDEN, IN_DIM, CHUNKS, NUM_AGENTS = 5, 4, 3, 2
ROWS = (CHUNKS, NUM_AGENTS)


def gru_case(length=6, reset_rate=0.3, seed=0, stack=()):
    """Parameters with nonzero biases, memory, inputs and random `first` flags; `stack`: leading axes of parameters."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape))

    params = {
        "input": {"weight": normal(*stack, IN_DIM, 3 * HIDDEN), "bias": normal(*stack, 3 * HIDDEN)},
        "memory": {"weight": normal(*stack, HIDDEN, 3 * HIDDEN), "bias": normal(*stack, 3 * HIDDEN)},
    }
    first = jnp.asarray(rng.random((length, *ROWS)) < reset_rate)
    return params, normal(*ROWS, HIDDEN), normal(length, *ROWS, IN_DIM), first


def looped(params, memory, x, first):
    """The reference: `gru_step` in a Python loop, differentiated by autodiff."""
    outputs = []
    for x_t, first_t in zip(x, first, strict=True):
        memory = gru.gru_step(params, jnp.where(first_t[..., None], 0.0, memory), x_t)
        outputs.append(memory)
    return jnp.stack(outputs)


def torch_gru_cell(params, memory, x):
    """PyTorch's documented GRUCell in numpy, one gate at a time, from row-major weights as `weight_ih` stores them."""
    weight_ih, weight_hh = np.asarray(params["input"]["weight"]).T, np.asarray(params["memory"]["weight"]).T
    w_ir, w_iz, w_in = np.split(weight_ih, 3)
    w_hr, w_hz, w_hn = np.split(weight_hh, 3)
    b_ir, b_iz, b_in = np.split(np.asarray(params["input"]["bias"]), 3)
    b_hr, b_hz, b_hn = np.split(np.asarray(params["memory"]["bias"]), 3)

    def logistic(value):
        return 1 / (1 + np.exp(-value))

    r = logistic(w_ir @ x + b_ir + w_hr @ memory + b_hr)
    z = logistic(w_iz @ x + b_iz + w_hz @ memory + b_hz)
    n = np.tanh(w_in @ x + b_in + r * (w_hn @ memory + b_hn))
    return (1 - z) * n + z * memory


def gradients(function, params, memory, x, first):
    """Gradients of a random linear loss with respect to parameters, memory and input."""
    target = jnp.asarray(np.random.default_rng(7).normal(size=(*first.shape, HIDDEN)))

    def loss(params, memory, x):
        return jnp.sum(function(params, memory, x, first) * target)

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(params, memory, x)


def assert_close(actual, desired, tolerance):
    assert jax.tree.structure(actual) == jax.tree.structure(desired)
    for a, d in zip(jax.tree.leaves(actual), jax.tree.leaves(desired), strict=True):
        np.testing.assert_allclose(a, d, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("length", [1, 2, 10])
@pytest.mark.parametrize("reset_rate", [0.0, 0.3, 1.0])
@pytest.mark.usefixtures("x64")
def test_gru_and_its_gradients_equal_autodiff_in_float64(length, reset_rate):
    case = gru_case(length, reset_rate)
    assert case[1].dtype == jnp.float64
    outputs = gru.gru(*case)
    assert outputs.dtype == jnp.float64
    assert_close(outputs, looped(*case), 1e-10)
    assert_close(gradients(gru.gru, *case), gradients(looped, *case), 1e-10)


def test_gru_and_its_gradients_equal_autodiff_in_float32():
    case = gru_case(10)
    outputs = gru.gru(*case)
    assert outputs.dtype == jnp.float32
    assert_close(outputs, looped(*case), 1e-4)
    assert_close(gradients(gru.gru, *case), gradients(looped, *case), 1e-3)


@pytest.mark.parametrize("rows", [(), (3,), (2, 3, 2)])
@pytest.mark.usefixtures("x64")
def test_gru_keeps_any_middle_axes(rows):
    params, *_ = gru_case()
    rng = np.random.default_rng(3)
    memory, x = jnp.asarray(rng.normal(size=(*rows, HIDDEN))), jnp.asarray(rng.normal(size=(4, *rows, IN_DIM)))
    first = jnp.asarray(rng.random((4, *rows)) < 0.3)
    outputs = gru.gru(params, memory, x, first)
    assert outputs.shape == (4, *rows, HIDDEN)
    assert_close(outputs, looped(params, memory, x, first), 1e-10)
    assert_close(gradients(gru.gru, params, memory, x, first), gradients(looped, params, memory, x, first), 1e-10)


@pytest.mark.usefixtures("x64")
def test_gru_step_follows_the_pytorch_equations():
    params, memory, x, _ = gru_case()
    stepped = gru.gru_step(params, memory, x[0])
    for row in np.ndindex(ROWS):
        expected = torch_gru_cell(params, np.asarray(memory[row]), np.asarray(x[0][row]))
        np.testing.assert_allclose(stepped[row], expected, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_first_stops_the_gradient_to_earlier_inputs_and_memory():
    params, memory, x, _ = gru_case(6)
    first = jnp.zeros((6, *ROWS), bool).at[3, 0, 0].set(True)

    def later(memory, x):
        return jnp.sum(gru.gru(params, memory, x, first)[3:], axis=(0, 3))

    by_memory, by_x = jax.jacrev(later, argnums=(0, 1))(memory, x)
    cut, kept = (0, 0), (1, 1)
    assert np.all(by_memory[cut] == 0)
    assert np.all(by_x[cut][:3] == 0)
    assert np.all(np.any(by_x[cut][3:, 0, 0] != 0, axis=-1))
    assert np.any(by_memory[kept][kept] != 0)
    assert np.all(np.any(by_x[kept][:, 1, 1] != 0, axis=-1))
    assert np.all(by_x[kept][:, 0, 0] == 0)


def test_first_makes_the_stored_memory_irrelevant():
    params, memory, x, _ = gru_case(4)
    first = jnp.zeros((4, *ROWS), bool).at[0].set(True)
    np.testing.assert_array_equal(
        gru.gru(params, memory, x, first), gru.gru(params, jnp.zeros_like(memory), x, jnp.zeros_like(first))
    )


@pytest.mark.usefixtures("x64")
def test_separate_networks_under_vmap_equal_one_call_per_agent():
    params, memory, x, first = gru_case(5, stack=(NUM_AGENTS,))

    def team(params, memory, x, first):
        return jax.vmap(gru.gru, in_axes=(0, 1, 2, 2), out_axes=2)(params, memory, x, first)

    def one_by_one(params, memory, x, first):
        own = [jax.tree.map(lambda leaf, i=i: leaf[i], params) for i in range(NUM_AGENTS)]
        calls = [gru.gru(own[i], memory[:, i], x[:, :, i], first[:, :, i]) for i in range(NUM_AGENTS)]
        return jnp.stack(calls, axis=2)

    assert_close(team(params, memory, x, first), one_by_one(params, memory, x, first), 1e-12)
    assert_close(gradients(team, params, memory, x, first), gradients(one_by_one, params, memory, x, first), 1e-10)


@pytest.mark.timeout(120)
def test_stacked_initialisation_under_jit_and_vmap_returns_and_equals_one_key_at_a_time():
    keys = jax.random.split(jax.random.key(2), 6).reshape(2, 3)
    stacked = jax.jit(jax.vmap(jax.vmap(lambda key: gru.gru_init(key, 18, 16))))(keys)
    for seed, agent in np.ndindex(2, 3):
        own = jax.tree.map(lambda leaf, s=seed, a=agent: leaf[s, a], stacked)
        assert_close(own, gru.gru_init(keys[seed, agent], 18, 16), 1e-5)
    assert not np.allclose(stacked["memory"]["weight"][0, 0], stacked["memory"]["weight"][0, 1])


def test_gru_init_has_orthogonal_maps_of_gain_one_and_zero_biases():
    params = gru.gru_init(jax.random.key(0), 18, 64)
    for name, rows in [("input", 18), ("memory", 64)]:
        weight = np.asarray(params[name]["weight"], np.float64)
        assert weight.shape == (rows, 192)
        np.testing.assert_allclose(weight @ weight.T, np.eye(rows), atol=1e-5)
        np.testing.assert_array_equal(params[name]["bias"], np.zeros(192))


def test_gru_init_draws_its_two_maps_apart():
    params = gru.gru_init(jax.random.key(0), 8, 8)
    assert not np.allclose(params["input"]["weight"], params["memory"]["weight"])
