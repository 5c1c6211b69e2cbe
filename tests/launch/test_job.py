"""One run over the processes of a Slurm or Open MPI job, which here are two processes with such an environment."""

import os
from pathlib import Path

import pytest
from processes import WAIT, lines_of, start

import grasp
from grasp import cli
from grasp.config import configure
from grasp.launch.job import job_of

SIZES = {
    "num_envs": 8, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_episodes": 4, "final_episodes": 4,
    "steps": 160 * 6, "eval_interval": 160 * 3, "devices": 2,
}  # fmt: skip
WORDS = [part for name, value in SIZES.items() for part in (f"--{name}", str(value))]


def slurm(process: int, processes: int = 2, job: int = 1) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(job), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(processes),
        "SLURM_PROCID": str(process), "SLURM_LOCALID": str(process), "SLURM_STEP_NUM_NODES": "1",
    }  # fmt: skip


def ompi(process: int, processes: int = 2, job: int = 1) -> dict[str, str]:
    return {
        "OMPI_MCA_orte_hnp_uri": f"{job * 4096}.0;tcp://127.0.0.1:1", "OMPI_COMM_WORLD_SIZE": str(processes),
        "OMPI_COMM_WORLD_RANK": str(process), "OMPI_COMM_WORLD_LOCAL_RANK": str(process),
    }  # fmt: skip


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    grasp.train("grasp-mappo", "matrix/climbing", out=out, seeds=2, **SIZES)
    return out


def run_job(variables, monkeypatch, *words: str) -> list[str]:
    """What the two processes of a job print."""
    begun = []
    try:
        for process in (0, 1):
            with monkeypatch.context() as patch:
                for name, value in variables(process, job=os.getpid()).items():
                    patch.setenv(name, value)
                begun.append(start(*words))
        outputs = [process.communicate(timeout=WAIT)[0] for process in begun]
        assert [process.returncode for process in begun] == [0, 0], outputs
        return outputs
    finally:
        for process in begun:
            process.kill()
            process.wait(WAIT)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [slurm, ompi])
def test_the_processes_of_a_job_train_the_run_of_one_with_as_many_devices(variables, straight, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "runs" / "grasp-mappo_matrix-climbing"
    first, second = run_job(variables, monkeypatch, "train", "grasp-mappo", "matrix/climbing", "--seeds", "2", *WORDS)
    assert "run directory: " in first
    assert second == "", "only process 0 shows the run"
    for seed in (0, 1):
        assert lines_of(out, seed) == lines_of(straight, seed)
        assert not (out / f"seed-{seed}" / "worker.log").exists()
    assert list((tmp_path / "runs").iterdir()) == [out]
    if variables is slurm:
        run_job(variables, monkeypatch, "resume", str(out), "--steps", str(160 * 9))
        assert [line["env_steps"] for line in lines_of(out, 1) if line["kind"] == "absolute"] == [160 * 9]


def test_what_is_a_job(monkeypatch):
    config = configure("mappo", "matrix/climbing", {"devices": 2})
    assert job_of("local", config) is None
    for variables in (slurm, ompi):
        with monkeypatch.context() as patch:
            for name, value in variables(1).items():
                patch.setenv(name, value)
            assert job_of("local", config) == (variables.__name__, 1, 2)
            assert job_of("ray", config) is None
            assert job_of("local", configure("mappo", "matrix/climbing", {})) is None, "processes train apart"
            patch.setenv("SLURM_NTASKS", "1")
            patch.setenv("OMPI_COMM_WORLD_SIZE", "1")
            assert job_of("local", config) is None


@pytest.mark.parametrize("process", [0, 1])
def test_devices_that_the_processes_cannot_share_evenly_are_refused(process, here, capsys, monkeypatch):
    for name, value in slurm(process, processes=3).items():
        monkeypatch.setenv(name, value)
    assert cli.main(["train", "mappo", "matrix/climbing", "--devices", "2", "--out", "run"]) == 2
    message = capsys.readouterr().err
    assert "--devices 2 cannot be divided among the 3 processes of this job; give --devices 3, or" in message
    assert not Path("run").exists()
