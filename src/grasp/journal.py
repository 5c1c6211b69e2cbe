"""`metrics.jsonl`: one object a line, appended in order, cut back to a checkpoint on resume."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np


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
        self.path = path
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
        self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a line cut off by a kill is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]
