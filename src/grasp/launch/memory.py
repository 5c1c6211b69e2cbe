"""Whether a run's replay fits this machine: said before anything starts."""

import os
from pathlib import Path

from grasp import replay
from grasp.config import Config
from grasp.launch.local import cores
from grasp.types import EnvSpec, GraspError

SHARE = 0.8
"""Of the free memory that replays may fill; networks, batches and the compiler need the rest."""


def available() -> int:
    """Bytes this process may still use: what the machine has free, or what its container is allowed."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = (_lines(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    if limit and used and limit[0].isdigit():
        free = min(free, int(limit[0]) - int(used[0]))
    return free


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def check_replay(config: Config, spec: EnvSpec, capacity: int) -> str:
    """One line about the replay's memory; a GraspError where it would not fit, with the largest that does."""
    one = replay.episode_bytes(spec)
    at_once = min(config.seeds, len(cores())) if config.parallel == "processes" else config.seeds
    episodes = capacity + config.hyper.num_envs
    room = int(SHARE * available())
    text = f"{capacity:,} episodes of {_size(one)}, {_size(one * episodes)} a seed"
    if one * episodes * at_once > room:
        largest = max(0, room // (one * at_once) - config.hyper.num_envs)
        raise GraspError(
            f"the replay does not fit: {text}, {at_once} seed{'s' * (at_once > 1)} at once, and replays may fill "
            f"{_size(room)} here; give at most --buffer {largest}"
        )
    return f"replay: {text}"


def _size(number: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number / 1e3:.1f} kB"
