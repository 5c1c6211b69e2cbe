"""Operators: the paper's three conditions, values worked out by hand, degenerate sets, and operators by name."""

import functools

import consensus_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from consensus_sets import NAMES, changes, embed, results, search_sets

from grasp.consensus import CONDITIONS, OPERATORS, consensus, weighting


def conflict(name: str) -> float:
    """The largest −g_i·u relative to ‖g_i‖ and the longest gradient."""
    worst = []
    for group in ("search", "thin"):
        g, _, u = results(name)[group]
        norms = np.linalg.norm(g, axis=2)
        worst.append(np.max(-np.einsum("bnd,bd->bn", g, u) / (norms * norms.max(1, keepdims=True))))
    return float(np.max(worst))  # unlike `max`, it passes NaN on


@pytest.mark.parametrize("name", NAMES)
def test_pareto_column(name):
    """For a "yes" the search finds no conflict; for a "no" it finds an agent in conflict with u."""
    if CONDITIONS[name].pareto == "yes":
        assert conflict(name) <= 1e-7
    else:
        assert conflict(name) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_hull_column(name):
    """Weights of independent gradients are unique, so u is in the hull if and only if they are on the simplex."""
    _, w, _ = results(name)["search"]
    off = float(np.max([np.max(np.abs(w.sum(1) - 1)), np.max(-w)]))
    if CONDITIONS[name].hull == "yes":
        assert off <= 1e-9
    else:
        assert off > 1e-2


@pytest.mark.parametrize("name", NAMES)
def test_continuous_column(name):
    verdict = CONDITIONS[name].continuous
    if verdict in ("yes", "off_stationary"):
        assert changes(name, "smooth")[:, -1].max() < 1e-4
        assert changes(name, "smooth")[:, 0].max() > 1e-4
    if verdict == "yes":
        assert changes(name, "stationary")[:, -1].max() < 1e-4
    else:
        assert changes(name, "jump").min() > 2e-3


def test_every_operator_has_its_conditions():
    assert set(CONDITIONS) == set(OPERATORS)


PAIR = np.array([[2.0, 0], [0, 1]])
KNOWN = {
    "min_norm": [0.4, 0.8],
    "min_norm_unit": [2 / 3, 2 / 3],
    "frank_wolfe": [0.4, 0.8],
    "mean": [1, 0.5],
    "pcgrad": [1, 0.5],
    "nash": [1, 1],
    "nash_normalised": [2 / 3, 2 / 3],
    "upgrad": [1, 0.5],
    "dualproj": [1, 0.5],
    "imtl_g": [2 / 3, 2 / 3],
    "aligned_mtl": [0.5, 0.5],
}
CONFLICT = np.array([[1.0, 0], [-1, 1]])
KNOWN_CONFLICT = {
    "min_norm": [0.2, 0.4],
    "mean": [0, 0.5],
    "pcgrad": [0.25, 0.75],  # (g_1 + g_2/2 + g_2 + g_1) / 2
    "upgrad": [0.25, 0.75],
    "dualproj": [0, 0.5],
}


@functools.cache
def two_agents(name: str) -> np.ndarray:
    """u of the two pairs."""
    g = np.stack([PAIR, CONFLICT])
    with jax.enable_x64(True):
        run = jax.jit(jax.vmap(OPERATORS[name], (0, None)))
        w = np.asarray(run(jnp.asarray(np.einsum("bnd,bmd->bnm", g, g)), jax.random.key(0)))
    return np.einsum("bn,bnd->bd", w, g)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_values_by_hand(name):
    np.testing.assert_allclose(two_agents(name)[0], KNOWN[name], atol=1e-9)


@pytest.mark.parametrize("name", sorted(KNOWN_CONFLICT))
def test_values_by_hand_in_conflict(name):
    np.testing.assert_allclose(two_agents(name)[1], KNOWN_CONFLICT[name], atol=1e-9)


def test_min_norm_matches_the_oracle():
    g, _, u = results("min_norm")["search"]
    np.testing.assert_allclose(u, [oracle.min_norm(one) for one in g], atol=1e-9)


def test_min_norm_unit_is_the_direction_of_the_unit_hull():
    g, _, u = results("min_norm_unit")["search"]
    for one, found in zip(g, u, strict=True):
        unit = oracle.min_norm(one / np.linalg.norm(one, axis=1, keepdims=True))
        np.testing.assert_allclose(found / np.linalg.norm(found), unit / np.linalg.norm(unit), atol=1e-8)


