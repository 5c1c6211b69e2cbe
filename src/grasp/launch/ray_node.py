"""What Ray's own processes do on a node.

Only the standard library: Ray sends these functions by value, and GRASP itself, with jax, runs in a process that they
start with the node's interpreter.
"""

import hashlib
import importlib
import json
import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 120.0
"""For a node to import everything, and for storage to show what was written elsewhere."""


def environment(there: dict[str, Any]) -> dict[str, Any]:
    """Module paths and working directory of a process: Ray's, and the caller's, where the user's environment may be."""
    paths = [path for path in [*sys.path, *there["paths"]] if path and os.path.isdir(path)]
    return {
        "env": os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
        "cwd": there["folder"] if os.path.isdir(there["folder"]) else None,
    }


def work(there: dict[str, Any]) -> int:
    """Train a task in a worker process and return its exit code. An exception means that the node cannot train it."""
    config = Path(there["path"], "config.json")
    end = time.monotonic() + SECONDS
    while not config.is_file() or hashlib.sha256(config.read_bytes()).hexdigest() != there["digest"]:
        if time.monotonic() > end:
            raise RuntimeError(
                f"{config} is missing or differs on {platform.node()}; is {config.parent} on shared storage?"
            )
        time.sleep(1.0)
    log = Path(there["log"])
    log.parent.mkdir(exist_ok=True)
    context = importlib.import_module("ray").get_runtime_context()
    node = ["--ray", f"{context.get_node_id()}@{context.gcs_address}"]
    command = [sys.executable, "-P", "-m", "grasp.launch.worker", *there["arguments"], *node]
    with log.open("ab") as output:
        # the worker's standard input closes when this process ends, and the worker exits then
        streams = {"stdin": subprocess.PIPE, "stdout": output, "stderr": output}
        with subprocess.Popen(command, **streams, **environment(there)) as process:
            return process.wait()


def locate() -> dict[str, Any]:
    """This node's id, its address in the cluster, a free port, and the address that its own host name resolves to."""
    ray = importlib.import_module("ray")
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    try:
        own = socket.gethostbyname(socket.gethostname())
    except OSError:
        own = "127.0.0.1"
    node = ray.get_runtime_context().get_node_id()
    return {"node": node, "address": ray.util.get_node_ip_address(), "port": port, "own": own}


def examine(there: dict[str, Any]) -> str:
    """Why this node cannot train, to be put behind its name; empty where it can."""
    try:
        token = Path(there["token"]).read_text()
    except OSError:
        token = ""
    folder = os.path.dirname(there["token"])
    if token != there["content"]:
        return f"does not see {folder}; choose an --out on storage that all nodes share"
    if not os.access(folder, os.W_OK):
        return f"may not write to {folder}; choose an --out that all nodes may write to"
    command = [sys.executable, "-P", "-m", "grasp.launch.ray_probe", *there["envs"]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **environment(there))
    except subprocess.TimeoutExpired:
        return f"needs more than {SECONDS:.0f} seconds to import grasp"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        return f"cannot run grasp ({why}); install there what is installed here"
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for name, version in there["versions"].items():
        if found["versions"][name] != version:
            return f"has {name} {found['versions'][name]}, not {version} as here; install the same there"
    return "".join(f"cannot run {env}: {reason}" for env, reason in list(found["problems"].items())[:1])
