"""What Ray's processes do on a node. Only the standard library: these functions are sent there as they stand, and GRASP
itself, with jax, runs in a process that they start, with the node's own interpreter.
"""

import hashlib
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 120.0
"""For a node to import everything, and for storage to show what was written elsewhere."""


def environment(there: dict[str, Any]) -> dict[str, Any]:
    """A process's surroundings: Ray's modules and its caller's folder, in which one's own environment may lie."""
    paths = [path for path in [*sys.path, *there["paths"]] if path and os.path.isdir(path)]
    return {
        "env": os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
        "cwd": there["folder"] if os.path.isdir(there["folder"]) else None,
    }


def work(there: dict[str, Any]) -> dict[str, Any]:
    """Train a task; its exit code, its log's last line, and its notices. Only what befalls the node is an exception."""
    config = Path(there["path"], "config.json")
    end = time.monotonic() + SECONDS
    while not config.is_file() or hashlib.sha256(config.read_bytes()).hexdigest() != there["digest"]:
        if time.monotonic() > end:
            words = f"{config} is missing or another one on {platform.node()}; is {config.parent} on shared storage?"
            return {"code": 2, "last": words, "notices": []}
        time.sleep(1.0)
    log, notices, pipe = Path(there["log"]), [], subprocess.PIPE
    log.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "grasp.launch.worker", *there["words"], *whereabouts()]
    with log.open("w") as errors:
        # its standard input ends with this process, and the worker with it
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, **environment(there))
    with process:
        assert process.stdout is not None
        notices = [line for line in process.stdout if line.startswith('{"kind": "notice"') and line.endswith("}\n")]
        code = process.wait()
    last = log.read_text().strip().splitlines()[-1:]
    if code == 0:
        log.unlink(missing_ok=True)
    return {"code": code, "last": "".join(last), "notices": [json.loads(line) for line in notices]}


def whereabouts() -> list[str]:
    """The cluster's address and this node, for a learner whose simulators are on other nodes too."""
    context = importlib.import_module("ray").get_runtime_context()
    return [context.gcs_address, context.get_node_id()]


def examine(there: dict[str, Any]) -> str:
    """What keeps this node from training, in words; nothing where all is well."""
    try:
        token = Path(there["token"]).read_text()
    except OSError:
        token = ""
    folder = os.path.dirname(there["token"])
    if token != there["said"]:
        return f"does not see {folder}; choose an --out on storage that all nodes share"
    if not os.access(folder, os.W_OK):
        return f"may not write to {folder}; choose an --out that all nodes may write to"
    command = [sys.executable, "-P", "-m", "grasp.launch.ray_probe", *there["envs"]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **environment(there))
    except subprocess.TimeoutExpired:
        return f"needs more than {SECONDS:.0f} seconds to import grasp"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return f"cannot run grasp ({why}); install there what is installed here"
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for name, version in there["versions"].items():
        if found["versions"][name] != version:
            return f"has {name} {found['versions'][name]}, not {version} as here; install the same there"
    return "".join(f"cannot play {env}: {reason}" for env, reason in list(found["problems"].items())[:1])
