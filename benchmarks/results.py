"""Write docs/results.md and its curves from the condensed runs in results/: `python benchmarks/results.py`.

results/TASK/runs/LABEL is a condensed run (`grasp condense RUN --out results/TASK/runs/LABEL`), results/TASK/words.md
the task's heading and what we make of its numbers, results/words.md the beginning of the page. All numbers in tables
come from the runs.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from grasp import comparison, plots, records
from grasp.comparison import Comparison, Row, Summary, in_brackets, in_figures, pair
from grasp.records import RunData, short
from grasp.verdict import sure, verdicts

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
HEADER = ("algorithm", "seeds", "steps", "absolute metric", "last tenth of evaluations")
BESIDE = (
    "task",
    "algorithm",
    "seeds",
    "plain",
    "with GRASP",
    "the difference",
    "steps to three quarters of the best: plain, with GRASP",
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


def beside(result: Comparison) -> list[tuple[str, ...]]:
    """Every algorithm of a task that also ran with GRASP: both scores, how sure the difference is, and how fast."""
    rows = {row.label: row for row in result.rows}
    return [line(plain, rows[f"grasp-{label}"]) for label, plain in rows.items() if f"grasp-{label}" in rows]


def line(plain: Row, grasp: Row) -> tuple[str, ...]:
    found = pair(plain.env, grasp.label, plain.label, grasp.last, plain.last)
    words = WORDS.get((sure(found), found.difference.value > 0), "no clear difference")
    scores = (score(row, row.last) for row in (plain, grasp))
    reached = ", ".join(
        short(int(row.reached.median)) if row.reached.median < math.inf else "never" for row in (plain, grasp)
    )
    return (plain.env, plain.label, str(found.fewest), *scores, words, reached)


def section(task: Path, runs: list[RunData], result: Comparison) -> str:
    """A task's heading, verdict, table, curves and words, and what makes its runs."""
    heading, _, words = (task / "words.md").read_text().partition("\n")
    found = verdicts(result)[-1]
    rows = sorted(result.rows, key=lambda row: -row.last.iqm)
    table = table_of(HEADER, [cells(row) for row in rows])
    picture = f"![learning curves](../results/{task.name}/curves.png)"
    made = "\n".join(f"- {run.label} at {run.versions.get('commit', 'unknown')}: `{run.command}`" for run in runs)
    how = f"*{rows[0].metric}, {rows[0].env_version}*"
    told = "\n".join(f"- {text}" for text in (*protocols(rows), *(w.partition(": ")[2] for w in result.warnings)))
    parts = (heading, f"**{found.title}.** {found.detail}", table, how, picture, words.strip(), folded(told, made))
    return "\n\n".join(parts)


def protocols(rows: list[Row]) -> list[str]:
    """How the scores were measured; whose, where that is not the same for all."""
    found = {row.protocol: [other.label for other in rows if other.protocol == row.protocol] for row in rows}
    return [how if len(found) == 1 else f"{', '.join(of)}: {how}" for how, of in found.items()]


def cells(row: Row) -> tuple[str, ...]:
    steps = "–".join(short(n) for n in dict.fromkeys(row.env_steps))
    return (row.label, str(len(row.last.seeds)), steps, score(row, row.absolute), score(row, row.last))


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
    summary = table_of(BESIDE, [line for result in results.values() for line in beside(result)])
    sections = [section(task, found, results[task]) for task, found in runs.items()]
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
