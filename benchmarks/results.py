"""Write docs/results.md and its curves from the condensed runs in results/: `python benchmarks/results.py`.

results/TASK/runs/LABEL is a condensed run (`grasp condense RUN --out results/TASK/runs/LABEL`), results/TASK/words.md
the task's heading and what we make of its numbers, results/words.md the beginning of the page. All numbers in tables
come from the runs.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from grasp import comparison, plots, records, stats, tables
from grasp.comparison import Comparison, Row, Summary, pair
from grasp.records import RunData, in_brackets, in_figures, short
from grasp.verdict import sure, verdicts

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
HEADER = ("algorithm", "seeds", "steps", "absolute metric", "last tenth of evaluations")
BESIDE = (
    "task",
    "algorithm",
    "seeds",
    "in the end: plain",
    "with GRASP",
    "the difference",
    "over the whole run: plain",
    "with GRASP",
    "the difference",
)
WORDS = {
    ("clear", True): "GRASP is higher",
    ("clear", False): "GRASP is lower",
    ("likely", True): "higher, not settled",
    ("likely", False): "lower, not settled",
}


def tasks() -> list[Path]:
    """The folders that hold runs, in the order of their numbers of algorithms, then by name."""
    found = [folder.parent for folder in RESULTS.glob("*/runs")]
    return sorted(found, key=lambda task: (-len(list((task / "runs").iterdir())), task.name))


def read(task: Path) -> list[RunData]:
    """A task's runs, called by their folders' names."""
    paths = sorted((task / "runs").iterdir())
    return [replace(run, label=path.name) for run, path in zip(records.load_runs(paths), paths, strict=True)]


def table_of(header: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * len(header), *lines))


def beside(runs: list[RunData], result: Comparison) -> list[tuple[str, ...]]:
    """Every algorithm of a task that also ran with GRASP: both scores in the end (last tenth of evaluations) and over
    the whole run, which tells who learns faster, and how sure the differences are."""
    rows = {row.label: row for row in result.rows}
    whole = {run.label: over_the_run(run, rows[run.label].metric) for run in runs}
    pairs = [(label, f"grasp-{label}") for label in rows if f"grasp-{label}" in rows]
    return [
        (
            rows[plain].env,
            plain,
            str(min(len(rows[label].last.seeds) for label in (plain, grasp))),
            *difference(rows[plain], rows[plain].last, rows[grasp].last),
            *difference(rows[plain], whole[plain], whole[grasp]),
        )
        for plain, grasp in pairs
    ]


def together(runs: list[RunData]) -> str:
    """How much higher MAPPO's mean over the whole run is with GRASP on all tasks of a family with several, dealt within
    each: what no task's seeds can settle may be settled by all of them."""
    of = {(run.env, run.label): over_the_run(run, "win rate").scores for run in runs if run.has_wins}
    envs = [env for env, label in of if label == "mappo" and (env, "grasp-mappo") in of]
    lines = []
    for family in dict.fromkeys(env.partition("/")[0] for env in envs):
        tasks = [env for env in dict.fromkeys(envs) if env.startswith(f"{family}/")]
        if len(tasks) < 2:
            continue
        grasp, plain = ([of[env, label] for env in tasks] for label in ("grasp-mappo", "mappo"))
        gap = np.mean([np.mean(a) - np.mean(b) for a, b in zip(grasp, plain, strict=True)])
        deals = 100 * stats.exchange_p(grasp, plain)
        lines.append(
            f"Over the {len(tasks)} tasks of {family} together, MAPPO's mean over the whole run is {abs(gap):.3f} "
            f"{'higher' if gap > 0 else 'lower'} with GRASP; scores dealt at random within each task part the two as "
            f"far in {deals:.2f} % of deals."
        )
    return "\n".join(lines)


