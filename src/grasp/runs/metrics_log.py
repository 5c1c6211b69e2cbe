"""`metrics.jsonl`, the metrics log of a seed: one JSON object per line, appended in order, truncated to a checkpoint on
resume.

`MetricsWriter` writes it. `parse` decides what a record is, `Reader` yields whole lines as the file grows; `read` and
`Follower` are built on them, and so is everything else that reads a metrics log. A process may be killed while it
writes, a disk may fail, and other programs may write anything: such lines are damaged, and every command leaves them
out.
"""

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard

import numpy as np

from grasp.types import GraspError, Kind, Metric

LogRecord = dict[str, Any]
"""One line: `kind`, `env_steps`, `seed`, the metrics by name, and under `wall` the only values in which equal runs
differ."""

KINDS = (Kind.ITERATION, Kind.EVALUATION, Kind.ABSOLUTE)
NUMBERS = (
    Metric.RETURN_MEAN,
    Metric.WIN_RATE,
    Metric.TRAIN_RETURN,
    Metric.TRAIN_WIN_RATE,
    Metric.CONFLICT_RATE,
    Metric.U_NORM,
    Metric.U_RATIO,
    Metric.NOISE_RATIO,
    Metric.SIGNAL,
)
"""Metrics that are numbers wherever they appear; null stands for NaN."""
COUNTS = (Metric.EPISODES, Metric.BEST_ENV_STEPS)
LISTS = (Metric.RETURNS, Metric.WINS)
LARGEST_STEP = 2**53
"""JSON's numbers are exact up to here."""
LARGEST = sys.float_info.max
ITERATION = f'{{"kind": "{Kind.ITERATION}"'.encode()
"""How `MetricsWriter` begins the line of an iteration: for readers that look only for other lines."""
BLOCK = 8 << 20
"""Bytes read at a time."""
LONGEST_LINE = 4 << 20
"""Bytes of the longest line that is parsed; the cosines of 600 agents take two megabytes."""
ENDING = 80
"""Bytes before the offset that are compared to detect a file that was truncated and has grown again."""


def plain(value: Any) -> Any:
    """An array as JSON: float32 in its shortest exact form, NaN and infinities as null, matrices as nested lists."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, list | tuple) or np.ndim(value):
        return [plain(item) for item in value]
    if np.issubdtype(np.asarray(value).dtype, np.floating):
        return float(str(value)) if math.isfinite(value) else None
    return np.asarray(value).item()


def encode(record: LogRecord) -> bytes:
    """The line of a record. Its values must be `plain`."""
    return json.dumps(record, allow_nan=False).encode() + b"\n"


class MetricsWriter:
    """The metrics log of one seed, open for writing."""

    def __init__(self, path: Path, keep: int = 0):
        """Open the file and truncate it to its first `keep` bytes: a resumed run writes the later lines again."""
        check_intact({path: keep})
        self._file = path.open("ab")
        self._file.truncate(keep)

    def write(self, record: LogRecord) -> None:
        self._file.write(encode(record))
        self._file.flush()

    def commit(self) -> int:
        """Sync to disk; returns the number of bytes that are safely there."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk has been reported by the write that failed
            self._file.close()


