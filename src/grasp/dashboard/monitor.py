"""The state of all runs below a directory, kept current by one thread while a page is open.

Only that thread changes the state; requests read it. It refreshes after a request and sleeps otherwise, so a page that
is not polled costs nothing.
"""

import contextlib
import json
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from grasp import config as configs
from grasp.dashboard.discovery import Found, find_runs, held_locks, read_document, resolve_root
from grasp.dashboard.sampling import Latest, latest
from grasp.dashboard.tail import Tail, number
from grasp.runs.lock import CLAIM, STALE, here
from grasp.runs.metrics_log import is_finished
from grasp.types import GraspError

PERIOD = 1.0
"""Seconds between two refreshes."""
QUIET = 30.0
"""Seconds after which a seed whose lock is free counts as stopped."""
STALLED = 600.0
"""Seconds without a line after which a seed whose lock is held counts as stalled, unless its lines are rarer."""

RunStatus = Literal["starting", "live", "stalled", "stopped", "finished"]
RANKED: tuple[RunStatus, ...] = ("live", "starting", "stalled")
"""A run takes the first of these that any of its seeds has."""


@dataclass(eq=False)
class Seed:
    """One seed's metrics log."""

    tail: Tail
    latest: Latest | None = None
    modified: float = 0.0
    """Time of the last write, in seconds since the epoch."""
    is_locked: bool = False
    """Whether a process on this machine or on another holds the seed's lock."""
    signature: tuple[int, int] = (-1, -1)
    """Size and modification time of the file when `latest` was read."""
    checked: tuple[int, int] = (-1, -1)
    """The same when every line was parsed."""

    @property
    def env_steps(self) -> int:
        """From the last lines; from the evaluations where the end of the file has no valid line."""
        return self.latest.env_steps if self.latest else max(self.tail.content.scores, default=0)

    def is_finished(self, planned: int | None, damaged: bool) -> bool:
        return is_finished(self.latest and self.latest._asdict(), damaged, planned)

    def status(self, planned: int | None, now: float) -> RunStatus:
        if self.is_finished(planned, self.tail.content.skipped > 0):
            return "finished"
        silent = now - self.modified
        if self.is_locked and silent > max(STALLED, 3 * self.latest.gap if self.latest else STALLED):
            return "stalled"
        if self.is_locked or silent < QUIET:
            return "live" if self.latest or self.tail.content.scores else "starting"
        return "stopped"


@dataclass(eq=False)
class RunEntry:
    """One run directory."""

    found: Found
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    planned: int | None = None
    """Environment steps of a finished seed, if known."""
    num_seeds: int = 1
    problem: str = ""
    """Why config.json cannot be used; empty if it can."""
    seeds: dict[int, Seed] = field(default_factory=dict)
    label: str = ""
    stamp: int = -1
    """Modification time of the config.json that was read."""

    @property
    def algo(self) -> str:
        return str(self.config.get("algo", "unreadable"))

    @property
    def env(self) -> str:
        return str(self.config.get("env", "unknown environment"))

    def status(self, now: float) -> RunStatus:
        found = {seed.status(self.planned, now) for seed in self.seeds.values()}
        if found == {"finished"} and len(self.seeds) >= self.num_seeds:
            return "finished"
        for status in RANKED:
            if status in found:
                return status
        return "stopped"


