"""What the commands print about a run, always with the evaluation protocol."""

from typing import Any

from rich.console import Console
from rich.table import Table

from grasp.analysis.statistics import wilson
from grasp.runs import Run
from grasp.runs.metrics_log import plain, read
from grasp.training.evaluation import Scores
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


def score_rows(run: Run, scores: dict[int, Scores], checkpoint: int | None = None) -> list[dict[str, Any]]:
    """An evaluation as plain values, one row per seed. `checkpoint` is the steps of its policy, None for the best."""
    logged = (line for seed in run.seeds for line in read(run.metrics_log(seed)).records)
    rows, has_wins = [], any(Metric.WIN_RATE in line for line in logged)
    for seed, score in scores.items():
        row = {"run": str(run.path), "algo": run.config.algo, "env": run.config.env, "seed": seed, "greedy": True}
        row["checkpoint"] = checkpoint
        row |= {Metric.EPISODES: len(score.returned), Metric.RETURN_MEAN: score.returned.mean()}
        row[Metric.RETURNS] = score.returned
        if has_wins:
            row |= {Metric.WIN_RATE: score.won.mean(), Metric.WINS: score.won.astype(int)}
        rows.append(plain(row))
    return rows


def print_scores(rows: list[dict[str, Any]], console: Console) -> None:
    """An evaluation as a table; a win rate with its 95 % Wilson interval over episodes."""
    table = Table(title=f"{rows[0]['algo']} on {rows[0]['env']}", title_justify="left")
    for column in ("seed", "return", "wins"):
        table.add_column(column, justify="right")
    for row in rows:
        wins = "–"
        interval = wilson(sum(row[Metric.WINS]), row[Metric.EPISODES]) if Metric.WINS in row else None
        if interval:
            wins = f"{row[Metric.WIN_RATE]:.1%} [{interval[0]:.1%}, {interval[1]:.1%}]"
        table.add_row(str(row["seed"]), shown(row[Metric.RETURN_MEAN]), wins)
    console.print(table)
    whose = "stored policy" if rows[0]["checkpoint"] is None else f"policy at {rows[0]['checkpoint']:,} steps"
    console.print(f"{rows[0][Metric.EPISODES]} greedy episodes of the {whose}, per seed", style="dim")
