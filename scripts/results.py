"""Write docs/results.md and its curves from the condensed runs in results/: `python scripts/results.py`.

results/TASK/runs/LABEL is a condensed run (`grasp condense RUN --out results/TASK/runs/LABEL`), results/TASK/words.md
the task's heading and what we make of its numbers, results/words.md the beginning of the page. All numbers in tables
come from the runs.
"""

import argparse
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np

from grasp.analysis import comparison, plots, run_data, statistics, tables
from grasp.analysis.comparison import Comparison, Row, Summary, pair
from grasp.analysis.permutation_test import permutation_p
from grasp.analysis.run_data import ABSOLUTE, LAST, WHOLE, Evaluation, RunData, in_brackets, in_figures, in_p, short
from grasp.analysis.verdict import sure, verdicts
from grasp.runs import metrics_log

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
HEADER = ("algorithm", "seeds", "steps", "absolute metric", "last tenth of evaluations", "whole run", "steps to {}")
BESIDE = (
    "task", "algorithm", "seeds", "in the end, without → with GRASP", "difference",
    "over the whole run, without → with GRASP", "difference",
)  # fmt: skip
TOGETHER = ("tasks together", "over the whole run", "difference", "permutation p")
LOGGED = {
    "u_ratio": "length of u over the gradients'",
    "cosine_to_mean": "cosine of u and their mean",
    "weight_entropy": "entropy of its weights",
}
"""What an iteration logs that tells the variants of GRASP apart (ALGORITHMS E7)."""
EARLY = 0.25
"""Share of a run in which it is asked how far updates move: who has won hardly moves any more."""
BASES = ("mappo", "grasp-mappo", "min_norm")
"""What variants are compared with; the last two are one, which among operators is called by its own."""
NONE = 1e-3
"""A u* shorter than this share of the gradients is none (E7)."""
DRAWN = ("mean", "update-size", "placebo", "min_norm", "upgrad", "random")
"""Of the variants, those in the picture: the mean in place of u*, as long a step along g_i alone, one by chance; and a
few operators."""
COMPARED = ("mean", "grasp-mappo", "update-size", "step-size", "mappo")
"""Those that are compared with each other on several tasks together."""
ASKED = {
    "mappo": "MAPPO",
    "update-size": "a step as long along each agent's own gradient (`--control update_size`)",
    "mean": "the plain mean of the gradients in place of u\\* (`--operator mean`)",
}
"""What GRASP-MAPPO was to be compared with in the confirmation, decided before its runs."""
LIMIT = 0.05 / len(ASKED)
"""The p below which a difference counts there."""
WORDS = {
    ("clear", True): " **higher**",
    ("clear", False): " **lower**",
    ("likely", True): " higher, not settled",
    ("likely", False): " lower, not settled",
}


def tasks() -> list[Path]:
    """The folders that hold runs: those of the confirmation first, then in the order of their numbers of algorithms."""
    found = [folder.parent for folder in RESULTS.glob("*/runs")]
    return sorted(found, key=lambda task: (not confirms(task), -len(list((task / "runs").iterdir())), task.name))


def confirms(task: Path) -> bool:
    """Whether its question was decided before its runs, which are then counted with no others."""
    return task.name.startswith("confirmation_")


def read(task: Path) -> list[RunData]:
    """A task's runs, called by their folders' names."""
    paths = sorted((task / "runs").iterdir())
    return [replace(run, label=path.name) for run, path in zip(run_data.load_runs(paths), paths, strict=True)]


def table_of(header: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * len(header), *lines))


def beside(name: str, result: Comparison) -> list[tuple[str, ...]]:
    """Every algorithm of a task that also ran with GRASP: both scores in the end (last tenth of evaluations) and over
    the whole run, which tells who learns faster, and how sure the differences are."""
    rows = {row.label: row for row in result.rows}
    pairs = [(label, f"grasp-{label}") for label in rows if f"grasp-{label}" in rows]
    return [
        (
            name,
            plain,
            str(min(len(rows[label].by[LAST].seeds) for label in (plain, grasp))),
            *difference(rows[plain], rows[plain].by[LAST], rows[grasp].by[LAST]),
            *difference(rows[plain], rows[plain].by[WHOLE], rows[grasp].by[WHOLE]),
        )
        for plain, grasp in pairs
    ]


