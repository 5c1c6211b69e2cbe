"""Write docs/results.md, a page per task in docs/results/, and the curves: `python scripts/results.py`.

results/TASK/runs/LABEL is a condensed run (`grasp condense RUN --out results/TASK/runs/LABEL`). results/TASK/words.md
holds the heading ("# NAME: conclusion") and the text of a task's page, results/words.md the text of docs/results.md and
results/several_maps.md that of docs/results/several_maps.md. All numbers in tables come from the runs.
"""

import argparse
import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from grasp.analysis import comparison, plots, run_data, statistics, tables
from grasp.analysis.comparison import Comparison, Row, Summary, pair
from grasp.analysis.permutation_test import permutation_p
from grasp.analysis.run_data import ABSOLUTE, LAST, WHOLE, Evaluation, RunData, in_brackets, in_figures, in_p, short
from grasp.analysis.verdict import sure, verdicts
from grasp.runs import metrics_log
from grasp.types import Metric

ROOT = Path(__file__).parent.parent
RESULTS, PAGE, PAGES = ROOT / "results", ROOT / "docs" / "results.md", ROOT / "docs" / "results"
BEGIN = "<!-- written by `python scripts/results.py`; edit results/{} instead -->"
HEADER = ("algorithm", "seeds", "steps", "absolute metric", "last tenth of evaluations", "whole run", "steps to {}")
OVERVIEW = ("task", "seeds", "MAPPO → GRASP-MAPPO, end of training", "difference", "difference, whole run")
WITH_GRASP = (
    "algorithm", "seeds", "end of training, without → with GRASP", "difference",
    "whole run, without → with GRASP", "difference",
)  # fmt: skip
TOGETHER = ("maps", "comparison", "difference, whole run", "permutation p")
LOGGED = {
    Metric.U_RATIO: "‖u‖ / mean ‖g‖",
    Metric.COSINE_TO_MEAN: "cosine of u and mean gradient",
    Metric.WEIGHT_ENTROPY: "entropy of weights",
}
"""Metrics of an iteration that tell the variants of GRASP apart."""
EARLY = 0.25
"""The first part of a run over which the size of updates is averaged: once a team wins, its policy hardly changes."""
BASES = ("mappo", "grasp-mappo", "min_norm")
"""What variants are compared with. The last two are the same algorithm: among operators it is labelled `min_norm`."""
NONE = 1e-3
"""A u shorter than this fraction of the mean gradient norm counts as zero."""
DRAWN = ("mean", "update-size", "placebo", "min_norm", "upgrad", "random")
"""Variants drawn in the picture: the mean in place of u*, an equally long step along g_i alone, a random direction of
equal length, and a few operators."""
COMPARED = ("mean", "grasp-mappo", "update-size", "step-size", "mappo")
"""Variants that are compared with each other over several maps."""
ASKED = {
    "mappo": "MAPPO",
    "update-size": "an equally long step along each agent's own gradient (`--control update_size`)",
    "mean": "the plain mean of the gradients in place of u\\* (`--operator mean`)",
}
"""The comparisons of GRASP-MAPPO that were fixed before the runs of the confirmation."""
LIMIT = 0.05 / len(ASKED)
"""The significance level of each of them: 5 % over all."""
SURE = {
    ("clear", True): " **higher**",
    ("clear", False): " **lower**",
    ("likely", True): " higher, not settled",
    ("likely", False): " lower, not settled",
}


def tasks() -> list[Path]:
    """The folders that hold runs: the confirmation first, then by the number of algorithms."""
    found = [folder.parent for folder in RESULTS.glob("*/runs")]
    return sorted(found, key=lambda task: (not confirms(task), -len(list((task / "runs").iterdir())), task.name))


def confirms(task: Path) -> bool:
    """Whether the task belongs to the confirmation, whose runs are never pooled with others."""
    return task.name.startswith("confirmation_")


@cache
def read(task: Path) -> list[RunData]:
    """A task's runs, labelled with the names of their folders."""
    paths = sorted((task / "runs").iterdir())
    return [replace(run, label=path.name) for run, path in zip(run_data.load_runs(paths), paths, strict=True)]


@cache
def compared(task: Path) -> Comparison:
    return comparison.compare(read(task))


