"""Properties of the min-norm point on random gradients, all of one shape so that everything compiles once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from grasp.consensus import min_norm

LAWS = settings(derandomize=True, deadline=None, max_examples=40, database=None)
SETS = hnp.arrays(np.float64, (4, 3), elements=st.floats(-4, 4).map(lambda x: round(x, 2)))
"""Coarse values make ties, duplicates, zeros and sets with 0 in the hull common."""


@functools.cache
def compiled():
    return jax.jit(min_norm)


def consensus(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        u, info = compiled()(jnp.asarray(g))
        return np.asarray(u), np.asarray(info.weights)


@LAWS
@given(SETS, st.permutations(range(4)))
def test_the_order_of_agents_does_not_matter(g, order):
    np.testing.assert_allclose(consensus(g[order])[0], consensus(g)[0], atol=1e-6)


@LAWS
@given(SETS, st.floats(-8, 8))
def test_u_scales_with_a_common_factor(g, exponent):
    factor = 10**exponent
    np.testing.assert_allclose(consensus(factor * g)[0] / factor, consensus(g)[0], atol=1e-6)


@LAWS
@given(SETS, hnp.arrays(np.float64, (4, 3), elements=st.floats(-1, 1)), st.sampled_from([1e-2, 1e-4, 1e-8]))
def test_u_is_continuous(g, direction, step):
    """Projection on a convex set is Hölder continuous in the set, with exponent 1/2."""
    moved = step * direction
    reach = np.linalg.norm(moved, axis=1).max()
    bound = 2 * np.sqrt(reach * (np.linalg.norm(g, axis=1).max() + reach)) + reach
    assert np.linalg.norm(consensus(g + moved)[0] - consensus(g)[0]) <= bound + 1e-6


@LAWS
@given(SETS)
def test_u_is_in_the_hull_and_the_shortest_there(g):
    u, w = consensus(g)
    assert w.min() >= 0
    assert abs(w.sum() - 1) < 1e-9
    np.testing.assert_allclose(w @ g, u, atol=1e-6)
    assert np.all(g @ u >= u @ u - 1e-6)


@LAWS
@given(SETS, st.integers(0, 3))
def test_a_smaller_hull_has_a_longer_u(g, agent):
    """Replacing one agent's gradient by another's removes a corner: the shortest vector can't become shorter."""
    fewer = g.copy()
    fewer[agent] = g[(agent + 1) % 4]
    assert np.linalg.norm(consensus(fewer)[0]) >= np.linalg.norm(consensus(g)[0]) - 1e-6
