"""Nodes of a Ray cluster on this machine that are suspended and killed as whole machines would be."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SMALL = {"object_store_memory": 80 << 20}
WAIT = 900.0
MARKS = [
    pytest.mark.full("a Ray cluster of several nodes"),
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("cluster"),
    # from ray's own modules
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"the condition did not hold within {WAIT:.0f} s"
        time.sleep(0.01)


def parent(pid: int) -> int:
    """The parent of a process; 0 if it has exited."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_below(pid: int, node) -> bool:
    """Whether a process is a descendant of a node's raylet."""
    raylet = node.all_processes["raylet"][0].process.pid
    while pid > 1 and pid != raylet:
        pid = parent(pid)
    return pid > 1


def processes_of(node) -> list[int]:
    running = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in running if is_below(pid, node)]


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def held(node) -> Iterator[None]:
    """Suspend all processes of a node, so that a test can look at its files before it kills the node."""
    pids: list[int] = []
    try:
        while new := [pid for pid in processes_of(node) if pid not in pids]:
            send(new, signal.SIGSTOP)
            pids += new
        yield
    finally:
        send(pids, signal.SIGCONT)


def die(node, cluster) -> None:
    """Kill a node with all its processes: those of a killed raylet would run on for a while."""
    pids = processes_of(node)
    cluster.remove_node(node, allow_graceful=False)
    send(pids, signal.SIGKILL)
