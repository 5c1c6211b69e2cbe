"""Whether a run's replay buffer fits the memory of this machine, checked before anything is written."""

import os
from pathlib import Path
from typing import NamedTuple

import jax

from grasp.algos import replay_buffer
from grasp.config import Config
from grasp.launch.base import Plan
from grasp.training.runner import Built
from grasp.types import GraspError

FRACTION = 0.45
"""The fraction of the free memory that replay buffers may fill: resuming and stacking seeds briefly hold two copies."""


def available() -> int | None:
    """Bytes this process may still use: free on the machine, or left to its container; None if unknown."""
    found = [int(line.split()[1]) * 1024 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:")]
    limit, used = (_lines(f"/sys/fs/cgroup/{name}") for name in ("memory.max", "memory.current"))
    if limit and used and limit[0].isdigit():
        # what was read from files counts as used, but is given back when needed
        cached = [
            int(line.split()[1]) for line in _lines("/sys/fs/cgroup/memory.stat") if line.startswith("inactive_file ")
        ]
        found.append(int(limit[0]) - int(used[0]) + sum(cached))
    if not found and "SC_AVPHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    return min(found, default=None)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


class ReplaySize(NamedTuple):
    """Size of one seed's replay buffer."""

    capacity: int
    episode_bytes: int
    num_bytes: int

    def __str__(self) -> str:
        return f"{self.capacity:,} episodes of {size(self.episode_bytes)}, {size(self.num_bytes)} per seed"


def replay_of(config: Config, built: Built) -> ReplaySize | None:
    """The size of one seed's replay buffer; None for algorithms without one."""
    capacity = built.algorithm.replays
    if not capacity:
        return None
    one = replay_buffer.episode_bytes(built.env.spec)
    return ReplaySize(capacity, one, one * (capacity + config.hyper.num_envs))


def check_replay_memory(plan: Plan, at_once: int) -> str:
    """A line about the memory of the replay buffer, empty for algorithms without one; GraspError if it does not fit.

    `at_once` is how many seeds train at the same time, unless they are vmapped."""
    config, kept = plan.config, replay_of(plan.config, plan.built)
    if kept is None:
        return ""
    free = available()
    if free is None or jax.default_backend() != "cpu":  # the memory of an accelerator is not known here
        return f"replay buffer: {kept}"
    at_once = at_once if config.parallel == "processes" else plan.seeds
    room = int(FRACTION * free)
    if kept.num_bytes * at_once > room:
        raise GraspError(
            f"the replay buffer does not fit: {kept}, {at_once} seed{'s' * (at_once > 1)} at once, and replay buffers "
            f"may fill {size(room)} here; {_advice(config, room // kept.episode_bytes, at_once)}"
        )
    return f"replay buffer: {kept}"


def _advice(config: Config, episodes: int, at_once: int) -> str:
    """What to type instead."""
    hyper = config.hyper
    largest = episodes // at_once - hyper.num_envs
    if largest >= hyper.num_envs * hyper.rollout:
        return f"give at most --buffer {largest}"
    if at_once > 1:
        return "train one seed at a time: --seeds 1"
    return "give a smaller --buffer with a smaller --num_envs or --rollout, or use a machine with more memory"


def size(number: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number / 1e3:.1f} kB"
