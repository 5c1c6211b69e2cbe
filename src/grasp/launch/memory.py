"""Whether a run's replay fits this machine: said before anything is written."""

import os
from pathlib import Path

import jax

from grasp import replay
from grasp.config import Config
from grasp.launch.local import cores
from grasp.types import EnvSpec, GraspError

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


def check_replay(config: Config, spec: EnvSpec, capacity: int, seeds: int) -> str:
    """One line about the replay's memory; a GraspError where `seeds` of them would not fit, and what would."""
    one, held = replay.episode_bytes(spec), capacity + config.hyper.num_envs
    text = f"{capacity:,} episodes of {_size(one)}, {_size(one * held)} a seed"
    free = available()
    if free is None or jax.default_backend() != "cpu":  # an accelerator's memory is its own
        return f"replay: {text}"
    at_once = min(seeds, len(cores())) if config.parallel == "processes" else seeds
    room = int(SHARE * free)
    if one * held * at_once > room:
        raise GraspError(
            f"the replay does not fit: {text}, {at_once} seed{'s' * (at_once > 1)} at once, and replays may fill "
            f"{_size(room)} here; {_advice(config, room // one, at_once)}"
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


def _size(number: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number / 1e3:.1f} kB"
