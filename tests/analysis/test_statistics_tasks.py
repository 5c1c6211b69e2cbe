"""Aggregates over tasks, profiles, pairs, curves and speed: against scipy, rliable's formulas and sums done by hand."""

import math
import time

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from grasp.analysis import statistics

# Whole numbers over eight are exact in floating point, so that ties are ties and sums need no tolerance.
SCORE = st.integers(-40, 40).map(lambda i: i / 8)
SCORES = st.lists(SCORE, min_size=2, max_size=7)
LAWS = settings(derandomize=True, deadline=None, max_examples=60)
MATRIX = np.random.default_rng(0).normal(0.5, 0.3, size=(10, 4))  # runs x tasks, as rliable has them
TASKS = list(MATRIX.T)


def test_median_and_gap_in_known_cases():
    assert statistics.median(np.array([3.0, 1.0, 2.0, math.inf])) == 2.5
    assert statistics.median(np.array([3.0, math.inf, math.inf])) == math.inf
    assert statistics.optimality_gap(np.array([0.25, 0.75, 3.0])) == pytest.approx((0.75 + 0.25 + 0.0) / 3)
    assert statistics.optimality_gap(np.array([0.25, 0.75, 3.0]), threshold=2.0) == pytest.approx((1.75 + 1.25) / 3)


def test_aggregates_are_rliables():
    found = statistics.aggregate(TASKS)
    assert found["IQM"].value == pytest.approx(scipy.stats.trim_mean(MATRIX, 0.25, axis=None))
    assert found["mean"].value == pytest.approx(np.mean(np.mean(MATRIX, axis=0)))
    assert found["median"].value == pytest.approx(np.median(np.mean(MATRIX, axis=0)))
    assert found["optimality gap"].value == pytest.approx(1 - np.mean(np.minimum(MATRIX, 1)))
    assert statistics.aggregate(TASKS, threshold=0.5)["optimality gap"].value == pytest.approx(
        0.5 - np.mean(np.minimum(MATRIX, 0.5))
    )


def test_aggregate_intervals_are_those_of_plain_stratified_resampling():
    rng = np.random.default_rng(1)
    plain = {"IQM": [], "mean": [], "median": [], "optimality gap": []}
    for _ in range(4000):
        drawn = np.stack([column[rng.integers(10, size=10)] for column in MATRIX.T], axis=1)
        plain["IQM"].append(scipy.stats.trim_mean(drawn, 0.25, axis=None))
        plain["mean"].append(drawn.mean())
        plain["median"].append(np.median(drawn.mean(axis=0)))
        plain["optimality gap"].append(1 - np.minimum(drawn, 1).mean())
    for name, found in statistics.aggregate(TASKS, reps=4000).items():
        np.testing.assert_allclose(found.interval, np.quantile(plain[name], [0.025, 0.975]), atol=0.012)


def test_a_task_with_more_seeds_does_not_weigh_more_in_the_mean():
    found = statistics.aggregate([[0.0, 0.0, 0.0, 0.0, 0.5, 0.3], [1.0, 1.0]])
    assert found["mean"].value == pytest.approx((0.8 / 6 + 1) / 2)
    assert found["optimality gap"].value == pytest.approx(1 - found["mean"].value)
    assert statistics.aggregate([[0.0, 1.0], [1.0]])["mean"].interval is None


def test_probability_of_improvement_over_tasks_is_rliables():
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 5, size=(6, 3)).astype(float), rng.integers(0, 6, size=(4, 3)).astype(float)
    u = [scipy.stats.mannwhitneyu(x[:, t], y[:, t], alternative="greater").statistic / 24 for t in range(3)]
    probability, interval = statistics.probability_of_improvement(list(x.T), list(y.T))
    assert probability == pytest.approx(np.mean(u))
    low, high = interval or pytest.fail("no interval")
    single = statistics.probability_of_improvement(x[:, 0], y[:, 0])[1] or pytest.fail("no interval")
    assert low < probability < high
    assert high - low < single[1] - single[0]  # three tasks say more than one
    with pytest.raises(ValueError, match="zip"):
        statistics.probability_of_improvement(list(x.T), list(y.T)[:2])


def test_a_profile_computed_by_hand():
    # Above 0.5: one of two and three of four runs; a run at the threshold is not above it.
    found = statistics.profile([[0.5, 0.75], [0.25, 0.6, 0.7, 1.0]], np.array([0.0, 0.5, 0.65, 1.0]))
    np.testing.assert_allclose(found.fraction, [1.0, (1 / 2 + 3 / 4) / 2, (1 / 2 + 2 / 4) / 2, 0.0])
    assert (found.low[0], found.high[0]) == (1.0, 1.0)
    assert found.low[1] < found.fraction[1] < found.high[1]


