"""The transformer's feed-forward layer in tiles, and dropout. Attention is compared with numpy in
algos/test_autoencoder.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import assert_close

from grasp.nn import transformer


def feed_layer(feedforward):
    """A feed-forward layer of embeddings of eight, every bias away from zero."""
    params, rng = transformer._feed_init(jax.random.key(0), 8, feedforward), np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf + 0.4 * rng.normal(size=leaf.shape), leaf.dtype), params)


@pytest.mark.usefixtures("x64")
def test_tiles_of_the_feed_forward_change_neither_value_nor_gradient():
    """600 tokens are two whole tiles and a remainder."""
    params, rng = feed_layer(6), np.random.default_rng(4)
    x, weight = (jnp.asarray(rng.normal(size=(20, 30, 8))) for _ in range(2))

    def at_once(params, x):
        inward, outward = params["inward"], params["outward"]
        hidden = jax.nn.relu(jnp.einsum("...e,ef->...f", x, inward["weight"]) + inward["bias"][None, None])
        return jnp.einsum("...f,ef->...e", hidden, outward["weight"]) + outward["bias"][None, None]

    tiled, whole = (
        jax.jit(jax.value_and_grad(lambda p, x, f=f: (f(p, x) * weight).sum(), (0, 1)))(params, x)
        for f in (lambda p, x: transformer._feed(p, x, None), at_once)
    )
    assert_close(tiled, whole, rtol=1e-9, atol=1e-9)


def test_dropout_zeroes_a_tenth_and_keeps_the_mean():
    dropped = np.asarray(transformer._dropout(jnp.ones(20_000), jax.random.key(0)))
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.9)}
    assert abs((dropped == 0).mean() - 0.1) < 0.01


def test_every_token_drops_hidden_units_of_its_own():
    params = feed_layer(64)
    rows = np.asarray(jax.jit(transformer._feed)(params, jnp.ones((40, 8)), jax.random.key(0)))
    assert len(np.unique(rows[:, 0])) > 30
