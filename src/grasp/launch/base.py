"""Tasks, the launchers that train them, and the progress of a task, read from its files."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from grasp.config import Config
from grasp.runs import Run
from grasp.runs.metrics_log import Follower
from grasp.runs.restore import is_finished
from grasp.training.runner import Built
from grasp.types import GraspError, Kind

EVERY_CORE = "every"
"""In place of a task's cores: it is not pinned; its simulators or threads use all of them."""
ANY_CORE = "any"
"""In place of a task's cores: one core per device, which no other worker on the machine is pinned to."""
NOTICE = re.compile(r"notice: seed (\d+): (.*)")
"""A line of a worker's log that is shown to the user."""


@dataclass(frozen=True)
class Task:
    """Seeds that train as one program in one process. A task that is started again resumes from its checkpoint."""

    run: Run
    seeds: tuple[int, ...]
    built: Built = field(compare=False, repr=False)

    @property
    def log(self) -> Path:
        """Standard output and error of its worker; removed when the worker succeeds."""
        return self.run.folder(self.seeds[0]) / "worker.log"

    def arguments(self, cores: str) -> list[str]:
        """Arguments of its worker (`python -m grasp.launch.worker`)."""
        seeds = ",".join(map(str, self.seeds))
        return [str(self.run.path.absolute()), seeds, cores, str(self.run.config.devices)]

    @property
    def name(self) -> str:
        return f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"


class Failure(NamedTuple):
    task: Task
    message: str


class Job(NamedTuple):
    """This process among those of a Slurm or Open MPI job (`grasp.launch.job`)."""

    method: str
    """jax's name for how it finds the other processes."""
    process: int
    processes: int


class Plan(NamedTuple):
    """A run that is to be trained; nothing of it is written yet."""

    path: Path
    config: Config
    seeds: int
    """Number of seeds left to train."""
    built: Built


TaskReporter = Callable[[Task, dict[str, Any]], None]
"""Receives every record that a task writes to its metrics logs, its notices, and `began` when it starts."""


@runtime_checkable
class Launcher(Protocol):
    """Trains tasks, on this machine or on a cluster."""

    def check(self, plans: Sequence[Plan]) -> list[str]:
        """Raise GraspError if these runs cannot be trained here; otherwise return lines to show the user."""
        ...

    def train(self, tasks: Sequence[Task], report: TaskReporter) -> list[Failure]:
        """Train all tasks. One that fails does not stop the others."""
        ...


@contextlib.contextmanager
def launcher_on(on: str, job: Job | None = None) -> Iterator[Launcher]:
    """The launcher that `--on` names: "local", "ray" or "ray://HOST:PORT"; `job` if the processes of one train it."""
    address = address_of(on)
    if address is None:
        from grasp.launch.local import LocalLauncher

        yield LocalLauncher(job=job)
        return
    from grasp.launch import ray_launcher

    with ray_launcher.connected(address) as launcher:
        yield launcher


def address_of(on: str) -> str | None:
    """Address of a Ray cluster, "auto" for the one that this machine belongs to; None for this machine alone."""
    if on == "local":
        return None
    if on == "ray":
        return "auto"
    if re.fullmatch(r"\d+/\d+@\S+", on):
        raise GraspError(
            f"--on {on} is no longer supported; to train one run on several machines, start Ray on each and use --on "
            f"ray --devices N (docs/cluster.md)"
        )
    found = re.fullmatch(r"ray://([^:/\s]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?", on)
    if found is None or int(found[2]) > 65535:
        raise GraspError(f"--on must be local, ray or ray://HOST:PORT, not '{on}'")
    return f"{found[1]}:{found[2]}"


class TaskFollower:
    """Reads a task's files as they grow: notices from its worker's log, records from its seeds' metrics logs."""

    def __init__(self, task: Task):
        self.task, self.has_begun, self.offset = task, False, 0
        task.log.unlink(missing_ok=True)  # of an earlier failure
        self.followers = [Follower(task.run.metrics_log(seed)) for seed in task.seeds]

    def report(self, report: TaskReporter) -> None:
        """Report what is new since the last call. The worker's log appears when the task starts."""
        if not self.has_begun and self.task.log.exists():
            self.has_begun = True
            for seed in self.task.seeds:
                report(self.task, {"kind": Kind.BEGAN, "seed": seed})
        for line in self.new_lines():
            if notice := NOTICE.fullmatch(line):
                report(self.task, {"kind": Kind.NOTICE, "seed": int(notice[1]), "text": notice[2]})
        for follower in self.followers:
            for record in follower.news():
                report(self.task, record)

    def new_lines(self) -> list[str]:
        """Complete lines of the worker's log since the last call; workers only append to it."""
        try:
            with self.task.log.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self.offset += len(complete)
        return complete.decode(errors="replace").splitlines()


def tasks_of(run: Run, built: Built) -> list[Task]:
    """The unfinished tasks of a run."""
    left = [seed for seed in run.seeds if not is_finished(run, seed)]
    if run.config.parallel == "processes":
        return [Task(run, (seed,), built) for seed in left]
    if set(run.seeds) != set(run.config.seed_list):
        raise GraspError(f"the seeds of {run.path} train as one program; resume all of them: grasp resume {run.path}")
    return [Task(run, run.seeds, built)] if left else []


def finish(task: Task, code: int, log: Path | None = None) -> list[Failure]:
    """The failure of a worker that has exited, from its exit code and its log; the log of a success is removed."""
    log = log or task.log
    if code == 0:
        log.unlink(missing_ok=True)
        return []
    if code == 2:
        return [Failure(task, mistake_in(log.read_text(errors="replace").splitlines()))]
    how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
    return [Failure(task, f"{task.name} {how} (log: {log})")]


def mistake_in(lines: Sequence[str]) -> str:
    """The sentence with which a worker reports a user's mistake, from its log."""
    mistakes = [line for line in lines if line.startswith("grasp: ")] or [*lines] or ["no error message"]
    return mistakes[-1].removeprefix("grasp: ")


def check_failures(run: Run, failures: Sequence[Failure]) -> None:
    """Raise one error for all failures of a run, with the command that resumes it."""
    if not failures:
        return
    message = "; ".join(failure.message for failure in failures)
    raise GraspError(message if "grasp resume" in message else f"{message}; continue with: grasp resume {run.path}")