def parse(line: bytes) -> LogRecord | None:
    """The record on a line, with whole `env_steps`. None where the line is damaged, another program's, or has a value
    of the wrong type."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        record = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        return None
    steps, seed = record.get("env_steps"), record.get("seed")
    if not is_number(steps) or not 0 <= steps < LARGEST_STEP or steps != int(steps) or type(seed) is not int:
        return None
    if record["kind"] != Kind.ITERATION and Metric.RETURN_MEAN not in record:
        return None
    right = (
        all(is_number_or_null(record.get(name)) for name in NUMBERS)
        and all(type(record.get(name)) in (int, type(None)) for name in COUNTS)
        and all(_is_list(record.get(name)) for name in LISTS)
        and _is_clock(record.get("wall"))
    )
    return record | {"env_steps": int(steps)} if right else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is a finite number. A whole number of JSON may be too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def is_number_or_null(value: Any) -> bool:
    return value is None or is_number(value)


def _is_list(values: Any) -> bool:
    return values is None or (isinstance(values, list) and all(map(is_number_or_null, values)))


def _is_clock(wall: Any) -> bool:
    return wall is None or (isinstance(wall, dict) and all(map(is_number_or_null, wall.values())))


def is_finished(last: Mapping[str, Any] | None, damaged: bool, total_steps: int | None) -> bool:
    """Whether a seed has trained for `total_steps`: the last record of its log is the absolute metric at the end, and
    no line is damaged. A seed with a damaged line is unfinished: resuming it names the line. None: the steps are
    unknown, because this version of grasp cannot read the configuration."""
    if last is None or damaged or total_steps is None:
        return False
    return last.get("kind") == Kind.ABSOLUTE and last["env_steps"] >= total_steps


class Block(NamedTuple):
    """Consecutive whole lines of a file."""

    start: int
    """Offset of the first byte."""
    number: int
    """Of the first line, from 1."""
    content: bytes

    def lines(self) -> list[bytes]:
        return self.content.removesuffix(b"\n").split(b"\n") if self.content else []


def open_file(path: Path) -> BinaryIO | None:
    """The file, or None where there is none."""
    try:
        return path.open("rb", buffering=0)
    except OSError:
        return None


class Reader:
    """Reads the whole lines of one metrics log, each once, while the file may grow, be truncated, replaced or removed.

    `opened` opens the file. Only the first `end` bytes are read, where that is given.
    """

    def __init__(self, path: Path, opened: Callable[[Path], BinaryIO | None] = open_file, end: int | None = None):
        self.path, self.opened, self.end = path, opened, end
        self.generation = 0
        """How often the file was truncated, replaced or removed; it is then read again from its beginning."""
        self._nothing_new: tuple[int, int, int] | None = None
        self._restart()

    def _restart(self) -> None:
        self.offset, self.ending = 0, b""
        self.partial = False
        """Whether an incomplete line follows the offset."""
        self._number, self._in_long_line = 1, False

    def read(self) -> Block | None:
        """The next whole lines, up to `BLOCK` bytes of them; None where there are none yet."""
        signature = _signature(self.path)
        if signature == self._nothing_new:
            return None
        file = self.opened(self.path)
        if file is None:
            self.generation += self.offset > 0
            self._restart()
            self._nothing_new = signature
            return None
        with file:
            # A resumed run truncates the file and writes the same lines again, except for their wall-clock times.
            if os.pread(file.fileno(), len(self.ending), self.offset - len(self.ending)) != self.ending:
                self.generation += 1
                self._restart()
            size = BLOCK if self.end is None else min(BLOCK, self.end - self.offset)
            block = self._take(os.pread(file.fileno(), size, self.offset))
        if block is None:
            self._nothing_new = signature
        return block

    def _take(self, data: bytes) -> Block | None:
        start, number = self.offset, self._number
        if not data:
            self.partial = self._in_long_line
            return None
        if self._in_long_line:  # the block before this one had its beginning
            rest = data.find(b"\n") + 1
            self._in_long_line = self.partial = rest == 0
            self._advance(data[: rest or len(data)], 0)
            return Block(start, number, b"")
        whole = data[: data.rfind(b"\n") + 1]
        self.partial = len(whole) < len(data)
        if not whole and len(data) > LONGEST_LINE:  # passed over in pieces, so that memory stays bounded
            self._in_long_line, whole = True, data
        if not whole:
            return None
        self._advance(whole, whole.count(b"\n") or 1)
        return Block(start, number, whole)

    def _advance(self, content: bytes, lines: int) -> None:
        self.offset += len(content)
        self._number += lines
        self.ending = (self.ending + content[-ENDING:])[-ENDING:]

    def blocks(self) -> Iterator[Block]:
        """Everything up to the end of the file."""
        while (block := self.read()) is not None:
            yield block


def _signature(path: Path) -> tuple[int, int, int]:
    """Changes whenever the file does."""
    try:
        stat = os.stat(path, follow_symlinks=False)
    except OSError:
        return (0, 0, 0)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def parsed(reader: Reader) -> Iterator[tuple[int, LogRecord | None]]:
    """Every line that is left, with its number; None where it is damaged."""
    for block in reader.blocks():
        for number, line in enumerate(block.lines(), block.number):
            yield number, parse(line)


def last_lines(file: BinaryIO, size: int) -> tuple[int, list[bytes]]:
    """The whole lines among the last `size` bytes of a file, and the offset of the first of them."""
    start = max(0, os.fstat(file.fileno()).st_size - size)
    data = os.pread(file.fileno(), size, start)
    first = data.find(b"\n") + 1 if start else 0
    return start + first, data[first:].split(b"\n")[:-1]


def line_from(file: BinaryIO, offset: int, is_line_start: bool) -> tuple[int, bytes]:
    """Offset and bytes of the first whole line at or after `offset`; no bytes at the end or if it is too long."""
    reach = 4096
    while reach <= LONGEST_LINE:
        data = os.pread(file.fileno(), reach, offset)
        first = 0 if is_line_start else data.find(b"\n") + 1
        end = data.find(b"\n", first)
        if end >= 0 and (is_line_start or first):
            return offset + first, data[first:end]
        if len(data) < reach:
            break
        reach *= 4
    return offset, b""


class Records(NamedTuple):
    """A metrics log as it was read."""

    records: list[LogRecord]
    damaged: list[int]
    """1-based numbers of the lines that are not records."""
    partial: bool
    """Whether the file ends within a line: its process is writing it, or was killed while it did."""

    @property
    def last(self) -> LogRecord | None:
        return self.records[-1] if self.records else None


def read(path: Path, end: int | None = None) -> Records:
    """A whole metrics log, or its first `end` bytes; empty where there is none."""
    reader, found, damaged = Reader(path, end=end), [], []
    for number, record in parsed(reader):
        if record is None:
            damaged.append(number)
        else:
            found.append(record)
    return Records(found, damaged, reader.partial)


def check_intact(kept: Mapping[Path, int]) -> None:
    """Raise GraspError if the part of a metrics log that its checkpoint counted has a line that is not a whole record.

    Training must stop then: it would choose the best policy among too few evaluations. The files are those of
    seeds that train as one program, which can only be restarted together.
    """
    for path, keep in kept.items():
        fault = _fault(path, keep)
        if fault:
            folders, home = " ".join(str(file.parent) for file in kept), path.parent.parent
            raise GraspError(f"{fault}; restore the file, or remove {folders} and train anew with: grasp resume {home}")


def _fault(path: Path, keep: int) -> str:
    """What is wrong with the first `keep` bytes of a metrics log; empty where nothing is."""
    if not keep:
        return ""
    log = read(path, end=keep)
    if log.damaged:
        return damage(path, log)
    if not path.exists() or path.stat().st_size < keep:
        return f"{path} is shorter than at its checkpoint"
    return f"line {len(log.records) + 1} of {path} is damaged" if log.partial else ""


def damage(path: Path, log: Records) -> str:
    """The first damaged line, for an error message."""
    return f"line {log.damaged[0]} of {path} is damaged"


class Follower:
    """The records that are appended to one metrics log from now on.

    After a truncation, unchanged lines are not returned again.
    """

    def __init__(self, path: Path):
        self._reader = Reader(path)
        self._known: list[int] = []
        """Hashes of the lines in the file."""
        self._new_lines()

    def news(self) -> list[LogRecord]:
        """The records since the last call."""
        return [record for line in self._new_lines() if (record := parse(line)) is not None]

    def _new_lines(self) -> list[bytes]:
        generation, index, found = self._reader.generation, len(self._known), []
        for block in self._reader.blocks():
            if self._reader.generation != generation:
                generation, index = self._reader.generation, 0
            for line in block.lines():
                if index == len(self._known) or self._known[index] != hash(line):
                    self._known[index:] = [hash(line)]
                    found.append(line)
                index += 1
        if self._reader.generation != generation:
            index = 0
        del self._known[index:]
        return found
