"""Whether a run's replay fits this machine: said before anything is written."""

import os
from pathlib import Path
from typing import NamedTuple

import jax

from grasp import algos
from grasp.algos import replay_buffer
from grasp.config import Config
from grasp.envs import base as envs
from grasp.types import GraspError

SHARE = 0.45
"""Of the free memory that replays may fill: for a moment, resuming or stacking mapped seeds holds them twice."""


def available() -> int | None:
    """Bytes this process may still use: what the machine has free, or its container allows; None if unknown."""
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


class Replay(NamedTuple):
    """What one seed remembers."""

    capacity: int
    episode_bytes: int
    num_bytes: int


def replay_of(config: Config) -> Replay | None:
    """A configuration's replay; None where it has none."""
    spec = envs.make(config.env).spec
    capacity = algos.make(config, spec).replays
    if not capacity:
        return None
    one = replay_buffer.episode_bytes(spec)
    return Replay(capacity, one, one * (capacity + config.hyper.num_envs))


def check_replay(config: Config, seeds: int, at_once: int) -> str:
    """One line about the replay's memory, none where there is no replay; a GraspError where it would not fit, and what
    would. Unless they are mapped, `at_once` seeds train at the same time."""
    kept = replay_of(config)
    if kept is None:
        return ""
    text = f"{kept.capacity:,} episodes of {size(kept.episode_bytes)}, {size(kept.num_bytes)} a seed"
    free = available()
    if free is None or jax.default_backend() != "cpu":  # an accelerator's memory is its own
        return f"replay: {text}"
    at_once = at_once if config.parallel == "processes" else seeds
    room = int(SHARE * free)
    if kept.num_bytes * at_once > room:
        raise GraspError(
            f"the replay does not fit: {text}, {at_once} seed{'s' * (at_once > 1)} at once, and replays may fill "
            f"{size(room)} here; {_advice(config, room // kept.episode_bytes, at_once)}"
        )
    return f"replay: {text}"


def _advice(config: Config, episodes: int, at_once: int) -> str:
    """What to type instead: a smaller replay, or fewer seeds, or a larger machine."""
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
