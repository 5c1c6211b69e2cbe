"""Everything known about the runs below a directory, kept up to date by one thread while somebody looks.

The thread alone changes what it keeps; requests read it. It wakes when a request has come and sleeps otherwise, so a
page that nobody polls costs nothing.
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
from grasp.dashboard.discovery import Found, find_runs, held_locks, read_document, top
from grasp.dashboard.sampling import Latest, latest
from grasp.dashboard.tail import Tail, number
from grasp.runs.lock import STALE, here
from grasp.runs.metrics_log import is_final
from grasp.types import GraspError

PERIOD = 1.0
"""Seconds between two looks at the files."""
QUIET = 30.0
"""Seconds after which a file that nobody has locked is taken as left."""
STALLED = 600.0
"""Seconds without a line after which a process that holds its lock is called stalled, unless it is known to be slow."""

State = Literal["starting", "live", "stalled", "stopped", "finished"]
RANKED: tuple[State, ...] = ("live", "starting", "stalled")
"""What a run is if any of its seeds is, in this order."""


@dataclass(eq=False)
class Seed:
    """One seed's metrics file."""

    tail: Tail
    latest: Latest | None = None
    modified: float = 0.0
    """When something was last written, in seconds since the epoch."""
    held: bool = False
    """Whether a process here holds its lock, or one of another machine its claim."""
    looked: tuple[int, int] = (-1, -1)

    @property
    def env_steps(self) -> int:
        """As far as its end tells, or where that is one gigantic line, its evaluations."""
        return self.latest.env_steps if self.latest else max(self.tail.seen.scores, default=0)

    def state(self, planned: int, now: float) -> State:
        if self.latest and is_final(self.latest._asdict(), planned):
            return "finished"
        silent = now - self.modified
        if self.held and silent > max(STALLED, 3 * self.latest.gap if self.latest else STALLED):
            return "stalled"
        if self.held or silent < QUIET:
            return "live" if self.latest or self.tail.seen.scores else "starting"
        return "stopped"


@dataclass(eq=False)
class Entry:
    """One run directory."""

    found: Found
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    planned: int = 0
    """Environment steps of one seed at its end."""
    num_seeds: int = 1
    problem: str = ""
    seeds: dict[int, Seed] = field(default_factory=dict)
    label: str = ""
    stamp: int = -1
    """Of the config.json that was read."""

    @property
    def algo(self) -> str:
        return str(self.config.get("algo", "unreadable"))

    @property
    def env(self) -> str:
        return str(self.config.get("env", "unknown environment"))

    def state(self, now: float) -> State:
        states = {seed.state(self.planned, now) for seed in self.seeds.values()}
        if states == {"finished"} and len(self.seeds) >= self.num_seeds:
            return "finished"
        for state in RANKED:
            if state in states:
                return state
        return "stopped"


class Watch:
    """The runs below a directory."""

    def __init__(self, directory: str | Path):
        self.root = top(directory)
        self.entries: dict[str, Entry] = {}
        self.is_read = False
        """Whether every byte has been seen once."""
        self.ready = threading.Event()
        """Set when the overview is known."""
        self._wanted: tuple[str, ...] = ()
        self._asked = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="grasp-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def ask(self, *ids: str) -> None:
        """Somebody looks, at these runs above all."""
        self._wanted = ids or self._wanted
        self._asked.set()

    def _run(self) -> None:
        while self._asked.wait() and not self._stopped.is_set():
            self._asked.clear()
            self.refresh()
            self._stopped.wait(PERIOD)

    def refresh(self) -> None:
        """Look at everything once: first at what there is and how far it is, then at what was written."""
        self.entries = self._listed()
        locks = held_locks()
        for entry in self.entries.values():
            for seed in entry.seeds.values():
                _glance(seed, locks)
        self.ready.set()
        waiting = dict(self.entries)
        while waiting and not self._stopped.is_set():
            chosen = next((name for name in self._wanted if name in waiting), None) or next(iter(waiting))
            for seed in waiting.pop(chosen).seeds.values():
                while seed.tail.advance() and not self._stopped.is_set():
                    pass
        self.is_read = not waiting

    def _listed(self) -> dict[str, Entry]:
        entries = {}
        for found in find_runs(self.root):
            entry = self.entries.get(found.id) or Entry(found)
            entry.seeds = {n: entry.seeds.get(n) or Seed(Tail(path)) for n, path in found.logs.items()}
            _read_config(entry)
            if entry.seeds or not entry.problem:  # anybody's config.json without seeds is no run
                entries[found.id] = entry
        _name(list(entries.values()))
        return entries

    def progress(self) -> tuple[int, int]:
        """Bytes seen, and bytes there are."""
        tails = [seed.tail for entry in list(self.entries.values()) for seed in list(entry.seeds.values())]
        sizes = [max(seed.looked[0], 0) for e in list(self.entries.values()) for seed in list(e.seeds.values())]
        return sum(tail.seen.offset for tail in tails), sum(sizes)


def _glance(seed: Seed, locks: set[int]) -> None:
    """Whether a seed's file has changed, and if so, its last lines."""
    folder = seed.tail.path.parent
    seed.held = False
    with contextlib.suppress(OSError):
        lock = os.stat(folder / "lock", follow_symlinks=False)
        seed.held, seed.modified = lock.st_ino in locks, max(seed.modified, lock.st_mtime)
    seed.held = seed.held or _is_claimed(folder)
    with contextlib.suppress(OSError):
        stat = os.stat(seed.tail.path, follow_symlinks=False)
        seed.modified = stat.st_mtime
        if (stat.st_size, stat.st_mtime_ns) != seed.looked:
            seed.looked = (stat.st_size, stat.st_mtime_ns)
            seed.latest = latest(seed.tail.path)


def _is_claimed(folder: Path) -> bool:
    """Whether another machine has claimed a seed lately; the lock tells of this one's processes."""
    path = folder / "claim.json"
    try:
        touched = os.stat(path, follow_symlinks=False).st_mtime
    except OSError:
        return False
    return time.time() - touched < STALE and not here().items() <= _object(read_document(path)).items()


def _read_config(entry: Entry) -> None:
    """Read config.json again if it has changed: a resumed run may have more steps to go."""
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
    entry.planned, entry.num_seeds = _planned(text, entry.config)


def _planned(text: str, config: dict[str, Any]) -> tuple[int, int]:
    """Environment steps of a seed and the number of seeds; whole iterations where this grasp knows the algorithm."""
    try:
        known = configs.from_json(text, "its config.json")
        return known.total_steps, known.seeds
    except (GraspError, RecursionError, ValueError, TypeError, ArithmeticError):
        steps, seeds = (number(config.get(name)) or 0 for name in ("steps", "seeds"))
        return int(min(max(steps, 0), 2**53)), int(min(max(seeds, 1), 10**6))


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _name(entries: list[Entry]) -> None:
    """An algorithm's name is enough for a run that is alone with it on its environment; else its folder is added,
    without what all folders have in common: a list has room for what tells runs apart."""
    count = Counter((entry.algo, entry.env) for entry in entries)
    common = os.path.commonpath([os.path.dirname(entry.found.name) for entry in entries]) if entries else ""
    for entry in entries:
        folder = entry.found.name[len(common) + 1 if common else 0 :]
        entry.label = entry.algo if count[entry.algo, entry.env] == 1 else f"{entry.algo} ({folder})"
