"""Trains tasks on this machine: vmapped seeds in this process, all others in a worker process each.

On a CPU a recurrent update fills one core and gains little from a second, so seeds run as single-threaded processes,
each pinned to a core. On an accelerator they run as one vmapped program. Both write the same files. A seed spread over
several devices is a process too, pinned to as many cores.
"""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax

from grasp.config import Config
from grasp.envs.host import cores
from grasp.launch.base import ANY_CORE, EVERY_CORE, Failure, Job, Plan, Task, TaskFollower, TaskReporter, finish
from grasp.launch.memory_check import check_replay_memory
from grasp.training.loop import train, write_errors
from grasp.types import GraspError, Host, Kind

LOOK_SECONDS = 0.1
"""Between two looks at the workers and their files."""


def resolved(config: Config, simulated: bool) -> Config:
    """The configuration with `parallel auto` decided. A run keeps the decision: the other program rounds differently.

    `simulated` is whether its environment runs in processes of its own.
    """
    if simulated and config.parallel == "vmap":
        raise GraspError(f"{config.env!r} runs in simulator processes, which cannot be vmapped; remove --parallel")
    if simulated and config.devices > 1:
        raise GraspError(f"{config.env!r} runs in simulator processes, which use no device; give --devices 1")
    if config.nodes > 1 and not simulated:
        raise GraspError(f"{config.env!r} runs in JAX, on one machine; leave --nodes out")
    if config.parallel != "auto":
        return config
    alone = simulated or config.devices > 1
    return replace(config, parallel="processes" if alone or jax.default_backend() == "cpu" else "vmap")


@dataclass
class Worker:
    """A task's process and the cores it is pinned to."""

    task: Task
    cores: str
    process: subprocess.Popen[bytes]
    follower: TaskFollower


def core_groups(cores: Sequence[int], size: int) -> list[str]:
    """The cores in groups of this size, one group per task; all in one group where there are too few."""
    groups = [cores[i : i + size] for i in range(0, len(cores) - size + 1, size)] or [cores]
    return [",".join(map(str, group)) for group in groups]


class LocalLauncher:
    """Trains as many tasks at a time as there are cores for; the rest wait."""

    def __init__(self, free: Sequence[int] | None = None, job: Job | None = None):
        self.cores = list(cores() if free is None else free)
        self.job = job

    def check(self, plans: Sequence[Plan]) -> list[str]:
        most = max(plan.config.nodes for plan in plans)
        if most > 1:
            raise GraspError(f"--nodes {most} needs a Ray cluster; add --on ray")
        at_once = min(sum(plan.seeds for plan in plans), len(self.cores))
        return [line for plan in plans if (line := check_replay_memory(plan, at_once))]

    def train(self, tasks: Sequence[Task], report: TaskReporter) -> list[Failure]:
        if self.job:
            return self.train_on(tasks, [ANY_CORE], report)
        vmapped = [task for task in tasks if task.run.config.parallel == "vmap"]
        apart = [task for task in tasks if task.run.config.parallel != "vmap"]
        single = [task for task in apart if not isinstance(task.built.env, Host)]
        simulated = [task for task in apart if isinstance(task.built.env, Host)]
        failures = [failure for task in vmapped if (failure := train_here(task, report))]
        for number in sorted({task.run.config.devices for task in single}):
            alike = [task for task in single if task.run.config.devices == number]
            failures += self.train_on(alike, core_groups(self.cores, number), report)
        return failures + self.train_on(simulated, [EVERY_CORE], report)  # one after another

    def train_on(self, tasks: Sequence[Task], groups: Sequence[str], report: TaskReporter) -> list[Failure]:
        """Train tasks in worker processes, one at a time on each group of cores."""
        waiting, free, failures = deque(tasks), deque(groups), []
        running: list[Worker] = []
        try:
            while waiting or running:
                while waiting and free:
                    running.append(self.start(waiting.popleft(), free.popleft()))
                time.sleep(LOOK_SECONDS)
                for worker in list(running):
                    code = worker.process.poll()
                    worker.follower.report(report)  # after poll: nothing is written later
                    if code is not None:
                        running.remove(worker)
                        free.append(worker.cores)
                        close(worker)
                        failures += finish(worker.task, code)
        finally:
            for worker in running:
                worker.process.kill()
                close(worker)
        return failures

    def start(self, task: Task, cores: str) -> Worker:
        command = [sys.executable, "-P", "-m", "grasp.launch.worker", *task.arguments(cores)]
        command += ["--join", self.job.method] if self.job else []
        # the same modules as here, found in the same order: the user's own environment may be among them
        paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with write_errors(task.run):
            task.log.parent.mkdir(exist_ok=True)
            follower = TaskFollower(task)
            with task.log.open("ab") as log:
                # standard input stays open as long as this process lives; when it closes, the worker exits
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=paths)
        return Worker(task, cores, process, follower)


def close(worker: Worker) -> None:
    worker.process.wait()
    assert worker.process.stdin is not None
    worker.process.stdin.close()


def train_here(task: Task, report: TaskReporter) -> Failure | None:
    """Train vmapped seeds in this process: two processes should not share an accelerator.

    Records are reported as they are written, not read from the file: a thread that follows the file while this one
    trains would have to be stopped and its errors carried over, and training in a thread would not receive Ctrl-C.
    """
    for seed in task.seeds:
        report(task, {"kind": Kind.BEGAN, "seed": seed})
    try:
        train(task.run, list(task.seeds), lambda line: report(task, line), built=task.built)
    except GraspError as mistake:
        return Failure(task, str(mistake))
