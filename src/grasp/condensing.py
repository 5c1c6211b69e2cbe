"""A run directory without its networks: what comparing and watching need, small enough to commit or to send.

It is a run directory still: `compare` and `watch` read it like any other. Each evaluation keeps its means but not its
episodes; of the iterations a few dozen stay, at even distances, with their numbers but not their lists. What was
there before is told by `condensed.json`: the SHA-256 of every seed's whole metrics.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from grasp.checkpoint import write_atomically
from grasp.journal import read
from grasp.runs import CONDENSED, find
from grasp.types import GraspError

ITERATIONS = 40
"""How many of a seed's iterations stay."""
DIGITS = 6
EPISODES = ("returns", "wins")


def condense(path: str | Path, out: str | Path) -> Path:
    """Write a condensed copy of a run to `out`, which must not exist."""
    run, out = find(path), Path(out)
    if out.exists():
        raise GraspError(f"{out} exists already; choose another --out")
    lines = {seed: read(run.journal(seed)) for seed in run.seeds}
    empty = [seed for seed, found in lines.items() if not any(line["kind"] == "evaluation" for line in found)]
    if empty:
        raise GraspError(f"seed {empty[0]} of {run.path} has no evaluation yet; train it with: grasp resume {run.path}")
    whole = {str(seed): hashlib.sha256(run.journal(seed).read_bytes()).hexdigest() for seed in run.seeds}
    for seed, found in lines.items():
        (out / f"seed-{seed}").mkdir(parents=True)
        kept = b"".join(json.dumps(line).encode() + b"\n" for line in shortened(found))
        write_atomically(out / f"seed-{seed}" / "metrics.jsonl", kept)
    for name in ("config.json", "versions.json"):
        shutil.copyfile(run.path / name, out / name)
    write_atomically(out / CONDENSED, (json.dumps(whole, indent=2) + "\n").encode())
    return out


def shortened(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines that stay, with what stays of them."""
    iterations = [place for place, line in enumerate(lines) if line["kind"] == "iteration"]
    every = -(-len(iterations) // ITERATIONS) or 1
    kept = set(iterations[::-1][::every])  # the last one is among them
    return [_shortened(line) for place, line in enumerate(lines) if line["kind"] != "iteration" or place in kept]


def _shortened(line: dict[str, Any]) -> dict[str, Any]:
    lists = EPISODES if line["kind"] != "iteration" else [name for name in line if isinstance(line[name], list)]
    return {name: _rounded(value) for name, value in line.items() if name not in lists}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
