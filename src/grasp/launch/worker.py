"""One seed in a process of its own: `python -m grasp.launch.worker RUN SEED CORES DEVICES`, from `grasp.launch.local`.

Messages for the parent go to standard output, one JSON object a line; faults to standard error.
"""

import json
import os
import sys
import threading
from typing import Any


def pin(cores: list[int], devices: int = 1) -> None:
    """A core and a thread for each device, decided before jax is imported: a small program loses more to threads than
    it gains. Where a CPU is to be several devices, jax is told so."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    flags = [os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=false"]
    if devices > 1:
        flags.append(f"--xla_force_host_platform_device_count={devices}")
    os.environ["XLA_FLAGS"] = " ".join(flags).strip()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"


def die_with_parent() -> None:
    """End at once when the parent's end of standard input closes, which even its SIGKILL does."""

    def wait() -> None:
        os.read(0, 1)  # not sys.stdin, whose lock would be held when the interpreter shuts down
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    path, seed, cores, devices = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    if cores:  # simulators are stepped by workers of their own, on all cores
        pin([int(core) for core in cores.split(",")], devices)
    die_with_parent()
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever an import or a simulator prints must not mix with the messages
    from grasp import cache, runs
    from grasp.training import train
    from grasp.types import GraspError

    def report(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=stream)

    cache.enable()
    try:
        train(runs.find(path), [seed], report)
    except GraspError as mistake:
        print(f"grasp: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