def counts(lines: list[tuple[str, ...]]) -> str:
    """How many differences of the table are clear: by chance one in twenty would be."""
    cells = [cell for line in lines for cell in line[4::2]]
    clear = {word: sum(f"**{word}**" in cell for cell in cells) for word in ("higher", "lower")}
    return f"{len(cells)} differences, {clear['higher']} clearly higher and {clear['lower']} clearly lower"


def confirmed(runs: list[RunData]) -> str:
    """The questions that were decided before the runs of the confirmation, and what these say."""
    of = {name: wholes(runs, name) for name in ("grasp-mappo", *ASKED)}
    maps = list(of["grasp-mappo"])
    header = ("GRASP-MAPPO minus", *(env.partition("/")[2] for env in maps), "both", "permutation p", "below the limit")
    lines = []
    for other, words in ASKED.items():
        ours, theirs = ([of[name][env] for env in maps] for name in ("grasp-mappo", other))
        each = [gap([first], [second]) for first, second in zip(ours, theirs, strict=True)]
        p = permutation_p(ours, theirs)
        lines.append((words, *each, gap(ours, theirs), f"{p:.4f}", "yes" if p < LIMIT else "no"))
    return table_of(header, lines)


def together(runs: list[RunData]) -> str:
    """MAPPO, GRASP and what stands in for it by their means over the whole run, on all tasks of a family together: what
    no task's seeds can settle may be settled by all of them."""
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
    """The means over the whole run of a label's seeds, by environment, where there are wins."""
    return {
        run.env: np.array([seed.score("win rate", WHOLE) for seed in run.seeds])
        for run in runs
        if run.label == label and run.has_wins
    }


def gap(a: list[np.ndarray], b: list[np.ndarray]) -> str:
    """How much higher the first scores are, averaged over tasks, with its interval."""
    value, interval = statistics.mean_difference(a, b)
    return f"{value:+.3f} {in_brackets(interval, 'win rate')}"


def variants(runs: list[RunData], result: Comparison) -> str:
    """GRASP-MAPPO and what was changed in it, beside MAPPO: the whole run, and what the updates were like."""
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
        "*Means over seeds; p: permutation test, not corrected (of ten such numbers one is below 0.1 by chance). "
        "KL: from the policy that acted to the one before the update's last step; it and the rest are means over the "
        "iterations kept. No consensus: share of iterations whose u is shorter than a thousandth of the gradients. "
        "What a control adds instead of u is not described.*"
    )
    minus = [f"minus {label}'s" for label in bases]
    moves = ("KL of an update, first quarter", "whole run")
    header = ("variant", "whole run, mean", *minus, *moves, *LOGGED.values(), "no consensus")
    return f"{table_of(header, lines)}\n\n{note}"


def apart(a: np.ndarray, b: np.ndarray) -> str:
    """How much higher the first scores are, and the permutation p."""
    return f"{a.mean() - b.mean():+.3f} (p {in_p(permutation_p(a, b))})"


def logged(run: RunData) -> list[str]:
    """Means of what the iterations of a run logged, over those that are kept: how far an update moves the policy, early
    and in all, and of which kind the u was that it added, where that was u*."""
    lines = [line for file in sorted(run.path.glob("seed-*/metrics.jsonl")) for line in metrics_log.read(file).records]
    moved = [(line["env_steps"], line["approx_kl_last"]) for line in lines if "approx_kl_last" in line]
    early = [kl for steps, kl in moved if steps <= EARLY * run.config["steps"]]
    of = {name: [line[name] for line in lines if line.get(name) is not None] for name in LOGGED}
    cells = [f"{np.mean(values):.3g}" if values else "–" for values in (early, [kl for _, kl in moved], *of.values())]
    if run.config["hyper"]["control"] != "none":
        return [*cells[:2], *["–"] * (len(LOGGED) + 1)]
    return [*cells, f"{np.mean(np.array(of['u_ratio']) < NONE):.0%}" if of["u_ratio"] else "–"]


