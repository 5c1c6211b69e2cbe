"""Seeds on this machine: mapped in one process, or one process a core.

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from grasp.config import Config
from grasp.envs import base as envs
from grasp.envs.host import cores
from grasp.recovery import Reporter, is_finished
from grasp.runs import Run
from grasp.training import plain_faults, train
from grasp.types import GraspError, Host

Cores = tuple[int, ...]
"""Those that a worker is pinned to."""
EVERY_CORE: Cores = ()
"""A seed's simulators take them all, so such seeds train one after another."""


def resolved(config: Config) -> Config:
    """The configuration with `auto` decided, once: resumed as another program, a run would round otherwise."""
    simulated = isinstance(envs.make(config.env), Host)
    if simulated and config.parallel == "vmap":
        raise GraspError(f"the simulators of {config.env!r} are processes and cannot be mapped; leave --parallel out")
    if simulated and config.devices > 1:
        raise GraspError(f"the simulators of {config.env!r} run on no device; train there with --devices 1")
    if config.parallel != "auto":
        return config
    alone = simulated or config.devices > 1
    return replace(config, parallel="processes" if alone or jax.default_backend() == "cpu" else "vmap")


def launch(run: Run, report: Reporter) -> None:
    """Train every unfinished seed of a run."""
    seeds = [seed for seed in run.seeds if not is_finished(run, seed)]
    if run.config.parallel == "processes":
        Pool(run, report).train(seeds)
    elif set(run.seeds) != set(run.config.seed_list):
        raise GraspError(f"the seeds of {run.path} train as one program; type: grasp resume {run.path}")
    elif seeds:
        train(run, list(run.seeds), report)


@dataclass
class Worker:
    """A seed's process on its cores."""

    seed: int
    cores: Cores
    process: subprocess.Popen[str]
    log: Path


def places(number: int) -> list[Cores]:
    """The cores in groups of so many, of which a seed takes one; all in one group where there are too few."""
    every = cores()
    return [tuple(every[i : i + number]) for i in range(0, len(every) - number + 1, number)] or [tuple(every)]


class Pool:
    """As many seeds at a time as there are cores for; the rest wait."""

    def __init__(self, run: Run, report: Reporter):
        self.run, self.report = run, report
        self.messages: queue.Queue[tuple[Worker, dict[str, Any] | None]] = queue.Queue()
        self.failures: list[str] = []

    def train(self, seeds: list[int]) -> None:
        simulated = isinstance(envs.make(self.run.config.env), Host)
        waiting, free = deque(seeds), deque([EVERY_CORE] if simulated else places(self.run.config.devices))
        running: list[Worker] = []
        try:
            while waiting or running:
                while waiting and free:
                    running.append(self.start(waiting.popleft(), free.popleft()))
                worker, message = self.messages.get()
                if message is not None:
                    self.report(message)
                    continue
                running.remove(worker)
                free.append(worker.cores)
                self.finish(worker)
        finally:
            for worker in running:
                worker.process.kill()
        if self.failures:
            raise GraspError(f"{'; '.join(self.failures)}; continue with: grasp resume {self.run.path}")

    def start(self, seed: int, cores: Cores) -> Worker:
        """A worker whose standard input stays open as long as this process lives: its end is the worker's end."""
        log = self.run.folder(seed) / "worker.log"
        words = [str(self.run.path), str(seed), ",".join(map(str, cores)), str(self.run.config.devices)]
        command = [sys.executable, "-P", "-m", "grasp.launch.worker", *words]
        # the same modules as here, found in the same order: the user's own environment may be among them
        paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        pipe = subprocess.PIPE
        with plain_faults(self.run):
            log.parent.mkdir(exist_ok=True)
            with log.open("w") as errors:
                process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=paths)
        worker = Worker(seed, cores, process, log)
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

    def finish(self, worker: Worker) -> None:
        code = worker.process.returncode
        if code == 0:
            worker.log.unlink(missing_ok=True)
        elif code == 2:
            self.failures.append(worker.log.read_text().strip().splitlines()[-1].removeprefix("grasp: "))
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
            self.failures.append(f"seed {worker.seed} {how} (its last words: {worker.log})")
