"""The permutation test: against scipy's, and against all relabellings counted one by one."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from grasp.analysis import permutation_test
from grasp.analysis.permutation_test import permutation_p

# Whole numbers over eight are exact in floating point, so that ties are ties.
SIDES = st.lists(st.integers(-40, 40).map(lambda i: i / 8), min_size=2, max_size=4)


def counted(a, b):
    """By the definition: every relabelling of every task, the mean of the tasks' differences."""
    pools = [np.array([*x, *y]) for x, y in zip(a, b, strict=True)]
    ways = [itertools.combinations(range(len(pool)), len(x)) for pool, x in zip(pools, a, strict=True)]
    gaps = [
        np.mean([pool[list(c)].mean() - np.delete(pool, c).mean() for pool, c in zip(pools, chosen, strict=True)])
        for chosen in itertools.product(*ways)
    ]
    observed = np.mean([np.mean(x) - np.mean(y) for x, y in zip(a, b, strict=True)])
    return np.mean(np.abs(gaps) >= abs(observed) - 1e-9)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 5), (4, 6)])
def test_one_task_is_scipys_exact_test(n, m):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.8, size=n), rng.normal(size=m)
    if n == m:  # scipy doubles the smaller tail, which for unequal sides is another definition
        theirs = scipy.stats.permutation_test((a, b), lambda x, y: np.mean(x) - np.mean(y), n_resamples=np.inf)
        assert permutation_p(a, b) == pytest.approx(theirs.pvalue)
    assert permutation_p(a, b) == pytest.approx(counted([a], [b]))


@pytest.mark.parametrize("sizes", [[(2, 2), (2, 3)], [(3, 3), (2, 2), (3, 2)], [(2, 2), (2, 2), (2, 1), (3, 2)]])
def test_several_tasks_are_relabelled_within_each_and_counted_exactly(sizes):
    """Differences between tasks do not affect p."""
    rng = np.random.default_rng(sum(n for n, _ in sizes))
    a = [rng.normal(10 * task + 0.4, size=n) for task, (n, _) in enumerate(sizes)]
    b = [rng.normal(10 * task, size=m) for task, (_, m) in enumerate(sizes)]
    assert permutation_p(a, b) == pytest.approx(counted(a, b), abs=1e-12)
    assert permutation_p(b, a) == pytest.approx(permutation_p(a, b), abs=1e-12)
    assert permutation_p(a, b, seed=1) == permutation_p(a, b), "nothing is drawn"


@given(st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=2))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_law_it_counts_what_the_definition_counts(tasks):
    a, b = [x for x, _ in tasks], [y for _, y in tasks]
    assert permutation_p(a, b) == pytest.approx(counted(a, b), abs=1e-12)


def test_eight_seeds_on_two_tasks_are_counted_and_random_relabellings_agree(monkeypatch):
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.8, size=(2, 8)), rng.normal(size=(2, 8))
    exact = permutation_p(list(a), list(b))
    assert permutation_p(list(a), list(b), seed=1) == exact
    monkeypatch.setattr(permutation_test, "HALF", 10)
    drawn = [permutation_p(list(a), list(b), seed=seed) for seed in range(2)]
    assert drawn[0] != drawn[1]
    # three standard errors of 20,000 draws
    assert drawn == pytest.approx([exact] * 2, abs=3 * math.sqrt(exact * (1 - exact) / permutation_test.EXACT))


def test_it_is_valid_with_few_seeds_and_close_to_a_t_test_with_many():
    assert permutation_p([1.0, 2.0, 3.0], [7.0, 8.0, 9.0]) == pytest.approx(2 / 20)
    assert permutation_p([7.0] * 5, [6.0] * 5) == pytest.approx(2 / 252)
    assert permutation_p([1.0], [2.0]) == 1.0
    assert permutation_p([6.0] * 5, [6.0] * 5) == 1.0
    assert math.isnan(permutation_p([1.0, math.nan], [2.0, 3.0]))
    rng = np.random.default_rng(5)
    a, b = rng.normal(0.5, size=30), rng.normal(size=30)
    assert permutation_p(a, b) == pytest.approx(scipy.stats.ttest_ind(a, b).pvalue, abs=0.01)


def test_equal_differences_far_from_zero_count_as_equal():
    """The observed labelling is counted, however the sums round."""
    a, b = np.array([1, 2, 3]) * 1e-3 + 1e6, np.array([7, 8, 9]) * 1e-3 + 1e6
    assert permutation_p(a, b) == pytest.approx(2 / 20)
