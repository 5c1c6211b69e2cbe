"""Joining a Ray cluster, and starting workers on its nodes."""

import functools
import hashlib
import logging
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from grasp.launch import ray_node
from grasp.launch.base import Task
from grasp.runs.lock import STALE
from grasp.types import GraspError

CONNECT_SECONDS = 5.0
JOIN_SECONDS = 45.0
"""For joining a cluster, including ray's import."""
PATIENCE = 3 * STALE
"""Seconds for which a worker waits for the lock that a lost node holds."""
JOIN = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='critical'); ray.shutdown()"


def join(ray: Any, address: str) -> str:
    """Join the cluster at an address. With "auto", where none is running, start one on this machine, which ends with
    this process, and return a line that says so."""
    quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if is_running(address):
        ray.init(address=address, **quiet)
        return ""
    ray.init("local", include_dashboard=False, **quiet)
    return "no Ray cluster is running: started one on this machine, which ends with this command"


def is_running(address: str) -> bool:
    """Whether a cluster can be joined at an address; GraspError if it does not answer. With "auto" there may be none.

    Another process tries first, since ray may wait for long or end its process if the cluster does not answer.
    """
    advice = "see `ray status` there, run this on one of the cluster's machines, or start one with: ray start --head"
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            raise GraspError(f"no Ray cluster answers at {address} ({error.strerror or error}); {advice}") from None
    command = [sys.executable, "-c", JOIN, address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=JOIN_SECONDS)
    except subprocess.TimeoutExpired:
        raise GraspError(f"the Ray cluster at {address} did not answer in {JOIN_SECONDS:.0f} s; {advice}") from None
    if done.returncode == 0:
        return True
    if address == "auto" and "Could not find any running Ray instance" in done.stderr:
        return False
    why = (done.stderr.strip().splitlines() or ["no error message"])[-1]
    raise GraspError(f"cannot join the Ray cluster at {address} ({why}); {advice}")


def start_worker(ray: Any, task: Task, arguments: list[str], log: Path, **options: Any) -> Any:
    """Start a task's worker on a node that Ray chooses by the `options`; its exit code will be the result."""
    path = task.run.path.absolute()
    there = module_paths() | {
        "path": str(path),
        "digest": hashlib.sha256((path / "config.json").read_bytes()).hexdigest(),
        "log": str(log.absolute()),
        "arguments": [*arguments, "--patience", str(PATIENCE)],
    }
    named = {"name": f"{path.name} {task.name}", "retry_exceptions": False}
    return ray.remote(functions()["work"]).options(**named, **options).remote(there)


@functools.cache
def functions() -> dict[str, Any]:
    """The functions of `ray_node`. It is run as a script so that Ray sends them by value: a node without grasp must be
    able to report that."""
    return runpy.run_path(ray_node.__file__)


def usable_nodes(ray: Any) -> list[dict[str, Any]]:
    """The nodes that can train or run simulators."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def name_of(node: dict[str, Any]) -> str:
    return f"node {node['NodeManagerHostname']} ({node['NodeID'][:8]})"


def module_paths() -> dict[str, Any]:
    """Module paths and working directory of this process: on shared storage a node has them too."""
    return {"paths": [path for path in sys.path if path], "folder": os.getcwd()}


def first_line(error: Exception) -> str:
    """The first line of an exception of Ray's, whose message may have pages; of its cause where a node raised one."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    return re.sub(r"\x1b\[[0-9;]*m", "", lines[0]).rstrip(".")
