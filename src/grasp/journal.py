"""`metrics.jsonl`: one object a line, appended in order, cut back to a checkpoint on resume."""

import contextlib
import itertools
import json
import math
import os
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
        if keep and (not path.exists() or path.stat().st_size < keep):
            raise GraspError(f"{path} is shorter than its checkpoint knew it; restore the file, or train anew")
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


def read(path: Path) -> list[dict[str, Any]]:
    """The records up to the first line that is not whole; whoever resumes writes the rest again."""
    if not path.exists():
        return []
    records = map(parse, path.read_bytes().split(b"\n")[:-1])
    return list(itertools.takewhile(lambda record: record is not None, records))  # pyright: ignore[reportReturnType]
