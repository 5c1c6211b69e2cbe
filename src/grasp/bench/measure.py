"""Timing: interleaved within a process, or in pinned child processes that start together."""

import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from grasp.config import Config, configure
from grasp.config.hyperparameters import Mappo
from grasp.envs import base
from grasp.training import rollout
from grasp.training.runner import build
from grasp.types import Algorithm, Trajectory

WORKLOAD = {"num_envs": 64, "rollout": 120, "epochs": 10, "minibatches": 1, "chunk": 10, "hidden": 64}
"""The published settings of the recurrent MAPPO that `speed` compares with."""
SMOKE = {"num_envs": 4, "rollout": 20, "epochs": 2, "minibatches": 1, "chunk": 10, "hidden": 16}


class Line(NamedTuple):
    """One row of a benchmark."""

    case: str
    value: float
    unit: str
    ratio: float | None = None
    against: str = ""
    peak_mb: float = 0.0


def peak_mb() -> float:
    """The peak memory of this process. After a fork `getrusage` includes the parent's, so /proc is preferred."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024  # pyright: ignore[reportOptionalSubscript]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def interleaved(actions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each action, interleaved so that changes in load affect all. Each runs twice unmeasured: the
    first call compiles, the second may compile again for the types that the first returned."""
    for action in actions.values():
        for _ in range(2):
            jax.block_until_ready(action())
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            began = time.perf_counter()
            jax.block_until_ready(action())
            taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in taken.items()}


def workload(algo: str, env: str, smoke: bool, **options: Any) -> Config:
    """A configuration with the benchmark's sizes."""
    sizes = (SMOKE if smoke else WORKLOAD) | options
    return configure(algo, env, {"steps": 10**9, **sizes})


def trainer(config: Config) -> Callable[[], Any]:
    """A function that runs one more iteration each time it is called."""
    programs = build(config, 1)
    state = [programs.begin([0])]

    def advance() -> Any:
        state[0], metrics = programs.advance(state[0])
        return metrics

    return advance


def played(config: Config) -> tuple[Algorithm, Any, Trajectory]:
    """The algorithm, its initial state, and one trajectory."""
    assert isinstance(config.hyper, Mappo)
    programs = build(config, 1)
    env, algorithm, length = base.compiled(config.env), programs.algorithm, config.hyper.rollout
    begun = jax.tree.map(lambda x: x[0], programs.begin([0]))
    collect = jax.jit(lambda state, arena, key: rollout.collect(env, algorithm, state, arena, key, length))
    return algorithm, begun.state, collect(begun.state, begun.arena, jax.random.key(0))[1]


class Child:
    """A measurement in its own process, pinned to a core ("0,1": to several) or unpinned (None). It compiles, then
    waits for `go`."""

    def __init__(self, task: dict[str, Any], core: int | str | None):
        command = [sys.executable, "-m", "grasp.bench.child", json.dumps(task), "" if core is None else str(core)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"a benchmark's process exited early with code {self.process.wait()}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, float]:
        assert self.process.stdout is not None
        found = json.loads(self.process.stdout.readline())
        self.process.wait()
        return found


def together(tasks: list[dict[str, Any]], cores: Sequence[int | str | None]) -> list[dict[str, float]]:
    """Results of child processes that run at the same time."""
    children = [Child(task, core) for task, core in zip(tasks, cores, strict=True)]
    for child in children:
        child.wait_ready()
    for child in children:
        child.go()
    return [child.result() for child in children]
