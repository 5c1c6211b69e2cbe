"""Simulators in worker processes compared with the simulator's own plain loop."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax

from grasp.bench.measure import Line, interleaved, peak_mb, workload
from grasp.envs import base
from grasp.envs.host import SimulatorPool
from grasp.training import host_rollout
from grasp.training.runner import make
from grasp.types import GraspError, Host

WORKERS = 2
ROUNDS = 9
"""Many, since episodes end at random and a reset takes as long as many steps."""
LOOP = """
import sys
for line in sys.stdin:
    steps = int(line)
    for _ in range(steps):
        step()
    print("done", flush=True)
"""
PETTINGZOO = """
from mpe2 import simple_spread_v3
env = simple_spread_v3.parallel_env(max_cycles=25)
env.reset(seed=0)
def step():
    env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    if not env.agents:
        env.reset()
"""
FOOTBALL = """
import gfootball.env, random
env = gfootball.env.create_environment(
    env_name="academy_3_vs_1_with_keeper", representation="simple115v2", number_of_left_players_agent_controls=3)
env.reset()
def step():
    if env.step([random.randrange(19) for _ in range(3)])[2]:
        env.reset()
"""

FOOTBALL_CORE = """
import importlib.util, random, sys
import numpy as np
spec = importlib.util.spec_from_file_location("adapter", sys.argv[1])
adapter = importlib.util.module_from_spec(spec)
spec.loader.exec_module(adapter)
envs = [adapter.make("academy_3_vs_1_with_keeper") for _ in range(int(sys.argv[2]))]
for env in envs:
    env.reset(random.randrange(2**31))
def step():
    env = envs.pop(0)
    envs.append(env)
    action = np.array([random.randrange(19) for _ in range(3)], np.int32)
    _, _, terminated, truncated, _ = env.step(action)
    if terminated or truncated:
        env.reset(random.randrange(2**31))
"""


class Case(NamedTuple):
    env: str
    bare: str
    """The loop of a program that uses the simulator directly."""
    stepped: str
    """The same loop over as many copies as a worker has, since engines stepped alternately compete for caches."""
    copies: int
    rollout: int


CASES = [
    Case("pettingzoo/mpe2.simple_spread_v3", PETTINGZOO, PETTINGZOO, 32, 100),
    Case("grf/academy_3_vs_1_with_keeper", FOOTBALL, FOOTBALL_CORE, 32, 50),
]


def run(smoke: bool) -> Iterator[Line]:
    """Two workers against one and two processes of the simulator's own loop, and memory."""
    for case in CASES[:1] if smoke or not is_installed(CASES[-1].env) else CASES:
        yield from measured(case, smoke)


def is_installed(env: str) -> bool:
    """Whether an environment's simulator can be started here."""
    try:
        base.make(env)
    except GraspError:
        return False
    return True


def measured(case: Case, smoke: bool) -> Iterator[Line]:
    copies, rollout = (4, 20) if smoke else (case.copies, case.rollout)
    steps = copies * rollout
    with ExitStack() as held:
        config = workload("mappo", case.env, smoke, num_envs=copies, rollout=rollout)
        host, algorithm = make(config)
        assert isinstance(host, Host)
        pool = SimulatorPool(host, copies, WORKERS, config.deadline, config.restarts)
        held.callback(pool.close)
        envs = host_rollout.HostEnvs(pool, algorithm)
        envs.begin(host_rollout.episode_seeds(jax.random.key(0), copies))
        state = algorithm.init(jax.random.key(1))
        actions = {
            "one": looped(host, case.bare, 1, copies, steps, held),
            "two": looped(host, case.stepped, WORKERS, copies, steps, held),
            "pool": lambda: host_rollout.collect(envs, state, jax.random.key(2), rollout)[0].reward,
        }
        taken = interleaved(actions, rounds=1 if smoke else ROUNDS)
        yield Line(f"{case.env}, its own loop", steps / taken["one"], "steps/s")
        rate, one = steps / taken["pool"], steps / taken["one"]
        yield Line(f"collected from {WORKERS} workers, {copies} copies", rate, "steps/s", rate / one, "its own loop")
        # the loops divide the steps between them and are alone on the cores
        lost = 100 * (1 - taken["two"] / taken["pool"])
        yield Line("fraction of a collection lost to acting, recording and transport", lost, "%", None, "", peak_mb())
        held_mb = sum(resident_mb(worker.process.pid) for worker in pool.workers) / copies
        yield Line(f"memory of {WORKERS} workers, per copy", held_mb, "MB")


def looped(host: Host, bare: str, number: int, copies: int, steps: int, held: ExitStack) -> Callable[[], Any]:
    """A function that runs `number` processes of the simulator's own loop, which divide the copies and the steps."""
    command = [host.command[0], "-c", bare + LOOP, host.command[2], str(copies // number)]  # 2: the adapter's path
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    children = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True) for _ in range(number)]
    for child in children:
        held.enter_context(child)
        held.callback(child.kill)

    def go() -> None:
        for child in children:
            assert child.stdin is not None
            print(steps // number, file=child.stdin, flush=True)
        for child in children:
            assert child.stdout is not None
            while child.stdout.readline().strip() != "done":
                assert child.poll() is None, "the simulator's own loop has exited"

    return go


def resident_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) / 1024
