"""Simulators that are not JAX: a pool of worker processes, each with several copies of one environment.

The pool and its workers (`grasp.envs.workers.serve`) share a memory with a record for every copy; pipes carry only
which copies to reset or to step. A worker that dies, does not answer in time or writes nonsense is replaced by a new
one; the episodes of its copies are lost, which `wait` says, and the copies are to be reset.
"""

import contextlib
import errno
import itertools
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Bool, Int

from grasp.envs.workers import serve
from grasp.types import EnvSpec, GraspError, Host, Observation

Copies = Int[np.ndarray, " _"]
"""Some of a pool's copies, by their number."""
START_SECONDS = 300.0
"""How long a worker may take to start, and then each of its simulators at its first reset: StarCraft takes a minute."""
LAST_SECONDS = 1.0
"""How long a worker that has nothing more to say may take to end."""
SHARED = "/dev/shm"
"""Files that are memory, where there are such."""
SIMULATORS = Path(serve.__file__).parent


def cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class SimulatorFault(GraspError):
    """Workers fail faster than they are worth replacing."""


def interpreter(family: str) -> str:
    """Whose packages a family's simulators need: GRASP_<FAMILY>_PYTHON, or what `make <family>` has built, or ours."""
    chosen = os.environ.get(f"GRASP_{family.upper()}_PYTHON")
    if chosen:
        return chosen
    for folder in (Path.cwd(), SIMULATORS.parents[3]):  # here, or the checkout that this package is installed from
        built = folder / f".venv-{family}" / "bin" / "python"
        if built.exists():
            return str(built)
    return sys.executable


def ask(name: str, python: str, adapter: str | Path, task: str, options: dict[str, Any]) -> Host:
    """The environment that an adapter makes, after asking it for its sizes."""
    command = (python, str(SIMULATORS / "serve.py"), str(adapter), task, json.dumps(options))
    return Host(EnvSpec(name=name, **_sizes(name, command)), command)


@cache
def _sizes(name: str, command: tuple[str, ...]) -> dict[str, Any]:
    """What a simulator says of itself. Starting it takes seconds, so it is asked once."""
    python = command[0]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=START_SECONDS, check=False, env=paths(python)
        )
    except FileNotFoundError:
        raise GraspError(f"environment {name!r}: there is no interpreter {python}") from None
    except subprocess.TimeoutExpired:
        raise GraspError(f"environment {name!r} did not start within {START_SECONDS:.0f} s") from None
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise GraspError(f"environment {name!r}: {last.removeprefix('fault ')}")
    return json.loads(answer.stdout.strip().splitlines()[-1])


def paths(python: str) -> dict[str, str]:
    """A worker of this interpreter finds the same modules as here, the user's own among them; another one its own."""
    if python != sys.executable:
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def shared_file(size: int) -> IO[bytes]:
    """A file to be mapped, without a name: nothing is left behind. Its room is taken now, since whoever touches a page
    that there is no room for is killed."""
    reserve = getattr(os, "posix_fallocate", lambda file, _, size: os.ftruncate(file, size))  # not every system has it
    for folder in (SHARED, tempfile.gettempdir()):
        if not os.path.isdir(folder):
            continue
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        try:
            reserve(file.fileno(), 0, size)
            return file
        except OSError as error:
            file.close()
            if error.errno != errno.ENOSPC:
                raise
    raise GraspError(f"neither {SHARED} nor {tempfile.gettempdir()} has room for the {size} bytes of the simulators")


