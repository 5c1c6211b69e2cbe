"""A comparison in print: for a terminal, as Markdown, as LaTeX."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from grasp import plots
from grasp.comparison import Comparison, Improvement, Row, in_brackets, in_figures
from grasp.records import RunData, short
from grasp.types import GraspError

FEW = 3
"""Pairs of algorithms that are printed one by one."""
HEADER = ("algorithm", "seeds", "IQM", "95 % interval", "mean", "score", "steps")


def _cells(row: Row) -> tuple[str, ...]:
    numbers = in_figures(row.iqm, row.metric), in_brackets(row.interval, row.metric), in_figures(row.mean, row.metric)
    steps = "–".join(short(n) for n in dict.fromkeys(row.env_steps))
    return (row.label, str(len(row.seeds)), *numbers, row.final, steps)


def _chances(pairs: list[Improvement]) -> list[str]:
    """How likely a seed of one is better than a seed of another: a note a pair, or, of many, a note an algorithm."""
    value = {}
    for pair in pairs:
        interval = in_brackets(pair.interval, "win rate")
        value[pair.first, pair.second] = f"{in_figures(pair.probability, 'win rate')} {interval}"
    if len(pairs) <= FEW:
        return [f"P({first} > {second}) = {words}" for (first, second), words in value.items()]
    return [
        f"P({first} > ·): " + ", ".join(f"{second} {words}" for (one, second), words in value.items() if one == first)
        for first in dict.fromkeys(first for first, _ in value)
    ]


def _sections(comparison: Comparison) -> list[tuple[str, list[Row], list[str]]]:
    """For each environment: a title, its rows, and the notes that belong under its table."""
    sections = []
    for env in dict.fromkeys(row.env for row in comparison.rows):
        rows = [row for row in comparison.rows if row.env == env]
        protocols = dict.fromkeys(row.protocol for row in rows)
        each = [
            p if len(protocols) == 1 else f"{', '.join(r.label for r in rows if r.protocol == p)}: {p}"
            for p in protocols
        ]
        notes = [f"{text}." for text in each]
        notes += _chances([pair for pair in comparison.improvements if pair.env == env])
        sections.append(
            (f"{env}: {rows[0].metric}, {' / '.join(dict.fromkeys(r.env_version for r in rows))}", rows, notes)
        )
    return sections


def render(comparison: Comparison) -> Group:
    """The comparison for a terminal."""
    parts = []
    for title, rows, notes in _sections(comparison):
        table = Table(title=Text(title, style="bold"), title_justify="left")
        for name in HEADER:
            left = name in ("algorithm", "score")
            table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
        for row in rows:
            table.add_row(*(Text(cell) for cell in _cells(row)))
        parts += [table, *(Text(note, style="dim") for note in notes), Text("")]
    return Group(*parts, *(Text(f"warning: {w}", style="yellow") for w in comparison.warnings))


def markdown(comparison: Comparison) -> str:
    """The comparison as Markdown tables."""
    blocks = []
    for title, rows, notes in _sections(comparison):
        lines = [HEADER, ("---",) * len(HEADER), *(_cells(row) for row in rows)]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
        blocks += [f"## {title}", table, "\n".join(f"- {note}" for note in notes)]
    if comparison.warnings:
        blocks += ["## Warnings", "\n".join(f"- {warning}" for warning in comparison.warnings)]
    return "\n\n".join(blocks) + "\n"


_TEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"×": r"$\times$", "–": "--", ">": "$>$", "<": "$<$", "·": r"$\cdot$"}
)


def latex(comparison: Comparison) -> str:
    """The comparison as one booktabs table with the protocol under it; warnings are comments, for the author only."""
    body, notes = [], []
    for title, rows, found in _sections(comparison):
        body += [r"\midrule", rf"\multicolumn{{{len(HEADER)}}}{{l}}{{{title.translate(_TEX)}}} \\", r"\midrule"]
        body += [" & ".join(cell.translate(_TEX) for cell in _cells(row)) + r" \\" for row in rows]
        notes += [f"{rows[0].env}: {note}".translate(_TEX) for note in found]
    return "\n".join(
        [
            *(f"% warning: {warning}" for warning in comparison.warnings),
            r"\begin{tabular}{lrrrrlr}",
            r"\toprule",
            " & ".join(name.translate(_TEX) for name in HEADER) + r" \\",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\footnotesize",
            " \\\\\n".join(notes),
            "",
        ]
    )


def _finite(value: Any) -> Any:
    """The same value with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(comparison: Comparison, runs: Sequence[RunData], out: Path, tex: bool) -> None:
    """The table (.md, or .tex), the numbers, and the curves as points (.csv) and as a picture, in one directory."""
    if out.exists() and not out.is_dir():
        raise GraspError(f"'{out}' is a file; give --out a directory, for example '{out.with_suffix('')}-comparison'")
    out.mkdir(parents=True, exist_ok=True)
    table = out / ("table.tex" if tex else "table.md")
    table.write_text(latex(comparison) if tex else markdown(comparison), encoding="utf-8")
    sources = [{"label": r.label, "env": r.env, "config": r.config, "versions": r.versions} for r in runs]
    text = json.dumps(_finite(dataclasses.asdict(comparison) | {"runs": sources}), indent=1, allow_nan=False)
    (out / "comparison.json").write_text(text + "\n", encoding="utf-8")
    (out / "curves.csv").write_text(points(comparison, runs), encoding="utf-8")
    plots.curves(runs, out / "curves.png")


def points(comparison: Comparison, runs: Sequence[RunData]) -> str:
    """Every evaluation of every seed, one a line."""
    metrics = {row.env: row.metric for row in comparison.rows}
    lines = ["env,algorithm,seed,env_steps,metric,value"]
    for run in runs:
        for seed in run.seeds:
            for steps, value in seed.curve(metrics[run.env]).T:
                lines.append(f"{run.env},{run.label},{seed.seed},{steps:.0f},{metrics[run.env]},{value:.6g}")
    return "\n".join(lines) + "\n"
