"""Exact resume, with real processes and real kills."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
from processes import WAIT, lines_of, start, wait_for, workers_of
from safetensors.numpy import load_file
from trees import assert_close

import grasp
from grasp import runs
from grasp.runs import checkpoint

SIZES = {
    "num_envs": 4, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_episodes": 4, "final_episodes": 8,
    "steps": 80 * 120, "eval_interval": 80 * 7, "seeds": 2,
}  # fmt: skip


def same_files(one: Path, other: Path) -> None:
    for seed in range(SIZES["seeds"]):
        newest = [checkpoint.stored(p / f"seed-{seed}" / "checkpoints")[-1] for p in (one, other)]
        assert newest[0].name == newest[1].name
        assert_close(*map(load_file, newest))
        assert_close(*(load_file(p / f"seed-{seed}" / "policy.safetensors") for p in (one, other)))


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """An uninterrupted run, as processes."""
    path = tmp_path_factory.mktemp("straight") / "run"
    grasp.train("grasp-mappo", "probe/memory", out=path, parallel="processes", **SIZES)
    return path


def cut_back(folder: Path) -> None:
    """As after a kill: without the newest checkpoint, the policy and the last record."""
    checkpoint.stored(folder / "checkpoints")[-1].unlink()
    (folder / "policy.safetensors").unlink()
    log = folder / "metrics.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize(
    "kills",
    [
        [(31, "worker")],
        pytest.param([(3, "parent"), (31, "worker"), (58, "parent"), (90, "worker")], marks=pytest.mark.full("a soak")),
    ],
    ids=["one kill", "four kills"],
)
def test_a_run_killed_at_any_moment_resumes_bit_for_bit(kills, straight, tmp_path):
    path = tmp_path / "run"
    words = [part for name, value in SIZES.items() for part in (f"--{name}", str(value))]
    process = start("train", "grasp-mappo", "probe/memory", "--parallel", "processes", "--out", str(path), *words)
    for reached, victim in kills:
        wait_for(lambda n=reached: len(lines_of(path, 0)) >= n and bool(workers_of(path)), process)
        if victim == "parent":
            process.send_signal(signal.SIGKILL)
        else:
            for worker in workers_of(path):
                os.kill(worker, signal.SIGKILL)
        output = process.communicate(timeout=WAIT)[0]
        assert process.returncode == (-9 if victim == "parent" else 2), output
        if victim == "worker":
            assert "was killed by signal 9" in output
            assert f"grasp resume {path}" in output.replace("\n", "")
        end = time.monotonic() + 10
        while workers_of(path):
            assert time.monotonic() < end, "a worker outlived its parent"
            time.sleep(0.02)
        process = start("resume", str(path))
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, output
    for name in ("0", "1"):  # a seed resumed alone, by its own folder, is the same program
        cut_back(path / f"seed-{name}")
    process = start("resume", str(path / "seed-1"))
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, output
    process = start("resume", str(path))
    assert process.communicate(timeout=WAIT)[0]
    for seed in range(SIZES["seeds"]):
        assert lines_of(path, seed) == lines_of(straight, seed)
    same_files(path, straight)


@pytest.mark.full("seeds mapped in one program")
def test_seeds_mapped_in_one_program_give_the_same_numbers(straight, tmp_path):
    run = grasp.train("grasp-mappo", "probe/memory", out=tmp_path / "run", parallel="vmap", **SIZES)
    for seed in range(SIZES["seeds"]):
        mapped, alone = lines_of(run.path, seed), lines_of(straight, seed)
        assert [line["kind"] for line in mapped] == [line["kind"] for line in alone]
        # float rounding grows along a trajectory: the first iterations agree closely, later ones need not
        for one, other in zip(mapped[:6], alone[:6], strict=True):
            assert one.keys() == other.keys()
            for name in ("value_loss", "u_norm", "return_mean", "train_return"):
                if name in one:
                    assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5)


ALONE = SIZES | {"seeds": 1, "steps": 80 * 12, "eval_interval": 80 * 3, "parallel": "vmap"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "run"
    grasp.train("mappo", "probe/memory", out=path, **ALONE)
    return path


def test_a_run_stopped_by_ctrl_c_resumes_bit_for_bit(tmp_path):
    options, path = ALONE | {"steps": 80 * 120}, tmp_path / "run"  # long enough to be stopped
    straight = grasp.train("mappo", "probe/memory", out=tmp_path / "straight", **options)
    words = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    process = start("train", "mappo", "probe/memory", "--out", str(path), *words)
    wait_for(lambda: len(lines_of(path, 0)) >= 3, process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 130, output
    assert "continue from the last checkpoint with: grasp resume" in output.replace("\n", " ")
    assert "Traceback" not in output
    assert lines_of(path, 0)[-1]["kind"] != "absolute", "the run had finished before the signal"
    grasp.resume(path)
    assert lines_of(path, 0) == lines_of(straight.path, 0)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run that stopped because its fourth checkpoint could not be written."""
    path, real, count = tmp_path_factory.mktemp("interrupted") / "run", checkpoint.write_atomically, [0]

    def failing(target, data):
        count[0] += target.parent.name == "checkpoints"
        if count[0] > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(target, data)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoint, "write_atomically", failing)
        with pytest.raises(grasp.GraspError) as mistake:
            grasp.train("mappo", "probe/memory", out=path, **ALONE)
    assert "no data lost; fix the cause, then run: grasp resume" in str(mistake.value)
    assert "\n" not in str(mistake.value)
    return path


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system"), "the directory is read-only"),
    ],
)
def test_a_full_or_read_only_disk_loses_nothing(alone, interrupted, tmp_path, monkeypatch, fault, words):
    path = shutil.copytree(interrupted, tmp_path / "run")
    assert words in fault_sentence(path, monkeypatch, fault)
    grasp.resume(path)
    assert lines_of(path, 0) == lines_of(alone, 0)