def test_profile_band_is_that_of_plain_resampling_and_unknown_for_one_seed():
    thresholds = np.linspace(-0.2, 1.2, 15)
    found = statistics.profile(TASKS, thresholds, reps=4000)
    np.testing.assert_allclose(found.fraction, [np.mean(tau < MATRIX) for tau in thresholds])
    rng = np.random.default_rng(3)
    drawn = np.stack([column[rng.integers(10, size=(4000, 10))] for column in MATRIX.T], axis=-1)
    plain = [np.quantile((drawn > tau).mean(axis=(1, 2)), [0.025, 0.975]) for tau in thresholds]
    np.testing.assert_allclose(np.stack([found.low, found.high], axis=1), plain, atol=0.03)
    alone = statistics.profile([0.4], np.array([0.0, 0.5]))
    assert alone.fraction.tolist() == [1.0, 0.0]
    assert np.isnan([alone.low, alone.high]).all()


def test_difference_is_of_the_iqms_with_the_interval_of_plain_resampling():
    rng = np.random.default_rng(4)
    a, b = rng.normal(1.0, size=9), rng.normal(size=7)
    value, interval = statistics.difference(a, b, reps=8000)
    assert value == pytest.approx(scipy.stats.trim_mean(a, 0.25) - scipy.stats.trim_mean(b, 0.25))
    trimmed = [scipy.stats.trim_mean(x[rng.integers(len(x), size=(8000, len(x)))], 0.25, axis=1) for x in (a, b)]
    np.testing.assert_allclose(interval, np.quantile(trimmed[0] - trimmed[1], [0.025, 0.975]), atol=0.05)
    assert statistics.difference([1.0, 1.0], [0.0, 0.0]) == (1.0, None)
    assert statistics.difference([1.0, 2.0], [0.0, 0.0]).interval is not None
    assert statistics.difference([1.0, 2.0], [0.0]).interval is None
    assert statistics.difference([1.0, math.nan], [0.0, 1.0]).interval is None


def test_difference_over_tasks_resamples_within_each():
    a, b = [[0.0, 0.01], [1.0, 1.01]], [[0.0, 0.01], [0.5, 0.51]]
    value, interval = statistics.difference(a, b, statistics.mean)
    low, high = interval or pytest.fail("no interval")
    assert value == pytest.approx(0.25)
    assert 0.23 < low < high < 0.27


