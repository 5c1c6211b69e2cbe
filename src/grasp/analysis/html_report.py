"""The report of a comparison: one HTML file that needs no network.

Scripts and style are inlined. Everything that comes from runs is data: JSON in a script element that browsers do not
execute, inserted into the page as text only. A content security policy in the file forbids loading anything.
"""

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from grasp.analysis import export, plots, tables
from grasp.analysis.comparison import OVERALL, Comparison, Improvement, Row, Summary
from grasp.analysis.run_data import RunData, flat, in_brackets, in_figures, in_p
from grasp.analysis.verdict import sure, verdicts
from grasp.version import __version__

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>GRASP comparison</title>
<style>
{style}</style>
</head>
<body>
<main></main>
<noscript>This page needs JavaScript; table.md has the numbers.</noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">
{script}</script>
</body>
</html>
"""


def write(comparison: Comparison, runs: Sequence[RunData], out: Path) -> Path:
    """Write `report.html` into a directory."""
    path = tables.folder(out) / "report.html"
    path.write_text(page(comparison, runs), encoding="utf-8")
    return path


def page(comparison: Comparison, runs: Sequence[RunData]) -> str:
    """The whole file."""
    text = json.dumps(export.finite(content(comparison, runs)), allow_nan=False, separators=(",", ":"))
    room = resources.files("grasp")
    charts = [(room / "render" / name).read_text(encoding="utf-8") for name in ("chart.js", "line_chart.js")]
    script = _inlined("\n".join(charts), "lineChart, short")
    script += (room / "analysis" / "report.js").read_text(encoding="utf-8")
    style = (room / "analysis" / "report.css").read_text(encoding="utf-8")
    # Without a "<" no text in the data can end its element.
    return PAGE.format(policy=POLICY, style=style, data=text.replace("<", "\\u003c"), script=script)


def _inlined(modules: str, names: str) -> str:
    """Modules as one function that returns the wanted exports, so that all other names stay local to it."""
    body = re.sub(r"^(export |import .*;\n)", "", modules, flags=re.MULTILINE)
    return f"const {{ {names} }} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n\n"


def content(comparison: Comparison, runs: Sequence[RunData]) -> dict[str, Any]:
    """Everything that the page shows: numbers for charts, and formatted cells for tables."""
    envs = list(dict.fromkeys(row.env for row in comparison.rows))
    labels = list(dict.fromkeys(row.label for row in comparison.rows))
    seeds = sum(len(run.seeds) for run in runs)
    counts = ((len(labels), "algorithm"), (len(envs), "environment"), (seeds, "seed"))
    return {
        "summary": ", ".join(f"{n} {what}{'s' * (n > 1)}" for n, what in counts),
        "grasp": __version__,
        "verdicts": [dataclasses.asdict(found) for found in verdicts(comparison)],
        "warnings": comparison.warnings,
        "styles": {label: _style(*style) for label, style in plots.styles([run.label for run in runs]).items()},
        "overall": _overall(comparison) if comparison.aggregates else None,
        "envs": [_env(comparison, [run for run in runs if run.env == env]) for env in envs],
        "runs": [_run(run) for run in runs],
    }


def _style(colour: str, dash: Any) -> dict[str, str]:
    # matplotlib's dash lengths are in line widths, SVG's in pixels.
    return {"colour": colour, "dash": "" if dash == "-" else " ".join(str(2 * length) for length in dash[1])}


def _rounded(x: Float[np.ndarray, "_"] | Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in x]


def _env(comparison: Comparison, group: list[RunData]) -> dict[str, Any]:
    env = group[0].env
    rows = sorted((row for row in comparison.rows if row.env == env), key=lambda row: (math.isnan(row.iqm), -row.iqm))
    group = [run for row in rows for run in group if run.label == row.label]
    first = rows[0]
    scale = next(scale for scale in comparison.scales if scale.env == env)
    return {
        "env": env,
        "metric": first.metric,
        "version": " / ".join(dict.fromkeys(row.env_version for row in rows)),
        "protocols": tables.protocols(rows),
        "caption": plots.caption(group, training=False)[0],
        "statistic": plots.statistic_of(group),
        "curves": [_series(run.label, [seed.curve(first.metric) for seed in run.seeds]) for run in group],
        "training": _training(group),
        "scores": _scores(rows),
        "profiles": _profiles(comparison, env),
        "pairs": [_pair(pair, first.metric) for pair in comparison.improvements if pair.env == env],
        "speed": {"definition": tables.speed_definition(first), "rows": [_speed(row) for row in rows]},
        "scale": scale.words,
        "differences": _differences(group),
    }


def _series(label: str, curves: list[plots.Curve]) -> dict[str, Any]:
    steps, line, low, high = (_rounded(x) for x in plots.band(curves))
    faint = [[_rounded(x), _rounded(y)] for x, y in curves] if len(curves) > 1 else []
    return {"label": label, "x": steps, "y": line, "low": low, "high": high, "faint": faint}


def _training(group: list[RunData]) -> list[dict[str, Any]]:
    found = []
    last = float(max(seed.env_steps for run in group for seed in run.seeds))
    for key, title in plots.TRAINING_LABELS.items():
        curves = {r.label: [plots.binned(s.training[key], last) for s in r.seeds if key in s.training] for r in group}
        series = [_series(label, of) | {"faint": []} for label, of in curves.items() if of]
        found += [{"title": title, "series": series}] if series else []
    return found


def _scores(rows: list[Row]) -> list[dict[str, Any]]:
    """Every score, the compared one first."""
    found = []
    for final in sorted(tables.NAMES, key=lambda name: name != rows[0].final):
        known = [(row, row.by[final]) for row in rows if final in row.by]
        header = tables.header_of(rows)
        table = [tables.cells(row, of, header) for row, of in known]
        dots = [_dots(row, of) for row, of in known]
        compared = final == rows[0].final
        score = {
            "name": tables.NAMES[final],
            "compared": compared,
            "header": header,
            "lines": table,
            "dots": dots,
        }
        found += [score] if known else []
    return found


def _dots(row: Row, of: Summary) -> dict[str, Any]:
    low, high = of.interval or (None, None)
    text = f"{in_figures(of.iqm, row.metric)} {in_brackets(of.interval, row.metric)}"
    return {"label": row.label, "value": of.iqm, "low": low, "high": high, "dots": of.scores, "text": text}


def _speed(row: Row) -> dict[str, Any]:
    low, high = row.reached.interval or (None, None)
    of = {"value": row.reached.median, "low": low, "high": high, "dots": row.reached.steps, "last": row.env_steps[1]}
    return {"label": row.label, "text": tables.speed(row)} | of


def _profiles(comparison: Comparison, env: str) -> list[dict[str, Any]]:
    return [
        {"label": p.label}
        | {name: _rounded(x) for name, x in zip(("x", "y", "low", "high"), dataclasses.astuple(p)[2:], strict=True)}
        for p in comparison.profiles
        if p.env == env
    ]


def _pair(pair: Improvement, metric: str) -> dict[str, Any]:
    (gap, interval), probability = pair.difference, f"{pair.probability:.2f}"
    return {
        "first": pair.first,
        "second": pair.second,
        "difference": f"{in_figures(gap, metric)} {in_brackets(interval, metric)}",
        "probability": pair.probability,
        "probability_text": probability
        if pair.interval is None
        else f"{probability} {in_brackets(pair.interval, 'win rate')}",
        "p": in_p(pair.p),
        "paired": None if pair.env == OVERALL else tables.paired(pair, metric),
        "sure": sure(pair),
        "ahead": pair.first if gap > 0 else pair.second,
    }


def _overall(comparison: Comparison) -> dict[str, Any]:
    names = {"iqm": "IQM", "mean": "mean", "median": "median", "optimality_gap": "optimality gap (lower is better)"}
    charts = []
    for name, title in names.items():
        dots = []
        for found in comparison.aggregates:
            value, interval = getattr(found, name)
            low, high = interval or (None, None)
            shown = f"{in_figures(value, 'win rate')} {in_brackets(interval, 'win rate')}"
            dots.append({"label": found.label, "value": value, "low": low, "high": high, "dots": [], "text": shown})
        charts.append({"title": title, "dots": dots})
    return {
        "env": OVERALL,
        "header": tables.OVER_ALL,
        "lines": [tables.aggregate_cells(found) for found in comparison.aggregates],
        "charts": charts,
        "profiles": _profiles(comparison, OVERALL),
        "pairs": [_pair(pair, "win rate") for pair in comparison.improvements if pair.env == OVERALL],
        "scales": [f"{scale.env}: {scale.words}" for scale in comparison.scales],
    }


def _differences(group: list[RunData]) -> dict[str, Any]:
    """The settings in which runs on one environment differ; empty for algorithms without the setting."""
    configs = [flat(run.config) for run in group]
    names = [name for name in dict.fromkeys(n for c in configs for n in c) if name not in ("algo", "out")]
    values = {name: ["" if (v := c.get(name)) is None else str(v) for c in configs] for name in names}
    return {
        "labels": [run.label for run in group],
        "lines": [[name.removeprefix("hyper."), *of] for name, of in values.items() if len(set(of)) > 1],
    }


def _run(run: RunData) -> dict[str, Any]:
    seeds = [
        {"seed": s.seed, "env_steps": s.env_steps, "evaluations": len(s.evaluations), "sha256": s.sha256}
        for s in run.seeds
    ]
    return {
        "label": run.label,
        "env": run.env,
        "path": str(run.path),
        "command": run.command,
        "protocol": run.protocol,
        "versions": {name: str(value) for name, value in run.versions.items()},
        "config": run.config,
        "seeds": seeds,
    }
