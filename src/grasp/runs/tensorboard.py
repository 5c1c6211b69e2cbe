"""Metrics for TensorBoard (extra `tensorboard`), during training or afterwards. The metrics log stays the source."""

from pathlib import Path
from typing import Any

from grasp.runs import Run
from grasp.runs.metrics_log import read
from grasp.types import GraspError, Kind


class Sink:
    """A reporter that writes every scalar of every record, in one folder per seed under `RUN/tensorboard`."""

    def __init__(self, run: Run):
        self.folder = run.path / "tensorboard"
        self.writers: dict[int, Any] = {}

    def __call__(self, line: dict[str, Any]) -> None:
        if line["kind"] in (Kind.NOTICE, Kind.BEGAN):
            return
        seed = line["seed"]
        if seed not in self.writers:
            # later steps in the file are from before the run was resumed from an earlier checkpoint
            self.writers[seed] = require_tensorboard()(str(self.folder / f"seed-{seed}"), purge_step=line["env_steps"])
        for name, value in line.items():
            if isinstance(value, int | float) and name not in ("seed", "env_steps"):
                self.writers[seed].add_scalar(f"{line['kind']}/{name}", value, line["env_steps"])

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


def export(run: Run) -> Path:
    """Write the metrics logs; returns the folder."""
    sink = Sink(run)
    for seed in run.seeds:
        for line in read(run.metrics_log(seed)).records:
            sink(line)
    sink.close()
    return sink.folder


def require_tensorboard() -> Any:
    """tensorboardX's writer; GraspError where it is not installed."""
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        raise GraspError("TensorBoard files need tensorboardX; type: pip install 'grasp-marl[tensorboard]'") from None
    return SummaryWriter
