"""A growing metrics log, read once from beginning to end.

`Tail` keeps the evaluations. Iterations are most of the file: their first and last bytes identify them, and they are
not parsed (grasp.dashboard.sampling parses a few of them on request) until the log seems to be that of a finished seed.
Then every line is parsed once, since a seed with a damaged line is not finished. What is kept of a file is bounded,
whatever it contains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from grasp.dashboard.discovery import open_inside
from grasp.runs.metrics_log import ITERATION, LONGEST_LINE, Block, Reader, is_number, parse, parsed
from grasp.types import Kind, Metric

MOST_EVALUATIONS = 2000
MOST_FLAGGED = 200
SKIP = f'"{Metric.SKIPPED_STEPS}": '.encode()
NO_SKIP = SKIP + b"0.0"


class Score(NamedTuple):
    """An evaluation as far as a curve needs it; None is a gap."""

    env_steps: int
    return_mean: float | None
    win_rate: float | None


@dataclass(eq=False)
class LogContent:
    """The content of a metrics log up to `offset`."""

    offset: int = 0
    skipped: int = 0
    """Damaged lines. Of the lines of iterations only those without an end count, until `Tail.check`."""
    scores: dict[int, Score] = field(default_factory=dict)
    """By env steps. A resumed run may repeat an evaluation: its checkpoints continue from the later one."""
    absolute: Score | None = None
    flagged: list[int] = field(default_factory=list)
    """Offsets of lines with a skipped step."""


class Tail:
    """One metrics log and how much of it has been read."""

    def __init__(self, path: Path):
        self.path = path
        self.content = LogContent()
        self.generation = 0
        """How often the file was truncated, replaced or removed."""
        self._reader = Reader(path, open_inside)

    def advance(self) -> bool:
        """Read the next block of whole lines; whether anything changed."""
        block = self._reader.read()
        changed = self._reader.generation != self.generation
        if changed:
            self.content, self.generation = LogContent(), self._reader.generation
        if block is not None:
            _take(self.content, block)
            self.content.offset = self._reader.offset
        return changed or block is not None

    def check(self) -> None:
        """Count the damaged lines again, by the values of iterations too."""
        reader = Reader(self.path, open_inside, end=self.content.offset)
        self.content.skipped = sum(record is None for _, record in parsed(reader))


def _take(content: LogContent, block: Block) -> None:
    lines = block.lines()
    if block.content.count(SKIP) != block.content.count(NO_SKIP):
        _flag(content, lines, block.start)
    for line in lines:
        if len(line) > LONGEST_LINE or not (line.startswith(ITERATION) and line.endswith(b"}")):
            _take_line(content, line)
    if len(content.scores) > MOST_EVALUATIONS:
        *steps, last = sorted(content.scores)
        content.scores = {step: content.scores[step] for step in [*steps[::2], last]}


def _take_line(content: LogContent, line: bytes) -> None:
    record = parse(line)
    if record is None:
        content.skipped += 1
    elif record["kind"] == Kind.EVALUATION:
        content.scores[record["env_steps"]] = score_of(record)
    elif record["kind"] == Kind.ABSOLUTE:
        content.absolute = score_of(record)


def _flag(content: LogContent, lines: Sequence[bytes], start: int) -> None:
    for line in lines:
        if len(content.flagged) < MOST_FLAGGED and SKIP in line and NO_SKIP not in line:
            content.flagged.append(start)
        start += len(line) + 1


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    return float(value) if is_number(value) else None


def score_of(record: dict[str, Any]) -> Score:
    return Score(record["env_steps"], number(record.get(Metric.RETURN_MEAN)), number(record.get(Metric.WIN_RATE)))
