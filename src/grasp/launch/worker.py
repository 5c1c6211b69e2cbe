"""One seed in a process of its own: `python -m grasp.launch.worker RUN SEED CORE`, started by `grasp.launch.local`.

Messages for the parent go to standard output, one JSON object a line; faults to standard error.
"""

import json
import os
import sys
import threading
from typing import Any


def pin(core: int) -> None:
    """One core and one thread, decided before jax is imported: a small program loses more to threads than it gains."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    single = "--xla_cpu_multi_thread_eigen=false"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {single}".strip()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"


def die_with_parent() -> None:
    """End at once when the parent's end of standard input closes, which even its SIGKILL does."""

    def wait() -> None:
        os.read(0, 1)  # not sys.stdin, whose lock would be held when the interpreter shuts down
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    path, seed, core = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if core >= 0:  # simulators are stepped by workers of their own, on all cores
        pin(core)
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