def test_mean_difference_weights_tasks_equally_and_resamples_within_each():
    a, b = [[0.0, 1.0], [10.0, 10.2, 10.4, 10.6]], [[0.5, 0.7, 0.9], [10.0, 10.1]]
    value, interval = statistics.mean_difference(a, b)
    assert value == pytest.approx(((0.5 - 0.7) + (10.3 - 10.05)) / 2)
    assert statistics.mean_difference(b, a).value == pytest.approx(-value)
    rng = np.random.default_rng(1)
    drawn = [[rng.choice(task, size=(20_000, len(task))).mean(axis=1) for task in side] for side in (a, b)]
    expected = np.quantile(np.mean(np.subtract(*drawn), axis=0), [0.025, 0.975])
    np.testing.assert_allclose(interval, expected, atol=0.02)
    assert statistics.mean_difference([[1.0], [1.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]).interval is None
    assert statistics.mean_difference([[1.0, math.nan]], [[0.0, 0.0]]).interval is None
    assert statistics.mean_difference([[1.0, 1.0]], [[0.0, 0.0]]) == (1.0, None)


def test_paired_difference_pairs_by_seed_number():
    a, b = {0: 1.0, 1: 5.0, 2: 9.5, 7: 3.0}, {2: 9.0, 1: 4.0, 0: 0.5, 8: 100.0}
    found = statistics.paired_difference(a, b) or pytest.fail("no pair")
    assert found.seeds == (0, 1, 2)
    assert found.alone == (7, 8)
    assert found.mean == pytest.approx((0.5 + 1.0 + 0.5) / 3)
    low, high = found.interval or pytest.fail("no interval")
    assert 0.5 <= low < found.mean < high <= 1.0
    unpaired = statistics.difference([1.0, 5.0, 9.5], [0.5, 4.0, 9.0], statistics.mean).interval or pytest.fail(
        "no interval"
    )
    assert high - low < (unpaired[1] - unpaired[0]) / 5  # seeds differ far more than algorithms do
    assert statistics.paired_difference({0: 1.0}, {1: 1.0}) is None
    assert statistics.paired_difference({0: 1.0}, {0: 0.0}) == ((0,), 1.0, None, ())


CURVE = np.array([[0.0, 10.0, 20.0, 30.0, 40.0, 50.0], [0.9, 0.0, 0.6, 0.9, 0.9, 0.1]])


def test_steps_to_is_the_first_time_the_mean_of_three_evaluations_reaches_it():
    assert statistics.steps_to(CURVE, 0.8) == 40.0
    assert statistics.steps_to(CURVE, 0.5) == 20.0
    assert statistics.steps_to(CURVE, 0.81) == math.inf
    assert statistics.steps_to(CURVE, 0.9, window=1) == 0.0
    assert statistics.steps_to(CURVE[:, :2], 0.0) == math.inf
    assert statistics.steps_to(np.array([[1.0, 2.0, 3.0], [0.7, 0.7, 0.7]]), 0.7) == 3.0


def test_median_steps_counts_a_censored_seed_as_infinite():
    assert statistics.median_steps([30.0, 10.0, math.inf]).value == 30.0
    assert statistics.median_steps([30.0, math.inf, math.inf]).value == math.inf
    value, interval = statistics.median_steps([10.0, 20.0, 30.0, 40.0, math.inf])
    assert value == 30.0
    assert interval == (10.0, math.inf)
    assert statistics.median_steps([math.inf, math.inf]) == (math.inf, None)


def test_bootstrap_of_a_curve_is_the_bootstrap_of_every_point():
    values = np.random.default_rng(6).normal(size=(150, 5))
    values[3] = 1.0
    values[4, 2] = np.nan
    low, high = statistics.bootstrap_curve(values, statistics.iqm)
    for i in (0, 63, 64, 149):
        assert (low[i], high[i]) == pytest.approx(statistics.bootstrap(values[i], statistics.iqm))
    assert (low[3], high[3]) == (1.0, 1.0)
    assert np.isnan([low[4], high[4]]).all()
    assert statistics.bootstrap_curve(np.empty((0, 5)), statistics.iqm)[0].shape == (0,)


def test_bands_of_six_algorithms_take_seconds_not_minutes():
    """2,000 resamples for 6 algorithms x 10 seeds x 100 points: at most 5 s, about 0.2 s on an idle core."""
    curves = np.random.default_rng(7).normal(size=(6, 100, 10))
    start = time.perf_counter()
    for values in curves:
        statistics.bootstrap_curve(values, statistics.iqm)
    took = time.perf_counter() - start
    start = time.perf_counter()
    for point in curves[0, :20]:
        statistics.bootstrap(point, statistics.iqm)
    one_by_one = (time.perf_counter() - start) * 30
    print(f"bands of 600 points: {took:.2f} s, {one_by_one / took:.1f} times faster than point by point")
    assert took < 5.0


@given(SCORES, SCORES)
@LAWS
def test_law_improvement_and_difference_are_antisymmetric(a, b):
    assert statistics.probability_of_improvement(a, b, reps=2)[0] == pytest.approx(
        1 - statistics.probability_of_improvement(b, a, reps=2)[0]
    )
    assert statistics.difference(a, b, reps=2).value == pytest.approx(-statistics.difference(b, a, reps=2).value)


@given(st.lists(SCORES, min_size=1, max_size=4), st.integers(-8, 8), st.sampled_from([0.25, 2.0, 8.0]))
@LAWS
def test_law_aggregates_are_equivariant_under_a_change_of_units(tasks, shift, scale):
    moved = [[scale * x + shift for x in task] for task in tasks]
    before, after = statistics.aggregate(tasks, reps=20), statistics.aggregate(moved, threshold=scale + shift, reps=20)
    for name in ("IQM", "mean", "median"):
        assert after[name].value == pytest.approx(scale * before[name].value + shift)
        assert (after[name].interval is None) == (before[name].interval is None)
    assert after["optimality gap"].value == pytest.approx(scale * before["optimality gap"].value)


@given(st.lists(SCORES, min_size=1, max_size=4))
@LAWS
def test_law_a_profile_falls_from_one_to_zero_and_its_area_is_the_mean(tasks):
    thresholds = np.linspace(-5.0625, 5.0625, 163)  # a sixteenth apart, halfway between any two scores
    found = statistics.profile(tasks, thresholds, reps=50)
    assert (found.fraction[0], found.fraction[-1]) == (1.0, 0.0)
    assert (np.diff(found.fraction) <= 0).all()
    area = thresholds[0] + found.fraction[:-1].sum() * np.diff(thresholds)[0]
    assert area == pytest.approx(np.mean([np.mean(task) for task in tasks]), abs=0.07)


@given(st.lists(SCORE, min_size=3, max_size=12), SCORE, SCORE)
@LAWS
def test_law_a_higher_threshold_is_never_reached_earlier(values, first, second):
    curve = np.array([np.arange(len(values)) * 10.0, values])
    low, high = sorted([first, second])
    assert statistics.steps_to(curve, low) <= statistics.steps_to(curve, high)
