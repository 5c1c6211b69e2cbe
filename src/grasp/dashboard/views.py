"""The JSON that the page receives. A missing value is null, never NaN."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from grasp.analysis.plots import band, styles
from grasp.consensus import Status
from grasp.dashboard.monitor import Monitor, RunEntry, Seed
from grasp.dashboard.sampling import MOST_SAMPLES, PREFIXES, sample, thinned
from grasp.dashboard.tail import Score, number
from grasp.types import Metric

MOST_AGENTS = 256
MOST_COSINES = 200_000
"""In one response: with many agents, fewer samples."""
BAND_POINTS = 200
SCALARS = (
    Metric.CONFLICT_RATE,
    Metric.U_RATIO,
    Metric.RESIDUAL,
    Metric.MEAN_COSINE,
    Metric.MIN_ALIGNMENT,
    Metric.QP_STATUS,
)
COUNTS = (Metric.SKIPPED_STEPS, Metric.UNCERTIFIED_STEPS, Metric.FROZEN_STEPS, Metric.CLIPPED_FACTORS)
VECTORS = (Metric.WEIGHTS, Metric.NORMS, Metric.FACTORS)
METRICS = (Metric.RETURN_MEAN, Metric.WIN_RATE)

Object = dict[str, Any]


def overview(monitor: Monitor) -> Object:
    """A row per run, and the fraction of the files that has been read (null: all)."""
    done, total = monitor.progress()
    rows = [_row(entry) for entry in monitor.entries.values()]
    reading = None if monitor.is_read else round(done / total, 2) if total else 0.0
    return {"directory": monitor.root.name, "runs": rows, "reading": reading}


def _row(entry: RunEntry) -> Object:
    now = time.time()
    seeds = list(entry.seeds.values())
    each = entry.planned or 0
    planned = each * max(entry.num_seeds, len(seeds))
    done = sum(min(seed.env_steps, each) for seed in seeds)
    rates = [
        seed.latest.rate
        for seed in seeds
        if seed.latest and seed.latest.rate and seed.status(entry.planned, now) == "live"
    ]
    status = entry.status(now)
    rate = sum(rates) or None
    return {
        "id": entry.found.id,
        "name": entry.found.name,
        "algo": entry.algo,
        "env": entry.env,
        "label": entry.label,
        "problem": entry.problem,
        "state": status,
        "seeds": sorted(entry.seeds),
        "planned_seeds": max(entry.num_seeds, len(seeds)),
        "done": done,
        "planned": planned,
        "compares": any(seed.latest is not None and seed.latest.compares for seed in seeds),
        "rate": brief(rate),
        "eta": round((planned - done) / rate) if rate and status == "live" else None,
        "written": round(max((seed.modified for seed in seeds), default=0.0)),
        "skipped": sum(seed.tail.content.skipped for seed in seeds),
        "read": sum(seed.tail.content.offset for seed in seeds),
        "evaluations": sum(len(seed.tail.content.scores) for seed in seeds),
    } | {metric: _last(seeds, metric) for metric in METRICS}


def _last(seeds: Sequence[Seed], metric: str) -> float | None:
    """The mean over seeds of the latest evaluation, or of the absolute metric where there is one."""
    found = []
    for seed in seeds:
        content = seed.tail.content
        scores = list(content.scores.values())
        newest = content.absolute or (max(scores) if scores else None)
        found += [] if newest is None else [getattr(newest, metric)]
    return brief(float(np.mean(found))) if found and None not in found else None


def brief(value: float | None) -> float | None:
    """Four significant digits: more is noise, and the data is sent every few seconds."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def curves(entries: Sequence[RunEntry]) -> Object:
    """The evaluations of these runs: per seed, and as a line and a band over seeds."""
    style_of = styles([entry.label for entry in entries])
    runs = []
    for entry in entries:
        colour, dash = style_of[entry.label]
        scores = {n: sorted(seed.tail.content.scores.values()) for n, seed in sorted(entry.seeds.items())}
        kept = {n: thinned(line) for n, line in scores.items() if line}
        style = {"colour": colour, "dash": "" if dash == "-" else " ".join(map(str, dash[1]))}
        runs.append(_curve(entry, kept) | style)
    return {"runs": runs}


def _curve(entry: RunEntry, kept: dict[int, list[Score]]) -> Object:
    metrics = {}
    for metric in METRICS:
        lines = [tuple((s.env_steps, getattr(s, metric)) for s in scores) for scores in kept.values()]
        if lines and all(any(value is not None for _, value in line) for line in lines):
            metrics[metric] = {"seeds": [_unzipped(line) for line in lines], **_band(tuple(map(_even, lines)))}
    return {
        "id": entry.found.id,
        "label": entry.label,
        "env": entry.env,
        "seeds": list(kept),
        "statistic": _statistic(len(kept)),
        "metrics": metrics,
    }


