"""Read run directories, finished or not: configuration, versions, and the evaluations of every seed."""

import dataclasses
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from grasp.analysis.labels import RunIdentity, labels
from grasp.config import EVALUATIONS, RUN_FIELDS, configure, header, planned_steps
from grasp.config.hyperparameters import ALGORITHMS
from grasp.runs import CONDENSED, is_seed, locate, read_object
from grasp.runs.condense import Hashes, hashes_of, sha256
from grasp.runs.metrics_log import is_finished, read
from grasp.types import GraspError, Kind, Metric

METRICS = {"win rate": Metric.WIN_RATE, "return": Metric.RETURN_MEAN}
TRAINING = (Metric.CONFLICT_RATE, Metric.U_RATIO, Metric.NOISE_RATIO, Metric.SIGNAL)
SAMPLED = {
    "win rate": (Metric.SAMPLED_WIN_RATE, Metric.TRAIN_WIN_RATE),
    "return": (Metric.SAMPLED_RETURN_MEAN, Metric.TRAIN_RETURN),
}
"""The same with sampled actions: of an evaluation, and of the episodes of training."""
ABSOLUTE, LAST, WHOLE = "absolute", "last 10 %", "whole run"
SAMPLED_LAST, SAMPLED_WHOLE = "sampled, last 10 %", "sampled, whole run"
SCORES = {
    "absolute": ABSOLUTE, "last": LAST, "whole": WHOLE, "sampled-last": SAMPLED_LAST, "sampled-whole": SAMPLED_WHOLE,
}  # fmt: skip
"""The scores by the values of `--score`."""


class Evaluation(NamedTuple):
    """One line of kind "evaluation" or "absolute"."""

    env_steps: int
    return_mean: float
    win_rate: float | None
    episodes: int | None
    returns: tuple[float, ...] = ()
    """Of each episode, if logged."""
    wins: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class SeedData:
    """The metrics log of one seed so far, in ascending order of env steps."""

    seed: int
    evaluations: tuple[Evaluation, ...]
    absolute: Evaluation | None
    is_finished: bool
    """Whether it has trained for all of the configured steps, by a log without a damaged line."""
    is_damaged: bool
    """Whether its log has a damaged line."""
    training: dict[str, Float[np.ndarray, "2 _"]]
    """Training metric -> (env steps, values), only those in `TRAINING` that the run has."""
    sampled: dict[str, Float[np.ndarray, "2 _"]]
    """One of `METRICS` -> (env steps, values) with sampled actions: of the evaluations or, if these were only greedy,
    of the episodes of training. Only those that the run has."""
    env_steps: int
    sha256: str
    """Of metrics.jsonl as read. If the run is condensed and unchanged since: of the original file, if known."""

    def curve(self, metric: str) -> Float[np.ndarray, "2 _"]:
        """(env steps, values) of one of `METRICS`."""
        points = [(float(e.env_steps), getattr(e, METRICS[metric])) for e in self.evaluations]
        return np.array(points, dtype=float).reshape(-1, 2).T

    def score(self, metric: str, final: str) -> float:
        """The absolute metric (the best policy, evaluated again), the mean of the last tenth of evaluations, or the
        mean of all; the latter two also with sampled actions."""
        values = self.values(metric, final)
        return float(np.mean(values)) if len(values) else math.nan

    def values(self, metric: str, final: str) -> Float[np.ndarray, "_"]:
        """The values whose mean is the score; none if the seed has no such score yet."""
        if final not in (SAMPLED_LAST, SAMPLED_WHOLE):
            return np.array([getattr(line, METRICS[metric]) for line in self.scored(final)], dtype=float)
        steps, values = self.sampled.get(metric, np.zeros((2, 0)))
        reached = steps[-1] if len(steps) else 0.0
        late = values[steps > (0.9 * reached if final == SAMPLED_LAST else 0.0)]
        return late if len(late) else values  # of the untrained team, if there is nothing else

    def scored(self, final: str) -> list[Evaluation]:
        """The greedy evaluations of a score."""
        if final == ABSOLUTE:
            return [] if self.absolute is None else [self.absolute]
        if final == WHOLE:  # higher for faster learning; excludes the untrained evaluation
            return [e for e in self.evaluations if e.env_steps > 0] or list(self.evaluations)
        return list(self.evaluations[-math.ceil(len(self.evaluations) / 10) :])


