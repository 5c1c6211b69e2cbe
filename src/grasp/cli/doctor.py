"""`grasp doctor`: which features work on this machine, and the command that installs what is missing."""

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
    "pettingzoo": ("pettingzoo", "pettingzoo/ and custom PettingZoo environments"),
    "tensorboardX": ("tensorboard", "--tensorboard"),
    "torch": ("torch", "grasp.consensus.torch"),
    "ray": ("ray", "--on ray"),
}
"""By package: the extra of grasp-marl that installs it, and the feature that needs it."""
SECONDS = 60.0
DIAGNOSE = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("adapter", sys.argv[1])
adapter = importlib.util.module_from_spec(spec)
spec.loader.exec_module(adapter)
print(json.dumps(adapter.diagnose()))
"""


class Finding(NamedTuple):
    """A feature and whether it works."""

    what: str
    fine: bool
    words: str
    """The version, or how to install it."""


def examine() -> list[Finding]:
    """All features."""
    return [core(), *(package(name) for name in EXTRAS), ffmpeg(), football(), *starcraft()]


def core() -> Finding:
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
    return Finding("grasp play --out film.mp4", path is not None, path or "install ffmpeg; a GIF does not need it")


def football() -> Finding:
    python = interpreter("football")
    words = "import importlib.metadata as m, gfootball_engine; print(m.version('gfootball'))"
    output = output_of(python, "-c", words)
    return Finding("grf/", output is not None, f"gfootball {output} in {python}" if output else "make football")


def starcraft() -> list[Finding]:
    """The adapter's diagnosis, from each interpreter that would run the game."""
    found = []
    for python in dict.fromkeys(interpreter(family) for family in ("smac", "smacv2")):
        output = output_of(python, "-c", DIAGNOSE, str(WORKERS / "smac.py"))
        rows = json.loads(output) if output else [["an interpreter", False, f"{python} does not run; see docs/smac.md"]]
        found += [Finding(f"smac/ and smacv2/: {what}", fine, words or python) for what, fine, words in rows]
    return found


def output_of(*command: str) -> str | None:
    """The last line that a command prints, with the module paths of a simulator's worker; None if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env=worker_environ(command[0])
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else None


def show(found: list[Finding]) -> None:
    """One unwrapped line each, so that commands can be copied."""
    for finding in found:
        print(f"{'yes' if finding.fine else 'no ':<4}{finding.what}: {finding.words}")
