"""u with many agents, few dimensions and noise: the numbers of docs/theory.md, and the page's tables."""

import re

import consensus_oracle as oracle
import numpy as np
import pytest
from consensus_sets import min_norm_points
from paths import REPOSITORY

from grasp.consensus import CONDITIONS

PAGE = (REPOSITORY / "docs" / "theory.md").read_text()


@pytest.mark.parametrize(("num", "choices", "low", "high"), [(2, 2, 0.35, 0.65), (3, 3, 0.1, 0.35), (5, 9, 0, 0)])
def test_u_is_often_zero_where_agents_are_many_beside_dimensions(num, choices, low, high):
    """How often 0 lies in the hull of random team games at random logits, although no g_i is 0."""
    rng = np.random.default_rng(num)
    count = 20 if choices == 9 else 100
    g = [oracle.team_gradient(rng.normal(size=(choices,) * num), rng.normal(size=(num, choices))) for _ in range(count)]
    _, u = min_norm_points(np.stack(g))
    assert low <= np.mean(np.all(u == 0, axis=1)) <= high


@pytest.mark.parametrize(("num", "cosine"), [(3, 0.943), (6, 0.953), (11, 0.967)])
def test_the_angle_between_an_agents_gradient_and_its_step_shrinks_with_the_number_of_agents(num, cosine):
    g = np.eye(num)[None]
    moved = g + min_norm_points(g)[1][:, None]
    found = np.sum(g * moved, axis=2) / np.linalg.norm(moved, axis=2)
    np.testing.assert_allclose(found, cosine, atol=6e-4)
    np.testing.assert_allclose(found, (num + 1) / (num * (num + 3)) ** 0.5, rtol=1e-9)


def test_noise_shrinks_u_in_few_dimensions_and_lengthens_it_in_many():
    """Ten agents with one true gradient of norm 1, and independent noise of norm 0, 1, 3, 10."""
    lengths, cosines = {}, {}
    for dim in (4, 5000):
        rng = np.random.default_rng(dim)
        true = np.eye(dim)[0]
        noise = rng.normal(size=(4, 10, dim))
        size = np.array([0.0, 1, 3, 10])[:, None, None]
        _, u = min_norm_points(true + size * noise / np.linalg.norm(noise, axis=2, keepdims=True))
        lengths[dim] = np.linalg.norm(u, axis=1)
        cosines[dim] = u @ true / np.maximum(lengths[dim], 1e-30)
    assert lengths[4][0] == pytest.approx(1)
    assert np.all(lengths[4][1:] < 0.8)
    np.testing.assert_allclose(lengths[5000], [1, 1.05, 1.38, 3.3], atol=0.06)
    np.testing.assert_allclose(cosines[5000], [1, 0.95, 0.72, 0.30], atol=0.04)


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its header."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def test_the_page_has_the_table_of_conditions():
    found = {row[0].strip("`"): tuple(cell.replace(" ", "_") for cell in row[1:4]) for row in table("Operators")}
    assert found == {name: tuple(conditions) for name, conditions in CONDITIONS.items()}


def test_every_test_that_the_page_names_exists():
    sources = (REPOSITORY / "tests" / "consensus").glob("test_*.py")
    defined = set(re.findall(r"^def (test_\w+)", "\n".join(path.read_text() for path in sources), re.MULTILINE))
    assert set(re.findall(r"`(test_\w+)`", PAGE)) <= defined
    for claim, _, _, tests in table("Claims"):
        assert "`test_" in tests, claim
