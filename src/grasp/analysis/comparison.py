"""Compare runs: scores over seeds with intervals, pairs of algorithms, and aggregates over environments.

A seed has three scores: its absolute metric (the best policy, evaluated again), the mean of the last tenth of its
evaluations, and the mean of all; the latter two also with sampled actions. All are summarised; pairs and aggregates use
the chosen one, by default the absolute metric if every seed on the environment has one, else the last tenth.
`grasp.analysis.comparability` checks which runs may be compared.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from grasp.analysis import comparability, statistics
from grasp.analysis.permutation_test import permutation_p
from grasp.analysis.run_data import (
    ABSOLUTE,
    LAST,
    METRICS,
    SAMPLED_LAST,
    SAMPLED_WHOLE,
    WHOLE,
    RunData,
    in_figures,
    metric_of,
)
from grasp.analysis.statistics import Estimate, Interval, Paired
from grasp.types import GraspError

FRACTION = 0.75
"""Of the best algorithm's score: the default threshold for the steps to a threshold."""
POINTS = 101
"""Number of thresholds of a performance profile."""
OVERALL = "all environments"


@dataclass(frozen=True)
class Summary:
    """One score, over seeds."""

    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    iqm: float
    mean: float
    median: float
    interval: Interval | None
    """Of the IQM."""


@dataclass(frozen=True)
class Reached:
    """Env steps to a threshold: of each seed (infinity if its run ends before) and their median."""

    threshold: float
    steps: tuple[float, ...]
    median: float
    interval: Interval | None


@dataclass(frozen=True)
class Row(Summary):
    """One run: the summary of the compared score, the summaries of all scores, and where they come from."""

    label: str
    env: str
    metric: str
    final: str
    """The name of the compared score: a key of `by`."""
    by: Mapping[str, Summary]
    """Every score, by its name in `grasp.analysis.run_data`; only those that some seed has."""
    reached: Reached
    env_steps: tuple[int, int]
    protocol: str
    env_version: str
    path: str
    claim: str = ""
    """The paper's score for this algorithm and environment, mean ± standard deviation over seeds."""


@dataclass(frozen=True)
class Improvement:
    """Two algorithms on one environment, or over all environments (then in normalised scores)."""

    env: str
    first: str
    second: str
    probability: float
    """That a seed of `first` scores above a seed of `second`."""
    interval: Interval | None
    difference: Estimate
    """Of the IQMs."""
    p: float
    """p value of the permutation test of the difference of means."""
    paired: Paired | None
    """Mean difference at equal seeds; None if no seed is on both sides, or over several environments."""
    fewest: int
    """Number of seeds on the smaller side."""


