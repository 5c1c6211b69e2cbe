"""Every family of algorithms resumes bit for bit after a kill, with its replay buffer."""

import shutil
import signal

import numpy as np
import pytest
from processes import WAIT, lines_of, start, wait_for, workers_of
from safetensors.numpy import load_file
from trees import assert_close

import grasp
from grasp import runs
from grasp.launch import memory_check
from grasp.runs import checkpoint, replay_store

SIZES = {"num_envs": 4, "rollout": 20, "hidden": 8, "eval_episodes": 4, "final_episodes": 8, "seeds": 1,
         "steps": 80 * 60, "eval_interval": 80 * 7, "parallel": "processes"}  # fmt: skip
QMIX = {"buffer": 100, "batch": 8, "interval": 4, "target_interval": 20, "anneal": 2000}
OWN = {
    "grasp-happo": {"chunk": 10, "epochs": 2},
    "grasp-qmix": QMIX,
    "ma2e": QMIX | {"pretrain": 800, "embed": 8, "heads": 2, "feedforward": 16, "windows": 4},
}


@pytest.mark.full("three kills of a run of every family")
@pytest.mark.parametrize("algo", OWN)
def test_a_killed_run_resumes_bit_for_bit(algo, tmp_path):
    options, straight, path = SIZES | OWN[algo], tmp_path / "straight", tmp_path / "run"
    grasp.train(algo, "probe/memory", out=straight, **options)
    words = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    process = start("train", algo, "probe/memory", "--out", str(path), *words)
    for reached in (3, 20, 45):
        wait_for(lambda n=reached: len(lines_of(path, 0)) >= n and bool(workers_of(path)), process)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=WAIT)
        process = start("resume", str(path))
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, output
    assert lines_of(path, 0) == lines_of(straight, 0)
    folders = [p / "seed-0" / "checkpoints" for p in (path, straight)]
    for left, right in zip(*(checkpoint.stored(folder)[-1:] for folder in folders), strict=True):
        assert_close(load_file(left), load_file(right))
    ends = [[replay_store.span_of(p)[1] for p in replay_store.stored(folder)[-1:]] for folder in folders]
    assert ends[0] == ends[1]
    assert bool(ends[0]) == ("buffer" in options)


BRIEF = {
    "grasp-happo": SIZES | OWN["grasp-happo"],
    "ma2e": SIZES | OWN["ma2e"] | {"pretrain": 160, "fine_tune": 80, "pretraining_counts": False},
}
"""MA2E pretrains for two iterations, then learns, and trains its autoencoder in every iteration."""


@pytest.mark.parametrize("algo", BRIEF)
def test_a_run_without_its_newest_checkpoint_resumes_bit_for_bit(algo, tmp_path):
    """As after a kill between the last two checkpoints."""
    options = BRIEF[algo] | {"steps": 80 * 6, "eval_interval": 80 * 2, "parallel": "vmap"}
    run = grasp.train(algo, "probe/memory", out=tmp_path / "run", **options)
    lines, newest = lines_of(run.path, 0), checkpoint.stored(run.checkpoints(0))[-1]
    expected = load_file(newest), load_file(run.policy(0))
    if algo == "ma2e":
        last = [line for line in lines if line["kind"] == "iteration"][-1]
        assert last["gradient_steps"] > 0
        assert last["autoencoder_rounds"] > 0
    newest.unlink()
    run.policy(0).unlink()
    log = run.metrics_log(0).read_bytes().splitlines(keepends=True)
    run.metrics_log(0).write_bytes(b"".join(log[:-1]))
    assert checkpoint.stored(run.checkpoints(0)), "there is no checkpoint to resume from"
    grasp.resume(run.path)
    assert lines_of(run.path, 0) == lines
    assert_close((load_file(newest), load_file(run.policy(0))), expected)


SHORT = SIZES | OWN["grasp-qmix"] | {"steps": 80 * 14, "parallel": "vmap"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of QMIX."""
    path = tmp_path_factory.mktemp("trained") / "run"
    grasp.train("qmix", "probe/memory", out=path, **SHORT)
    return path


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it, to be damaged."""
    return runs.find(shutil.copytree(trained, tmp_path / "run"))


def test_a_damaged_segment_is_named_and_the_checkpoint_before_it_used(run, capsys):
    expected = lines_of(run.path, 0)
    newest = replay_store.stored(run.checkpoints(0))[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    run.policy(0).unlink()
    log = run.metrics_log(0).read_bytes().splitlines(keepends=True)
    run.metrics_log(0).write_bytes(b"".join(log[:-1]))
    grasp.resume(run.path)
    shown = capsys.readouterr().out.replace("\n", "")
    assert newest.name in shown
    assert "using the one before it" in shown
    assert lines_of(run.path, 0) == expected


def test_missing_segments_are_one_error_and_nothing_is_touched(run):
    for path in replay_store.stored(run.checkpoints(0)):
        path.unlink()
    before = run.metrics_log(0).read_bytes()
    with pytest.raises(grasp.GraspError, match=r"lacks some of the episodes .* no other checkpoint is left"):
        grasp.resume(run.path, steps=80 * 28)
    assert run.metrics_log(0).read_bytes() == before


def test_a_restarted_run_does_not_read_the_episodes_of_the_previous_one(run):
    expected = lines_of(run.path, 0)
    for path in checkpoint.stored(run.checkpoints(0)):
        path.unlink()
    run.metrics_log(0).write_bytes(b"")
    scrap = run.checkpoints(0) / f".{replay_store.path_of(run.checkpoints(0), 0, 9).name}.123"
    scrap.write_bytes(b"half")
    grasp.resume(run.path)
    assert not scrap.exists()
    assert lines_of(run.path, 0) == expected


def test_a_replay_that_does_not_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    for free, words in ((20_000_000, "give at most --buffer 744"), (200_000, "give a smaller --buffer")):
        monkeypatch.setattr(memory_check, "available", lambda free=free: free)
        with pytest.raises(grasp.GraspError, match=rf"the replay buffer does not fit: .* 1 seed at once, .*{words}"):
            grasp.train("qmix", "mpe/simple_spread", out=tmp_path / "run", **SHORT | {"buffer": 100_000})
    assert not (tmp_path / "run").exists()


def test_a_loaded_team_explores_with_the_stored_epsilon(tmp_path):
    run = grasp.train("qmix", "probe/action", out=tmp_path / "run", **SHORT | {"epsilon": 0.0, "anneal": 1})
    team = grasp.load(run.path)
    actions = [team.act(np.ones((2, 1)), greedy=False).tolist() for _ in range(30)]
    assert all(action == actions[0] for action in actions)


def test_a_checkpoint_of_a_q_learner_holds_no_finished_episode(run, tmp_path):
    larger = grasp.train("qmix", "probe/memory", out=tmp_path / "larger", **SHORT | {"buffer": 10 * SHORT["buffer"]})
    sizes = {checkpoint.stored(r.checkpoints(0))[-1].stat().st_size for r in (run, larger)}
    assert len(sizes) == 1
