"""The run directory: what `grasp train` writes and every other command takes.

DIR/config.json      the complete configuration
DIR/versions.json    the versions and the machine it ran on
DIR/seed-S/          metrics.jsonl, checkpoints/, snapshots/, policy.safetensors (the best snapshot, at the end);
                     lock, and claim.json while a process writes the folder (grasp.runs.lock)
DIR/condensed.json   only in a copy without networks (grasp.runs.condense): hashes of its metrics logs
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from grasp import config as configs
from grasp.config import Config
from grasp.runs.checkpoint import write_atomically
from grasp.runs.lock import Lock, locked
from grasp.types import EnvSpec, GraspError, suggest
from grasp.version import __version__

CONDENSED = "condensed.json"


@dataclass(frozen=True)
class Run:
    """A run directory and the selected seeds: all, or the one whose folder was named."""

    path: Path
    config: Config
    seeds: tuple[int, ...]

    def folder(self, seed: int) -> Path:
        return self.path / f"seed-{seed}"

    def metrics_log(self, seed: int) -> Path:
        return self.folder(seed) / "metrics.jsonl"

    def checkpoints(self, seed: int) -> Path:
        return self.folder(seed) / "checkpoints"

    def snapshots(self, seed: int) -> Path:
        return self.folder(seed) / "snapshots"

    def policy(self, seed: int) -> Path:
        return self.folder(seed) / "policy.safetensors"

    def need_networks(self) -> None:
        """GraspError for a condensed run."""
        if (self.path / CONDENSED).exists():
            raise GraspError(f"{self.path} is condensed: it has no networks; take the run that it was made from")


def default_path(config: Config) -> Path:
    """`runs/ALGO_ENV`, with a number if that exists."""
    base = f"{config.algo}_{re.sub('[^A-Za-z0-9_.=]', '-', config.env)}"
    number = 1
    while True:
        path = Path("runs") / (base if number == 1 else f"{base}-{number}")
        if not path.exists():
            return path
        number += 1


def create(path: Path, config: Config, spec: EnvSpec) -> Run:
    """A new run directory; an existing one is not touched."""
    recorded = json.dumps(versions(spec), indent=2) + "\n"
    try:
        if path.exists() and not is_unbegun(path):
            raise GraspError(f"{path} exists already; continue it with: grasp resume {path}, or choose another --out")
        path.mkdir(parents=True, exist_ok=True)
        write_atomically(path / "versions.json", recorded.encode())
        write_atomically(path / "config.json", configs.to_json(config).encode())  # last: it makes the directory a run
    except OSError as error:
        raise GraspError(f"cannot write to {path} ({error.strerror}); choose another --out") from None
    return Run(path, config, tuple(config.seed_list))


def is_unbegun(path: Path) -> bool:
    """Whether a directory is what remains of a process that was killed while it created a run."""
    return path.is_dir() and all(re.fullmatch(r"\.?versions\.json.*|\.config\.json.*", p.name) for p in path.iterdir())


def find(path: str | Path) -> Run:
    """The run at a path, which may name the run or one of its seeds."""
    home, seed = locate(Path(path))
    config = configs.from_json((home / "config.json").read_text(errors="replace"), str(home / "config.json"))
    if seed is not None and seed not in config.seed_list:
        raise GraspError(f"{path} is not a seed of its run, which has seeds {config.seed} to {config.seed_list[-1]}")
    return Run(home, config, tuple(config.seed_list) if seed is None else (seed,))


def is_seed(path: Path) -> bool:
    """Whether a path is a folder named as a seed's."""
    return path.is_dir() and re.fullmatch(r"seed-\d+", path.resolve().name) is not None