def written(task: Path) -> tuple[str, str, str]:
    """The name, the conclusion and the text of a task's words.md."""
    heading, _, text = (task / "words.md").read_text().partition("\n")
    name, _, conclusion = heading.removeprefix("# ").partition(": ")
    return name, conclusion, text.strip()


def table_of(header: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * len(header), *lines))


def overview(task: Path) -> tuple[str, ...]:
    """A task's row on the first page: MAPPO without and with GRASP."""
    rows, (name, _, _) = by_label(task), written(task)
    link = f"[{name}](results/{task.name}.md)"
    if "grasp-mappo" not in rows:  # its runs of MAPPO with and without GRASP are those of another task
        return (link, str(min(len(row.seeds) for row in rows.values())), "the runs of the row above", "–", "–")
    plain, grasp = rows["mappo"], rows["grasp-mappo"]
    seeds = str(min(len(row.by[LAST].seeds) for row in (plain, grasp)))
    return (link, seeds, *difference(plain, plain.by[LAST], grasp.by[LAST]), whole(plain, grasp)[1])


def with_grasp(task: Path) -> list[tuple[str, ...]]:
    """Every algorithm of a task that ran without and with GRASP: scores at the end of training and over the whole run,
    which is higher for faster learning, and whether the differences are clear."""
    rows = by_label(task)
    pairs = [(rows[label], rows[f"grasp-{label}"]) for label in rows if f"grasp-{label}" in rows]
    return [
        (
            plain.label,
            str(min(len(row.by[LAST].seeds) for row in (plain, grasp))),
            *difference(plain, plain.by[LAST], grasp.by[LAST]),
            *whole(plain, grasp),
        )
        for plain, grasp in pairs
    ]


def by_label(task: Path) -> dict[str, Row]:
    return {row.label: row for row in compared(task).rows}


def whole(plain: Row, grasp: Row) -> tuple[str, str]:
    return difference(plain, plain.by[WHOLE], grasp.by[WHOLE])


def counts(lines: list[tuple[str, ...]]) -> str:
    """How many differences of all tasks' tables are clear."""
    cells = [cell for line in lines for cell in line[3::2]]
    clear = {word: sum(f"**{word}**" in cell for cell in cells) for word in ("higher", "lower")}
    return f"{len(cells)} differences, {clear['higher']} clearly higher and {clear['lower']} clearly lower"


def confirmed(runs: list[RunData]) -> str:
    """The comparisons that were fixed before the runs of the confirmation, and their results."""
    of = {name: wholes(runs, name) for name in ("grasp-mappo", *ASKED)}
    maps = list(of["grasp-mappo"])
    header = ("GRASP-MAPPO minus", *(env.partition("/")[2] for env in maps), "both", "permutation p", "below the limit")
    lines = []
    for other, text in ASKED.items():
        ours, theirs = ([of[name][env] for env in maps] for name in ("grasp-mappo", other))
        each = [gap([first], [second]) for first, second in zip(ours, theirs, strict=True)]
        p = permutation_p(ours, theirs)
        lines.append((text, *each, gap(ours, theirs), f"{p:.4f}", "yes" if p < LIMIT else "no"))
    return table_of(header, lines)


def together(runs: list[RunData]) -> str:
    """MAPPO, GRASP and its variants by their means over the whole run, over all maps of a family: more seeds than any
    one map has."""
    lines = []
    for first, second in itertools.combinations(COMPARED, 2):
        a, b = wholes(runs, first), wholes(runs, second)
        for family in sorted({env.partition("/")[0] for env in a}):
            shared = [env for env in a if env in b and env.startswith(f"{family}/")]
            if len(shared) < 2:
                continue
            ours, theirs = ([of[env] for env in shared] for of in (a, b))
            names = f"{family}: {', '.join(env.removeprefix(f'{family}/') for env in shared)}"
            lines.append((names, f"{first} minus {second}", gap(ours, theirs), in_p(permutation_p(ours, theirs))))
    return table_of(TOGETHER, lines)


def wholes(runs: list[RunData], label: str) -> dict[str, np.ndarray]:
    """The means over the whole run of a label's seeds, by environment; only win rates, whose scale all maps share."""
    return {
        run.env: np.array([seed.score("win rate", WHOLE) for seed in run.seeds])
        for run in runs
        if run.label == label and run.has_wins
    }


def gap(a: list[np.ndarray], b: list[np.ndarray]) -> str:
    """The difference of the means, averaged over tasks, with its interval."""
    value, interval = statistics.mean_difference(a, b)
    return f"{value:+.3f} {in_brackets(interval, 'win rate')}"


