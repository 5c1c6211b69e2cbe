"""A growing metrics file, read once from beginning to end.

`Tail` keeps the evaluations and passes over iteration lines, which are nearly the whole file: they are told by their
first bytes and not parsed (grasp.dashboard.sampling parses a few of them when somebody looks). What is kept of a file
is bounded, whatever stands in it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from grasp.dashboard.discovery import open_inside
from grasp.runs.metrics_log import parse

BLOCK = 4 << 20
LONGEST_LINE = 1 << 20
MOST_EVALUATIONS = 2000
MOST_FLAGGED = 200
ITERATION = b'{"kind": "iteration"'
SKIP, NO_SKIP = b'"skipped_steps": ', b'"skipped_steps": 0.0'


class Score(NamedTuple):
    """An evaluation as far as a curve needs it; None is a gap."""

    env_steps: int
    return_mean: float | None
    win_rate: float | None


@dataclass(eq=False)
class Seen:
    """What the first `offset` bytes of a metrics file say."""

    offset: int = 0
    ending: bytes = b""
    """The last bytes before the offset."""
    in_long_line: bool = False
    skipped: int = 0
    """Lines that were no record, or longer than any that we write."""
    scores: dict[int, Score] = field(default_factory=dict)
    """By env steps. A resumed run may repeat a point: the later line is the one that its checkpoints continue from."""
    absolute: Score | None = None
    flagged: list[int] = field(default_factory=list)
    """Where lines with a skipped step begin."""


class Tail:
    """One metrics file and how much of it has been seen."""

    def __init__(self, path: Path):
        self.path = path
        self.seen = Seen()
        self.size = 0
        self.generation = 0
        """How often the file turned out to be another one."""
        self._finished: tuple[int, int, int] | None = None

    def advance(self, budget: int = BLOCK) -> bool:
        """Read on, about `budget` bytes at most; whether anything was new. A line waits until it is whole."""
        signature = _signature(self.path)
        if signature == self._finished:
            return False
        file = open_inside(self.path)
        if file is None:
            self._finished = signature
            return self._forget()
        with file:
            changed = self._is_another(file) and self._forget()
            self.size = os.fstat(file.fileno()).st_size
            end = self.seen.offset + budget
            while self.seen.offset < end:
                if not _read_block(self.seen, file):
                    self._finished = signature
                    break
                changed = True
        return changed

    def _is_another(self, file: BinaryIO) -> bool:
        """Whether what was read no longer stands there: replaced, shortened, or shortened and grown again.

        A resumed run does the last: it cuts its file back and writes the lines again. Their wall-clock times differ.
        """
        ending = self.seen.ending
        return os.pread(file.fileno(), len(ending), self.seen.offset - len(ending)) != ending

    def _forget(self) -> bool:
        known = self.seen.offset > 0
        self.seen, self.size, self.generation = Seen(), 0, self.generation + known
        return known


def _signature(path: Path) -> tuple[int, int, int]:
    try:
        stat = os.stat(path, follow_symlinks=False)
    except OSError:
        return (0, 0, 0)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _read_block(seen: Seen, file: BinaryIO) -> bool:
    """Take in the next whole lines; False where there is none yet."""
    block = os.pread(file.fileno(), BLOCK, seen.offset)
    whole = block[: block.rfind(b"\n") + 1]
    if whole:
        start = whole.index(b"\n") + 1 if seen.in_long_line else 0
        seen.in_long_line = False
        _take(seen, whole[start:], seen.offset + start)
    elif len(block) > LONGEST_LINE or (block and seen.in_long_line):
        # A line without end is let go piece by piece, so that memory stays bounded.
        seen.skipped += not seen.in_long_line
        seen.in_long_line, whole = True, block
    seen.offset += len(whole)
    seen.ending = whole[-80:] or seen.ending
    return bool(whole)


def _take(seen: Seen, whole: bytes, start: int) -> None:
    lines = whole.split(b"\n")[:-1]
    if whole.count(SKIP) != whole.count(NO_SKIP):
        _flag(seen, lines, start)
    for line in lines:
        if len(line) > LONGEST_LINE or not line.startswith(ITERATION):
            _take_line(seen, line)
    if len(seen.scores) > MOST_EVALUATIONS:
        *steps, last = sorted(seen.scores)
        seen.scores = {step: seen.scores[step] for step in [*steps[::2], last]}


def _take_line(seen: Seen, line: bytes) -> None:
    record = None if len(line) > LONGEST_LINE else record_of(line)
    if record is None:
        seen.skipped += 1
    elif record["kind"] == "evaluation":
        seen.scores[record["env_steps"]] = score_of(record)
    elif record["kind"] == "absolute":
        seen.absolute = score_of(record)


def _flag(seen: Seen, lines: Sequence[bytes], start: int) -> None:
    for line in lines:
        if len(seen.flagged) < MOST_FLAGGED and SKIP in line and NO_SKIP not in line:
            seen.flagged.append(start)
        start += len(line) + 1


def number(value: Any) -> float | None:
    """A finite number, or None: a metrics file may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def record_of(line: bytes) -> dict[str, Any] | None:
    """The record on a line, its env steps whole, or None."""
    try:
        record = parse(line)
    except RecursionError:  # brackets, a million deep
        return None
    steps = number(record["env_steps"]) if record else None
    if record is None or steps is None or not 0 <= steps < 2**53 or not isinstance(record["kind"], str):
        return None
    return record | {"env_steps": int(steps)}


def score_of(record: dict[str, Any]) -> Score:
    return Score(record["env_steps"], number(record.get("return_mean")), number(record.get("win_rate")))
