"""Operators: the table of the paper's three conditions, known values, the registry.

Compiling is what costs here, so every set of the table's tests has four gradients in six dimensions and each operator
sees all of them in one call.
"""

import functools

import consensus_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.consensus import CONDITIONS, OPERATORS, consensus

NAMES = sorted(OPERATORS)


def embed(rows: np.ndarray | list[list[float]]) -> np.ndarray:
    """Up to four gradients in a few dimensions, as four in six: the last is repeated, the rest are zeros."""
    g = np.zeros((4, 6))
    g[: len(rows), : len(rows[0])] = rows
    g[len(rows) :] = g[len(rows) - 1]
    return g


def search_sets() -> np.ndarray:
    """Independent gradients: of very different norms, with much in common, nearly cancelling, opposed in pairs."""
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(60, 4, 6)) * np.exp(rng.normal(size=(60, 4, 1)))
    shared = rng.normal(size=(20, 4, 6)) + 1.5 * rng.normal(size=(20, 1, 6))
    opposed = spread - 0.9 * spread.mean(1, keepdims=True)
    slow = embed([[-1, 1e-3, 0, 0], [1, 1e-3, 0, 0], [0, 1, 1e-3, 0], [0, 2, 0, 1e-3]])
    return np.concatenate([spread, shared, opposed, slow[None]])


def thin_sets() -> np.ndarray:
    """Gradients in two or three dimensions, many with 0 in the hull."""
    rng = np.random.default_rng(1)
    g = np.zeros((40, 4, 6))
    g[:20, :, :2], g[20:, :, :3] = rng.normal(size=(20, 4, 2)), rng.normal(size=(20, 4, 3))
    return g


THREE = (embed([[1, 0, 0], [-1, 0, 0], [0, -1, 1]]), embed([[0, 1], [0, 1], [0, 0]]))
"""Pareto-stationary in its first two rows, and a way off the stationary set."""

STATIONARY_POINTS = [
    THREE,
    (embed([[1, 0], [0, 1], [0, 0]]), embed([[0, 0], [0, 0], [1, 1]])),
    (embed([[1, 0], [-1, 0]]), embed([[0, 1], [0, 1]])),
]
JUMPS = {
    # g_3 and g_4 → 0 outside the support of the unit hull; at 0 they take all weight.
    "min_norm_unit": (embed([[1, 0, 0], [0, 1, 0], [0, 0, 0]]), embed([[0, 0, 0], [0, 0, 0], [3, 3, 0]])),
    "cagrad": THREE,
    "nash": THREE,
    "upgrad": THREE,
    "dualproj": THREE,
    "imtl_g": (embed([[1, 0], [2, 0]]), embed([[0, 0], [0, 1]])),
    "aligned_mtl": (embed([[1, 0], [1, 0]]), embed([[0, 0], [0, 1]])),
    # The first step ties between the first two agents; which one a truncated zigzag starts with shows in its end.
    "frank_wolfe": (embed([[-1, 0.5], [1, 0.5], [-1e-9, 1], [0, 2]]), embed([[0, 0], [0, 0], [1, 0], [0, 0]])),
    "pcgrad": (embed([[1, 0, 0], [-1, 1, 0], [-1, -1, 1]]), np.zeros((4, 6))),
    "random": (np.eye(4, 6), np.zeros((4, 6))),
}
"""Where continuity fails: a point and a direction into it. For operators that draw, the key alone suffices."""

SHRINKING = (1e-2, 1e-4, 1e-6)
"""Steps off a point; below 1e-7 float64 can't tell the stationary set from its surroundings."""


def smooth_points() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(5)
    points = [(rng.normal(size=(4, 6)), rng.normal(size=(4, 6))) for _ in range(8)]
    # With fewer dimensions than agents: the weights are not unique and may jump, u must not.
    flat = [(embed(rng.normal(size=(4, 2)) + np.array([2.0, 0])), embed(rng.normal(size=(4, 2)))) for _ in range(4)]
    return points + flat


