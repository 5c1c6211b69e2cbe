"""Tables of a comparison: for a terminal, as Markdown and as LaTeX."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import stdev
from typing import NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from grasp.analysis import export, plots
from grasp.analysis.comparison import OVERALL, Aggregate, Comparison, Improvement, Row, Summary
from grasp.analysis.run_data import (
    ABSOLUTE,
    LAST,
    SAMPLED_LAST,
    SAMPLED_WHOLE,
    WHOLE,
    RunData,
    in_brackets,
    in_figures,
    short,
)
from grasp.analysis.verdict import verdicts
from grasp.types import GraspError

FEW = 3
"""Up to this many pairs of algorithms have one note each."""
HEADER = ("algorithm", "seeds", "IQM", "95 % interval", "mean", "median", "steps")
OVER_ALL = ("algorithm", "IQM", "95 % interval", "mean", "median", "optimality gap")
WITH_PAPER = ("algorithm", "the paper's mean", "mean", *HEADER[1:4], *HEADER[5:])
"""Both means come first and side by side, since a report shows tables at half the page's width."""
NAMES = {
    ABSOLUTE: "absolute metric (best policy, evaluated again)",
    LAST: "final score (mean of the last tenth of evaluations)",
    WHOLE: "whole run (mean of all evaluations: higher for faster learning)",
    SAMPLED_LAST: "final score with sampled actions",
    SAMPLED_WHOLE: "whole run with sampled actions",
}


class Section(NamedTuple):
    """One table and the notes below it."""

    env: str
    title: str
    header: tuple[str, ...]
    lines: list[tuple[str, ...]]
    notes: list[str]


def header_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """The columns of a table of these runs, with the paper's scores if there are any."""
    return WITH_PAPER if any(row.claim for row in rows) else HEADER


def cells(row: Row, summary: Summary, header: tuple[str, ...] = HEADER) -> tuple[str, ...]:
    """One of a run's scores, in the columns of `header`; beside the paper's mean, ours has its standard deviation."""
    iqm, mean, median = (in_figures(x, row.metric) for x in (summary.iqm, summary.mean, summary.median))
    steps = "–".join(short(n) for n in dict.fromkeys(row.env_steps))
    interval = in_brackets(summary.interval, row.metric)
    plain = row.label, str(len(summary.seeds)), iqm, interval, mean, median, steps
    found: dict[str, str] = dict(zip(HEADER, plain, strict=True))
    if header == WITH_PAPER:
        found["the paper's mean"] = row.claim or "–"
        found["mean"] = mean_and_deviation(row, summary)
    return tuple(found[name] for name in header)


def mean_and_deviation(row: Row, summary: Summary) -> str:
    """The mean and standard deviation over seeds, the usual form in papers."""
    spread = f" ± {in_figures(stdev(summary.scores), row.metric)}" if len(summary.scores) > 1 else ""
    return f"{in_figures(summary.mean, row.metric)}{spread}"


def _probabilities(pairs: list[Improvement]) -> list[str]:
    """Probabilities of improvement: one note per pair, or one per algorithm if there are many pairs."""
    value = {}
    for pair in pairs:
        interval = in_brackets(pair.interval, "win rate")
        value[pair.first, pair.second] = f"{in_figures(pair.probability, 'win rate')} {interval}"
    if len(pairs) <= FEW:
        return [f"P({first} > {second}) = {number}" for (first, second), number in value.items()]
    return [
        f"P({first} > ·): " + ", ".join(f"{second} {number}" for (one, second), number in value.items() if one == first)
        for first in dict.fromkeys(first for first, _ in value)
    ]


def _paired(pairs: list[Improvement], metric: str) -> list[str]:
    """Differences at equal seeds, of few pairs; those of many pairs are only in the report."""
    few = pairs if len(pairs) <= FEW else []
    return [f"{pair.first} − {pair.second} at equal seeds: {paired(pair, metric)}" for pair in few]


def paired(pair: Improvement, metric: str) -> str:
    """The mean difference at equal seeds, or why there is none."""
    if pair.paired is None:
        return "no common seeds"
    seeds, gap, interval, alone = pair.paired
    size = f"{in_figures(gap, metric)} {in_brackets(interval, metric)}, {len(seeds)} pair{'s' * (len(seeds) > 1)}"
    return f"{size} (without seed{'s' * (len(alone) > 1)} {', '.join(map(str, alone))})" if alone else size


def speed(row: Row) -> str:
    """The median steps to the threshold, its interval, and how many seeds reached it if not all did."""

    def steps(x: float) -> str:
        return "never" if math.isinf(x) else short(x)

    found, n = row.reached, len(row.reached.steps)
    interval = "" if found.interval is None else f" [{steps(found.interval[0])}, {steps(found.interval[1])}]"
    reached = sum(math.isfinite(x) for x in found.steps)
    return f"{steps(found.median)}{interval}{f', {reached} of {n} seeds' * (reached < n)}"


def speed_definition(row: Row) -> str:
    """The definition of `speed` on an environment."""
    threshold = in_figures(row.reached.threshold, row.metric)
    return f"Median env steps until three consecutive evaluations average {threshold}; 'never' counts as infinite"


def protocols(rows: Sequence[Row]) -> list[str]:
    """How the scores were measured, with labels if that differs between runs."""
    found = {row.protocol: [other.label for other in rows if other.protocol == row.protocol] for row in rows}
    return [how if len(found) == 1 else f"{', '.join(of)}: {how}" for how, of in found.items()]