@dataclass(frozen=True)
class Scale:
    """The normalisation of an environment's scores: `low` becomes 0 and `high` becomes 1."""

    env: str
    low: float
    high: float
    words: str

    def of(self, scores: Sequence[float]) -> Float[np.ndarray, "_"]:
        return (np.asarray(scores, dtype=float) - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Aggregate:
    """One algorithm over all environments, in normalised scores."""

    label: str
    iqm: Estimate
    mean: Estimate
    median: Estimate
    optimality_gap: Estimate


@dataclass(frozen=True)
class Curve:
    """The performance profile of one algorithm on one environment (in its metric) or over all (normalised)."""

    env: str
    label: str
    thresholds: tuple[float, ...]
    share: tuple[float, ...]
    """The fraction of scores above each threshold."""
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`; `grasp.analysis.tables` and `grasp.analysis.html_report` display it."""

    rows: tuple[Row, ...]
    improvements: tuple[Improvement, ...]
    scales: tuple[Scale, ...]
    aggregates: tuple[Aggregate, ...]
    profiles: tuple[Curve, ...]
    mixed: tuple[str, ...]
    """Environments whose runs differ in version or protocol and were compared with `force`."""
    warnings: tuple[str, ...]


def compare(
    runs: Sequence[RunData],
    force: bool = False,
    threshold: float | None = None,
    chance: Mapping[str, float] | None = None,
    claims: Mapping[tuple[str, str], str] | None = None,
    notes: Sequence[str] = (),
    score: str | None = None,
) -> Comparison:
    """Compare runs, environment by environment, then over all environments that the algorithms share.

    Raises GraspError if versions or protocols differ, unless `force`. `threshold` is the normalised score for the steps
    to a threshold: a win rate, or a fraction of the scale of returns. `chance` is the mean return of random play, by
    environment. `claims` are the paper's scores, by environment and label. `notes` are printed before the warnings.
    """
    if threshold is not None and not 0 < threshold <= 1:
        raise GraspError(
            f"threshold must be above 0 and at most 1 (a win rate, or a fraction of the scale), not {threshold}"
        )
    warnings = [*notes, *(w for run in runs for w in run.warnings)]
    rows: list[Row] = []
    scales: list[Scale] = []
    mixed: list[str] = []
    for env in dict.fromkeys(run.env for run in runs):
        group = [run for run in runs if run.env == env]
        metric, final = metric_of(group), comparability.final_of(group, score)
        differing = comparability.check(group, force)
        mixed += [env] if differing else []
        scale = _scale(group, metric, final, (chance or {}).get(env))
        best = max((_summary(run, metric, final).iqm for run in group), key=lambda x: -math.inf if math.isnan(x) else x)
        timed = FRACTION * scale.of([best])[0] if threshold is None else threshold
        timed = timed if timed > 0 else math.nan  # a score of zero on the scale would be reached by any run
        aim, reported = scale.low + timed * (scale.high - scale.low), claims or {}
        summary = [_row(run, metric, final, aim, reported.get((env, run.label), "")) for run in group]
        found = [*differing, *comparability.warnings_of(group, metric, final)]
        found += ["no score is above the scale's zero, so none is normalised"] * math.isnan(scale.high)
        rows, scales = rows + summary, [*scales, scale]
        warnings += [f"{env}: {text}" for text in found]
    everywhere, notes = _shared(rows)
    pairs = [pair(a.env, a.label, b.label, a, b) for a, b in itertools.combinations(rows, 2) if a.env == b.env]
    return Comparison(
        rows=tuple(rows),
        improvements=tuple(pairs + _pairs_over_all(rows, scales, everywhere)),
        scales=tuple(scales),
        aggregates=tuple(_aggregate(label, _tasks(rows, scales, label)) for label in everywhere),
        profiles=tuple(_profiles(rows, scales, everywhere)),
        mixed=tuple(mixed),
        warnings=(*warnings, *notes),
    )


def _summary(run: RunData, metric: str, final: str) -> Summary:
    seeds = [seed for seed in run.seeds if len(seed.values(metric, final))]
    scores = np.array([seed.score(metric, final) for seed in seeds])
    return Summary(
        seeds=tuple(seed.seed for seed in seeds),
        scores=tuple(scores.tolist()),
        iqm=float(statistics.iqm(scores)),
        mean=float(statistics.mean(scores)),
        median=float(statistics.median(scores)),
        interval=statistics.bootstrap(scores, statistics.iqm),
    )


def _row(run: RunData, metric: str, final: str, threshold: float, claim: str) -> Row:
    steps = [statistics.steps_to(seed.curve(metric), threshold) for seed in run.seeds]
    reached = [seed.env_steps for seed in run.seeds]
    names = [ABSOLUTE] * any(seed.absolute for seed in run.seeds) + [LAST, WHOLE]
    names += [SAMPLED_LAST, SAMPLED_WHOLE] * any(metric in seed.sampled for seed in run.seeds)
    return Row(
        **vars(_summary(run, metric, final)),
        label=run.label,
        env=run.env,
        metric=metric,
        final=final,
        by={name: _summary(run, metric, name) for name in names},
        reached=Reached(threshold, tuple(steps), *statistics.median_steps(steps)),
        env_steps=(min(reached), max(reached)),
        protocol=run.protocol,
        env_version=run.env_version,
        path=str(run.path),
        claim=claim,
    )


def _scale(group: list[RunData], metric: str, final: str, chance: float | None) -> Scale:
    """Win rates are not rescaled; returns are, from random play or the lowest evaluation to the best seed's score."""
    if metric == "win rate":
        return Scale(group[0].env, 0.0, 1.0, "win rates, not rescaled")
    seen = [getattr(e, METRICS[metric]) for run in group for seed in run.seeds for e in seed.evaluations]
    low = min((x for x in seen if math.isfinite(x)), default=math.nan) if chance is None else chance
    scores = [score for run in group for score in _summary(run, metric, final).scores]
    high = max((x for x in scores if x > low), default=math.nan)
    source = "the lowest evaluation of any seed" if chance is None else "random play"
    ends = f"0 is {in_figures(low, metric)} ({source}), 1 is {in_figures(high, metric)} (the highest score of a seed)"
    return Scale(group[0].env, low, high, f"returns on a scale where {ends}")


def pair(env: str, first: str, second: str, a: Summary, b: Summary) -> Improvement:
    """Compare two algorithms by one of their scores."""
    by_seed = [dict(zip(side.seeds, side.scores, strict=True)) for side in (a, b)]
    return Improvement(
        env,
        first,
        second,
        *statistics.probability_of_improvement(a.scores, b.scores),
        difference=statistics.difference(a.scores, b.scores),
        p=permutation_p(a.scores, b.scores),
        paired=statistics.paired_difference(*by_seed),
        fewest=min(len(a.seeds), len(b.seeds)),
    )


def _shared(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """The algorithms that ran on every environment, if there are several environments, and warnings."""
    envs = list(dict.fromkeys(row.env for row in rows))
    labels = list(dict.fromkeys(row.label for row in rows))
    everywhere = [label for label in labels if {row.env for row in rows if row.label == label} == set(envs)]
    if len(envs) < 2:
        return [], []
    missing = ", ".join(label for label in labels if label not in everywhere)
    found = [f"over all environments: without {missing}, which did not run on all of them"] if missing else []
    counts = {len(row.seeds) for row in rows if row.label in everywhere}
    if len(counts) > 1:
        found.append("over all environments: runs have different numbers of seeds; more seeds weigh more in the IQM")
    return everywhere, found


def _tasks(rows: Sequence[Row], scales: Sequence[Scale], label: str) -> list[Float[np.ndarray, "_"]]:
    """Normalised scores of an algorithm, environment by environment."""
    return [scale.of(row.scores) for scale in scales for row in rows if (row.env, row.label) == (scale.env, label)]


def _aggregate(label: str, tasks: list[Float[np.ndarray, "_"]]) -> Aggregate:
    found = statistics.aggregate(tasks)
    return Aggregate(label, found["IQM"], found["mean"], found["median"], found["optimality gap"])


def _pairs_over_all(rows: Sequence[Row], scales: Sequence[Scale], labels: list[str]) -> list[Improvement]:
    found = []
    for first, second in itertools.combinations(labels, 2):
        a, b = _tasks(rows, scales, first), _tasks(rows, scales, second)
        fewest = min(len(task) for task in a + b)
        probability, p = statistics.probability_of_improvement(a, b), permutation_p(a, b)
        found.append(Improvement(OVERALL, first, second, *probability, statistics.difference(a, b), p, None, fewest))
    return found


def _profiles(rows: Sequence[Row], scales: Sequence[Scale], everywhere: list[str]) -> list[Curve]:
    wanted = [(row.env, row.label, [np.asarray(row.scores)]) for row in rows]
    wanted += [(OVERALL, label, _tasks(rows, scales, label)) for label in everywhere]
    found = []
    for env, label, tasks in wanted:
        pool = [x for e, _, other in wanted if e == env for task in other for x in task if math.isfinite(x)] or [0.0]
        margin = 0.05 * (max(pool) - min(pool)) or 0.5
        ends = min(pool) - margin, max(pool) + margin
        found.append(
            Curve(env, label, *(tuple(x.tolist()) for x in statistics.profile(tasks, np.linspace(*ends, POINTS))))
        )
    return found