def test_pcgrad_projects_in_some_order_per_agent():
    """Each agent's order is drawn; over all orders of three agents each drawn result must match one."""
    g = embed([[1, 0, 0], [-1, 1, 0], [-1, -1, 1]])
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 172)
        w = np.asarray(jax.jit(jax.vmap(OPERATORS["pcgrad"], (None, 0)))(jnp.asarray(g @ g.T), keys))
    possible = oracle.pcgrad_results(g)
    found = w @ g
    distance = np.linalg.norm(found[:, None] - possible[None], axis=2)
    assert distance.min(1).max() < 1e-12
    assert len(set(distance.argmin(1).tolist())) > 5


def test_nash_equation():
    """G α = 1/α, G in units of the largest norm."""
    g, w, _ = results("nash")["search"]
    scaled = g / np.linalg.norm(g, axis=2).max(1)[:, None, None]
    np.testing.assert_allclose(np.einsum("bnd,bmd,bm->bn", scaled, scaled, w) * w, np.ones(w.shape), atol=1e-7)


def test_nash_direction_does_not_depend_on_the_norm_of_a_gradient():
    g = search_sets()[:20]
    with jax.enable_x64(True):
        run = jax.jit(jax.vmap(lambda g: consensus(g, "nash_normalised")[0]))
        plain, stretched = (np.asarray(run(jnp.asarray(one))) for one in (g, g * np.array([1.0, 30, 1, 1])[:, None]))
    cosine = np.sum(plain * stretched, 1) / np.linalg.norm(plain, axis=1) / np.linalg.norm(stretched, axis=1)
    np.testing.assert_allclose(cosine, 1, atol=1e-9)


def test_dual_cone_projections_match_a_second_solver():
    g, _, projections = results("upgrad")["search"]
    _, _, projected_means = results("dualproj")["search"]
    for one, upgrad, dualproj in zip(g[::5], projections[::5], projected_means[::5], strict=True):
        targets = [target + oracle.nnls(one.T, -target)[0] @ one for target in [*one, one.mean(0)]]
        np.testing.assert_allclose(upgrad, np.mean(targets[:-1], axis=0), atol=1e-8)
        np.testing.assert_allclose(dualproj, targets[-1], atol=1e-8)


def test_cagrad_solves_its_problem():
    """d is on the sphere around the mean, and no random point of the sphere has a larger min_i g_i·d."""
    rng = np.random.default_rng(6)
    g, w, u = results("cagrad")["search"]
    for one, c, d in zip(g[:10], w, u, strict=False):
        m = one.mean(0)
        radius = 0.5 * np.linalg.norm(m)
        np.testing.assert_allclose(np.linalg.norm(d - m), radius, rtol=1e-6)
        near = (c - 0.25)[None] + np.linalg.norm(c) * rng.normal(size=(5000, 4)) * 10 ** rng.uniform(
            -4, 1, size=(5000, 1)
        )
        others = m + radius * (near @ one) / np.linalg.norm(near @ one, axis=1, keepdims=True)
        assert np.max(np.min(others @ one.T, axis=1)) <= np.min(one @ d) + 1e-9


def test_random_is_on_the_simplex_and_depends_on_the_key():
    first, second = (OPERATORS["random"](jnp.eye(4), jax.random.key(seed)) for seed in (0, 1))
    assert float(jnp.min(first)) >= 0
    np.testing.assert_allclose(float(jnp.sum(first)), 1, atol=1e-6)
    assert float(jnp.max(jnp.abs(first - second))) > 0.01


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
    """With N = 1, u = g for every operator but CAGrad, which adds half of it."""
    w = float(OPERATORS[name](jnp.ones((1, 1)), jax.random.key(0))[0])
    assert w == pytest.approx(1.5 if name == "cagrad" else 1.0, abs=1e-5)


def shortest(G, key):
    """A user's operator, which puts all weight on the shortest gradient."""
    del key
    return (jnp.arange(len(G)) == jnp.argmin(jnp.diagonal(G))).astype(G.dtype)


def test_operators_are_found_by_name():
    assert weighting("mean") is OPERATORS["mean"]
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # compared as a whole
        weighting("min_nrm")
    known = ", ".join(OPERATORS)
    assert str(caught.value) == f"unknown operator 'min_nrm'; give one of {known}, or 'package.module:function'"
    with pytest.raises(
        ValueError, match=r"^can't load operator 'no\.such:thing' .*; give it as 'package\.module:function'$"
    ):
        weighting("no.such:thing")
    with pytest.raises(
        ValueError, match=r"^operator 'math:pi' is not a function; give one that maps \(G, key\) to weights$"
    ):
        weighting("math:pi")


def test_a_users_own_operator():
    u, info = consensus(jnp.array([[2.0, 0], [0, 1]]), f"{__name__}:shortest")
    np.testing.assert_allclose(u, [0, 1])
    np.testing.assert_allclose(info.weights, [0, 1])
