"""`grasp doctor`: what works on this machine, and the command that mends what does not."""

import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
from typing import NamedTuple

from grasp.envs.host import WORKERS, cores, interpreter, worker_environ
from grasp.version import __version__

EXTRAS = {
    "jaxmarl": ("jaxmarl", "smax/ and mpe/"),
    "jumanji": ("jumanji", "jumanji/"),
    "pettingzoo": ("pettingzoo", "pettingzoo/ and your own PettingZoo environments"),
    "tensorboardX": ("tensorboard", "--tensorboard"),
    "torch": ("torch", "grasp.consensus.torch"),
    "ray": ("ray", "--on ray"),
}
"""By package: the extra of grasp-marl that brings it, and what needs it."""
SECONDS = 60.0
DIAGNOSE = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("adapter", sys.argv[1])
adapter = importlib.util.module_from_spec(spec)
spec.loader.exec_module(adapter)
print(json.dumps(adapter.diagnose()))
"""


class Finding(NamedTuple):
    """Something that may be missing, and what to do then."""

    what: str
    fine: bool
    words: str
    """Its version, or how to get it."""


def examine() -> list[Finding]:
    """Everything that some command of ours can use."""
    return [the_core(), *(package(name) for name in EXTRAS), ffmpeg(), football(), *starcraft()]


def the_core() -> Finding:
    import jax

    words = f"grasp {__version__}, Python {sys.version.split()[0]}, jax {jax.__version__} on {jax.default_backend()}"
    return Finding("training", True, f"{words}, {len(cores())} cores")


def package(name: str) -> Finding:
    extra, use = EXTRAS[name]
    if importlib.util.find_spec(name) is None:
        return Finding(use, False, f"pip install 'grasp-marl[{extra}]'")
    return Finding(use, True, f"{name} {importlib.metadata.version(name)}")


def ffmpeg() -> Finding:
    path = shutil.which("ffmpeg")
    return Finding("grasp play --out film.mp4", path is not None, path or "install ffmpeg; GIFs need nothing")


def football() -> Finding:
    python = interpreter("football")
    words = "import importlib.metadata as m, gfootball_engine; print(m.version('gfootball'))"
    answer = said(python, "-c", words)
    return Finding("grf/", answer is not None, f"gfootball {answer} in {python}" if answer else "make football")


def starcraft() -> list[Finding]:
    """The adapter's own diagnosis, in each interpreter that would run the game."""
    found = []
    for python in dict.fromkeys(interpreter(family) for family in ("smac", "smacv2")):
        answer = said(python, "-c", DIAGNOSE, str(WORKERS / "smac.py"))
        rows = json.loads(answer) if answer else [["an interpreter", False, f"{python} does not run; see docs/smac.md"]]
        found += [Finding(f"smac/ and smacv2/: {what}", fine, words or python) for what, fine, words in rows]
    return found


def said(*command: str) -> str | None:
    """The last line of an interpreter's output, which finds what a worker of it would; None where it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env=worker_environ(command[0])
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else None


def show(found: list[Finding]) -> None:
    """A line each, unbroken: what is to be typed can be copied."""
    for finding in found:
        print(f"{'yes' if finding.fine else 'no ':<4}{finding.what}: {finding.words}")
