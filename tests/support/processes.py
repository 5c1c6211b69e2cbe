"""Runs the command line in a process of its own, to be observed and killed."""

import json
import subprocess
import sys
import time
from pathlib import Path

WAIT = 240.0


def start(*words: str) -> subprocess.Popen:
    # a shell that runs the tests in the background makes them and their children ignore Ctrl-C
    listening = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{listening}; from grasp.cli import main; sys.exit(main())", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def lines_of(path: Path, seed: int = 0) -> list[dict]:
    """All complete records of a seed, without their wall-clock values."""
    file = path / f"seed-{seed}" / "metrics.jsonl"
    raw = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return [{k: v for k, v in json.loads(line).items() if k != "wall"} for line in raw]


def wait_for(condition, process: subprocess.Popen) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"the condition did not hold within {WAIT:.0f} s"
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def workers_of(path: Path) -> list[int]:
    """The worker processes of a run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"grasp.launch.worker" in words and str(path).encode() in words:
                found.append(int(entry.name))
    return found
