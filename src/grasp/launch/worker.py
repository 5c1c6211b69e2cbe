"""A task in a process of its own: `python -m grasp.launch.worker RUN SEEDS CORES DEVICES …`, started by
`grasp.launch.local` or, on a Ray node, by `grasp.launch.ray_node`.

Its standard input is a pipe whose other end its parent holds; its standard output and error are the task's log.
"""

import argparse
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

JOIN_SECONDS = 120
"""For the workers of one run to reach each other; jax ends a worker that waits longer."""
METHODS = {
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_LOCALID")),
    "ompi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_LOCAL_RANK")),
}
"""What jax can detect: the variables with a process's number, the number of processes, and what else must be set."""
HELD: list[socket.socket] = []
"""Sockets whose names tell other workers on the machine which cores are taken."""


def pin(cores: list[int], devices: int = 1) -> None:
    """One core and one thread per device, set before jax is imported: a small program loses more to threads than it
    gains. A CPU counts as several devices only with the flag xla_force_host_platform_device_count."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    flags = [os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=false"]
    if devices > 1:
        flags.append(f"--xla_force_host_platform_device_count={devices}")
    os.environ["XLA_FLAGS"] = " ".join(flags).strip()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"


def free_cores(number: int, name: str = "grasp-core") -> list[int]:
    """Cores that no other worker of this machine has taken by this function; any cores where too few are left.

    A core is taken by binding an abstract socket named after it: the system releases the name when the process ends.
    """
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    found = []
    for core in allowed:
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
    others = [core for core in allowed if core not in found]
    start = os.getpid() % max(len(others), 1)
    return found + (others[start:] + others[:start])[: number - len(found)]


def die_with_parent() -> None:
    """Exit when the parent's end of standard input closes, which also happens when the parent is killed."""

    def wait() -> None:
        os.read(0, 1)  # not sys.stdin, whose lock would be held when the interpreter shuts down
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def report(message: dict[str, Any]) -> None:
    """Print a notice to the log (`grasp.launch.base.NOTICE`). Other messages are in the metrics log already."""
    from grasp.types import Kind

    if message["kind"] == Kind.NOTICE:
        text = " ".join(message["text"].split())
        print(f"notice: seed {message['seed']}: {text}", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m grasp.launch.worker")
    parser.add_argument("run")
    parser.add_argument("seeds", help="comma-separated")
    parser.add_argument("cores", help="comma-separated, or 'every' or 'any' (grasp.launch.base)")
    parser.add_argument("devices", type=int, help="of all processes that train together")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for the lock of a lost node")
    parser.add_argument("--ray", metavar="NODE@ADDRESS", default="@", help="the Ray node and cluster it runs on")
    parser.add_argument("--join", metavar="K/N@HOST:PORT", help="process K of N, or what jax detects: slurm, ompi")
    return parser.parse_args()


class Peers(NamedTuple):
    """This worker's process index, the number of processes, and the options of `jax.distributed.initialize`."""

    number: int
    processes: int
    options: dict[str, Any]


def peers_of(join: str) -> Peers:
    if "@" in join:
        own, _, address = join.partition("@")
        number, processes = map(int, own.split("/"))
        options = {"coordinator_address": address, "num_processes": processes, "process_id": number}
        return Peers(number, processes, options | {"cluster_detection_method": "deactivate"})
    number, processes, _ = METHODS[join]
    return Peers(int(os.environ[number]), int(os.environ[processes]), {"cluster_detection_method": join})


def together(peers: Peers, train: Callable[[], int]) -> int:
    """Train with the other workers; `jax.distributed` must be initialised first. A worker that fails exits at once:
    otherwise it would wait for the others in jax's shutdown, and they for it."""
    import jax

    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(**peers.options, initialization_timeout=JOIN_SECONDS)
        code = train()
        if code == 0:
            jax.distributed.shutdown()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> int:
    options = arguments()
    peers = peers_of(options.join) if options.join else None
    if options.cores != "every":  # the words are those of grasp.launch.base, whose import would start jax
        number = options.devices // (peers.processes if peers else 1)
        pin(free_cores(number) if options.cores == "any" else [int(core) for core in options.cores.split(",")], number)
    die_with_parent()
    return together(peers, lambda: train_task(options)) if peers else train_task(options)


def train_task(options: argparse.Namespace) -> int:
    """The exit code: 0, or 2 with a sentence on standard error."""
    from dataclasses import replace

    from grasp.nn import sharding
    from grasp.training import compilation_cache
    from grasp.types import GraspError

    compilation_cache.enable()
    try:
        sharding.handshake(options.devices)  # before anything that may take longer in one process than in another
        from grasp import runs
        from grasp.training import runner
        from grasp.training.loop import train

        def given() -> tuple[runs.Run, list[int]]:
            return runs.find(options.run), [int(seed) for seed in options.seeds.split(",")]

        run, seeds = sharding.from_first(given)
        if not sharding.is_first():
            print(f"run: {run.path}", flush=True)  # grasp.launch.job has no other way to know it
        if run.config.devices != options.devices:
            run = replace(run, config=runs.spread(run.config, options.devices))
        others = None
        if run.config.nodes > 1:
            from grasp.launch.ray_collectors import Collectors

            node, _, address = options.ray.partition("@")
            others = Collectors(run, seeds[0], address, node, report)
        train(run, seeds, report, options.patience, others, runner.make(run.config))
    except GraspError as mistake:
        print(f"grasp: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
