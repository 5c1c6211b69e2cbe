"""Films of snapshots, rendered on request by `grasp play` in a subprocess, one at a time.

They are kept in a temporary directory, never in a run, and deleted when the server closes.
"""

import itertools
import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from grasp.types import GraspError

TIMEOUT = 600.0
"""Seconds for one film: compilation on a busy machine, then an episode."""
MOST_WAITING = 8
MOST_KEPT = 64


class Request(NamedTuple):
    """A requested film. `generation` is that of the metrics log (`Tail`): a run may be replaced by another."""

    run: Path
    seed: int
    checkpoint: int
    generation: int


@dataclass(eq=False)
class Film:
    """A film and its progress."""

    path: Path
    state: Literal["waiting", "drawing", "ready", "failed"] = "waiting"
    error: str = ""
    """One sentence if the state is "failed"."""


class ReplayQueue:
    """The films of one server."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "grasp.cli")):
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="grasp-watch-")
        self._numbers = itertools.count()
        self._films: dict[Request, Film] = {}
        self._queue: queue.Queue[Request | None] = queue.Queue()
        self._guard = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="grasp-replays", daemon=True)
        self._thread.start()

    def get(self, request: Request) -> Film:
        """The film, queued on the first request. A failure is returned once; the next request tries again."""
        with self._guard:
            film = self._films.get(request)
            if film is not None:
                return self._films.pop(request) if film.state == "failed" else film
            if sum(f.state == "waiting" for f in self._films.values()) >= MOST_WAITING:
                raise GraspError(f"{MOST_WAITING} replays are waiting already; try again when one is done")
            film = self._films[request] = Film(Path(self._folder.name) / f"{next(self._numbers)}.gif")
            self._queue.put(request)
            self._drop_oldest()
            return film

    def _drop_oldest(self) -> None:
        done = [request for request, film in self._films.items() if film.state in ("ready", "failed")]
        for request in done[: max(0, len(self._films) - MOST_KEPT)]:
            self._films.pop(request).path.unlink(missing_ok=True)

    def _work(self) -> None:
        while (request := self._queue.get()) is not None:
            film = self._films[request]
            film.state = "drawing"
            film.error = self._draw(request, film.path)
            film.state = "failed" if film.error else "ready"

    def _draw(self, request: Request, out: Path) -> str:
        """Render a film; the error in one sentence, "" if there is none."""
        options = ("--seed", request.seed, "--checkpoint", request.checkpoint, "--out", out)
        command = [*self._command, "play", str(request.run), *map(str, options)]
        with self._guard:
            if self._is_closed:
                return "the server is closing"
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        try:
            _, stderr = self._process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return f"the replay took more than {TIMEOUT:.0f} seconds and was stopped"
        if self._process.returncode == 0 and out.is_file():
            return ""
        lines = stderr.strip().splitlines() or [f"grasp play exited with code {self._process.returncode}"]
        return lines[-1].removeprefix("grasp: ")[:500]

    def close(self) -> None:
        """Kill the running subprocess and delete every film."""
        with self._guard:
            self._is_closed = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
        self._queue.put(None)
        self._thread.join(10)
        self._folder.cleanup()
