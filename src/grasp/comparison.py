"""Compare runs: one score a seed, its IQM with an interval over seeds, and what to distrust.

A seed's score is its absolute metric (the best checkpoint, evaluated again) where it has one, else the mean of the last
tenth of its evaluations; each row says which. Runs that were killed, lack seeds or were evaluated at other points are
compared all the same, and every such difference is a warning.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grasp import stats
from grasp.records import METRICS, RunData, metric_of, span


@dataclass(frozen=True)
class Row:
    """The summary of one run."""

    label: str
    env: str
    metric: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    iqm: float
    mean: float
    interval: tuple[float, float] | None
    final: str
    env_steps: tuple[int, int]
    protocol: str
    env_version: str
    path: str


@dataclass(frozen=True)
class Improvement:
    """The probability that a seed of `first` scores above a seed of `second` on the same environment."""

    env: str
    first: str
    second: str
    probability: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; `grasp.tables` shows it."""

    rows: tuple[Row, ...]
    improvements: tuple[Improvement, ...]
    warnings: tuple[str, ...]


def compare(runs: Sequence[RunData]) -> Comparison:
    """Compare runs, environment by environment."""
    warnings = [w for run in runs for w in run.warnings]
    rows: list[Row] = []
    improvements = []
    for env in dict.fromkeys(run.env for run in runs):
        group = [run for run in runs if run.env == env]
        summary = [_row(run, metric_of(group)) for run in group]
        rows += summary
        improvements += [_improvement(a, b) for a, b in itertools.combinations(summary, 2)]
        warnings += _distrust(group, summary)
    return Comparison(tuple(rows), tuple(improvements), tuple(warnings))


def in_figures(x: float, metric: str) -> str:
    """A score as every table prints it."""
    return f"{x:.3f}" if metric == "win rate" else f"{x:,.2f}"


def in_brackets(interval: tuple[float, float] | None, metric: str) -> str:
    """An interval as every table prints it."""
    return "n/a" if interval is None else f"[{in_figures(interval[0], metric)}, {in_figures(interval[1], metric)}]"


def _row(run: RunData, metric: str) -> Row:
    finals = [seed.final() for seed in run.seeds]
    scores = np.array([np.mean([getattr(e, METRICS[metric]) for e in lines]) for lines, _ in finals])
    sources = [source for _, source in finals]
    counts = [f"{name} ×{sources.count(name)}" for name in dict.fromkeys(sources)]
    reached = [seed.env_steps for seed in run.seeds]
    return Row(
        label=run.label,
        env=run.env,
        metric=metric,
        seeds=tuple(seed.seed for seed in run.seeds),
        scores=tuple(scores.tolist()),
        iqm=float(stats.iqm(scores)),
        mean=float(stats.mean(scores)),
        interval=stats.bootstrap(scores, stats.iqm),
        final=sources[0] if len(counts) == 1 else ", ".join(counts),
        env_steps=(min(reached), max(reached)),
        protocol=run.protocol,
        env_version=run.env_version,
        path=str(run.path),
    )


def _improvement(a: Row, b: Row) -> Improvement:
    probability, interval = stats.probability_of_improvement(a.scores, b.scores)
    return Improvement(a.env, a.label, b.label, probability, interval)


def _unfinished(run: RunData) -> list[str]:
    planned, final = run.config.get("steps"), run.config.get("final_episodes")
    planned = planned if isinstance(planned, int) else 0
    late = [s for s in run.seeds if s.absolute is None and (s.env_steps < planned or final)]
    seeds, reached = ", ".join(str(s.seed) for s in late), span({s.env_steps for s in late})
    return [f"{run.label} is unfinished (seed {seeds} at {reached} of {planned:,} env steps)"] if late else []


def _plan(run: RunData) -> str:
    """The evaluation protocol without how far a run has got, so that an unfinished run has the same one."""
    episodes = span({e.episodes for s in run.seeds for e in s.evaluations}) or "unknown"
    gaps = np.concatenate([np.diff(s.curve("return")[0]) for s in run.seeds])
    # Two digits: evaluations fall on whole iterations, whose length may differ a little between algorithms.
    every = f"every {float(f'{np.median(gaps):.2g}'):,.0f} env steps" if len(gaps) else "once"
    again = run.config.get("final_episodes") or span({s.absolute.episodes for s in run.seeds if s.absolute}) or "none"
    return f"{episodes} episodes {every}, {again} at the end"


def _differing(what: str, group: list[Row], values: list[str]) -> list[str]:
    if len(set(values)) == 1:
        return []
    each = "; ".join(f"{row.label}: {value}" for row, value in zip(group, values, strict=True))
    return [f"{what} differ between the runs ({each})"]


def _distrust(group: list[RunData], rows: list[Row]) -> list[str]:
    """Everything about the runs on one environment that a reader of their numbers must know."""
    found = [w for run in group for w in _unfinished(run)]
    ragged = [r for run, r in zip(group, rows, strict=True) if r.env_steps[0] < r.env_steps[1] and not _unfinished(run)]
    found += [f"the seeds of {row.label} reached {span(set(row.env_steps))} env steps" for row in ragged]
    found += _differing("env steps", rows, [span(set(row.env_steps)) for row in rows])
    found += _differing("environment versions", rows, [row.env_version for row in rows])
    found += _differing("evaluation protocols", rows, [_plan(run) for run in group])
    found += _differing("score definitions", rows, [row.final for row in rows])
    found += _differing("seeds", rows, [" ".join(map(str, row.seeds)) for row in rows])
    if rows[0].metric == "return" and any(run.has_wins for run in group):
        found.append("only some runs record wins, so returns are compared")
    for run, row in zip(group, rows, strict=True):
        found += _narrow(run, row)
    return [f"{rows[0].env}: {text}" for text in found]


def _narrow(run: RunData, row: Row) -> list[str]:
    """Why a row has no interval."""
    if np.isnan(row.scores).any():
        return [f"{row.label} has a score that is not a number"]
    if len(row.seeds) > 1:
        same = f"all {len(row.seeds)} seeds of {row.label} score the same, so no interval over seeds"
        return [same] if len(set(row.scores)) == 1 else []
    lines = run.seeds[0].final()[0]
    text = f"{row.label} has one seed, so no interval over seeds"
    if row.metric == "return" or any(e.episodes is None for e in lines):
        return [text]
    episodes = sum(e.episodes or 0 for e in lines)
    interval = stats.wilson(round(sum((e.win_rate or 0.0) * (e.episodes or 0) for e in lines)), episodes)
    return [f"{text}; over its {episodes:,} episodes alone: {in_brackets(interval, row.metric)} (Wilson)"]
