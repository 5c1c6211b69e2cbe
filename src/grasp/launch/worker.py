"""A task in a process of its own: `python -m grasp.launch.worker RUN SEEDS CORE [PATIENCE ADDRESS NODE]`, started by
`grasp.launch.local`, or on a cluster's node by `grasp.launch.remote`.

Messages for the parent go to standard output, one JSON object a line; faults to standard error.
"""

import json
import os
import socket
import sys
import threading
from typing import Any

HELD: list[socket.socket] = []
"""What shows the machine's other workers that a core is taken."""


def pin(core: int) -> None:
    """One core and one thread, decided before jax is imported: a small program loses more to threads than it gains."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    single = "--xla_cpu_multi_thread_eigen=false"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {single}".strip()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"


def free_core(name: str = "grasp-core") -> int:
    """A core that no other worker of this machine has taken so; where all are taken, any. Names of abstract sockets
    are the machine's, and are free again when their process ends, however it ends."""
    places = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    for core in places:
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            taken.bind(f"\0{name}-{core}")
        except OSError:
            taken.close()
        else:
            HELD.append(taken)
            return core
    return places[os.getpid() % len(places)]


def die_with_parent() -> None:
    """End at once when the parent's end of standard input closes, which even its SIGKILL does."""

    def wait() -> None:
        os.read(0, 1)  # not sys.stdin, whose lock would be held when the interpreter shuts down
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    path, seeds, core = sys.argv[1], [int(seed) for seed in sys.argv[2].split(",")], int(sys.argv[3])
    patience = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    if core != -1:  # EVERY_CORE of grasp.launch.tasks, which would import jax: simulators are stepped on all cores
        pin(free_core() if core == -2 else core)  # ANY_CORE
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
        run, others = runs.find(path), None
        if run.config.nodes > 1:
            from grasp.launch.collectors import Collectors

            address, here = sys.argv[5:7]
            others = Collectors(run, seeds[0], address, here, report)
        train(run, seeds, report, patience, others)
    except GraspError as mistake:
        print(f"grasp: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
