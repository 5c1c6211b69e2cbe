"""Which files below a directory may be read, and where the runs are.

No path ever comes from a browser: a run has an id, and an id leads to a directory that was found here. Symbolic links
are not followed, neither to directories nor to files, so nothing outside the directory can be reached.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from grasp.types import GraspError

DEPTH = 5
"""How far below the directory a run may lie."""
MOST_RUNS = 2000
MOST_FOLDERS = 20_000
LARGEST_DOCUMENT = 1 << 20
"""Bytes of a config.json or versions.json; they have a few thousand."""


@dataclass(frozen=True)
class Found:
    """A run directory: its id, its place below the directory that is watched, and the metrics of its seeds."""

    id: str
    path: Path
    name: str
    logs: dict[int, Path]


def top(directory: str | Path) -> Path:
    """The directory to watch, free of links, so that a file is below it exactly if its path begins with it."""
    path = Path(directory)
    if not path.is_dir():
        raise GraspError(f"no directory '{directory}' to watch; name one that holds runs, such as 'runs'")
    return path.resolve()


def find_runs(root: Path) -> list[Found]:
    """Every folder with a config.json and seeds (or none yet), down to `DEPTH`; what lies in a run is not searched."""
    found, waiting, seen = [], [(root, 0)], 0
    while waiting and len(found) < MOST_RUNS and seen < MOST_FOLDERS:
        folder, depth = waiting.pop()
        names, folders = _listing(folder)
        seen += 1
        if "config.json" in names:
            found.append(_found(root, folder, folders))
        elif depth < DEPTH:
            waiting += [(folder / name, depth + 1) for name in sorted(folders, reverse=True)]
    return sorted(found, key=lambda run: run.name)


def _listing(folder: Path) -> tuple[set[str], list[str]]:
    """The plain files and the folders in a folder; links and hidden names are neither."""
    try:
        with os.scandir(folder) as entries:
            kept = [entry for entry in entries if not entry.name.startswith(".")]
            folders = [entry.name for entry in kept if entry.is_dir(follow_symlinks=False)]
            return {entry.name for entry in kept if entry.is_file(follow_symlinks=False)}, folders
    except OSError:
        return set(), []


def _found(root: Path, folder: Path, folders: list[str]) -> Found:
    name = str(folder.relative_to(root)) if folder != root else root.name
    digest = hashlib.blake2s(os.fsencode(folder.relative_to(root)), digest_size=6).hexdigest()
    seeds = sorted(int(f[5:]) for f in folders if re.fullmatch(r"seed-(0|[1-9]\d{0,9})", f))
    shown = name.encode(errors="replace").decode()  # a name need not be valid text
    return Found(digest, folder, shown, {seed: folder / f"seed-{seed}" / "metrics.jsonl" for seed in seeds})


def open_inside(path: Path) -> BinaryIO | None:
    """A regular file under its true name, or None where there is none: no link on the way, no pipe that would block."""
    # The true name is what decides. O_NOFOLLOW leaves no moment to swap a link for the file in between.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.path.realpath(path) != str(path):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb", buffering=0)


def read_document(path: Path) -> str:
    """A small text file below the directory; "" where it is missing or larger than any that we write."""
    file = open_inside(path)
    if file is None:
        return ""
    with file:
        data = file.read(LARGEST_DOCUMENT + 1) or b""
    return data.decode(errors="replace") if len(data) <= LARGEST_DOCUMENT else ""


def held_locks() -> set[int]:
    """The inodes of all files that a process here holds a lock on; empty where the system does not tell.

    Trying the lock would be a way to know, and would refuse it to a training that starts at that moment.
    """
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return set()
    return set(_inodes(lines))


def _inodes(lines: list[str]) -> Iterator[int]:
    for line in lines:
        match = re.search(r"FLOCK .*:(\d+) 0 EOF", line)
        if match:
            yield int(match[1])