@functools.cache
def answers(name: str) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(sets, weights, u) for every group of sets, in one compiled call in float64."""
    groups = {"search": search_sets(), "thin": thin_sets()}
    for group, points in {
        "smooth": smooth_points(),
        "stationary": STATIONARY_POINTS,
        "jump": [JUMPS.get(name, THREE)],
    }.items():
        groups[group] = np.stack([base + e * direction for base, direction in points for e in (0, *SHRINKING)])
    g = np.concatenate(list(groups.values()))
    scale = np.linalg.norm(g, axis=2).max(1)[:, None, None]
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(7), len(g))
        G = jnp.asarray(np.einsum("bnd,bmd->bnm", g / scale, g / scale))
        w = np.asarray(jax.jit(jax.vmap(OPERATORS[name]))(G, keys))
    parts = np.cumsum([len(group) for group in groups.values()])[:-1]
    u = np.einsum("bn,bnd->bd", w, g)
    return dict(zip(groups, zip(np.split(g, parts), np.split(w, parts), np.split(u, parts), strict=True), strict=True))


def conflict(name: str) -> float:
    """The largest −g_i·u relative to ‖g_i‖ and the longest gradient."""
    worst = -np.inf
    for group in ("search", "thin"):
        g, _, u = answers(name)[group]
        norms = np.linalg.norm(g, axis=2)
        worst = max(worst, float(np.max(-np.einsum("bnd,bd->bn", g, u) / (norms * norms.max(1, keepdims=True)))))
    return worst


@pytest.mark.parametrize("name", NAMES)
def test_pareto_column(name):
    """A "yes" survives the search; a "no" shows an agent that u hurts."""
    if CONDITIONS[name].pareto == "yes":
        assert conflict(name) <= 1e-7
    else:
        assert conflict(name) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_hull_column(name):
    """With independent gradients weights are unique, so u is in the hull iff they are on the simplex."""
    _, w, _ = answers(name)["search"]
    off = max(float(np.max(np.abs(w.sum(1) - 1))), float(np.max(-w)))
    if CONDITIONS[name].hull == "yes":
        assert off <= 1e-9
    else:
        assert off > 1e-2


def leaps(name: str, group: str) -> np.ndarray:
    """How far u(base + ε·direction) stays from u(base) at the smallest and the largest ε, relative to the gradients."""
    g, _, u = answers(name)[group]
    scale = np.linalg.norm(g, axis=2).max(1).reshape(-1, 1 + len(SHRINKING))[:, :1]
    u = u.reshape(len(scale), 1 + len(SHRINKING), -1)
    return np.linalg.norm(u[:, 1:] - u[:, :1], axis=2) / scale


@pytest.mark.parametrize("name", NAMES)
def test_continuous_column(name):
    verdict = CONDITIONS[name].continuous
    if verdict in ("yes", "off_stationary"):
        assert leaps(name, "smooth")[:, -1].max() < 1e-4
        assert leaps(name, "smooth")[:, 0].max() > 1e-4
    if verdict == "yes":
        assert leaps(name, "stationary")[:, -1].max() < 1e-4
    else:
        assert leaps(name, "jump").min() > 2e-3


def test_table_has_every_operator():
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
def test_known_values(name):
    np.testing.assert_allclose(two_agents(name)[0], KNOWN[name], atol=1e-9)


@pytest.mark.parametrize("name", sorted(KNOWN_CONFLICT))
def test_known_values_in_conflict(name):
    np.testing.assert_allclose(two_agents(name)[1], KNOWN_CONFLICT[name], atol=1e-9)


def test_min_norm_matches_the_oracle():
    g, _, u = answers("min_norm")["search"]
    np.testing.assert_allclose(u, [oracle.min_norm(one) for one in g], atol=1e-9)


def test_min_norm_unit_is_the_direction_of_the_unit_hull():
    g, _, u = answers("min_norm_unit")["search"]
    for one, found in zip(g, u, strict=True):
        unit = oracle.min_norm(one / np.linalg.norm(one, axis=1, keepdims=True))
        np.testing.assert_allclose(found / np.linalg.norm(found), unit / np.linalg.norm(unit), atol=1e-8)


def test_pcgrad_for_some_order_of_its_own():
    """Each agent's order is drawn; over all orders of three agents one must give each drawn answer, rows in place."""
    g = embed([[1, 0, 0], [-1, 1, 0], [-1, -1, 1]])
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 172)
        w = np.asarray(jax.jit(jax.vmap(OPERATORS["pcgrad"], (None, 0)))(jnp.asarray(g @ g.T), keys))
    possible = oracle.pcgrad_answers(g)
    found = w @ g
    distance = np.linalg.norm(found[:, None] - possible[None], axis=2)
    assert distance.min(1).max() < 1e-12
    assert len(set(distance.argmin(1).tolist())) > 5


