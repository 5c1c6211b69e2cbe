"""What the commands print about a run, always with the evaluation protocol."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from grasp.analysis.statistics import wilson
from grasp.runs import Run
from grasp.runs.metrics_log import plain, read
from grasp.training.evaluation import Evaluation
from grasp.types import Kind, Metric


def print_run(run: Run, console: Console) -> None:
    """The end of `train` and `resume`: the absolute metric of each seed, and the run directory."""
    last = [read(run.metrics_log(seed)).last for seed in run.seeds]
    rows = [line for line in last if line and line["kind"] == Kind.ABSOLUTE]
    table = Table(title=f"{run.config.algo} on {run.config.env}", title_justify="left")
    for column in ("seed", "return", "wins", "best at step"):
        table.add_column(column, justify="right")
    for row in rows:
        wins = f"{row[Metric.WIN_RATE]:.1%}" if Metric.WIN_RATE in row else "–"
        table.add_row(str(row["seed"]), shown(row[Metric.RETURN_MEAN]), wins, f"{row[Metric.BEST_ENV_STEPS]:,}")
    console.print(table)
    episodes, final = run.config.eval_episodes, run.config.final_episodes
    console.print(
        f"best policy of the evaluations ({episodes} greedy episodes each), scored again on {final} greedy episodes",
        style="dim",
    )
    console.print(f"run directory: {run.path}", highlight=False, markup=False, soft_wrap=True)


def shown(value: float | None) -> str:
    """A mean for a table; "n/a" if the return of an episode was not a number."""
    return "n/a" if value is None else f"{value:.2f}"


def score_rows(run: Run, scores: dict[int, Evaluation], checkpoint: int | None = None) -> list[dict[str, Any]]:
    """An evaluation as plain values, one row per seed. `checkpoint` is the steps of its policy, None for the best."""
    logged = (line for seed in run.seeds for line in read(run.metrics_log(seed)).records)
    rows, has_wins = [], any(Metric.WIN_RATE in line for line in logged)
    for seed, (greedy, sampled) in scores.items():
        row = {"run": str(run.path), "algo": run.config.algo, "env": run.config.env, "seed": seed, "greedy": True}
        row["checkpoint"] = checkpoint
        row |= {Metric.EPISODES: len(greedy.returned), Metric.RETURN_MEAN: greedy.returned.mean()}
        row |= {Metric.RETURNS: greedy.returned, Metric.TIMEOUT_RATE: greedy.timed_out.mean()}
        row |= {Metric.DISTINCT: len(set(greedy.played.tolist()))}
        row |= {Metric.SAMPLED_RETURN_MEAN: sampled.returned.mean(), Metric.SAMPLED_RETURNS: sampled.returned}
        if has_wins:
            row |= {Metric.WIN_RATE: greedy.won.mean(), Metric.WINS: greedy.won.astype(int)}
            row |= {Metric.SAMPLED_WIN_RATE: sampled.won.mean(), Metric.SAMPLED_WINS: sampled.won.astype(int)}
        rows.append(plain(row))
    return rows


def print_scores(rows: list[dict[str, Any]], console: Console) -> None:
    """An evaluation as a table; a win rate with its 95 % Wilson interval over episodes."""
    table = Table(title=f"{rows[0]['algo']} on {rows[0]['env']}", title_justify="left")
    for column in ("seed", "return", "wins", "sampled return", "sampled wins", "time-outs", "distinct"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["seed"]),
            shown(row[Metric.RETURN_MEAN]),
            wins(row, Metric.WINS),
            shown(row[Metric.SAMPLED_RETURN_MEAN]),
            wins(row, Metric.SAMPLED_WINS),
            f"{row[Metric.TIMEOUT_RATE]:.0%}",
            str(row[Metric.DISTINCT]),
        )
    console.print(table)
    whose = "stored policy" if rows[0]["checkpoint"] is None else f"policy at {rows[0]['checkpoint']:,} steps"
    console.print(
        f"{rows[0][Metric.EPISODES]} greedy episodes of the {whose} per seed, and as many with sampled actions "
        f"(ε-greedy for Q-learners); time-outs and distinct sequences of actions are those of the greedy ones",
        style="dim",
    )


def wins(row: dict[str, Any], metric: str) -> str:
    """A win rate with its interval; a dash where the environment has no wins."""
    interval = wilson(sum(row[metric]), row[Metric.EPISODES]) if metric in row else None
    return f"{np.mean(row[metric]):.1%} [{interval[0]:.1%}, {interval[1]:.1%}]" if interval else "–"
