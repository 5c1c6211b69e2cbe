"""Tasks on this machine: mapped seeds in this process, all others in one process a core.

On a CPU a recurrent update fills one core and gains little from a second, so seeds run as single-threaded processes,
each pinned to a core. On an accelerator they run as one program. Both write the same files. A seed over many devices
is a process too, on as many cores.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from grasp.config import Config
from grasp.envs import base as envs
from grasp.envs.host import cores
from grasp.launch.base import EVERY_CORE, Failure, Plan, Report, Task, complaint
from grasp.launch.memory_check import check_replay
from grasp.training.loop import plain_faults, train
from grasp.types import GraspError, Kind


def resolved(config: Config) -> Config:
    """The configuration with `auto` decided, once: resumed as another program, a run would round otherwise."""
    simulated = envs.simulated(config.env)
    if simulated and config.parallel == "vmap":
        raise GraspError(f"the simulators of {config.env!r} are processes and cannot be mapped; leave --parallel out")
    if simulated and config.devices > 1:
        raise GraspError(f"the simulators of {config.env!r} run on no device; train there with --devices 1")
    if config.nodes > 1 and not simulated:
        raise GraspError(f"{config.env!r} is played where it is learned, on one machine; leave --nodes out")
    if config.parallel != "auto":
        return config
    alone = simulated or config.devices > 1
    return replace(config, parallel="processes" if alone or jax.default_backend() == "cpu" else "vmap")


@dataclass
class Worker:
    """A task's process, and where it is pinned to."""

    task: Task
    place: str
    process: subprocess.Popen[str]


def grouped(cores: Sequence[int], number: int) -> list[str]:
    """The cores in groups of so many, of which a task takes one; all in one group where there are too few."""
    groups = [cores[i : i + number] for i in range(0, len(cores) - number + 1, number)] or [cores]
    return [",".join(map(str, group)) for group in groups]


class Pool:
    """As many tasks at a time as there are cores for, of however many runs; the rest wait."""

    def __init__(self, free: Sequence[int] | None = None):
        self.cores = list(cores() if free is None else free)
        self.messages: queue.Queue[tuple[Worker, dict[str, Any] | None]] = queue.Queue()

    def check(self, plans: Sequence[Plan]) -> list[str]:
        most = max(plan.config.nodes for plan in plans)
        if most > 1:
            raise GraspError(f"this machine alone cannot play on {most} nodes; add --on ray")
        total = sum(plan.seeds for plan in plans)
        return [
            words for plan in plans if (words := check_replay(plan.config, plan.seeds, min(total, len(self.cores))))
        ]

    def train(self, tasks: Sequence[Task], report: Report) -> list[Failure]:
        mapped = [task for task in tasks if task.run.config.parallel == "vmap"]
        apart = [task for task in tasks if task.run.config.parallel != "vmap"]
        # by environment, once each: to know the user's own may mean to start it
        simulated = {env: envs.simulated(env) for env in {task.run.config.env for task in apart}}
        single = [task for task in apart if not simulated[task.run.config.env]]
        filling = [task for task in apart if simulated[task.run.config.env]]
        failures = [failure for task in mapped if (failure := train_here(task, report))]
        for number in sorted({task.run.config.devices for task in single}):
            alike = [task for task in single if task.run.config.devices == number]
            failures += self.train_on(alike, grouped(self.cores, number), report)
        return failures + self.train_on(filling, [EVERY_CORE], report)  # one after another

    def train_on(self, tasks: Sequence[Task], places: Sequence[str], report: Report) -> list[Failure]:
        waiting, free, failures = deque(tasks), deque(places), []
        running: list[Worker] = []
        try:
            while waiting or running:
                while waiting and free:
                    running.append(self.start(waiting.popleft(), free.popleft()))
                    begin(running[-1].task, report)
                worker, message = self.messages.get()
                if message is not None:
                    report(worker.task, message)
                    continue
                running.remove(worker)
                free.append(worker.place)
                failures += finish(worker)
        finally:
            for worker in running:
                worker.process.kill()
        return failures

    def start(self, task: Task, place: str, *more: str) -> Worker:
        """A worker, which may be told `more`. Its standard input stays open as long as this process lives: that ends,
        and the worker with it."""
        command = [sys.executable, "-P", "-m", "grasp.launch.worker", *task.words_at(place), *more]
        # the same modules as here, found in the same order: the user's own environment may be among them
        paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        pipe = subprocess.PIPE
        with plain_faults(task.run):
            task.log.parent.mkdir(exist_ok=True)
            with task.log.open("w") as errors:
                process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=paths)
        worker = Worker(task, place, process)
        threading.Thread(target=self.listen, args=(worker,), daemon=True).start()
        return worker

    def listen(self, worker: Worker) -> None:
        """Pass on what a worker says; None when it has ended."""
        process = worker.process
        with process:  # closes the pipes, which must not happen before the worker has ended by itself
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{") and line.endswith("}\n"):  # a killed worker may leave half a line
                    self.messages.put((worker, json.loads(line)))
            process.wait()
        self.messages.put((worker, None))


def begin(task: Task, report: Report) -> None:
    """Say that a task no longer waits for a place."""
    for seed in task.seeds:
        report(task, {"kind": Kind.BEGAN, "seed": seed})


def train_here(task: Task, report: Report) -> Failure | None:
    """Mapped seeds stay in this process: an accelerator is not given to two."""
    begin(task, report)
    try:
        train(task.run, list(task.seeds), lambda line: report(task, line))
    except GraspError as mistake:
        return Failure(task, str(mistake))


def finish(worker: Worker) -> list[Failure]:
    """Nothing but the metrics is left of a worker that did well."""
    task, code = worker.task, worker.process.returncode
    if code == 0:
        task.log.unlink(missing_ok=True)
        return []
    last = task.log.read_text().strip().splitlines()[-1:]
    return [Failure(task, complaint(task, code, "".join(last)))]
