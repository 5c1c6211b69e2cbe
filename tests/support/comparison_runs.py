"""Synthetic run directories for tests of comparisons."""

import io
import json
from pathlib import Path

from rich.console import Console

from grasp.runs.metrics_log import encode, plain

POINTS = (100, 200, 300, 400)


def write_seed(
    directory: Path, seed: int, scores, wins=True, points=POINTS, absolute=None, training=False, sampled=None
):
    """One seed's metrics; `scores` are its win rates (or returns) at `points`, and `sampled` times as much with sampled
    actions, if given."""
    lines = []

    def line(kind, step, score, episodes):
        scored = {"return_mean": 10 * score} | ({"win_rate": score} if wins else {})
        if sampled is not None:
            scored |= {f"sampled_{name}": sampled * value for name, value in scored.items()}
        record = {"kind": kind, "env_steps": step, "seed": seed, "episodes": episodes}
        lines.append(record | scored | {"wall": {"seconds": 1.0}})

    for step, score in zip(points, scores, strict=False):
        if training:
            values = {"conflict_rate": 0.5 - step / 1000, "u_ratio": 0.6, "train_return": 1.0}
            lines.append({"kind": "iteration", "env_steps": step, "seed": seed} | values)
        line("evaluation", step, score, 32)
    if absolute is not None:
        line("absolute", points[len(scores) - 1], absolute, 320)
    directory = directory / f"seed-{seed}"
    directory.mkdir(parents=True)
    (directory / "metrics.jsonl").write_bytes(b"".join(encode(plain(item)) for item in lines))


def write_run(directory: Path, seeds, algo="mappo", env="smax/3m", version="0.2.0", config=None, **keywords):
    """A run directory; `seeds` maps a seed to its scores, or to (scores, absolute score)."""
    directory.mkdir(parents=True)
    chosen = {"format": 3, "algo": algo, "env": env, "steps": 400, "eval_episodes": 32, "final_episodes": 320}
    (directory / "config.json").write_text(json.dumps(chosen | (config or {})))
    versions = {"grasp": "0.1.0", "env_package": "jaxmarl", "env_version": version}
    (directory / "versions.json").write_text(json.dumps(versions))
    for seed, scores in seeds.items():
        scores, absolute = scores if isinstance(scores, tuple) else (scores, None)
        write_seed(directory, seed, scores, absolute=absolute, **keywords)
    return directory


def ramp(top):
    return [0.25 * top, 0.5 * top, 0.75 * top, top]


def finished(tops):
    return {seed: (ramp(top), top) for seed, top in enumerate(tops)}


def text(renderable, width=200):
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def has(warnings, *words):
    return any(all(word in warning for word in words) for warning in warnings)
