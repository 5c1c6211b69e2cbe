"""Environments that JAX cannot compile: a pool of worker processes, each with several copies of one simulator.

The pool and its workers (`grasp.envs.workers.serve`) share memory with one record per copy; pipes carry only which
copies to reset or step. A worker that exits, exceeds its deadline or writes invalid data is replaced. The running
episodes of its copies are lost: `wait` returns which, and the caller resets them.
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
from grasp.types import EnvSpec, GraspError, Host, Observation, suggest

Copies = Int[np.ndarray, " _"]
"""Indices of copies in a pool."""
START_SECONDS = 300.0
"""Time limit for a worker to start, and for the first reset of each of its simulators: StarCraft takes a minute."""
EXIT_SECONDS = 1.0
"""Time to wait for the exit code of a worker that has closed its pipe."""
SHARED = "/dev/shm"
"""The folder of files in memory, on systems that have one."""
WORKERS = Path(serve.__file__).parent
"""The folder of `serve.py` and the adapters."""


def cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class SimulatorFault(GraspError):
    """Workers failed more often than the limit on restarts allows."""


def interpreter(family: str) -> str:
    """The interpreter that has a family's simulator: GRASP_<FAMILY>_PYTHON, else the one built by `make <family>`, else
    this one."""
    chosen = os.environ.get(f"GRASP_{family.upper()}_PYTHON")
    if chosen:
        return chosen
    for folder in (Path.cwd(), WORKERS.parents[3]):  # here, or the checkout that this package is installed from
        built = folder / f".venv-{family}" / "bin" / "python"
        if built.exists():
            return str(built)
    return sys.executable


def from_adapter(name: str, python: str, adapter: str | Path, task: str, options: dict[str, Any]) -> Host:
    """The environment that an adapter makes. Its sizes come from the adapter itself, run once in `python`."""
    command = (python, str(WORKERS / "serve.py"), str(adapter), task, json.dumps(options))
    return Host(EnvSpec(name=name, **_sizes(name, command)), command)


@cache
def _sizes(name: str, command: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a simulator's EnvSpec. Cached, because starting a simulator takes seconds."""
    python = command[0]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=START_SECONDS, check=False, env=worker_environ(python)
        )
    except FileNotFoundError:
        raise GraspError(f"environment {name!r}: there is no interpreter {python}") from None
    except subprocess.TimeoutExpired:
        raise GraspError(f"environment {name!r} did not start within {START_SECONDS:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it exited without an error message"])[-1]
        if last.startswith("unknown "):
            mistake, given, known, prefix = json.loads(last.removeprefix("unknown "))
            raise GraspError(f"environment {name!r}: {mistake}; {suggest(given, known, prefix=prefix)}")
        raise GraspError(f"environment {name!r}: {last.removeprefix('fault ')}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def worker_environ(python: str) -> dict[str, str]:
    """The environment variables of a worker. This interpreter imports from the same paths as here, so that it finds the
    user's own modules; another interpreter gets no PYTHONPATH, because it has packages of its own."""
    if python != sys.executable:
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def shared_file(size: int) -> IO[bytes]:
    """An unnamed file to map into memory; nothing stays behind when it is closed. Its space is reserved now: a process
    that touches a page for which there is no space is killed."""
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
    raise GraspError(
        f"neither {SHARED} nor {tempfile.gettempdir()} has the {size} bytes that the simulators share; free some space"
    )


class WorkerProcess:
    """One worker process and the commands that it has not yet replied to."""

    def __init__(self, host: Host, copies: range, memory: int, log: Path | None):
        self.copies = copies
        self.pending: deque[tuple[str, Copies]] = deque([("start", np.zeros(0, int))])
        self.received = b""
        self.started: set[int] = set()
        """Copies that have been reset once: some simulators launch their program only then, one after another."""
        self.last_reply = time.monotonic()
        commands, self.commands = os.pipe()
        self.replies, replies = os.pipe()
        sizes = json.dumps({name: getattr(host.spec, name) for name in serve.SIZES})
        arguments = [*host.command, *map(str, (commands, replies, memory, copies.start, len(copies))), sizes]
        with open(log or os.devnull, "ab") as output:
            # a session of its own: Ctrl-C reaches only the learner, and killing the session kills what the worker
            # started
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(commands, replies, memory),
                start_new_session=True, env=worker_environ(host.command[0]),
            )  # fmt: skip
        os.close(commands)
        os.close(replies)

    def send(self, command: str, copies: Copies) -> None:
        """Write a command about some of its copies. A broken pipe means that the worker exited: `receive` reports
        it."""
        if not self.pending:
            self.last_reply = time.monotonic()
        self.pending.append((command, copies))
        line = f"{command} {' '.join(str(copy - self.copies.start) for copy in copies)}\n"
        with contextlib.suppress(BrokenPipeError):
            os.write(self.commands, line.encode())

    def is_busy(self, copies: Copies) -> bool:
        """Whether a reply about one of these copies, or about the start of the worker, is pending."""
        return any(command == "start" or np.isin(about, copies).any() for command, about in self.pending)

    def receive(self, deadline: float) -> str | None:
        """Wait for the next reply. Returns what went wrong, or None."""
        while b"\n" not in self.received:
            # 0 still reads a reply that waits in the pipe
            left = max(0.0, self.last_reply + deadline - time.monotonic())
            if not select.select([self.replies], [], [], left)[0]:
                return f"did not reply within {deadline:g} s"
            received = os.read(self.replies, 65536)
            if not received:
                return self.exit_status()
            self.received += received
        line, _, self.received = self.received.partition(b"\n")
        self.last_reply = time.monotonic()
        return None if line == b"ok" else f"failed: {line.decode(errors='replace').removeprefix('fault ')}"

    def exit_status(self) -> str:
        """How a worker ended that closed its pipe. A thread that its simulator left behind may keep it alive."""
        try:
            return f"exited with code {self.process.wait(EXIT_SECONDS)}"
        except subprocess.TimeoutExpired:
            return "closed its pipe"

    def time_limit(self, deadline: float) -> float:
        """Seconds for the reply to the oldest pending command."""
        command, copies = self.pending[0]
        starting = 1 if command == "start" else len(set(copies.tolist()) - self.started)
        return START_SECONDS * starting or deadline

    def request_exit(self) -> None:
        """Close the command pipe, on which the worker closes its simulators and exits."""
        if self.commands >= 0:
            os.close(self.commands)
            self.commands = -1

    def stop(self, seconds: float = 0.0) -> None:
        """Request the exit of the process, and after so many seconds kill it with all processes it started."""
        self.request_exit()
        if self.replies < 0:
            return
        os.close(self.replies)
        self.replies = -1
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class SimulatorPool:
    """B copies of an environment in worker processes. The caller writes actions and seeds into `records`, sends
    commands, waits, and reads what the simulators returned from `records`."""

    def __init__(
        self, host: Host, num_envs: int, workers: int, deadline: float, restarts: int, log: Path | None = None
    ):
        self.host, self.deadline, self.max_restarts, self.log = host, deadline, restarts, log
        self.restarts = 0
        """Workers replaced since the caller last set this to 0. `max_restarts` limits it."""
        self.unreported = 0
        """Workers replaced since the last call of `take_unreported`."""
        self.lost = np.zeros(num_envs, bool)
        """Copies whose episode was lost and that `wait` has not yet returned."""
        layout = serve.record({name: getattr(host.spec, name) for name in serve.SIZES})
        self.memory = shared_file(layout.itemsize * num_envs)
        self.records = np.frombuffer(mmap.mmap(self.memory.fileno(), 0), layout, num_envs)
        edges = np.linspace(0, num_envs, min(workers, num_envs) + 1).astype(int)
        self.workers: list[WorkerProcess] = []
        for start, end in itertools.pairwise(edges):
            self.workers.append(self.start(range(start, end)))
        self.owner = np.repeat(np.arange(len(self.workers)), np.diff(edges))
        """The index of each copy's worker."""
        for worker in self.workers:
            fault = self.receive(worker)
            if fault:
                self.close()
                raise GraspError(f"environment {host.spec.name!r}: a worker {fault}")

    def start(self, copies: range) -> WorkerProcess:
        return WorkerProcess(self.host, copies, self.memory.fileno(), self.log)

    def send(self, command: str, copies: Copies) -> None:
        """`reset` or `step` these copies."""
        for index, owned in self.by_worker(copies):
            self.workers[index].send(command, owned)

    def by_worker(self, copies: Copies) -> list[tuple[int, Copies]]:
        """These copies grouped by the index of their worker."""
        owner = self.owner[copies]
        return [(index, copies[owner == index]) for index in np.unique(owner).tolist()]

    def wait(self, copies: Copies) -> Bool[np.ndarray, " _"]:
        """Wait until no reply about these copies is pending. Returns which of them lost their episode and need a
        reset."""
        for index, owned in self.by_worker(copies):
            while self.workers[index].is_busy(owned):
                fault = self.receive(self.workers[index])
                if fault:
                    self.replace(index, fault)
        lost = self.lost[copies]
        self.lost[copies] = False
        return lost

    def receive(self, worker: WorkerProcess) -> str | None:
        """Read the reply to a worker's oldest command and check what it wrote. Returns what went wrong, or None."""
        command, copies = worker.pending[0]
        fault = worker.receive(worker.time_limit(self.deadline))
        if fault is None:
            worker.pending.popleft()
            worker.started.update(copies.tolist())
            fault = self.invalid(command, copies)
        return fault

    def invalid(self, command: str, copies: Copies) -> str | None:
        """The first rule of the contract that the records of these copies break, or None."""
        records = self.records[copies]
        if not (np.isfinite(records["obs"]).all() and np.isfinite(records["state"]).all()):
            return "returned an observation or state that is not finite"
        if not records["avail"].any(-1).all():
            return "left an agent without a legal action"
        if command == "step" and not np.isfinite(records["reward"]).all():
            return "returned a reward that is not finite"
        if command == "step" and (records["terminated"] & records["truncated"]).any():
            return "returned a step that is both terminated and truncated"
        return None

    def replace(self, index: int, fault: str) -> None:
        """Start a new worker for one that failed; its copies begin new episodes."""
        worker = self.workers[index]
        worker.stop()
        self.restarts += 1
        self.unreported += 1
        if self.restarts > self.max_restarts:
            log = f"; log: {self.log}" if self.log else ""
            raise SimulatorFault(
                f"a worker of {self.host.spec.name!r} {fault}, and {self.max_restarts} had been replaced before{log}"
            )
        self.workers[index] = self.start(worker.copies)
        self.lost[worker.copies] = True

    def take_unreported(self) -> int:
        """Workers replaced since the last call."""
        count, self.unreported = self.unreported, 0
        return count

    def close(self) -> None:
        for worker in self.workers:
            worker.request_exit()
        for worker in self.workers:
            worker.stop(serve.GRACE)
        self.memory.close()


def observed(pool: SimulatorPool, copies: Copies) -> Observation:
    """The current observations of these copies."""
    records: Any = pool.records[copies]
    return Observation(records["obs"], records["state"], records["avail"], records["alive"])
