"""Dense layers: the initialisers' laws, composition, and the MLP written out in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.nn import layers


@pytest.mark.parametrize("shape", [(7, 7), (18, 64), (64, 18), (64, 192), (1, 5), (5, 1)])
def test_orthogonal_is_orthonormal_on_its_shorter_side_times_gain(shape):
    matrix = np.asarray(layers.orthogonal(jax.random.key(1), shape, 3.0), np.float64)
    assert matrix.shape == shape
    gram = matrix @ matrix.T if shape[0] <= shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(gram, 9.0 * np.eye(min(shape)), atol=2e-5)


def test_orthogonal_is_the_q_of_a_qr_with_a_positive_diagonal():
    key = jax.random.key(5)
    q, r = np.linalg.qr(np.asarray(jax.random.normal(key, (6, 9)), np.float64).T)
    np.testing.assert_allclose(layers.orthogonal(key, (9, 6)), q * np.sign(np.diag(r)), atol=1e-5)


@pytest.mark.usefixtures("x64")
def test_compose_equals_one_layer_after_the_other_with_its_gradients():
    rng = np.random.default_rng(0)
    inner, outer = (
        {"weight": jnp.asarray(rng.normal(size=shape)), "bias": jnp.asarray(rng.normal(size=shape[1]))}
        for shape in [(3, 4), (4, 6)]
    )
    x, target = jnp.asarray(rng.normal(size=(5, 2, 3))), jnp.asarray(rng.normal(size=(5, 2, 6)))

    def composed(inner, outer):
        return jnp.sum(layers.dense(layers.compose(inner, outer), x) * target)

    def in_turn(inner, outer):
        return jnp.sum(layers.dense(outer, layers.dense(inner, x)) * target)

    np.testing.assert_allclose(composed(inner, outer), in_turn(inner, outer), rtol=1e-12)
    found, expected = (jax.tree.leaves(jax.grad(loss, (0, 1))(inner, outer)) for loss in (composed, in_turn))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_mlp_init_is_the_papers_critic():
    params = layers.mlp_init(jax.random.key(0), (54, 64, 64, 64, 1))
    shapes = [params[f"layer_{i}"]["weight"].shape for i in range(4)]
    assert len(params) == 4
    assert shapes == [(54, 64), (64, 64), (64, 64), (64, 1)]
    spectral = [np.linalg.norm(params[f"layer_{i}"]["weight"], 2) for i in range(4)]
    np.testing.assert_allclose(spectral, [np.sqrt(2)] * 3 + [1.0], rtol=1e-5)
    assert all(np.all(layer["bias"] == 0) for layer in params.values())
    assert not np.allclose(params["layer_1"]["weight"], params["layer_2"]["weight"])


def test_mlp_is_relu_layers_and_a_linear_output():
    rng = np.random.default_rng(1)
    sizes = (3, 4, 4, 2)
    params = {
        f"layer_{i}": {
            "weight": jnp.asarray(rng.normal(size=sizes[i : i + 2])),
            "bias": jnp.asarray(rng.normal(size=n)),
        }
        for i, n in enumerate(sizes[1:])
    }
    x = rng.normal(size=(5, 2, 3))
    expected = x
    for i in range(3):
        layer = jax.tree.map(np.asarray, params[f"layer_{i}"])
        expected = expected @ layer["weight"] + layer["bias"]
        expected = np.maximum(expected, 0) if i < 2 else expected
    assert (expected < 0).any()
    np.testing.assert_allclose(layers.mlp(params, jnp.asarray(x)), expected, rtol=1e-4, atol=1e-5)