def over_the_run(run: RunData, metric: str) -> Summary:
    """The mean of all evaluations after the first, which is of no training."""
    scores = np.array([seed.curve(metric)[1, 1:].mean() for seed in run.seeds])
    seeds = tuple(seed.seed for seed in run.seeds)
    iqm, mean, median = (float(of(scores)) for of in (stats.iqm, stats.mean, stats.median))
    return Summary(seeds, tuple(scores.tolist()), iqm, mean, median, stats.bootstrap(scores, stats.iqm))


def difference(row: Row, plain: Summary, grasp: Summary) -> tuple[str, str, str]:
    found = pair(row.env, "grasp", "plain", grasp, plain)
    words = WORDS.get((sure(found), found.difference.value > 0), "no clear difference")
    return score(row, plain), score(row, grasp), words


def section(task: Path, runs: list[RunData], result: Comparison) -> str:
    """A task's heading, verdict, table, curves and words, and what makes its runs."""
    heading, _, words = (task / "words.md").read_text().partition("\n")
    found = verdicts(result)[-1]
    rows = sorted(result.rows, key=lambda row: -row.last.iqm)
    returns = {run.label: returned(run) for run in runs} if rows[0].metric == "win rate" else {}
    table = table_of((*HEADER, *["return, absolute metric"] * bool(returns)), [cells(row, returns) for row in rows])
    picture = f"![learning curves](../results/{task.name}/curves.png)"
    made = "\n".join(f"- {run.label} at {run.versions.get('commit', 'unknown')}: `{run.command}`" for run in runs)
    how = f"*{rows[0].metric}, {rows[0].env_version}*"
    told = "\n".join(
        f"- {text}" for text in (*tables.protocols(rows), *(w.partition(": ")[2] for w in result.warnings))
    )
    parts = (heading, f"**{found.title}.** {found.detail}", table, how, picture, words.strip(), folded(told, made))
    return "\n\n".join(parts)


def cells(row: Row, returns: dict[str, str]) -> tuple[str, ...]:
    steps = "–".join(short(n) for n in dict.fromkeys(row.env_steps))
    scores = score(row, row.absolute), score(row, row.last)
    return (row.label, str(len(row.last.seeds)), steps, *scores, *([returns[row.label]] if returns else []))


def returned(run: RunData) -> str:
    """The returns of the best checkpoints, where win rates are what is compared."""
    scores = np.array([seed.absolute.return_mean for seed in run.seeds if seed.absolute])
    if np.isnan(scores).any():  # recovered runs have wins alone
        return "–"
    iqm, interval = float(stats.iqm(scores)), stats.bootstrap(scores, stats.iqm)
    return f"{in_figures(iqm, 'return')} {in_brackets(interval, 'return')}"


def score(row: Row, summary: Summary | None) -> str:
    if summary is None:
        return "–"
    return f"{in_figures(summary.iqm, row.metric)} {in_brackets(summary.interval, row.metric)}"


def folded(told: str, made: str) -> str:
    summary = "how it was measured, and the commands with the commits they ran at"
    return f"<details><summary>{summary}</summary>\n\n{told}\n\n{made}\n\n</details>"


def page() -> str:
    """The whole of docs/results.md."""
    begin = "<!-- written by `python benchmarks/results.py`; change results/*/words.md instead -->"
    runs = {task: read(task) for task in tasks()}
    results = {task: comparison.compare(found) for task, found in runs.items()}
    summary = table_of(BESIDE, [line for task, found in runs.items() for line in beside(found, results[task])])
    sections = [section(task, found, results[task]) for task, found in runs.items()]
    summary += "\n\n" + together([run for found in runs.values() for run in found])
    words = (RESULTS / "words.md").read_text().strip().replace("TABLE", summary)
    return "\n\n".join([begin, words, *sections]) + "\n"


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    PAGE.write_text(page())
    for task in tasks():
        plots.curves(read(task), task / "curves.png")
    print(f"{PAGE.relative_to(ROOT)}: {len(tasks())} tasks")


if __name__ == "__main__":
    main()