def test_nash_equation():
    """G α = 1/α, G in units of the largest norm."""
    g, w, _ = answers("nash")["search"]
    scaled = g / np.linalg.norm(g, axis=2).max(1)[:, None, None]
    np.testing.assert_allclose(np.einsum("bnd,bmd,bm->bn", scaled, scaled, w) * w, np.ones(w.shape), atol=1e-7)


def test_nash_direction_ignores_the_length_of_a_gradient():
    g = search_sets()[:20]
    with jax.enable_x64(True):
        run = jax.jit(jax.vmap(lambda g: consensus(g, "nash_normalised")[0]))
        plain, stretched = (np.asarray(run(jnp.asarray(one))) for one in (g, g * np.array([1.0, 30, 1, 1])[:, None]))
    cosine = np.sum(plain * stretched, 1) / np.linalg.norm(plain, axis=1) / np.linalg.norm(stretched, axis=1)
    np.testing.assert_allclose(cosine, 1, atol=1e-9)


def test_dual_cone_projections_match_a_second_solver():
    g, _, projections = answers("upgrad")["search"]
    _, _, projected_means = answers("dualproj")["search"]
    for one, upgrad, dualproj in zip(g[::5], projections[::5], projected_means[::5], strict=True):
        targets = [target + oracle.nnls(one.T, -target)[0] @ one for target in [*one, one.mean(0)]]
        np.testing.assert_allclose(upgrad, np.mean(targets[:-1], axis=0), atol=1e-8)
        np.testing.assert_allclose(dualproj, targets[-1], atol=1e-8)


def test_cagrad_solves_its_problem():
    """d maximises min_i g_i·d in the ball: no random point of the span's sphere does better, and d is on its sphere."""
    rng = np.random.default_rng(6)
    g, w, u = answers("cagrad")["search"]
    for one, c, d in zip(g[:10], w, u, strict=False):
        m = one.mean(0)
        radius = 0.5 * np.linalg.norm(m)
        np.testing.assert_allclose(np.linalg.norm(d - m), radius, rtol=1e-6)
        near = (c - 0.25)[None] + np.linalg.norm(c) * rng.normal(size=(5000, 4)) * 10 ** rng.uniform(
            -4, 1, size=(5000, 1)
        )
        others = m + radius * (near @ one) / np.linalg.norm(near @ one, axis=1, keepdims=True)
        assert np.max(np.min(others @ one.T, axis=1)) <= np.min(one @ d) + 1e-9


def test_random_is_on_the_simplex_and_moves_with_the_key():
    first, second = (OPERATORS["random"](jnp.eye(4), jax.random.key(seed)) for seed in (0, 1))
    assert float(jnp.min(first)) >= 0
    np.testing.assert_allclose(float(jnp.sum(first)), 1, atol=1e-6)
    assert float(jnp.max(jnp.abs(first - second))) > 0.01
