"""Films of checkpoints, made by `grasp play` in a process of its own, one at a time, when somebody asks.

They lie in a temporary directory of the server's, never in the run's, and go when the server goes.
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

PATIENCE = 600.0
"""Seconds for one film: a compile on a busy machine, then an episode."""
MOST_WAITING = 8
MOST_KEPT = 64


class Wish(NamedTuple):
    """A film that somebody wants. `generation` tells a run from the one that stood in its place before."""

    run: Path
    seed: int
    checkpoint: int
    generation: int


@dataclass(eq=False)
class Film:
    """How far a wish is; `sentence` says what went wrong."""

    path: Path
    state: Literal["waiting", "drawing", "ready", "failed"] = "waiting"
    sentence: str = ""


class Replays:
    """The films of one server."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "grasp.cli")):
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="grasp-watch-")
        self._numbers = itertools.count()
        self._films: dict[Wish, Film] = {}
        self._wishes: queue.Queue[Wish | None] = queue.Queue()
        self._guard = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="grasp-replays", daemon=True)
        self._thread.start()

    def get(self, wish: Wish) -> Film:
        """The film as far as it is. What went wrong is told once; who asks again has it tried again."""
        with self._guard:
            film = self._films.get(wish)
            if film is not None:
                return self._films.pop(wish) if film.state == "failed" else film
            if sum(f.state == "waiting" for f in self._films.values()) >= MOST_WAITING:
                raise GraspError(f"{MOST_WAITING} replays are waiting already; ask again when one is done")
            film = self._films[wish] = Film(Path(self._folder.name) / f"{next(self._numbers)}.gif")
            self._wishes.put(wish)
            self._drop_oldest()
            return film

    def _drop_oldest(self) -> None:
        done = [wish for wish, film in self._films.items() if film.state in ("ready", "failed")]
        for wish in done[: max(0, len(self._films) - MOST_KEPT)]:
            self._films.pop(wish).path.unlink(missing_ok=True)

    def _work(self) -> None:
        while (wish := self._wishes.get()) is not None:
            film = self._films[wish]
            film.state = "drawing"
            film.sentence = self._draw(wish, film.path)
            film.state = "failed" if film.sentence else "ready"

    def _draw(self, wish: Wish, out: Path) -> str:
        """What went wrong, "" if nothing did."""
        words = ("--seed", wish.seed, "--checkpoint", wish.checkpoint, "--out", out)
        command = [*self._command, "play", str(wish.run), *map(str, words)]
        with self._guard:
            if self._closed:
                return "the server is closing"
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        try:
            _, complaint = self._process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return f"the replay took more than {PATIENCE:.0f} seconds and was given up"
        if self._process.returncode == 0 and out.is_file():
            return ""
        lines = complaint.strip().splitlines() or [f"grasp play ended with code {self._process.returncode}"]
        return lines[-1].removeprefix("grasp: ")[:500]

    def close(self) -> None:
        """End the process that is drawing, if one is, and delete every film."""
        with self._guard:
            self._closed = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
        self._wishes.put(None)
        self._thread.join(10)
        self._folder.cleanup()
