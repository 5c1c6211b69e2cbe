"""A copy of a run's metrics for TensorBoard (extra `tensorboard`): the journal stays the source."""

from pathlib import Path

from grasp.journal import read
from grasp.runs import Run
from grasp.types import GraspError


def export(run: Run, out: Path) -> int:
    """Write every seed's scalars as event files, one folder a seed; returns how many were written."""
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        raise GraspError("this needs tensorboardX; type: pip install 'grasp-marl[tensorboard]'") from None
    count = 0
    for seed in run.seeds:
        with SummaryWriter(str(out / f"seed-{seed}")) as writer:
            for line in read(run.journal(seed)):
                scalars = {name: v for name, v in line.items() if isinstance(v, int | float) and name != "seed"}
                step = scalars.pop("env_steps")
                for name, value in scalars.items():
                    writer.add_scalar(f"{line['kind']}/{name}", value, step)
                count += len(scalars)
    return count
