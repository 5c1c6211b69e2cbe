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
                numbers = {name: value for name, value in line.items() if isinstance(value, int | float)}
                scalars = {name: value for name, value in numbers.items() if name not in ("seed", "env_steps")}
                for name, value in scalars.items():
                    writer.add_scalar(f"{line['kind']}/{name}", value, line["env_steps"])
                count += len(scalars)
    return count