@dataclass(frozen=True, eq=False)
class RunData:
    """A run directory as read; `seeds` holds only seeds with an evaluation."""

    path: Path
    algo: str
    env: str
    label: str
    config: dict[str, Any]
    versions: dict[str, Any]
    total_steps: int | None
    """Environment steps of a finished seed, if known."""
    seeds: tuple[SeedData, ...]
    warnings: tuple[str, ...]

    @property
    def has_wins(self) -> bool:
        """Whether every evaluation has a win rate."""
        lines = [e for s in self.seeds for e in (*s.evaluations, *([s.absolute] if s.absolute else []))]
        return all(line.win_rate is not None for line in lines)

    @property
    def env_version(self) -> str:
        """The package that implements the environment, and its version."""
        return f"{self.versions.get('env_package', 'unknown package')} {self.versions.get('env_version', '?')}"

    @property
    def command(self) -> str:
        """The command for the same configuration; empty if this version of grasp lacks the algorithm or preset."""
        return _command(self.algo, self.env, self.config)

    @property
    def protocol(self) -> str:
        """How the scores were measured; printed with every table."""
        episodes = span({e.episodes for s in self.seeds for e in s.evaluations}) or self.config.get("eval_episodes")
        points = span({len(s.evaluations) for s in self.seeds})
        gaps = [np.diff(s.curve("return")[0]) for s in self.seeds]
        # The last gap may be shorter: a run need not be a multiple of the interval.
        even = all(np.allclose(g[:-1], np.median(g), rtol=0.1) for g in gaps if len(g) > 1)
        text = f"{episodes or 'unknown'} greedy episodes at {points} {'evenly spaced ' if even else ''}points"
        again = span({s.absolute.episodes for s in self.seeds if s.absolute})
        return f"{text}; best policy re-evaluated on {again} greedy episodes" if again else text


def metric_of(runs: Sequence[RunData]) -> str:
    """The metric in which runs on one environment are compared: the win rate if all of them have it."""
    return "win rate" if all(run.has_wins for run in runs) else "return"


def short(steps: float | int) -> str:
    """1500 -> 1.5k, 2000000 -> 2M."""
    size, unit = (1e6, "M") if abs(steps) >= 1e6 else (1e3, "k") if abs(steps) >= 1e3 else (1.0, "")
    return f"{steps / size:g}{unit}"


def in_figures(x: float, metric: str) -> str:
    """A score with the number of digits of its metric."""
    return f"{x:.3f}" if metric == "win rate" else f"{x:,.2f}"


def in_brackets(interval: tuple[float, float] | None, metric: str) -> str:
    """An interval in brackets; n/a if there is none."""
    return "n/a" if interval is None else f"[{in_figures(interval[0], metric)}, {in_figures(interval[1], metric)}]"


def in_p(p: float) -> str:
    """A p value with two digits."""
    return f"{p:.2g}"


def span(values: set[Any]) -> str:
    known = sorted(v for v in values if v is not None)
    return "" if not known else f"{known[0]:,}" if known[0] == known[-1] else f"{known[0]:,}–{known[-1]:,}"


def load_runs(paths: Sequence[str | Path]) -> list[RunData]:
    """Read every DIR or DIR/seed-S; duplicate paths count once. Raises GraspError if there is nothing to read or if a
    seed would count twice."""
    if not paths:
        raise GraspError("nothing to compare; name at least one run directory, as in 'grasp compare runs/mappo'")
    unique = {Path(path).resolve(): Path(path) for path in paths}
    for whole, path in unique.items():
        if whole.parent in unique and is_seed(whole):
            raise GraspError(f"'{path}' is a seed of '{unique[whole.parent]}', which is named too; name one of them")
    runs = [_load_run(path) for path in unique.values()]
    names = labels([RunIdentity(run.algo, run.env, flat(run.config), _defaults(run.algo), run.path) for run in runs])
    return [dataclasses.replace(run, label=name) for run, name in zip(runs, names, strict=True)]


def _load_run(path: Path) -> RunData:
    directory, only = locate(path)
    text, source = (directory / "config.json").read_text(errors="replace"), str(directory / "config.json")
    config = header(text, source)
    versions = {}
    if (directory / "versions.json").is_file():
        versions = read_object(directory / "versions.json")
    numbers = sorted(int(d.name[5:]) for d in directory.iterdir() if is_seed(d))
    hashes, total = hashes_of(directory), planned_steps(text, source)
    loaded = [_load_seed(directory, n, hashes, total) for n in ([only] if only is not None else numbers)]
    seeds = tuple(seed for seed, _ in loaded if seed.evaluations)
    warnings = [w for _, found in loaded for w in found]
    if not seeds and warnings:
        raise GraspError(f"run '{path}' has no evaluation: {warnings[0]}; restore the file, or leave this run out")
    if not seeds:
        done = max((seed.env_steps for seed, _ in loaded), default=0)
        raise GraspError(
            f"run '{path}' has no evaluation yet ({done:,} of {config.get('steps', 'unknown')} env steps done); "
            f"wait for the first, or continue it with 'grasp resume {directory}'"
        )
    bare = [str(seed.seed) for seed in seeds if hashes is not None and str(seed.seed) not in hashes]
    if bare:
        lacks = f"{CONDENSED} has no SHA-256 of the condensed file of seed {', '.join(bare)}"
        warnings.append(f"{path}: {lacks}, so whether it was changed cannot be checked")
    warnings += [f"{path}: seed {s.seed} has no evaluation and is left out" for s, _ in loaded if s not in seeds]
    if only is None:
        warnings += [f"{path}: seed {n} has not begun and is left out" for n in _planned(config) if n not in numbers]
    algo, env = str(config["algo"]), str(config["env"])
    return RunData(path, algo, env, algo, config, versions, total, seeds, tuple(warnings))


