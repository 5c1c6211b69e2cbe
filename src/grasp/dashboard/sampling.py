"""Read a part of a metrics log: its last lines, and a sample of its iterations.

`latest` reads the last 64 kB: progress and rate. `sample` parses about `MOST_SAMPLES` iteration lines at most, at even
distances. The distance is a power of two, so a growing file keeps its samples. A spike between two samples can be
missed; a skipped step cannot: `Tail` records where such lines begin, and `sample` includes them.
"""

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, NamedTuple

from grasp.dashboard.discovery import open_inside
from grasp.dashboard.tail import Score, number
from grasp.runs.metrics_log import ITERATION, last_lines, line_from, parse
from grasp.types import Metric

END = 64 << 10
"""Bytes that `latest` reads."""
END_LINES = 40
COMPILES = 20
"""A gap between two lines longer than this many medians is a compilation."""
PREFIXES = ("", "backbone_")
"""Of metric names: a run may have one consensus for the heads and another for the backbone."""
MOST_SAMPLES = 400
MOST_POINTS = 400


class Latest(NamedTuple):
    """The last lines of a metrics log."""

    env_steps: int
    kind: str
    rate: float | None
    """Environment steps per second of wall clock."""
    gap: float
    """The longest time between two of the last lines, in seconds."""
    compares: bool = False
    """Whether they hold metrics of a consensus."""


def latest(path: Path) -> Latest | None:
    """Progress and rate from the last lines alone; None if none of them is valid."""
    file = open_inside(path)
    if file is None:
        return None
    with file:
        _, lines = last_lines(file, END)
    records = [record for line in lines[-END_LINES:] if (record := parse(line)) is not None]
    if not records:
        return None
    times = _times(records)
    passed = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(times)]
    gap = max((seconds for seconds, _ in passed), default=0.0)
    compares = any(f"{prefix}{Metric.CONFLICT_RATE}" in record for record in records for prefix in PREFIXES)
    return Latest(records[-1]["env_steps"], records[-1]["kind"], _rate(passed), gap, compares)


def _rate(passed: Sequence[tuple[float, int]]) -> float | None:
    """Steps per second over (seconds, steps) between lines, without the gaps that are compilations."""
    usual = COMPILES * median(seconds for seconds, _ in passed) if passed else 0.0
    kept = [pair for pair in passed if pair[0] <= usual] if usual else passed
    seconds, steps = sum(pair[0] for pair in kept), sum(pair[1] for pair in kept)
    return steps / seconds if seconds > 0 and steps > 0 else None


def _times(records: Sequence[dict[str, Any]]) -> list[tuple[float, int]]:
    """(seconds, env steps) of the records since the clock last started: resuming resets it to zero."""
    times: list[tuple[float, int]] = []
    for record in records:
        wall = record.get("wall")
        seconds = number(wall.get("seconds")) if isinstance(wall, dict) else None
        if seconds is None:
            continue
        times = [] if times and seconds < times[-1][0] else times
        times.append((seconds, record["env_steps"]))
    return times


def sample(path: Path, flagged: Sequence[int] = (), most: int = MOST_SAMPLES) -> list[dict[str, Any]]:
    """Iteration records at even distances in a metrics log, the last one, and those at the byte offsets `flagged`."""
    file = open_inside(path)
    if file is None:
        return []
    with file:
        size = os.fstat(file.fileno()).st_size
        stride = 2 ** math.ceil(math.log2(max(size / most, 1)))
        line_starts = {0, *(offset for offset in flagged if offset < size), _last_iteration(file)}
        offsets = sorted({*range(0, size, stride), *line_starts})
        found = {record["env_steps"]: record for record in _records_at(file, offsets, line_starts)}
    return [found[step] for step in sorted(found)]


def _last_iteration(file: BinaryIO) -> int:
    """Where the last whole line of an iteration begins; 0 if none is near the end."""
    offset, lines = last_lines(file, END)
    found = 0
    for line in lines:
        found = offset if line.startswith(ITERATION) else found
        offset += len(line) + 1
    return found


def _records_at(file: BinaryIO, offsets: Sequence[int], line_starts: set[int]) -> Iterator[dict[str, Any]]:
    """The first iteration that begins at or after each offset, each once."""
    reached = -1
    for offset in offsets:
        if offset <= reached:
            continue
        reached, line = line_from(file, offset, offset in line_starts)
        while line and not line.startswith(ITERATION):
            reached, line = line_from(file, reached + len(line) + 1, True)
        record = parse(line)
        if record is not None:
            yield record


def thinned(scores: Sequence[Score], most: int = MOST_POINTS) -> list[Score]:
    """About `most` evaluations at most: the lowest and the highest return of each interval, so that spikes remain."""
    if len(scores) <= most:
        return list(scores)
    length = math.ceil(2 * len(scores) / most)
    kept = {0, len(scores) - 1}
    for start in range(0, len(scores), length):
        values = [(scores[i].return_mean, i) for i in range(start, min(start + length, len(scores)))]
        known = [(value, i) for value, i in values if value is not None]
        kept |= {min(known)[1], max(known)[1]} if known else {start}
    return [scores[i] for i in sorted(kept)]