def variants(runs: list[RunData], result: Comparison) -> str:
    """MAPPO, GRASP-MAPPO and its variants: the score over the whole run, and statistics of their updates."""
    if not any(run.label in DRAWN for run in runs):
        return ""
    rows = {row.label: row for row in result.rows}
    scores = {run: np.array(rows[run.label].by[WHOLE].scores) for run in runs if run.algo.endswith("mappo")}
    others = {run.label: scores[run] for run in scores}
    bases = [label for label in BASES if label in others]
    lines = [
        (
            run.label,
            in_figures(float(scores[run].mean()), rows[run.label].metric),
            *("–" if run.label == other else apart(scores[run], others[other]) for other in bases),
            *logged(run),
        )
        for run in sorted(scores, key=lambda run: -scores[run].mean())
    ]
    note = (
        "*Means over seeds. p: permutation test, not corrected for the number of comparisons (of ten such p one is "
        "below 0.1 by chance). KL: from the policy that collected the data to the policy before the update's last "
        "step. KL and the columns after it are means over the logged iterations. u ≈ 0: fraction of iterations with "
        "‖u‖ below a thousandth of mean ‖g‖. Controls that add another vector than u have no values for u.*"
    )
    minus = [f"minus {label}" for label in bases]
    moves = ("KL of an update, first quarter", "KL, whole run")
    header = ("variant", "whole run, mean", *minus, *moves, *LOGGED.values(), "u ≈ 0")
    return f"## Variants\n\n{table_of(header, lines)}\n\n{note}"


def apart(a: np.ndarray, b: np.ndarray) -> str:
    """The difference of the means, and the permutation p."""
    return f"{a.mean() - b.mean():+.3f} (p {in_p(permutation_p(a, b))})"


def logged(run: RunData) -> list[str]:
    """Means of what a run's iterations logged: the KL of an update, in the first quarter and overall, and, where a
    consensus was added, the statistics of u."""
    lines = [line for file in sorted(run.path.glob("seed-*/metrics.jsonl")) for line in metrics_log.read(file).records]
    moved = [(line["env_steps"], line[Metric.APPROX_KL_LAST]) for line in lines if Metric.APPROX_KL_LAST in line]
    early = [kl for steps, kl in moved if steps <= EARLY * run.config["steps"]]
    of = {name: [line[name] for line in lines if line.get(name) is not None] for name in LOGGED}
    cells = [f"{np.mean(values):.3g}" if values else "–" for values in (early, [kl for _, kl in moved], *of.values())]
    if run.config["hyper"]["control"] != "none":
        return [*cells[:2], *["–"] * (len(LOGGED) + 1)]
    return [*cells, f"{np.mean(np.array(of[Metric.U_RATIO]) < NONE):.0%}" if of[Metric.U_RATIO] else "–"]


def difference(row: Row, plain: Summary, grasp: Summary) -> tuple[str, str]:
    """Both IQMs, and their difference with its interval and whether it is clear."""
    found = pair(row.env, "grasp", "plain", grasp, plain)
    value, interval = found.difference
    sign = "+" if value >= 0 else ""
    text = f"{sign}{in_figures(value, row.metric)} {in_brackets(interval, row.metric)}"
    both = " → ".join(in_figures(side.iqm, row.metric) for side in (plain, grasp))
    return both, text + SURE.get((sure(found), value > 0), "")


