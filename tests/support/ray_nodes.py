"""Whole machines that die, played by the nodes of a Ray cluster on this one."""

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
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("cluster"),
    # ray's own, in its own modules
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "nothing happened for too long"
        time.sleep(0.01)


def parent(pid: int) -> int:
    """Of a process; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_below(pid: int, node) -> bool:
    """Whether a node's raylet has started a process, or what has started it."""
    raylet = node.all_processes["raylet"][0].process.pid
    while pid > 1 and pid != raylet:
        pid = parent(pid)
    return pid > 1


def processes_of(node) -> list[int]:
    everyone = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in everyone if is_below(pid, node)]


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def held(node) -> Iterator[None]:
    """All that a node has started stands still, so that a test can see how far it is and decide."""
    pids: list[int] = []
    try:
        while new := [pid for pid in processes_of(node) if pid not in pids]:
            send(new, signal.SIGSTOP)
            pids += new
        yield
    finally:
        send(pids, signal.SIGCONT)


def die(node, cluster) -> None:
    """A node ends with all that it has started, as a machine does; what only loses its raylet works on for a while."""
    pids = processes_of(node)
    cluster.remove_node(node, allow_graceful=False)
    send(pids, signal.SIGKILL)
