"""Operators on degenerate sets, for one agent, by name, and a user's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_operators import NAMES, embed

from grasp.consensus import OPERATORS, consensus, weighting

DEGENERATE = np.stack(
    [
        np.zeros((4, 6)),
        np.ones((4, 6)),
        embed([[1, 0], [-1, 0]]),
        embed([[1, 0], [0, 0], [1, 1]]),
        embed([[1e-18, 0], [0, 1e18]]) / 1e18,
    ]
)


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_is_defined_on_degenerate_sets(name):
    G = jnp.asarray(np.einsum("bnd,bmd->bnm", DEGENERATE, DEGENERATE), jnp.float32)
    w = jax.jit(jax.vmap(OPERATORS[name], (0, None)))(G, jax.random.key(0))
    assert bool(jnp.all(jnp.isfinite(w)))
    assert w.dtype == jnp.float32


@pytest.mark.parametrize("name", NAMES)
def test_one_agent_alone_keeps_its_gradient(name):
    """With N = 1 every operator's u is g, but for CAGrad's, which adds half of it."""
    w = float(OPERATORS[name](jnp.ones((1, 1)), jax.random.key(0))[0])
    assert w == pytest.approx(1.5 if name == "cagrad" else 1.0, abs=1e-5)


def shortest(G, key):
    """A user's operator: all weight on the shortest gradient."""
    del key
    return (jnp.arange(len(G)) == jnp.argmin(jnp.diagonal(G))).astype(G.dtype)


def test_registry():
    assert weighting("mean") is OPERATORS["mean"]
    with pytest.raises(ValueError, match=r"^unknown operator 'min_nrm'; did you mean 'min_norm'\?$"):
        weighting("min_nrm")
    with pytest.raises(
        ValueError, match=r"^can't load operator 'no\.such:thing' .*; write it as 'package\.module:function'$"
    ):
        weighting("no.such:thing")
    with pytest.raises(ValueError, match=r"^operator 'math:pi' is no function; it must map \(G, key\) to weights$"):
        weighting("math:pi")


def test_a_users_own_operator():
    u, info = consensus(jnp.array([[2.0, 0], [0, 1]]), f"{__name__}:shortest")
    np.testing.assert_allclose(u, [0, 1])
    np.testing.assert_allclose(info.weights, [0, 1])
