"""One run over several processes: what they agree on, and those of a Slurm or Open MPI job, which are simulated here by
two processes with the variables of one."""

import os
import socket
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import jax
import pytest
from processes import WAIT, lines_of, start

import grasp
from grasp import cli
from grasp.config import configure
from grasp.launch import worker
from grasp.launch.job import job_of
from grasp.nn import sharding
from grasp.runs import checkpoint
from grasp.types import GraspError

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


@pytest.fixture(autouse=True, scope="module")
def cache():
    """Workers share the tests' compiled programs: ten of them run three programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
        yield


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
            process.stdout.close()


@pytest.mark.full("processes that jax.distributed joins")
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


PEER = """
import sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from grasp.nn import sharding
sharding.handshake(4)
first = jax.process_index() == 0
assert sharding.is_first() == first
assert sharding.agreed(first) and not sharding.agreed(not first)
given = {"key": jax.random.key(3), "zero": -jax.numpy.zeros(2), "text": "é" * 100}
found = sharding.from_first(lambda: given if first else 1 / 0)
assert (jax.random.key_data(found["key"]) == jax.random.key_data(given["key"])).all()
assert jax.numpy.signbit(found["zero"]).all() and found["text"] == given["text"]
assert sharding.from_first(lambda: None) is None
assert jax.device_count() == 4
assert [device.process_index for device in sharding.mesh(2).devices] == [0, 1]
print("done")
"""


def test_the_first_process_decides_for_all_and_each_has_as_many_devices():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": os.environ | flags}
    peers = [subprocess.Popen([sys.executable, "-c", PEER, address, str(rank)], **pipes) for rank in (0, 1)]
    try:
        for peer in peers:
            output = peer.communicate(timeout=WAIT)[0]
            assert "done" in output, output
    finally:
        for peer in peers:
            peer.kill()
            peer.communicate()


def test_workers_shake_hands_before_anything_that_may_take_one_of_them_longer(monkeypatch, capsys):
    def handshake(number):
        raise GraspError(f"handshake of {number}")

    monkeypatch.setattr(sharding, "handshake", handshake)
    options = Namespace(run="no/such/run", seeds="0", devices=4, patience=0.0, ray="@", join="0/2@localhost:1")
    assert worker.train_task(options) == 2
    assert capsys.readouterr().err == "grasp: handshake of 4\n"


def test_whether_to_save_is_agreed_on(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(sharding, "agreed", lambda answer: not asked.append(answer))
    sizes = SIZES | {"steps": 160 * 3, "eval_interval": 160 * 10, "devices": 1}
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "run", parallel="vmap", **sizes)
    assert asked == [False, False], "asked wherever the clock decides, and too little time had passed"
    assert [checkpoint.number_of(path) for path in checkpoint.stored(run.checkpoints(0))] == [2, 3]
