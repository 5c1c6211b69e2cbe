"""Statistics for comparisons of runs: pure numpy, vectorised, seeded.

A score is one number per training seed, so every interval here but Wilson's is over seeds. The percentile bootstrap is
too narrow for few seeds: a nominal 95 % interval of the IQM of normal scores covers about 93 % with ten seeds, 90 %
with five, 74 % with three. For one seed, or seeds that all agree, the spread is unknown: the interval is None, never
one of zero width. `grasp.analysis.permutation_test` has a test that is valid for few seeds.

Over several tasks, seeds are resampled within each task (stratified); tasks may have different numbers of seeds. The
definitions are those of Agarwal et al. (2021), "rliable".
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

Interval = tuple[float, float]
# The axis is anonymous: two sides of a comparison, or two tasks, may have different numbers of seeds.
Scores = Float[np.ndarray, "_"] | Sequence[float]
Reduced = Float[np.ndarray, "*reps"] | np.float64
Statistic = Callable[[Float[np.ndarray, "*reps n"]], Reduced]
Task = Float[np.ndarray, "*_"]
BLOCK = 64
"""Points of a curve that are resampled at once, which bounds the memory for long curves."""


class Estimate(NamedTuple):
    """A number and its interval over seeds, if any."""

    value: float
    interval: Interval | None


class Paired(NamedTuple):
    """Differences between two sides at the same seeds."""

    seeds: tuple[int, ...]
    mean: float
    interval: Interval | None
    alone: tuple[int, ...]
    """Seeds that only one side has."""


class Profile(NamedTuple):
    """The fraction of seeds that score above each threshold, and its pointwise band; NaN if the spread is unknown."""

    thresholds: Float[np.ndarray, " points"]
    fraction: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]


def mean(x: Float[np.ndarray, "*reps n"]) -> Reduced:
    """The mean over the last axis."""
    return np.mean(x, axis=-1)


def median(x: Float[np.ndarray, "*reps n"]) -> Reduced:
    """The median over the last axis; censored seeds may be infinite."""
    return np.median(x, axis=-1)


def iqm(x: Float[np.ndarray, "*reps n"]) -> Reduced:
    """The interquartile mean over the last axis: the mean without the `floor(n / 4)` lowest and highest values.

    The same as rliable's and scipy's `trim_mean(x, 0.25)`; below four values it is the mean. NaN propagates: sorting
    would place a diverged seed among the best and trim it.
    """
    cut = x.shape[-1] // 4
    kept = np.sort(x, axis=-1)[..., cut : x.shape[-1] - cut]
    return np.where(np.isnan(x).any(axis=-1), np.nan, kept.mean(axis=-1))[()]


def optimality_gap(x: Float[np.ndarray, "*reps n"], threshold: float = 1.0) -> Reduced:
    """How far scores are below `threshold` on average; scores above it count as `threshold`."""
    return threshold - np.minimum(x, threshold).mean(axis=-1)


def strata(values: Scores | Sequence[Scores]) -> list[Task]:
    """Scores as a list of tasks; a flat list is one task."""
    nested = len(values) > 0 and np.ndim(values[0]) > 0
    return [np.asarray(task, dtype=float) for task in (values if nested else [values])]


def _unknown(tasks: Sequence[Task]) -> bool:
    """Whether the spread is unknown: one seed, a diverged one, or seeds that all agree."""
    if min(len(task) for task in tasks) < 2 or all(np.all(task == task[0]) for task in tasks):
        return True
    return any(np.isnan(task).any() for task in tasks)


def _ends(x: Float[np.ndarray, " reps"], level: float) -> Interval:
    low, high = np.quantile(x, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _draw(tasks: Sequence[Task], reps: int, rng: np.random.Generator) -> list[Float[np.ndarray, "reps _"]]:
    return [task[rng.integers(len(task), size=(reps, len(task)))] for task in tasks]


def bootstrap(
    values: Scores | Sequence[Scores], statistic: Statistic, reps: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval | None:
    """The percentile bootstrap interval of `statistic` over seeds.

    Given one list of scores per task (lengths may differ), seeds are resampled within each task and the statistic is
    taken over all scores together, as in rliable. None if any task has fewer than two seeds, or if all seeds score the
    same in every task: the spread is then unknown, not zero. None also if a score is NaN.
    """
    tasks = strata(values)
    if _unknown(tasks):
        return None
    drawn = _draw(tasks, reps, np.random.default_rng(seed))
    return _ends(np.asarray(statistic(np.concatenate(drawn, axis=-1))), level)


def bootstrap_curve(
    values: Float[np.ndarray, "points n"], statistic: Statistic, reps: int = 2000, level: float = 0.95, seed: int = 0
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """The ends of the bootstrap interval at every point of a curve; all points use the same resamples of seeds.

    The band has zero width where all seeds agree and is NaN where a seed is NaN.
    """
    draws = np.random.default_rng(seed).integers(values.shape[1], size=(reps, values.shape[1]))
    blocks = [values[i : i + BLOCK] for i in range(0, len(values), BLOCK)]
    quantiles = [(1 - level) / 2, (1 + level) / 2]
    ends = [np.quantile(np.asarray(statistic(block[:, draws])), quantiles, axis=1) for block in blocks]
    low, high = np.concatenate(ends, axis=1) if ends else np.empty((2, 0))
    return low, high


def difference(
    a: Scores | Sequence[Scores],
    b: Scores | Sequence[Scores],
    statistic: Statistic = iqm,
    reps: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """`statistic` of `a` minus that of `b`; the interval resamples the seeds of both sides within each task."""
    sides = [strata(a), strata(b)]
    first, second = (statistic(np.concatenate(side)) for side in sides)
    value = float(first - second)
    short = min(len(task) for side in sides for task in side) < 2
    if math.isnan(value) or short or all(_unknown(side) for side in sides):
        return Estimate(value, None)
    rng = np.random.default_rng(seed)
    drawn_a, drawn_b = (np.concatenate(_draw(side, reps, rng), axis=-1) for side in sides)
    return Estimate(value, _ends(np.asarray(statistic(drawn_a) - statistic(drawn_b)), level))


def mean_difference(
    a: Sequence[Scores], b: Sequence[Scores], reps: int = 2000, level: float = 0.95, seed: int = 0
) -> Estimate:
    """The difference of the means, averaged over equally weighted tasks; seeds are resampled within each."""
    sides = list(zip(strata(a), strata(b), strict=True))
    value = float(np.mean([first.mean() - second.mean() for first, second in sides]))
    everything = [scores for side in sides for scores in side]
    if math.isnan(value) or min(map(len, everything)) < 2 or all(_unknown([scores]) for scores in everything):
        return Estimate(value, None)
    rng = np.random.default_rng(seed)
    gaps = [np.subtract(*(x.mean(axis=-1) for x in _draw(side, reps, rng))) for side in sides]
    return Estimate(value, _ends(np.mean(gaps, axis=0), level))


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Paired | None:
    """Mean of `a - b` over the seeds that both have, with the bootstrap interval of that mean; None without a pair.

    The two of a pair may be correlated (equal keys, equal evaluation episodes), which makes the interval narrower.
    """
    seeds = tuple(sorted(a.keys() & b.keys()))
    if not seeds:
        return None
    gaps = np.array([a[seed] - b[seed] for seed in seeds])
    return Paired(seeds, float(gaps.mean()), bootstrap(gaps, mean), tuple(sorted(a.keys() ^ b.keys())))


def probability_of_improvement(
    a: Scores | Sequence[Scores],
    b: Scores | Sequence[Scores],
    reps: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, Interval | None]:
    """The probability that a seed of `a` scores above a seed of `b`, ties counting half, and its bootstrap interval.

    In one task this is the Mann-Whitney statistic U / (n m); over several, the mean. The interval resamples the seeds
    of both sides; it is None if a side has only one seed in a task, or if all pairs of every task compare the same way,
    since every resample then has the same value.
    """
    sides = list(zip(strata(a), strata(b), strict=True))
    if any(np.isnan(scores).any() for side in sides for scores in side):
        return float("nan"), None
    tables = [(x[:, None] > y[None, :]) + 0.5 * (x[:, None] == y[None, :]) for x, y in sides]
    probability = float(np.mean([above.mean() for above in tables]))
    if min(min(above.shape) for above in tables) < 2 or all(np.all(above == above[0, 0]) for above in tables):
        return probability, None
    rng = np.random.default_rng(seed)
    resampled = np.zeros(reps)
    for above in tables:
        weights_a, weights_b = (_weights(n, reps, rng) for n in above.shape)
        resampled += ((weights_a @ above) * weights_b).sum(axis=-1) / len(tables)
    return probability, _ends(resampled, level)


def _weights(n: int, reps: int, rng: np.random.Generator) -> Float[np.ndarray, "reps n"]:
    """The relative frequency of each of `n` seeds in a resample, for statistics that are linear in the seeds."""
    counts: Int[np.ndarray, "reps n"] = rng.multinomial(n, np.full(n, 1 / n), size=reps)
    return counts / n


def aggregate(
    tasks: Sequence[Scores], threshold: float = 1.0, reps: int = 2000, level: float = 0.95, seed: int = 0
) -> dict[str, Estimate]:
    """rliable's four aggregates of normalised scores over tasks, with stratified bootstrap intervals.

    IQM over all seeds together; mean and median of the tasks' means; mean over tasks of the optimality gap below
    `threshold`. A task with more seeds weighs more in the IQM, and only there.
    """
    definitions: dict[str, Callable[[list[Task]], Reduced]] = {
        "IQM": lambda drawn: iqm(np.concatenate(drawn, axis=-1)),
        "mean": lambda drawn: mean(np.stack([mean(x) for x in drawn], axis=-1)),
        "median": lambda drawn: median(np.stack([mean(x) for x in drawn], axis=-1)),
        "optimality gap": lambda drawn: mean(np.stack([optimality_gap(x, threshold) for x in drawn], axis=-1)),
    }
    known = [np.asarray(task, dtype=float) for task in tasks]
    drawn = None if _unknown(known) else _draw(known, reps, np.random.default_rng(seed))
    return {
        name: Estimate(float(of(known)), None if drawn is None else _ends(np.asarray(of(drawn)), level))
        for name, of in definitions.items()
    }


def profile(
    tasks: Scores | Sequence[Scores],
    thresholds: Float[np.ndarray, " points"],
    reps: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Profile:
    """The performance profile: the fraction of seeds above each threshold, averaged over tasks."""
    known = strata(tasks)
    above = [(task[:, None] > thresholds[None, :]).astype(float) for task in known]
    fraction = np.mean([task.mean(axis=0) for task in above], axis=0)
    if _unknown(known):
        unknown = np.full(len(thresholds), np.nan)
        return Profile(thresholds, fraction, unknown, unknown)
    rng = np.random.default_rng(seed)
    drawn = np.mean([_weights(len(task), reps, rng) @ task for task in above], axis=0)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Profile(thresholds, fraction, low, high)


def steps_to(curve: Float[np.ndarray, "2 _"], threshold: float, window: int = 3) -> float:
    """Steps at which the mean of the last `window` evaluations first reaches `threshold`; infinity if it never does.

    The window discounts single lucky evaluations. The curve may fall below the threshold later: the final score shows
    that, and speed should not. Nothing is interpolated.
    """
    steps, values = curve
    if len(values) < window:
        return math.inf
    smooth = np.convolve(values, np.full(window, 1 / window), mode="valid")
    # Rounding: the mean of three 0.7 is not exactly 0.7.
    reached = np.flatnonzero(smooth >= threshold - 1e-12 * max(1.0, abs(threshold)))
    return float(steps[window - 1 :][reached[0]]) if len(reached) else math.inf


def median_steps(steps: Scores, reps: int = 2000, level: float = 0.95, seed: int = 0) -> Estimate:
    """The median over seeds of `steps_to`, infinity for seeds that never reach it; the ends may be infinite."""
    x = np.asarray(steps, dtype=float)
    if _unknown([x]):
        return Estimate(float(median(x)), None)
    drawn = np.asarray(median(_draw([x], reps, np.random.default_rng(seed))[0]))
    # No interpolation: between a number and infinity there is none.
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return Estimate(float(median(x)), (float(low), float(high)))


def wilson(successes: int, n: int, level: float = 0.95) -> Interval | None:
    """Wilson's interval for the win rate of one policy over `n` episodes; None for zero episodes."""
    if n < 1:
        return None
    z = NormalDist().inv_cdf((1 + level) / 2)
    rate = successes / n
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (rate * (1 - rate) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)