def task_page(task: Path) -> str:
    """A task's page: conclusion, verdict, text, tables and curves, and the commands of its runs."""
    runs, result, (name, conclusion, text) = read(task), compared(task), written(task)
    verdict = verdicts(result)[-1]
    rows = sorted(result.rows, key=lambda row: -row.by[LAST].iqm)
    returns = {run.label: returned(run) for run in runs} if rows[0].metric == "win rate" else {}
    *names, reaching = HEADER
    reaching = reaching.format(in_figures(rows[0].reached.threshold, rows[0].metric))
    header = (*names, reaching, *["return, absolute metric"] * bool(returns))
    pairs = with_grasp(task)
    parts = (
        BEGIN.format(f"{task.name}/words.md"),
        f"# {name}: {conclusion}",
        text.replace("SEEDS", by_seed(runs)),
        f"By the absolute metric: **{verdict.title}.** {verdict.detail}",
        f"![learning curves](../../results/{task.name}/curves.png)",
        f"## Scores\n\n{rows[0].metric}, {rows[0].env_version}; IQM over seeds with its 95 % bootstrap interval.",
        table_of(header, [cells(row, returns) for row in rows]),
        f"## Without and with GRASP\n\n{table_of(WITH_GRASP, pairs)}" if pairs else "",
        variants(runs, result),
        "## How it was measured",
        "\n".join(f"- {line}" for line in tables.protocols(rows)),
        "\n".join(f"- {warning.partition(': ')[2]}" for warning in result.warnings),
        f"`grasp reproduce results-{task.name} --budget results` trains all of it. Commits and commands of the runs:",
        "\n".join(f"- {run.label} at {run.versions.get('commit', 'unknown')}: `{run.command}`" for run in runs),
        "[All results](../results.md) · [how to read the tables](../comparing.md)",
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def cells(row: Row, returns: dict[str, str]) -> tuple[str, ...]:
    steps = "–".join(short(n) for n in dict.fromkeys(row.env_steps))
    scores = (score(row, row.by[name]) for name in (ABSOLUTE, LAST, WHOLE))
    last = [returns[row.label]] if returns else []
    return (row.label, str(len(row.seeds)), steps, *scores, tables.speed(row), *last)


def returned(run: RunData) -> str:
    """The returns of the best policies, for tasks that are compared by win rate."""
    scores = np.array([seed.absolute.return_mean for seed in run.seeds if seed.absolute])
    if np.isnan(scores).any():  # runs recovered from tables have win rates only
        return "–"
    iqm, interval = float(statistics.iqm(scores)), statistics.bootstrap(scores, statistics.iqm)
    return f"{in_figures(iqm, 'return')} {in_brackets(interval, 'return')}"


def by_seed(runs: list[RunData]) -> str:
    """The wins of every seed's best policy, with an interval over episodes (Wilson)."""

    def cell(won: Evaluation | None) -> str:
        if won is None or won.win_rate is None or won.episodes is None:
            return "–"
        wins = round(won.win_rate * won.episodes)
        low, high = statistics.wilson(wins, won.episodes) or (0.0, 1.0)
        return f"{wins} of {won.episodes}: {100 * won.win_rate:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"

    numbers = sorted({seed.seed for run in runs for seed in run.seeds})
    of = {(run.label, seed.seed): cell(seed.absolute) for run in runs for seed in run.seeds}
    lines = [(str(n), *(of.get((run.label, n), "–") for run in runs)) for n in numbers]
    return table_of(("seed", *(run.label for run in runs)), lines)


def score(row: Row, summary: Summary) -> str:
    return f"{in_figures(summary.iqm, row.metric)} {in_brackets(summary.interval, row.metric)}"


def first_page() -> str:
    """The text of docs/results.md."""
    of_confirmation = [run for task in tasks() if confirms(task) for run in read(task)]
    filled = {
        "CONFIRMED": confirmed(of_confirmation),
        "OVERVIEW": table_of(OVERVIEW, [overview(task) for task in tasks()]),
        "COUNTS": counts([line for task in tasks() for line in with_grasp(task)]),
    }
    return page_of("words.md", filled)


def several_maps() -> str:
    """The text of docs/results/several_maps.md."""
    return page_of("several_maps.md", {"TOGETHER": together([r for t in tasks() if not confirms(t) for r in read(t)])})


def page_of(name: str, filled: dict[str, str]) -> str:
    """A page from its text in results/, with tables in place of names in capitals."""
    text = (RESULTS / name).read_text().strip()
    for placeholder, table in filled.items():
        text = text.replace(placeholder, table)
    return f"{BEGIN.format(name)}\n\n{text}\n"


@cache
def pages() -> dict[Path, str]:
    """All pages that this script writes."""
    each = {PAGES / f"{task.name}.md": task_page(task) for task in tasks()}
    return {PAGE: first_page(), PAGES / "several_maps.md": several_maps()} | each


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    PAGES.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)
    for task in tasks():
        plots.curves([run for run in read(task) if run.label in (run.algo, *DRAWN)], task / "curves.png")
    print(f"{PAGE.relative_to(ROOT)} and {PAGES.relative_to(ROOT)}/: {len(tasks())} tasks")


if __name__ == "__main__":
    main()
