"""Find run directories, and open files below the watched directory only.

A browser never sends a path: it names a run by its id, and the id maps to a directory found here. Symbolic links to
directories and files are not followed, so nothing outside the watched directory can be read.
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

MAX_DEPTH = 5
"""Levels below the watched directory that are searched for runs."""
MOST_RUNS = 2000
MOST_FOLDERS = 20_000
LARGEST_DOCUMENT = 1 << 20
"""Bytes of a config.json or versions.json; real ones have a few thousand."""


@dataclass(frozen=True)
class Found:
    """A run directory."""

    id: str
    path: Path
    name: str
    """Its path below the watched directory."""
    logs: dict[int, Path]
    """metrics.jsonl by seed."""


def resolve_root(directory: str | Path) -> Path:
    """The directory to watch without symbolic links: a file is inside exactly if its path begins with this one."""
    path = Path(directory)
    if not path.is_dir():
        raise GraspError(f"no directory '{directory}' to watch; name one that holds runs, such as 'runs'")
    return path.resolve()


def find_runs(root: Path) -> list[Found]:
    """Every folder with a config.json, down to `MAX_DEPTH`, sorted by name. Folders inside a run are not searched."""
    found, pending, seen = [], [(root, 0)], 0
    while pending and len(found) < MOST_RUNS and seen < MOST_FOLDERS:
        folder, depth = pending.pop()
        files, folders = _listing(folder)
        seen += 1
        if "config.json" in files:
            found.append(_found(root, folder, folders))
        elif depth < MAX_DEPTH:
            pending += [(folder / name, depth + 1) for name in sorted(folders, reverse=True)]
    return sorted(found, key=lambda run: run.name)


def _listing(folder: Path) -> tuple[set[str], list[str]]:
    """The regular files and the folders in a folder, without symbolic links and hidden names."""
    try:
        with os.scandir(folder) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
            folders = [entry.name for entry in visible if entry.is_dir(follow_symlinks=False)]
            return {entry.name for entry in visible if entry.is_file(follow_symlinks=False)}, folders
    except OSError:
        return set(), []


def _found(root: Path, folder: Path, folders: list[str]) -> Found:
    name = str(folder.relative_to(root)) if folder != root else root.name
    digest = hashlib.blake2s(os.fsencode(folder.relative_to(root)), digest_size=6).hexdigest()
    seeds = sorted(int(f[5:]) for f in folders if re.fullmatch(r"seed-(0|[1-9]\d{0,9})", f))
    shown = name.encode(errors="replace").decode()  # a file name need not be valid Unicode
    return Found(digest, folder, shown, {seed: folder / f"seed-{seed}" / "metrics.jsonl" for seed in seeds})


def open_inside(path: Path) -> BinaryIO | None:
    """Open a regular file that no symbolic link leads to; None for anything else. A named pipe does not block."""
    # The resolved path decides; O_NOFOLLOW closes the race of replacing the file by a link in between.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.path.realpath(path) != str(path):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb", buffering=0)


def read_document(path: Path) -> str:
    """A small text file below the watched directory; "" if it is missing or larger than `LARGEST_DOCUMENT`."""
    file = open_inside(path)
    if file is None:
        return ""
    with file:
        data = file.read(LARGEST_DOCUMENT + 1) or b""
    return data.decode(errors="replace") if len(data) <= LARGEST_DOCUMENT else ""


def held_locks() -> set[int]:
    """The inodes of all files that a process on this machine holds a lock on; empty where the system has no list.

    Taking the lock as a test would refuse it to a training process that starts at the same time.
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
