"""The statistics against scipy, closed forms and simulated truth."""

import numpy as np
import pytest
import scipy.stats

from grasp.analysis import statistics


@pytest.mark.parametrize("n", range(1, 14))
def test_iqm_is_scipys_trimmed_mean(n):
    x = np.random.default_rng(n).normal(size=(5, n))
    np.testing.assert_allclose(statistics.iqm(x), scipy.stats.trim_mean(x, 0.25, axis=-1), rtol=1e-12)


def test_iqm_ignores_outliers_and_mean_does_not():
    x = np.array([-1e6, 1.0, 2.0, 1e9])
    assert statistics.iqm(x) == 1.5
    assert statistics.mean(x) == pytest.approx(x.sum() / 4)


def test_iqm_does_not_hide_a_diverged_seed():
    assert np.isnan(statistics.iqm(np.array([1.0, 2.0, 3.0, np.nan])))
    np.testing.assert_array_equal(statistics.iqm(np.array([[1.0, np.nan], [1.0, 3.0]])), [np.nan, 2.0])


def test_bootstrap_of_the_mean_is_scipys_percentile_interval():
    x = np.random.default_rng(0).normal(size=12)
    ours = statistics.bootstrap(x, statistics.mean, reps=20_000)
    theirs = scipy.stats.bootstrap((x,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    np.testing.assert_allclose(ours, theirs, atol=0.02)


@pytest.mark.parametrize(("seeds", "expected"), [(3, 0.74), (5, 0.90), (10, 0.93)])
def test_the_coverage_of_an_iqm_interval_is_as_documented(seeds, expected):
    drawn = np.random.default_rng(seeds).normal(size=(1000, seeds))
    bounds = np.array(
        [statistics.bootstrap(scores, statistics.iqm, reps=300, seed=i) for i, scores in enumerate(drawn)]
    )
    assert np.mean((bounds[:, 0] <= 0) & (bounds[:, 1] >= 0)) == pytest.approx(expected, abs=0.03)


def test_bootstrap_coverage_of_the_true_mean_is_near_nominal():
    samples = np.random.default_rng(0).normal(loc=3.0, size=(300, 10))
    bounds = np.array([statistics.bootstrap(x, statistics.mean, reps=1000) for x in samples])
    coverage = np.mean((bounds[:, 0] <= 3.0) & (bounds[:, 1] >= 3.0))
    assert 0.88 <= coverage <= 0.99


def test_bootstrap_level_narrows_the_interval():
    x = np.random.default_rng(2).normal(size=10)
    low_95, high_95 = statistics.bootstrap(x, statistics.iqm) or pytest.fail("no interval")
    low_50, high_50 = statistics.bootstrap(x, statistics.iqm, level=0.5) or pytest.fail("no interval")
    assert low_95 < low_50 < high_50 < high_95


def test_bootstrap_is_seeded():
    x = list(np.random.default_rng(3).normal(size=6))
    assert statistics.bootstrap(x, statistics.iqm, seed=5) == statistics.bootstrap(x, statistics.iqm, seed=5)
    assert statistics.bootstrap(x, statistics.iqm, seed=5) != statistics.bootstrap(x, statistics.iqm, seed=6)


def test_one_seed_has_no_interval():
    assert statistics.bootstrap([0.7], statistics.iqm) is None
    assert statistics.bootstrap([], statistics.iqm) is None
    assert statistics.bootstrap([[0.1, 0.2, 0.3], [0.7]], statistics.iqm) is None
    assert statistics.probability_of_improvement([1.0], [0.0, 0.5]) == (1.0, None)


def test_seeds_that_agree_have_no_interval():
    assert statistics.bootstrap([1.0, 1.0, 1.0], statistics.iqm) is None
    assert statistics.bootstrap([1.0, 2.0, np.nan, 3.0], statistics.iqm) is None
    assert statistics.bootstrap([[0.0, 0.0], [1.0, 1.0]], statistics.mean) is None
    assert statistics.bootstrap([[0.0, 0.0], [1.0, 0.5]], statistics.mean) is not None
    assert statistics.probability_of_improvement([3.0, 2.0], [0.0, 1.0]) == (1.0, None)
    assert statistics.probability_of_improvement([3.0, 2.0], [3.0, 1.0])[1] is not None


def test_bootstrap_is_stratified_over_tasks():
    # The tasks lie far apart and their seeds close together: drawing across tasks would spread the mean.
    low, high = statistics.bootstrap([[0.0, 0.01, 0.0], [1.0, 1.01]], statistics.mean) or pytest.fail("no interval")
    assert 0.4 <= low < high <= 0.41
    low, high = statistics.bootstrap([0.0, 0.01, 0.0, 1.0, 1.01], statistics.mean) or pytest.fail("no interval")
    assert high - low > 0.5


def test_stratified_bootstrap_has_the_variance_of_its_tasks():
    rng = np.random.default_rng(4)
    tasks = [rng.normal(scale=1.0, size=40), rng.normal(scale=3.0, loc=50.0, size=25)]
    low, high = statistics.bootstrap(tasks, statistics.mean, reps=20_000) or pytest.fail("no interval")
    expected = sum(len(task) * task.var() for task in tasks) ** 0.5 / 65
    assert (high - low) / (2 * 1.96) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([2.0, 3.0], [0.0, 1.0], 1.0),
        ([0.0, 1.0], [2.0, 3.0], 0.0),
        ([1.0, 1.0], [1.0, 1.0], 0.5),
        ([1.0, 3.0], [1.0, 2.0], 0.625),  # tie, loss, win, win
        ([5.0, 0.0, 2.0], [1.0], 2 / 3),
    ],
)
def test_probability_of_improvement_in_known_cases(a, b, expected):
    assert statistics.probability_of_improvement(a, b)[0] == pytest.approx(expected)


