"""A comparison as CSV, as values that JSON can represent, and in the format of marl-eval."""

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from grasp.analysis.comparison import Comparison
from grasp.analysis.run_data import Evaluation, RunData, SeedData


def finite(value: Any) -> Any:
    """The same value with None in place of NaN and infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def rows(comparison: Comparison) -> str:
    """Every score of every run as CSV, one per line; undefined numbers are empty cells."""
    names = "env,algorithm,metric,score,compared,seeds,iqm,low,high,mean,median,env_steps,threshold,steps_to_threshold"
    lines: list[Sequence[object]] = [[*names.split(","), "seeds_at_threshold", "env_version", "protocol", "path"]]
    for row in comparison.rows:
        reached = row.reached
        speed = [reached.threshold, finite(reached.median), sum(map(math.isfinite, reached.steps))]
        for final, found in row.by.items():
            numbers = [found.iqm, *(found.interval or ("", "")), found.mean, found.median, row.env_steps[1], *speed]
            head = [row.env, row.label, row.metric, final, str(final == row.final).lower(), len(found.seeds)]
            cells = ["" if x != x else f"{x:.6g}" if isinstance(x, float) else x for x in numbers]
            lines.append([*head, *cells, row.env_version, row.protocol, row.path])
    return _csv(lines)


def points(comparison: Comparison, runs: Sequence[RunData]) -> str:
    """Every evaluation of every seed as CSV, one per line."""
    metrics = {row.env: row.metric for row in comparison.rows}
    lines: list[Sequence[object]] = [("env", "algorithm", "seed", "env_steps", "metric", "value")]
    for run in runs:
        for seed in run.seeds:
            for steps, value in seed.curve(metrics[run.env]).T:
                lines.append((run.env, run.label, seed.seed, f"{steps:.0f}", metrics[run.env], f"{value:.6g}"))
    return _csv(lines)


def marl_eval(runs: Sequence[RunData]) -> str:
    """The evaluations as marl-eval's JSON: environment, task, algorithm, run, step; a list of numbers per episode.

    Its loader needs environments and tasks in lower case and names without commas. It also refuses data with unequal
    numbers of runs or steps; all evaluations are exported all the same.
    """
    found: dict[str, Any] = {}
    for run in runs:
        family, _, task = run.env.lower().partition("/")
        algorithms = found.setdefault(family, {}).setdefault(task or family, {})
        algorithms[run.label.replace(",", "")] = {f"seed_{seed.seed}": _marl_run(seed) for seed in run.seeds}
    return json.dumps(finite(found), allow_nan=False) + "\n"


def _marl_run(seed: SeedData) -> dict[str, Any]:
    steps = {f"step_{i}": {"step_count": e.env_steps} | _marl_metrics(e) for i, e in enumerate(seed.evaluations)}
    # The loader expects it as the last entry of a run.
    return steps | ({"absolute_metrics": _marl_metrics(seed.absolute)} if seed.absolute else {})


def _marl_metrics(line: Evaluation) -> dict[str, list[float]]:
    wins = {} if line.win_rate is None else {"win_rate": list(line.wins) or [line.win_rate]}
    return {"return": list(line.returns) or [line.return_mean]} | wins
