"""A task in a process of its own: `python -m grasp.launch.worker RUN SEEDS CORES DEVICES [PATIENCE ADDRESS NODE]`,
started by `grasp.launch.local`, or on a cluster's node by `grasp.launch.ray_node`. Where machines train one run
together (`grasp.launch.machines`), NODE is K/N, this machine's number and theirs, and DEVICES are those of all.

Messages for the parent go to standard output, one JSON object a line; faults to standard error.
"""

import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

JOIN_SECONDS = 120
"""For the workers of several machines to find each other, some of which import slowly; then jax ends the process."""
HELD: list[socket.socket] = []
"""What shows the machine's other workers that a core is taken."""


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


def free_cores(number: int, name: str = "grasp-core") -> list[int]:
    """So many cores that no other worker of this machine has taken so; where too few are left, any. Names of abstract
    sockets are the machine's, and are free again when their process ends, however it ends."""
    places = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    found = []
    for core in places:
        if len(found) == number:
            break
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            taken.bind(f"\0{name}-{core}")
        except OSError:
            taken.close()
        else:
            HELD.append(taken)
            found.append(core)
    others = [core for core in places if core not in found]
    start = os.getpid() % max(len(others), 1)
    return found + (others[start:] + others[:start])[: number - len(found)]


def die_with_parent() -> None:
    """End at once when the parent's end of standard input closes, which even its SIGKILL does."""

    def wait() -> None:
        os.read(0, 1)  # not sys.stdin, whose lock would be held when the interpreter shuts down
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def among(address: str, number: int, machines: int, train: Callable[[], int]) -> int:
    """Train together with the workers of other machines, which jax must know of before anything else. Who fails does
    not say goodbye: jax would wait for the others, who wait for it."""
    import jax

    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            address, machines, number, cluster_detection_method="deactivate", initialization_timeout=JOIN_SECONDS
        )
        code = train()
        if code == 0:
            jax.distributed.shutdown()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def main() -> int:
    path, seeds, place, devices = sys.argv[1], [int(s) for s in sys.argv[2].split(",")], sys.argv[3], int(sys.argv[4])
    patience = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    address, node = sys.argv[6:8] if len(sys.argv) > 7 else ("", "")
    number, machines = map(int, node.split("/")) if "/" in node else (0, 1)
    # the words are those of grasp.launch.base, whose import would start jax
    if place != "every":
        own = devices // machines
        pin(free_cores(own) if place == "any" else [int(core) for core in place.split(",")], own)
    die_with_parent()
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever an import or a simulator prints must not mix with the messages

    def report(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=stream)

    def train() -> int:
        return train_task(path, seeds, devices, patience, address, node, report)

    return among(address, number, machines, train) if machines > 1 else train()


def train_task(
    path: str,
    seeds: list[int],
    number: int,
    patience: float,
    address: str,
    node: str,
    report: Callable[[dict[str, Any]], None],
) -> int:
    """The exit code: 0, or 2 with a sentence on standard error."""
    from grasp.nn import sharding as devices
    from grasp.training import compilation_cache
    from grasp.types import GraspError

    compilation_cache.enable()
    try:
        devices.meet(number)  # before anything that may take longer on one machine than on another
        from grasp import runs
        from grasp.training.loop import train

        run, others = runs.find(path), None
        if run.config.nodes > 1:
            from grasp.launch.ray_collectors import Collectors

            others = Collectors(run, seeds[0], address, node, report)
        train(run, seeds, report, patience, others)
    except GraspError as mistake:
        print(f"grasp: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