def test_probability_of_improvement_is_mann_whitney_and_antisymmetric():
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 6, size=9).astype(float), rng.integers(1, 7, size=7).astype(float)
    probability, interval = statistics.probability_of_improvement(a, b)
    assert probability == pytest.approx(scipy.stats.mannwhitneyu(a, b).statistic / 63)
    assert probability + statistics.probability_of_improvement(b, a)[0] == pytest.approx(1.0)
    low, high = interval or pytest.fail("no interval")
    assert low < probability < high


def test_probability_of_improvement_interval_is_that_of_plain_resampling():
    rng = np.random.default_rng(6)
    a, b = rng.normal(0.5, size=8), rng.normal(size=6)
    draws_a, draws_b = a[rng.integers(8, size=(20_000, 8))], b[rng.integers(6, size=(20_000, 6))]
    plain = np.quantile((draws_a[:, :, None] > draws_b[:, None, :]).mean((1, 2)), [0.025, 0.975])
    np.testing.assert_allclose(statistics.probability_of_improvement(a, b, reps=20_000)[1], plain, atol=0.02)


def test_the_two_sides_of_an_improvement_are_resampled_apart():
    """One resample for both would put every probability of a side against itself at a half."""
    scores = [1.0, 2.0, 3.0, 4.0]
    probability, interval = statistics.probability_of_improvement(scores, scores)
    low, high = interval or pytest.fail("no interval")
    assert low < 0.3 < probability == 0.5 < 0.7 < high


def test_probability_of_improvement_with_a_diverged_seed_is_unknown():
    probability, interval = statistics.probability_of_improvement([1.0, np.nan], [0.0, 0.0])
    assert np.isnan(probability)
    assert interval is None


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (7, 10), (290, 320), (1, 1)])
def test_wilson_is_scipys(successes, n):
    theirs = scipy.stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(statistics.wilson(successes, n), theirs, atol=1e-12)


def test_wilson_known_numbers():
    # Newcombe (1998), table I: 81 of 263 and 15 of 148.
    np.testing.assert_allclose(statistics.wilson(81, 263), (0.2553, 0.3662), atol=1e-4)
    np.testing.assert_allclose(statistics.wilson(15, 148), (0.0624, 0.1605), atol=1e-4)
    assert statistics.wilson(0, 0) is None
