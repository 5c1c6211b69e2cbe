"""A run directory without its networks: what `compare` and `watch` need, small enough to commit or send.

Both read it like any other run directory. Each evaluation keeps its means but not its episodes; of the iterations a few
dozen are kept, at even intervals, with their scalars but not their lists. `condensed.json` has two SHA-256 hashes per
seed: of the original metrics log, which identifies it, and of the condensed one, which shows later changes.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from grasp.runs import CONDENSED, find, read_object
from grasp.runs.checkpoint import write_atomically
from grasp.runs.metrics_log import damage, encode, read
from grasp.types import GraspError, Kind, Metric

ITERATIONS = 40
"""Iterations kept per seed."""
DIGITS = 6
EPISODES = (Metric.RETURNS, Metric.WINS)


class Hashes(NamedTuple):
    """SHA-256 hashes of a seed's metrics log."""

    whole: str | None
    """Of the original; None where it was lost and the seed recovered from tables."""
    kept: str


def condense(path: str | Path, out: str | Path) -> Path:
    """Write a condensed copy of a run to `out`, which must not exist."""
    run, out = find(path), Path(out)
    if out.exists():
        raise GraspError(f"{out} exists already; choose another --out")
    run.need_networks()  # the original metrics log of a condensed run is not there to be hashed
    logs = {seed: read(run.metrics_log(seed)) for seed in run.seeds}
    damages = [damage(run.metrics_log(seed), log) for seed, log in logs.items() if log.damaged]
    if damages:
        raise GraspError(f"{damages[0]}; restore the file before condensing {run.path}")
    lines = {seed: log.records for seed, log in logs.items()}
    empty = [seed for seed, found in lines.items() if not any(line["kind"] == Kind.EVALUATION for line in found)]
    if empty:
        raise GraspError(f"seed {empty[0]} of {run.path} has no evaluation yet; train it with: grasp resume {run.path}")
    hashes = {}
    for seed, found in lines.items():
        (out / f"seed-{seed}").mkdir(parents=True)
        kept = b"".join(map(encode, shortened(found)))
        write_atomically(out / f"seed-{seed}" / "metrics.jsonl", kept)
        hashes[str(seed)] = Hashes(sha256(run.metrics_log(seed).read_bytes()), sha256(kept))._asdict()
    for name in ("config.json", "versions.json"):
        shutil.copyfile(run.path / name, out / name)
    write_atomically(out / CONDENSED, (json.dumps(hashes, indent=2) + "\n").encode())
    return out


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hashes_of(directory: Path) -> dict[str, Hashes] | None:
    """The hashes of a condensed run by seed; None where it is not condensed. Seeds with only the original's hash are
    left out: older versions wrote no other."""
    if not (directory / CONDENSED).is_file():
        return None
    stored = read_object(directory / CONDENSED).items()
    return {seed: Hashes(of.get("whole"), of["kept"]) for seed, of in stored if isinstance(of, dict) and "kept" in of}


def shortened(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records that are kept, shortened."""
    iterations = [index for index, line in enumerate(lines) if line["kind"] == Kind.ITERATION]
    every = -(-len(iterations) // ITERATIONS) or 1
    kept = set(iterations[::-1][::every])  # with the last one
    return [_shortened(line) for index, line in enumerate(lines) if line["kind"] != Kind.ITERATION or index in kept]


def _shortened(line: dict[str, Any]) -> dict[str, Any]:
    lists = EPISODES if line["kind"] != Kind.ITERATION else [name for name in line if isinstance(line[name], list)]
    return {name: _rounded(value) for name, value in line.items() if name not in lists}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
