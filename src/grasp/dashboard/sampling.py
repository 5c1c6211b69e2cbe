"""What is looked at in a metrics file without reading all of it: its end, and a sample of its iterations.

`latest` looks at the last 64 kB: how far, how fast. `sample` parses at most about `MOST_SAMPLES` iteration lines at
even distances. The distance is a power of two, so a growing file keeps its points. A spike between two of them can be
missed, a skipped step cannot: `Tail` notes where such lines begin, and `sample` adds them.
"""

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, NamedTuple

from grasp.dashboard.discovery import open_inside
from grasp.dashboard.tail import ITERATION, Score, number
from grasp.runs.metrics_log import LONGEST_LINE, parse
from grasp.types import Metric

GLANCE = 64 << 10
GLANCE_LINES = 40
COMPILES = 20
"""Times the usual gap between two lines: a longer one was a compile."""
PREFIXES = ("", "backbone_")
"""A run may find a consensus for the heads and another for the backbone, whose metrics are named after it."""
MOST_SAMPLES = 400
MOST_POINTS = 400


class Latest(NamedTuple):
    """The end of a metrics file."""

    env_steps: int
    kind: str
    rate: float | None
    """Environment steps per second of wall clock."""
    gap: float
    """The longest time between two of the last lines, in seconds."""
    compares: bool = False
    """Whether they tell how far the agents' gradients agree."""


def latest(path: Path) -> Latest | None:
    """How far and how fast, from the last lines alone; None where no line is whole."""
    file = open_inside(path)
    if file is None:
        return None
    with file:
        start = max(0, os.fstat(file.fileno()).st_size - GLANCE)
        block = os.pread(file.fileno(), GLANCE, start)
    lines = block.split(b"\n")[1 if start else 0 : -1][-GLANCE_LINES:]
    records = [record for line in lines if (record := parse(line)) is not None]
    if not records:
        return None
    moments = _moments(records)
    passed = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(moments)]
    gap = max((seconds for seconds, _ in passed), default=0.0)
    compares = any(f"{prefix}{Metric.CONFLICT_RATE}" in record for record in records for prefix in PREFIXES)
    return Latest(records[-1]["env_steps"], records[-1]["kind"], _rate(passed), gap, compares)


def _rate(passed: Sequence[tuple[float, int]]) -> float | None:
    """Steps per second over (seconds, steps), without the waits that are a compile."""
    usual = COMPILES * median(seconds for seconds, _ in passed) if passed else 0.0
    kept = [pair for pair in passed if pair[0] <= usual] if usual else passed
    seconds, steps = sum(pair[0] for pair in kept), sum(pair[1] for pair in kept)
    return steps / seconds if seconds > 0 and steps > 0 else None


def _moments(records: Sequence[dict[str, Any]]) -> list[tuple[float, int]]:
    """(seconds, env steps) of the records since the clock last started: a resumed run's begins at zero again."""
    moments: list[tuple[float, int]] = []
    for record in records:
        wall = record.get("wall")
        seconds = number(wall.get("seconds")) if isinstance(wall, dict) else None
        if seconds is None:
            continue
        moments = [] if moments and seconds < moments[-1][0] else moments
        moments.append((seconds, record["env_steps"]))
    return moments


def sample(path: Path, flagged: Sequence[int] = (), most: int = MOST_SAMPLES) -> list[dict[str, Any]]:
    """Iteration records at even distances in a metrics file, the newest one, and those that begin at `flagged`."""
    file = open_inside(path)
    if file is None:
        return []
    with file:
        size = os.fstat(file.fileno()).st_size
        stride = 2 ** math.ceil(math.log2(max(size / most, 1)))
        begins = {0, *(place for place in flagged if place < size), _newest(file, size)}
        places = sorted({*range(0, size, stride), *begins})
        found = {record["env_steps"]: record for record in _records_at(file, places, begins)}
    return [found[step] for step in sorted(found)]


def _newest(file: BinaryIO, size: int) -> int:
    """Where the last whole iteration line begins; 0 if it is nowhere near the end."""
    start = max(0, size - GLANCE)
    block = os.pread(file.fileno(), GLANCE, start)
    begin = block.rfind(b"\n" + ITERATION, 0, block.rfind(b"\n") + 1)
    return start + begin + 1 if begin >= 0 else 0


def _records_at(file: BinaryIO, places: Sequence[int], begins: set[int]) -> Iterator[dict[str, Any]]:
    """The first iteration that begins at or after each place, each once. At `begins` a line is known to begin."""
    reached = -1
    for place in places:
        if place <= reached:
            continue
        reached, line = _line_from(file, place, place in begins)
        while line and not line.startswith(ITERATION):
            reached, line = _line_from(file, reached + len(line) + 1, True)
        record = parse(line)
        if record is not None:
            yield record


def _line_from(file: BinaryIO, place: int, begins: bool) -> tuple[int, bytes]:
    """Where the first whole line at or after `place` begins, and the line; empty at the end, or if it is gigantic."""
    reach = 4096
    while reach <= LONGEST_LINE:
        block = os.pread(file.fileno(), reach, place)
        first = 0 if begins else block.find(b"\n") + 1
        end = block.find(b"\n", first)
        if end >= 0 and (begins or first):
            return place + first, block[first:end]
        if len(block) < reach:
            break
        reach *= 4
    return place, b""


def thinned(scores: Sequence[Score], most: int = MOST_POINTS) -> list[Score]:
    """At most about `most` evaluations: of each stretch the lowest and the highest return stay, so spikes do too."""
    if len(scores) <= most:
        return list(scores)
    length = math.ceil(2 * len(scores) / most)
    kept = {0, len(scores) - 1}
    for start in range(0, len(scores), length):
        stretch = range(start, min(start + length, len(scores)))
        values = [(scores[i].return_mean, i) for i in stretch]
        known = [(value, i) for value, i in values if value is not None]
        kept |= {min(known)[1], max(known)[1]} if known else {start}
    return [scores[i] for i in sorted(kept)]
