"""Run directories for the dashboard's tests, with valid and with damaged metrics logs."""

import json
from pathlib import Path
from typing import Any

from grasp.dashboard import monitor
from grasp.dashboard.monitor import Monitor


def iteration(steps: int, num_agents: int = 3, **changes: Any) -> dict[str, Any]:
    pairs = num_agents * (num_agents - 1) // 2
    values = {
        "conflict_rate": 0.5,
        "cosines": [round(-0.9 + 0.1 * k + steps / 1e6, 3) for k in range(pairs)],
        "norms": [1.0 + i for i in range(num_agents)],
        "qp_status": 0,
        "residual": 1e-7,
        "skipped_steps": 0.0,
        "u_ratio": 0.6,
        "weights": [1 / num_agents] * num_agents,
    }
    wall = {"seconds": steps / 1000, "took": 0.1}
    return {"kind": "iteration", "env_steps": steps, "seed": 0} | values | changes | {"wall": wall}


def evaluation(steps: int, value: float | None, kind: str = "evaluation", **changes: Any) -> dict[str, Any]:
    record = {"kind": kind, "env_steps": steps, "seed": 0, "episodes": 32, "return_mean": value}
    return record | changes | {"wall": {"seconds": steps / 1000}}


def as_lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def write_run(
    folder: Path, metrics: dict[int, bytes], algo: str = "grasp-mappo", env: str = "matrix/climbing", **fields
):
    """A run directory with the given metrics log per seed."""
    folder.mkdir(parents=True)
    config = {"format": 1, "algo": algo, "env": env, "steps": 1000, "seeds": max(len(metrics), 1), "seed": 0} | fields
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "versions.json").write_text(json.dumps({"grasp": "0.1.0", "jax": "0.10.2"}))
    for seed, data in metrics.items():
        (folder / f"seed-{seed}").mkdir()
        (folder / f"seed-{seed}" / "metrics.jsonl").write_bytes(data)
    return folder


def history(points: int = 5, per: int = 4, top: float = 10.0, **changes: Any) -> bytes:
    """A seed's metrics: an evaluation at 0 and after every `per` iterations of 100 steps."""
    records = [evaluation(0, 0.0)]
    for i in range(1, points * per + 1):
        records.append(iteration(100 * i, **changes))
        if i % per == 0:
            records.append(evaluation(100 * i, top * i / (points * per)))
    return as_lines(*records)


def refreshed(root: Path) -> Monitor:
    """A monitor that has read everything below the directory."""
    found = Monitor(root)
    found.refresh()
    return found


def only(found: Monitor) -> monitor.RunEntry:
    """The monitor's one run."""
    (entry,) = found.entries.values()
    return entry