def _statistic(count: int) -> str:
    if count < 2:
        return "one seed"
    if count < 3:
        return "mean and range of 2 seeds"
    return f"{'IQM' if count >= 4 else 'mean'} of {count} seeds, 95 % bootstrap interval"


def _unzipped(line: Sequence[tuple[int, float | None]]) -> list[list[Any]]:
    return [[step for step, _ in line], [brief(value) for _, value in line]]


def _even(line: Sequence[tuple[int, float | None]]) -> tuple[tuple[int, float | None], ...]:
    every = math.ceil(len(line) / BAND_POINTS)
    return tuple(line[::-every][::-1])


@lru_cache(maxsize=512)
def _band(lines: tuple[tuple[tuple[int, float | None], ...], ...]) -> Object:
    """Line and band as in `grasp compare`."""
    points = [np.array([(s, math.nan if v is None else v) for s, v in line], dtype=float).T for line in lines]
    found = band(points)
    ends = {"x": [int(step) for step in found.steps]}
    return ends | {name: [brief(float(v)) for v in getattr(found, name)] for name in ("line", "low", "high")}


def conflict(entry: RunEntry, seed: int) -> Object:
    """The agents' gradient conflict and their consensus in one seed, over training."""
    tail = entry.seeds[seed].tail
    found = _conflict(tail.path, tail.content.offset, tail.generation, tuple(tail.content.flagged))
    return {"id": entry.found.id, "label": entry.label, "env": entry.env, "seed": seed, **found}


@lru_cache(maxsize=16)
def _conflict(path: Path, offset: int, generation: int, flagged: tuple[int, ...]) -> Object:
    """Cached per state of the file, which `offset` and `generation` identify."""
    records = sample(path, flagged)
    return {"iterations": len(records), "groups": [_group(records, prefix) for prefix in _prefixes(records)]}


def _prefixes(records: Sequence[Object]) -> list[str]:
    return [p for p in PREFIXES if any(_compares(r, p) for r in records)]


def _compares(record: Object, prefix: str) -> bool:
    """Whether a record has a consensus; a condensed run keeps the conflict rate but no values per agent."""
    return (
        isinstance(record.get(f"{prefix}{Metric.WEIGHTS}"), list)
        or number(record.get(f"{prefix}{Metric.CONFLICT_RATE}")) is not None
    )


def _group(records: Sequence[Object], prefix: str) -> Object:
    sized = [r for r in records if _compares(r, prefix)]
    weights = sized[-1].get(f"{prefix}{Metric.WEIGHTS}")
    num_agents = min(len(weights), MOST_AGENTS) if isinstance(weights, list) else 0
    pairs = num_agents * (num_agents - 1) // 2
    every = math.ceil(len(sized) / max(MOST_COSINES // max(pairs, 1), 20))
    kept = sized if every == 1 or len(sized) <= MOST_SAMPLES // 20 else sized[::-every][::-1]
    vectors = {name: [_vector(r.get(f"{prefix}{name}"), num_agents) for r in kept] for name in VECTORS}
    scalars = {name: [brief(number(r.get(f"{prefix}{name}"))) for r in kept] for name in SCALARS}
    counts = {name: [number(r.get(name)) for r in kept] for name in COUNTS}
    known = {n: values for n, values in (scalars | counts | vectors).items() if any(v is not None for v in values)}
    return {
        "name": prefix.removesuffix("_"),
        "num_agents": num_agents,
        "x": [r["env_steps"] for r in kept],
        Metric.COSINES: [_vector(r.get(f"{prefix}{Metric.COSINES}"), pairs, 3) for r in kept],
        "statuses": _statuses([number(r.get(f"{prefix}{Metric.QP_STATUS}")) for r in sized]),
        **known,
    }


def _vector(value: Any, length: int, digits: int = 4) -> list[float | None] | None:
    """A list of `length` numbers; None for anything else."""
    if not isinstance(value, list) or len(value) != length:
        return None
    numbers = [number(item) for item in value]
    return [None if item is None else float(f"{item:.{digits}g}") for item in numbers]


def _statuses(codes: Sequence[float | None]) -> dict[str, int]:
    """How often the solver returned each status, by name."""
    names = {float(status): status.name.lower().replace("_", " ") for status in Status}
    return dict(Counter(names[code] for code in codes if code in names))


def config(entry: RunEntry) -> Object:
    """The run's config.json and versions.json as rows."""
    return {
        "id": entry.found.id,
        "name": entry.found.name,
        "label": entry.label,
        "problem": entry.problem,
        "config": flat(entry.config),
        "versions": flat(entry.versions),
    }


def flat(values: Object, prefix: str = "", depth: int = 0) -> list[list[str]]:
    """Rows of (name, value); nested objects become dotted names."""
    rows = []
    for name, value in values.items():
        if isinstance(value, dict) and depth < 4:
            rows += flat(value, f"{prefix}{name}.", depth + 1)
        else:
            rows.append([f"{prefix}{name}", str(value)[:500]])
    return rows[:500]