def locate(path: Path) -> tuple[Path, int | None]:
    """The run directory of a path and, if the path is one seed of it, that seed."""
    if not path.exists():
        siblings = [p.name for p in path.parent.iterdir() if p.is_dir()] if path.parent.is_dir() else []
        prefix = str(path)[: len(str(path)) - len(path.name)]
        hint = suggest(path.name, siblings, "'grasp train ALGO ENV --out DIR' makes one", prefix)
        raise GraspError(f"no run directory '{path}'; {hint}")
    if (path / "config.json").is_file():
        return path, None
    home = next((p for p in list(path.absolute().parents)[:2] if (p / "config.json").is_file()), None)
    if home == path.absolute().parent and is_seed(path):
        return path.absolute().parent, int(path.absolute().name[5:])
    near = [home] if home else []
    for within in ("*", "*/*"):  # runs, or a suite's environments with theirs
        inside = sorted(p.parent for p in path.glob(f"{within}/config.json"))
        near = near or (inside if len(inside) <= 3 else [path / within])
    hint = f"did you mean {' '.join(str(p) for p in near)}?" if near else "name one that 'grasp train' wrote"
    raise GraspError(f"'{path}' is not a run directory (it holds no config.json); {hint}")


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file of a run other than its configuration."""
    try:
        value = json.loads(path.read_text())
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise GraspError(f"'{path}' is not a JSON object; restore it, or leave this run out")
    return value


def extend(run: Run, steps: int) -> Run:
    """The same run with more steps."""
    longer = dataclasses.replace(run.config, steps=steps)
    if set(run.seeds) != set(run.config.seed_list):
        raise GraspError(f"--steps extends all seeds of a run; type: grasp resume {run.path} --steps {steps}")
    if longer.iterations <= run.config.iterations:
        reached = run.config.total_steps
        raise GraspError(
            f"{run.path} has {reached:,} steps already; --steps {steps} would add no iteration of "
            f"{run.config.steps_per_iteration:,}"
        )
    return rewrite(run, longer)


def move(run: Run, devices: int) -> Run:
    """The same run on another number of devices: equal up to the order in which floats are added."""
    if set(run.seeds) != set(run.config.seed_list):
        raise GraspError(f"--devices moves all seeds of a run; type: grasp resume {run.path} --devices {devices}")
    return rewrite(run, spread(run.config, devices))


def spread(config: Config, devices: int) -> Config:
    """The configuration with another number of devices."""
    parallel = "processes" if devices > 1 else config.parallel
    return dataclasses.replace(config, devices=devices, parallel=parallel)


def rewrite(run: Run, config: Config) -> Run:
    """The run with another configuration, for all of its seeds; no other process may be writing it."""
    configs.validate(config)
    with contextlib.ExitStack() as held:
        for seed in run.seeds:
            held.enter_context(writing(run, seed))
        write_atomically(run.path / "config.json", configs.to_json(config).encode())
    return Run(run.path, config, run.seeds)


@contextlib.contextmanager
def writing(run: Run, seed: int, patience: float = 0.0) -> Iterator[Lock]:
    """Hold the lock on a seed's folder, which is made if necessary."""
    folder = run.folder(seed)
    for part in (folder, run.checkpoints(seed), run.snapshots(seed)):
        part.mkdir(exist_ok=True)
    with locked(folder, patience) as lock:
        for scrap in folder.glob("*/.*.safetensors.*"):  # partial files of a killed process
            scrap.unlink(missing_ok=True)
        yield lock


def versions(spec: EnvSpec) -> dict[str, str | int]:
    """What the results depend on besides the configuration."""
    try:
        here = __version__ if spec.package == "grasp" else importlib.metadata.version(spec.package)
    except importlib.metadata.PackageNotFoundError:
        here = "unknown"
    return {
        "grasp": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "env_package": spec.package,
        "env_version": spec.version or here,
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count() or 1,
        "device": jax.default_backend(),
    }


def commit() -> str:
    """The commit of this checkout, marked as dirty if it was edited; "unknown" outside a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def processor() -> str:
    """The processor's model name, where the system has it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
