"""Many small runs: on one core, on two, and as tasks on a Ray cluster."""

import importlib
import importlib.util
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from grasp import runs
from grasp.bench.measure import SMOKE, Line
from grasp.config import configure
from grasp.envs import base as envs
from grasp.envs.host import cores
from grasp.launch.base import Launcher, Task, tasks_of
from grasp.launch.local import LocalLauncher
from grasp.launch.ray_launcher import connected
from grasp.training import runner

ENV = "matrix/climbing"
STEPS = 40_000
"""Of one run: long enough that starting and compiling do not dominate."""


def run(smoke: bool) -> Iterator[Line]:
    """A suite of small runs: two workers against one, and Ray against this machine's launcher."""
    pinned = cores()[:2]
    number, rounds = (2, 1) if smoke else (6, 3)
    with ExitStack() as held:
        home = Path(held.enter_context(tempfile.TemporaryDirectory()))
        launchers: dict[str, Launcher] = {"one": LocalLauncher(pinned[:1]), "two": LocalLauncher(pinned)}
        if importlib.util.find_spec("ray"):
            ray = importlib.import_module("ray")
            quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
            ray.init("local", num_cpus=len(pinned), **quiet)
            held.callback(ray.shutdown)
            launchers["ray"] = held.enter_context(connected("auto"))
        taken = interleaved(
            {name: timer(launcher, home / name, number, smoke) for name, launcher in launchers.items()}, rounds
        )
    one, two = taken["one"], taken["two"]
    yield Line(f"{number} runs, one worker", one, "s")
    yield Line(f"{number} runs, {len(pinned)} workers", two, "s", one / two, "one worker: times as fast")
    if "ray" in taken:
        case = f"{number} runs, {len(pinned)} workers, on Ray"
        yield Line(case, taken["ray"], "s", taken["ray"] / two, "the same without Ray")
        yield Line("Ray's overhead per run", (taken["ray"] - two) / number, "s")


def interleaved(actions: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median of the seconds that each action returns, interleaved so that changes in load affect all."""
    for action in list(actions.values())[-1:]:
        action()  # fills the compilation cache
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            taken[name].append(action())
    return {name: statistics.median(times) for name, times in taken.items()}


def timer(launcher: Launcher, home: Path, number: int, smoke: bool) -> Callable[[], float]:
    """A function that trains a new suite and returns the seconds that took, without creating its runs."""
    made = iter(range(10**6))

    def measured() -> float:
        tasks = suite(home / str(next(made)), number, smoke)
        began = time.perf_counter()
        failures = launcher.train(tasks, lambda task, line: None)
        assert not failures, failures[0].message
        return time.perf_counter() - began

    return measured


def suite(home: Path, number: int, smoke: bool) -> list[Task]:
    steps = {"steps": 160 if smoke else STEPS, "eval_interval": 80 if smoke else STEPS // 4}
    given = SMOKE | steps | {"eval_episodes": 4, "final_episodes": 8, "parallel": "processes"}
    env = envs.make(ENV)
    paths = [home / str(seed) for seed in range(number)]
    made = [
        runs.create(path, configure("mappo", ENV, given | {"seed": seed, "seeds": 1}), env.spec)
        for seed, path in enumerate(paths)
    ]
    return [task for one in made for task in tasks_of(one, runner.make(one.config, env))]
