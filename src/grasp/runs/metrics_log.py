"""`metrics.jsonl`: one object a line, appended in order, cut back to a checkpoint on resume."""

import contextlib
import itertools
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grasp.types import GraspError


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


class Journal:
    """The metrics of one seed, open for writing."""

    def __init__(self, path: Path, keep: int = 0):
        """Open the file and drop everything after its first `keep` bytes: a resumed run writes those lines again."""
        need_whole({path: keep})
        self._file = path.open("ab")
        self._file.truncate(keep)

    def write(self, line: dict[str, Any]) -> None:
        """Append one line: `kind`, `env_steps`, `seed`, values, and under `wall` all that equal runs differ in."""
        self._file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def commit(self) -> int:
        """Bytes that are safely on the disk."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk has been reported by the write that met it
            self._file.close()


def parse(line: bytes) -> dict[str, Any] | None:
    """The record on a line, or None where a crash left something else."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and {"kind", "env_steps"} <= record.keys() else None


def need_whole(kept: Mapping[Path, int]) -> None:
    """GraspError where a journal's first bytes, so many as are kept, are not whole lines; nothing is touched.

    `read` would stop there: whoever went on would choose the best policy among too few and append where nobody reads.
    The files are of seeds that train as one, which can only begin anew together.
    """
    for path, keep in kept.items():
        fault = _fault(path, keep)
        if fault:
            folders, home = " ".join(str(file.parent) for file in kept), path.parent.parent
            raise GraspError(f"{fault}; restore the file, or remove {folders} and train anew with: grasp resume {home}")


def _fault(path: Path, keep: int) -> str:
    """What is wrong with the first bytes of a journal; empty where nothing is."""
    if not keep:
        return ""
    content = path.read_bytes()[:keep] if path.exists() else b""
    *lines, rest = content.split(b"\n")
    broken = [number for number, line in enumerate(lines, 1) if parse(line) is None]
    if not broken and len(content) < keep:
        return f"{path} is shorter than its checkpoint knew it"
    broken += [len(lines) + 1] if rest else []  # not where a line ended when the checkpoint was written
    return f"line {broken[0]} of {path} is damaged" if broken else ""


def read(path: Path) -> list[dict[str, Any]]:
    """The records up to the first line that is not whole; whoever resumes writes the rest again."""
    if not path.exists():
        return []
    records = map(parse, path.read_bytes().split(b"\n")[:-1])
    return list(itertools.takewhile(lambda record: record is not None, records))  # pyright: ignore[reportReturnType]


class Follower:
    """The new lines of one journal."""

    def __init__(self, path: Path):
        self.path, self.offset = path, 0
        if path.exists():
            self.offset = path.stat().st_size

    def news(self) -> list[dict[str, Any]]:
        """The whole lines since the last look. A journal that was cut back, to go on from a checkpoint, is followed
        from its new end."""
        try:
            file = self.path.open("rb")
        except OSError:
            return []
        with file:
            size = os.fstat(file.fileno()).st_size
            self.offset = min(self.offset, size)
            data = os.pread(file.fileno(), size - self.offset, self.offset)
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [line for text in whole.split(b"\n") if (line := parse(text)) is not None]