def difference(row: Row, plain: Summary, grasp: Summary) -> tuple[str, str]:
    """Both IQMs, and their difference with its interval, and whether it is clear."""
    found = pair(row.env, "grasp", "plain", grasp, plain)
    value, interval = found.difference
    sign = "+" if value >= 0 else ""
    words = f"{sign}{in_figures(value, row.metric)} {in_brackets(interval, row.metric)}"
    both = " → ".join(in_figures(side.iqm, row.metric) for side in (plain, grasp))
    return both, words + WORDS.get((sure(found), value > 0), "")


def section(task: Path, runs: list[RunData], result: Comparison) -> str:
    """A task's heading, verdict, table, curves and words, and what makes its runs."""
    heading, _, words = (task / "words.md").read_text().partition("\n")
    found = verdicts(result)[-1]
    rows = sorted(result.rows, key=lambda row: -row.by[LAST].iqm)
    returns = {run.label: returned(run) for run in runs} if rows[0].metric == "win rate" else {}
    lines = [cells(row, returns) for row in rows]
    *names, reaching = HEADER
    reaching = reaching.format(in_figures(rows[0].reached.threshold, rows[0].metric))
    table = table_of((*names, reaching, *["return, absolute metric"] * bool(returns)), lines)
    picture = f"![learning curves](../results/{task.name}/curves.png)"
    made = "\n".join(f"- {run.label} at {run.versions.get('commit', 'unknown')}: `{run.command}`" for run in runs)
    how = f"*{rows[0].metric}, {rows[0].env_version}*"
    told = "\n".join(
        f"- {text}" for text in (*tables.protocols(rows), *(w.partition(": ")[2] for w in result.warnings))
    )
    changed = variants(runs, result)
    words = words.strip().replace("SEEDS", by_seed(runs))
    parts = (heading, f"**{found.title}.** {found.detail}", table, how, picture, words, changed)
    summary = "how it was measured, and the commands with the commits they ran at"
    folded = f"<details><summary>{summary}</summary>\n\n{told}\n\n{made}\n\n</details>"
    return "\n\n".join([part for part in parts if part] + [folded])


def cells(row: Row, returns: dict[str, str]) -> tuple[str, ...]:
    steps = "–".join(short(n) for n in dict.fromkeys(row.env_steps))
    scores = (score(row, row.by[name]) for name in (ABSOLUTE, LAST, WHOLE))
    return (
        row.label,
        str(len(row.seeds)),
        steps,
        *scores,
        tables.speed(row),
        *([returns[row.label]] if returns else []),
    )


def returned(run: RunData) -> str:
    """The returns of the best checkpoints, where win rates are what is compared."""
    scores = np.array([seed.absolute.return_mean for seed in run.seeds if seed.absolute])
    if np.isnan(scores).any():  # recovered runs have wins alone
        return "–"
    iqm, interval = float(statistics.iqm(scores)), statistics.bootstrap(scores, statistics.iqm)
    return f"{in_figures(iqm, 'return')} {in_brackets(interval, 'return')}"


def by_seed(runs: list[RunData]) -> str:
    """The wins of every seed's best checkpoint, with an interval over episodes (Wilson)."""

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


def page() -> str:
    """The whole of docs/results.md."""
    begin = "<!-- written by `python scripts/results.py`; change results/*/words.md instead -->"
    runs = {task: read(task) for task in tasks()}
    results = {task: comparison.compare(found) for task, found in runs.items()}
    envs = [found[0].env for found in runs.values()]
    names = {task: f"{env} ({task.name})" if envs.count(env) > 1 else env for task, env in zip(runs, envs, strict=True)}
    lines = [line for task in runs for line in beside(names[task], results[task])]
    words = (RESULTS / "words.md").read_text().strip().replace("TABLE", table_of(BESIDE, lines))
    words = words.replace("COUNTS", counts(lines))
    for place, table, is_confirming in (("TOGETHER", together, False), ("CONFIRMED", confirmed, True)):
        chosen = [run for task, found in runs.items() if confirms(task) == is_confirming for run in found]
        words = words.replace(place, table(chosen))
    sections = [section(task, found, results[task]) for task, found in runs.items()]
    return "\n\n".join([begin, words, *sections]) + "\n"


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    PAGE.write_text(page())
    for task in tasks():
        plots.curves([run for run in read(task) if run.label in (run.algo, *DRAWN)], task / "curves.png")
    print(f"{PAGE.relative_to(ROOT)}: {len(tasks())} tasks")


if __name__ == "__main__":
    main()
