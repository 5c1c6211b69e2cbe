"""What there is to train, wherever that is done: seeds of a run that are one program."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from grasp.config import Config
from grasp.runs import Run
from grasp.runs.metrics_log import Follower
from grasp.runs.restore import is_finished
from grasp.types import GraspError

EVERY_CORE = "every"
"""Instead of cores: a task's simulators or threads take them all."""
ANY_CORE = "any"
"""Instead of cores: as many as it has devices, of the machine's that no other worker is pinned to."""


class Task(NamedTuple):
    """Seeds that train as one program, in a process of their own. Who trains a task again goes on where it stands."""

    run: Run
    seeds: tuple[int, ...]

    @property
    def log(self) -> Path:
        return self.run.folder(self.seeds[0]) / "worker.log"

    def words_at(self, place: str) -> list[str]:
        """What its worker is told: the cores are its own, or one of the words above."""
        seeds = ",".join(map(str, self.seeds))
        return [str(self.run.path.absolute()), seeds, place, str(self.run.config.devices)]

    @property
    def words(self) -> str:
        return f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"


class Failure(NamedTuple):
    task: Task
    words: str


class Plan(NamedTuple):
    """A run that is to be trained, before anything of it is written."""

    path: Path
    config: Config
    seeds: int
    """How many are left to train."""


Report = Callable[[Task, dict[str, Any]], None]
"""Told of every line that a task writes to its metrics logs, of its notices, and where it is known, when it begins."""


@runtime_checkable
class Crew(Protocol):
    """Whoever trains tasks: this machine's cores, or a cluster."""

    def check(self, plans: Sequence[Plan]) -> list[str]:
        """Complain about whatever would keep these runs from being trained; else, what is to be said of them."""
        ...

    def train(self, tasks: Sequence[Task], report: Report) -> list[Failure]:
        """Train all of them; who failed did not keep the others from being trained."""
        ...


class Followers:
    """The metrics logs of tasks, as they grow."""

    def __init__(self, tasks: list[Task]):
        self.logs = {task: [Follower(task.run.metrics_log(seed)) for seed in task.seeds] for task in tasks}

    def tell(self, report: Report) -> None:
        for task, logs in self.logs.items():
            for log in logs:
                for line in log.news():
                    report(task, line)


def tasks_of(run: Run) -> list[Task]:
    """What is left to train of a run."""
    left = [seed for seed in run.seeds if not is_finished(run, seed)]
    if run.config.parallel == "processes":
        return [Task(run, (seed,)) for seed in left]
    if set(run.seeds) != set(run.config.seed_list):
        raise GraspError(f"the seeds of {run.path} train as one program; type: grasp resume {run.path}")
    return [Task(run, run.seeds)] if left else []


def complaint(task: Task, code: int, last: str) -> str:
    """A worker's failure in words, from its exit code and the last line of its log."""
    if code == 2:
        return last.removeprefix("grasp: ")
    how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
    return f"{task.words} {how} (its last words: {task.log})"


def check_failures(run: Run, failures: Sequence[Failure]) -> None:
    """One sentence of all that failed in a run, and what to type."""
    if not failures:
        return
    words = "; ".join(failure.words for failure in failures)
    raise GraspError(words if "grasp resume" in words else f"{words}; continue with: grasp resume {run.path}")