def _env_sections(env: str, comparison: Comparison) -> list[Section]:
    """The compared score, with the notes, then the others."""
    rows = [row for row in comparison.rows if row.env == env]
    notes = [f"{how}." for how in protocols(rows)]
    pairs = [pair for pair in comparison.improvements if pair.env == env]
    notes += [*_probabilities(pairs), *_paired(pairs, rows[0].metric)]
    notes.append(f"{speed_definition(rows[0])}: {'; '.join(f'{row.label} {speed(row)}' for row in rows)}.")
    head = f"{env}: {rows[0].metric}, {' / '.join(dict.fromkeys(r.env_version for r in rows))}"
    sections = []
    for final in sorted(NAMES, key=lambda name: name != rows[0].final):
        header = header_of(rows)
        lines = [cells(row, row.by[final], header) for row in rows if final in row.by]
        sections.append(Section(env, f"{head}, {NAMES[final]}", header, lines, [] if sections else notes))
    return [section for section in sections if section.lines]


def aggregate_cells(found: Aggregate) -> tuple[str, ...]:
    """An algorithm over all environments, in the columns of `OVER_ALL`."""
    values = (found.iqm, found.mean, found.median, found.optimality_gap)
    iqm, *others = [in_figures(x.value, "win rate") for x in values]
    return found.label, iqm, in_brackets(found.iqm.interval, "win rate"), *others


def _over_all(comparison: Comparison) -> Section:
    pairs = [pair for pair in comparison.improvements if pair.env == OVERALL]
    notes = [f"{scale.env}: {scale.words}." for scale in comparison.scales]
    lines = [aggregate_cells(found) for found in comparison.aggregates]
    return Section(OVERALL, f"{OVERALL}: normalised score", OVER_ALL, lines, [*notes, *_probabilities(pairs)])


def _sections(comparison: Comparison) -> list[Section]:
    envs = dict.fromkeys(row.env for row in comparison.rows)
    sections = [section for env in envs for section in _env_sections(env, comparison)]
    return [*sections, _over_all(comparison)] if comparison.aggregates else sections


def render(comparison: Comparison) -> Group:
    """The comparison for a terminal."""
    parts = [
        line
        for found in verdicts(comparison)
        for line in (Text(f"{found.title}.", style="bold"), Text(found.detail, style="dim"), Text(""))
    ]
    for section in _sections(comparison):
        table = Table(title=Text(section.title, style="bold"), title_justify="left")
        for name in section.header:
            left = name == "algorithm"
            table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
        for line in section.lines:
            table.add_row(*(Text(cell) for cell in line))
        parts += [table, *(Text(note, style="dim") for note in section.notes), Text("")]
    return Group(*parts, *(Text(f"warning: {w}", style="yellow") for w in comparison.warnings))


def markdown(comparison: Comparison) -> str:
    """The comparison as Markdown tables."""
    blocks = ["\n".join(f"- **{found.title}.** {found.detail}" for found in verdicts(comparison))]
    for section in _sections(comparison):
        lines = [section.header, ("---",) * len(section.header), *section.lines]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
        blocks += [f"## {section.title}", table, "\n".join(f"- {note}" for note in section.notes)]
    if comparison.warnings:
        blocks += ["## Warnings", "\n".join(f"- {warning}" for warning in comparison.warnings)]
    return "\n\n".join(block for block in blocks if block) + "\n"


_TEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"×": r"$\times$", "±": r"$\pm$", "–": "--", "−": "$-$", ">": "$>$", "<": "$<$", "·": r"$\cdot$"}
)


def latex(comparison: Comparison) -> str:
    """The comparison as one booktabs table with the protocol below it; warnings are LaTeX comments."""
    body, notes, sections = [], [], _sections(comparison)
    width = max(len(section.header) for section in sections)
    for section in sections:
        title = rf"\multicolumn{{{width}}}{{l}}{{{section.title.translate(_TEX)}}} \\"
        body += [r"\midrule", title, _tex_line(section.header), r"\midrule"]
        body += [_tex_line(line) for line in section.lines]
        notes += [f"{section.env}: {note}".translate(_TEX) for note in section.notes]
    return "\n".join(
        [
            *(f"% warning: {warning}" for warning in comparison.warnings),
            rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
            r"\toprule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\par{\footnotesize",
            " \\\\\n".join(notes),
            r"\par}",
            "",
        ]
    )


def _tex_line(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_TEX) for cell in cells) + r" \\"


def folder(out: Path) -> Path:
    """The output directory, created if missing."""
    if out.exists() and not out.is_dir():
        raise GraspError(f"'{out}' is a file; give --out a directory, for example '{out.with_suffix('')}-comparison'")
    out.mkdir(parents=True, exist_ok=True)
    return out


def write(comparison: Comparison, runs: Sequence[RunData], out: Path, tex: bool) -> None:
    """Write the table (.md or .tex), the numbers (.csv, .json), and the curves (.csv, .png) into a directory."""
    out = folder(out)
    table = out / ("table.tex" if tex else "table.md")
    table.write_text(latex(comparison) if tex else markdown(comparison), encoding="utf-8")
    found = dataclasses.asdict(comparison) | {"verdicts": [dataclasses.asdict(v) for v in verdicts(comparison)]}
    # Profiles are functions of the scores, which are included.
    found = {name: value for name, value in found.items() if name != "profiles"}
    sources = [{"label": r.label, "env": r.env, "config": r.config, "versions": r.versions} for r in runs]
    text = json.dumps(export.finite(found | {"runs": sources}), indent=1, allow_nan=False)
    (out / "comparison.json").write_text(text + "\n", encoding="utf-8")
    (out / "rows.csv").write_text(export.rows(comparison), encoding="utf-8")
    (out / "curves.csv").write_text(export.points(comparison, runs), encoding="utf-8")
    plots.curves(runs, out / "curves.png")
