"""One run over the processes of a Slurm or Open MPI job: `srun grasp train … --devices N`.

Every process of the job runs the same command. Process 0 has the run directory, trains as it would alone, and shows
progress; its workers and those of the other processes join as jax reads from the environment variables of the job.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from grasp import runs
from grasp.config import Config
from grasp.launch.base import ANY_CORE, Job, mistake_in
from grasp.launch.worker import METHODS
from grasp.runs import Run
from grasp.types import GraspError


def job_of(on: str, config: Config) -> Job | None:
    """The job whose processes train this run together; None where this process trains it alone."""
    if on != "local" or config.devices == 1:
        return None
    for method, (process, processes, others) in METHODS.items():
        if all(name in os.environ for name in (process, processes, *others)) and int(os.environ[processes]) > 1:
            job = Job(method, int(os.environ[process]), int(os.environ[processes]))
            check_processes(config, job)
            return job
    return None


def check_processes(config: Config, job: Job) -> None:
    if config.devices % job.processes:
        nearest = max(round(config.devices / job.processes), 1) * job.processes
        raise GraspError(
            f"--devices {config.devices} cannot be divided among the {job.processes} processes of this job; give "
            f"--devices {nearest}, or start another number of processes"
        )


def join(job: Job, config: Config, tasks: int) -> Run:
    """Run one worker per task of process 0, in sequence. Returns the run, which only process 0 writes."""
    path = None
    for _ in range(tasks):
        path = train_one(job, config)
    assert path is not None
    seen = path.exists()
    return runs.find(path) if seen else Run(path, config, tuple(config.seed_list))


def train_one(job: Job, config: Config) -> Path:
    """Run a worker that receives its task from process 0. Returns the path of the run there."""
    name = f"process {job.process} of {job.processes}"
    with tempfile.NamedTemporaryFile("w+", prefix="grasp-", suffix=".log") as log:
        command = [sys.executable, "-P", "-m", "grasp.launch.worker", "-", "-", ANY_CORE, str(config.devices)]
        paths = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        streams = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log}
        with subprocess.Popen([*command, "--join", job.method], **streams, env=paths) as worker:
            try:
                code = worker.wait()
            finally:
                worker.kill()
        log.seek(0)
        lines = log.read().splitlines()
    if code == 2:
        raise GraspError(f"{name}: {mistake_in(lines)}")
    if code:
        last = "".join(lines[-1:])
        raise GraspError(f"{name} failed with exit code {code}, or another process did ({last}); see process 0")
    return Path(next(line for line in lines if line.startswith("run: ")).removeprefix("run: "))