class Worker:
    """One process and what it still owes."""

    def __init__(self, host: Host, places: range, memory: int, log: Path | None):
        self.places = places
        self.owed: deque[tuple[str, Copies]] = deque([("start", np.zeros(0, int))])
        self.heard = b""
        self.begun: set[int] = set()
        """Copies that have been reset: some simulators start their program only then, one after the other."""
        self.last = time.monotonic()
        asked, self.commands = os.pipe()
        self.answers, told = os.pipe()
        sizes = json.dumps({name: getattr(host.spec, name) for name in serve.SIZES})
        words = [*host.command, *map(str, (asked, told, memory, places.start, len(places))), sizes]
        with open(log or os.devnull, "ab") as errors:
            # a session of its own: Ctrl-C is for the learner, and what the simulator starts is killed with it
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, pass_fds=(asked, told, memory),
                start_new_session=True, env=paths(host.command[0]),
            )  # fmt: skip
        os.close(asked)
        os.close(told)

    def send(self, word: str, copies: Copies) -> None:
        """Give a command about some of its copies. One that cannot be told has died, which listening will show."""
        if not self.owed:
            self.last = time.monotonic()
        self.owed.append((word, copies))
        line = f"{word} {' '.join(str(copy - self.places.start) for copy in copies)}\n"
        with contextlib.suppress(BrokenPipeError):
            os.write(self.commands, line.encode())

    def owes(self, copies: Copies) -> bool:
        """Whether an answer about one of these copies is to come, or even that it has started."""
        return any(word == "start" or np.isin(about, copies).any() for word, about in self.owed)

    def listen(self, deadline: float) -> str | None:
        """Wait for the next answer; what is wrong, if something is."""
        while b"\n" not in self.heard:
            left = max(0.0, self.last + deadline - time.monotonic())  # the answer may have been there for long
            if not select.select([self.answers], [], [], left)[0]:
                return f"did not answer within {deadline:g} s"
            heard = os.read(self.answers, 65536)
            if not heard:
                return self.last_words()
            self.heard += heard
        line, _, self.heard = self.heard.partition(b"\n")
        self.last = time.monotonic()
        return None if line == b"ok" else f"said: {line.decode(errors='replace').removeprefix('fault ')}"

    def last_words(self) -> str:
        """How a worker ended that answers no more. One may live on, in a thread that its simulator left behind."""
        try:
            return f"ended with exit code {self.process.wait(LAST_SECONDS)}"
        except subprocess.TimeoutExpired:
            return "closed its answers"

    def allowed(self, deadline: float) -> float:
        """Seconds for the oldest thing it owes."""
        word, copies = self.owed[0]
        starting = 1 if word == "start" else len(set(copies.tolist()) - self.begun)
        return START_SECONDS * starting or deadline

    def dismiss(self) -> None:
        """Let it close its simulators and end."""
        if self.commands >= 0:
            os.close(self.commands)
            self.commands = -1

    def end(self, seconds: float = 0.0) -> None:
        """The process, and whatever it started, gone, after so many seconds at most."""
        self.dismiss()
        if self.answers < 0:
            return
        os.close(self.answers)
        self.answers = -1
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class SimulatorPool:
    """B copies of an environment in worker processes. Write actions and seeds into `records`; read the rest there."""

    def __init__(
        self, host: Host, num_envs: int, workers: int, deadline: float, restarts: int, log: Path | None = None
    ):
        self.host, self.deadline, self.most, self.log = host, deadline, restarts, log
        self.restarts = 0
        """Of workers, since the owner last set it to 0: what is limited."""
        self.unreported = 0
        """Restarts that no metrics have told of."""
        self.lost = np.zeros(num_envs, bool)
        layout = serve.record({name: getattr(host.spec, name) for name in serve.SIZES})
        self.memory = shared_file(layout.itemsize * num_envs)
        self.records = np.frombuffer(mmap.mmap(self.memory.fileno(), 0), layout, num_envs)
        edges = np.linspace(0, num_envs, min(workers, num_envs) + 1).astype(int)
        self.workers: list[Worker] = []
        for start, end in itertools.pairwise(edges):
            self.workers.append(self.start(range(start, end)))
        self.owner = np.repeat(np.arange(len(self.workers)), np.diff(edges))
        for worker in self.workers:
            fault = self.answered(worker)
            if fault:
                self.close()
                raise GraspError(f"environment {host.spec.name!r}: a worker {fault}")

    def start(self, places: range) -> Worker:
        return Worker(self.host, places, self.memory.fileno(), self.log)

    def send(self, word: str, copies: Copies) -> None:
        """`reset` or `step` these copies."""
        for place, mine in self.shared_out(copies):
            self.workers[place].send(word, mine)

    def shared_out(self, copies: Copies) -> list[tuple[int, Copies]]:
        """Which worker has which of them."""
        owner = self.owner[copies]
        return [(place, copies[owner == place]) for place in np.unique(owner).tolist()]

    def wait(self, copies: Copies) -> Bool[np.ndarray, " _"]:
        """Until nothing more is owed about these copies. Which of them have lost their episode, and must be reset."""
        for place, mine in self.shared_out(copies):
            while self.workers[place].owes(mine):
                fault = self.answered(self.workers[place])
                if fault:
                    self.replace(place, fault)
        lost = self.lost[copies]
        self.lost[copies] = False
        return lost

    def answered(self, worker: Worker) -> str | None:
        """Hear the oldest answer that a worker owes, and look at what it wrote."""
        word, copies = worker.owed[0]
        fault = worker.listen(worker.allowed(self.deadline))
        if fault is None:
            worker.owed.popleft()
            worker.begun.update(copies.tolist())
            fault = self.nonsense(word, copies)
        return fault

    def nonsense(self, word: str, copies: Copies) -> str | None:
        """What no simulator may say, if one has."""
        said = self.records[copies]
        if not (np.isfinite(said["obs"]).all() and np.isfinite(said["state"]).all()):
            return "observed something that is not finite"
        if not said["avail"].any(-1).all():
            return "left an agent without a legal action"
        if word == "step" and not np.isfinite(said["reward"]).all():
            return "gave a reward that is not finite"
        if word == "step" and (said["terminated"] & said["truncated"]).any():
            return "said of an episode both that it ended and that it was cut"
        return None

    def replace(self, place: int, fault: str) -> None:
        """A new worker for one that failed; its copies begin new episodes."""
        worker = self.workers[place]
        worker.end()
        self.restarts += 1
        self.unreported += 1
        if self.restarts > self.most:
            where = f"; its last words are in {self.log}" if self.log else ""
            raise SimulatorFault(
                f"a worker of {self.host.spec.name!r} {fault}, and {self.most} had been replaced before it{where}"
            )
        self.workers[place] = self.start(worker.places)
        self.lost[worker.places] = True

    def take_unreported(self) -> int:
        """Restarts that no metrics have told of, for the one who now tells."""
        told, self.unreported = self.unreported, 0
        return told

    def close(self) -> None:
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.end(serve.GRACE)
        self.memory.close()


def observed(pool: SimulatorPool, copies: Copies) -> Observation:
    """What these copies show now."""
    said: Any = pool.records[copies]
    return Observation(said["obs"], said["state"], said["avail"], said["alive"])