class Monitor:
    """The runs below a directory."""

    def __init__(self, directory: str | Path):
        self.root = resolve_root(directory)
        self.entries: dict[str, RunEntry] = {}
        self.is_read = False
        """Whether every file has been read to its end, and every line of the finished seeds parsed."""
        self.ready = threading.Event()
        """Set once `entries` has been filled."""
        self._priority: tuple[str, ...] = ()
        self._requested = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="grasp-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._requested.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def request(self, *ids: str) -> None:
        """Ask for a refresh; the files of these runs are read first."""
        self._priority = ids or self._priority
        self._requested.set()

    def _run(self) -> None:
        while self._requested.wait() and not self._stopped.is_set():
            self._requested.clear()
            self.refresh()
            self._stopped.wait(PERIOD)

    def refresh(self) -> None:
        """List the runs and read the end of every changed file, then all new lines; then check the lines of finished
        seeds, until the next request."""
        entries, locks = self._list(), held_locks()
        for entry in entries.values():
            for seed in entry.seeds.values():
                _update(seed, locks)
        self.entries = entries
        self.ready.set()
        pending = dict(self.entries)
        while pending and not self._stopped.is_set():
            chosen = next((name for name in self._priority if name in pending), None) or next(iter(pending))
            for seed in pending.pop(chosen).seeds.values():
                while seed.tail.advance() and not self._stopped.is_set():
                    pass
        self.is_read = not pending and self._check()

    def _check(self) -> bool:
        """Check the logs that end like a finished seed's, each once unless it changes; whether all are checked."""
        for entry in self.entries.values():
            for seed in entry.seeds.values():
                if seed.is_finished(entry.planned, damaged=False) and seed.checked != seed.signature:
                    if self._requested.is_set():
                        return False
                    seed.tail.check()
                    seed.checked = seed.signature
        return True

    def _list(self) -> dict[str, RunEntry]:
        entries = {}
        for found in find_runs(self.root):
            entry = self.entries.get(found.id) or RunEntry(found)
            entry.seeds = {n: entry.seeds.get(n) or Seed(Tail(path)) for n, path in found.logs.items()}
            _read_config(entry)
            if entry.seeds or not entry.problem:  # a foreign config.json without seeds is not a run
                entries[found.id] = entry
        _set_labels(list(entries.values()))
        return entries

    def progress(self) -> tuple[int, int]:
        """Bytes read, and bytes in all files."""
        seeds = [seed for entry in list(self.entries.values()) for seed in list(entry.seeds.values())]
        return sum(seed.tail.content.offset for seed in seeds), sum(max(seed.signature[0], 0) for seed in seeds)


def _update(seed: Seed, locks: set[int]) -> None:
    """Update a seed's lock and, if its file has changed, its last lines."""
    folder = seed.tail.path.parent
    seed.is_locked = False
    with contextlib.suppress(OSError):
        lock = os.stat(folder / "lock", follow_symlinks=False)
        seed.is_locked, seed.modified = lock.st_ino in locks, max(seed.modified, lock.st_mtime)
    seed.is_locked = seed.is_locked or _is_locked_elsewhere(folder)
    with contextlib.suppress(OSError):
        stat = os.stat(seed.tail.path, follow_symlinks=False)
        seed.modified = stat.st_mtime
        if (stat.st_size, stat.st_mtime_ns) != seed.signature:
            seed.signature = (stat.st_size, stat.st_mtime_ns)
            seed.latest = latest(seed.tail.path)


def _is_locked_elsewhere(folder: Path) -> bool:
    """Whether a process on another machine has renewed its lock file recently."""
    path = folder / CLAIM
    try:
        renewed = os.stat(path, follow_symlinks=False).st_mtime
    except OSError:
        return False
    return time.time() - renewed < STALE and not here().items() <= _object(read_document(path)).items()


def _read_config(entry: RunEntry) -> None:
    """Read config.json if it has changed: resuming with more steps rewrites it."""
    path = entry.found.path / "config.json"
    try:
        stamp = os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return
    if stamp == entry.stamp:
        return
    entry.stamp, entry.problem = stamp, ""
    text = read_document(path)
    try:
        entry.config = configs.header(text, "its config.json")
    except (GraspError, RecursionError):
        entry.config, entry.problem = {}, "its config.json is not a configuration of grasp"
    entry.versions = _object(read_document(entry.found.path / "versions.json"))
    seeds = number(entry.config.get("seeds")) or 0
    entry.planned, entry.num_seeds = configs.planned_steps(text, "its config.json"), int(min(max(seeds, 1), 10**6))


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _set_labels(entries: list[RunEntry]) -> None:
    """Label a run by its algorithm; runs of the same algorithm and environment also by their folders.

    The path that all folders have in common is omitted.
    """
    count = Counter((entry.algo, entry.env) for entry in entries)
    common = os.path.commonpath([os.path.dirname(entry.found.name) for entry in entries]) if entries else ""
    for entry in entries:
        folder = entry.found.name[len(common) + 1 if common else 0 :]
        entry.label = entry.algo if count[entry.algo, entry.env] == 1 else f"{entry.algo} ({folder})"