def fault_sentence(path: Path, monkeypatch, fault) -> str:
    """The error of a resume while the fault lasts."""

    def failing(target, data):
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_atomically", failing)
        with pytest.raises(grasp.GraspError) as mistake:
            grasp.resume(path)
    return str(mistake.value)


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(alone, interrupted, tmp_path, capsys, damage):
    path = shutil.copytree(interrupted, tmp_path / "run")
    newest = checkpoint.stored(path / "seed-0" / "checkpoints")[-1]
    data = bytearray(newest.read_bytes())
    data[-5] ^= 4
    newest.write_bytes({"truncate": data[: len(data) // 2], "flip": data, "empty": b""}[damage])
    capsys.readouterr()
    grasp.resume(path)
    shown = capsys.readouterr().out.replace("\n", "")
    assert newest.name in shown
    assert "using the one before it" in shown
    assert lines_of(path, 0) == lines_of(alone, 0)


def test_where_every_checkpoint_is_damaged_nothing_is_touched(interrupted, tmp_path):
    path = shutil.copytree(interrupted, tmp_path / "run")
    for file in checkpoint.stored(path / "seed-0" / "checkpoints"):
        file.write_bytes(file.read_bytes()[:100])
    before = (path / "seed-0" / "metrics.jsonl").read_bytes()
    with pytest.raises(grasp.GraspError, match="no other checkpoint is left"):
        grasp.resume(path)
    assert (path / "seed-0" / "metrics.jsonl").read_bytes() == before


def test_a_run_whose_configuration_was_edited_is_refused_and_not_touched(interrupted, tmp_path):
    path = shutil.copytree(interrupted, tmp_path / "run")
    config = json.loads((path / "config.json").read_text())
    config["hyper"]["hidden"] = 16
    (path / "config.json").write_text(json.dumps(config))
    before = (path / "seed-0" / "metrics.jsonl").read_bytes()
    with pytest.raises(grasp.GraspError, match=r"does not fit .* was config.json edited"):
        grasp.resume(path)
    assert (path / "seed-0" / "metrics.jsonl").read_bytes() == before


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A finished run whose two seeds are one program."""
    path = tmp_path_factory.mktemp("pair") / "run"
    grasp.train("mappo", "probe/memory", out=path, **ALONE | {"seeds": 2, "steps": 80 * 6, "eval_interval": 80 * 2})
    return path


def test_a_group_resumes_from_the_newest_checkpoint_that_all_seeds_have(pair, tmp_path):
    """Seeds of one program save one after another; after a kill in between their newest checkpoints differ."""
    run = runs.find(shutil.copytree(pair, tmp_path / "run"))
    expected = [lines_of(run.path, seed) for seed in (0, 1)]
    cut_back(run.folder(0))
    checkpoint.stored(run.checkpoints(1))[-1].write_bytes(b"")
    grasp.resume(run.path)
    assert [lines_of(run.path, seed) for seed in (0, 1)] == expected
    for seed in (0, 1):  # killed between the seeds' first checkpoints: all begin again
        for file in checkpoint.stored(run.checkpoints(seed)):
            file.unlink()
        run.metrics_log(seed).write_bytes(b"")
    grasp.resume(run.path)
    assert [lines_of(run.path, seed) for seed in (0, 1)] == expected


def content(run) -> dict[Path, bytes]:
    """Every file of the run but the lock, which stays empty."""
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file() and path.name != "lock"}


def test_a_damaged_line_is_named_before_anything_is_touched_and_the_seeds_can_be_trained_anew(pair, tmp_path):
    """Seed 0 has lost its newest checkpoint, so seed 1's would be removed; seed 0's metrics log is opened first."""
    run = runs.find(shutil.copytree(pair, tmp_path / "run"))
    expected = [lines_of(run.path, seed) for seed in (0, 1)]
    checkpoint.stored(run.checkpoints(0))[-1].unlink()
    lines = run.metrics_log(1).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:20] + b"\0" + lines[2][21:]
    run.metrics_log(1).write_bytes(b"".join(lines))
    before = content(run)
    with pytest.raises(grasp.GraspError) as mistake:
        grasp.resume(run.path)
    folders = f"{run.folder(0)} {run.folder(1)}"  # they train as one
    assert str(mistake.value) == (
        f"line 3 of {run.metrics_log(1)} is damaged; restore the file, or remove {folders} and train anew with: "
        f"grasp resume {run.path}"
    )
    assert content(run) == before
    for seed in (0, 1):
        shutil.rmtree(run.folder(seed))
    grasp.resume(run.path)
    assert [lines_of(run.path, seed) for seed in (0, 1)] == expected


def test_the_best_snapshot_may_be_damaged(alone, tmp_path, capsys):
    run = runs.find(shutil.copytree(alone, tmp_path / "run"))
    best = lines_of(run.path, 0)[-1]["best_env_steps"]
    (run.snapshots(0) / checkpoint.name_of(best)).write_bytes(b"?")
    cut_back(run.folder(0))
    grasp.resume(run.path)
    assert "using the next best" in capsys.readouterr().out.replace("\n", " ")
    assert lines_of(run.path, 0)[-1]["best_env_steps"] != best
    run.policy(0).write_bytes(b"?")
    assert grasp.evaluate(run.path, episodes=2)[0].returned.shape == (2,)


def test_no_random_key_is_used_twice():
    from grasp.runs.restore import seed_keys
    from grasp.training.loop import evaluation_keys

    keys = {"init": [seed_keys(0).init], "arena": [seed_keys(0).arena], "run": [seed_keys(0).run]}
    keys |= {"evaluation": [evaluation_keys([0], i)[0] for i in range(40)]}
    used = [jax.random.key_data(k).tolist() for k in keys["init"] + keys["arena"] + keys["run"] + keys["evaluation"]]
    derived = [jax.random.key_data(k).tolist() for k in jax.random.split(seed_keys(0).arena, 64)]
    derived += [jax.random.key_data(jax.random.fold_in(seed_keys(0).run, i)).tolist() for i in range(64)]
    assert len({tuple(k) for k in used + derived}) == len(used) + len(derived)


OWN = """
import jax.numpy as jnp
from grasp.envs import matrix

def make():
    return matrix.make("climbing")
"""


def test_workers_find_the_user_s_own_environment(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "only_here.py").write_text(OWN)
    sizes = SIZES | {"steps": 80 * 2, "eval_interval": 80}
    script = f"import grasp; grasp.train('mappo', 'only_here:make', out={str(tmp_path / 'run')!r}, **{sizes!r})"
    (tmp_path / "sub" / "go.py").write_text(script)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "sub" / "go.py")], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines_of(tmp_path / "run", 1)[-1]["kind"] == "absolute"