def _planned(config: dict[str, Any]) -> range:
    """The seeds of a run by its configuration; none if the configuration lacks them."""
    first, number = config.get("seed"), config.get("seeds")
    return range(first, first + number) if isinstance(first, int) and isinstance(number, int) else range(0)


def _load_seed(
    directory: Path, seed: int, hashes: dict[str, Hashes] | None, total_steps: int | None
) -> tuple[SeedData, list[str]]:
    """One seed's records and warnings about its file. A partial last line is not damage: its process is still writing
    it, or was killed meanwhile."""
    path = directory / f"seed-{seed}" / "metrics.jsonl"
    content = path.read_bytes() if path.is_file() else b""
    log = read(path, end=len(content))
    records = log.records
    warnings = [f"line {number} of {path} is damaged and is left out" for number in log.damaged]
    if not records and (log.damaged or log.partial):
        warnings = [f"no line of {path} can be read"]
    known, digest = (hashes or {}).get(str(seed)), sha256(content)
    if known and known.kept != digest:
        warnings.append(f"{path} was changed after it was condensed: its SHA-256 is not the one in {CONDENSED}")
    elif known:
        digest = known.whole or digest
    # A resumed run may repeat an evaluation: its checkpoints continue from the later one.
    points = {r["env_steps"]: _evaluation(r) for r in records if r["kind"] == Kind.EVALUATION}
    absolute = [_evaluation(r) for r in records if r["kind"] == Kind.ABSOLUTE]
    training = {}
    for name in TRAINING:
        series = {r["env_steps"]: r[name] for r in records if r["kind"] == Kind.ITERATION and r.get(name) is not None}
        if series:
            training[name] = np.array(sorted(series.items()), dtype=float).T
    sampled = {}
    for metric, (evaluated, trained) in SAMPLED.items():
        for name, kind in ((evaluated, Kind.EVALUATION), (trained, Kind.ITERATION)):
            series = {r["env_steps"]: r[name] for r in records if r["kind"] == kind and r.get(name) is not None}
            if series and metric not in sampled:
                sampled[metric] = np.array(sorted(series.items()), dtype=float).T
    found = SeedData(
        seed,
        evaluations=tuple(points[step] for step in sorted(points)),
        absolute=absolute[-1] if absolute else None,
        is_finished=is_finished(log.last, bool(log.damaged), total_steps),
        is_damaged=bool(log.damaged),
        training=training,
        sampled=sampled,
        env_steps=max((r["env_steps"] for r in records), default=0),
        sha256=digest,
    )
    return found, warnings


def _evaluation(record: dict[str, Any]) -> Evaluation:
    rate, value = record.get(Metric.WIN_RATE), record[Metric.RETURN_MEAN]
    return Evaluation(
        env_steps=record["env_steps"],
        return_mean=math.nan if value is None else float(value),
        win_rate=None if rate is None else float(rate),
        episodes=record.get(Metric.EPISODES),
        returns=_numbers(record.get(Metric.RETURNS)),
        wins=_numbers(record.get(Metric.WINS)),
    )


def _numbers(values: list[Any] | None) -> tuple[float, ...]:
    return tuple(math.nan if value is None else float(value) for value in values or ())


def _command(algo: str, env: str, config: dict[str, Any]) -> str:
    chosen = config | config.get("hyper", {})
    given = {name: chosen[name] for name in ("preset", "operator", "mixer") if name in chosen}
    try:
        same, plain = configure(algo, env, given), configure(algo, env, {})
    except GraspError:
        return ""
    before = {f.name: getattr(same, f.name) for f in RUN_FIELDS} | dataclasses.asdict(same.hyper)
    before |= {"preset": plain.preset, "eval_interval": max(int(chosen.get("steps", plain.steps)) // EVALUATIONS, 1)}
    before |= {name: getattr(plain.hyper, name) for name in given if name != "preset"}
    own = {name: chosen[name] for name in before if name in chosen and chosen[name] != before[name]}
    flags = [f"--{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in own.items()]
    return " ".join(["grasp train", algo, shlex.quote(env), *flags])


def _defaults(algo: str) -> dict[str, Any]:
    """An algorithm's default settings; none if this version of grasp lacks the algorithm."""
    return flat({"hyper": dataclasses.asdict(ALGORITHMS[algo])}) if algo in ALGORITHMS else {}


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one dict with dotted names."""
    found = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
