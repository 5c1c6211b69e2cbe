"""Every family of algorithms survives real kills: what it learns and what it replays go on bit for bit."""

import signal

import numpy as np
import pytest
from safetensors.numpy import load_file
from test_resume import WAIT, lines_of, start, wait_for, workers_of

import grasp
from grasp import checkpoint, segments

SIZES = {"num_envs": 4, "rollout": 20, "hidden": 8, "eval_episodes": 4, "final_episodes": 8, "seeds": 1,
         "steps": 80 * 60, "eval_interval": 80 * 7, "parallel": "processes"}  # fmt: skip
OWN = {
    "grasp-happo": {"chunk": 10, "epochs": 2},
    "grasp-qmix": {"buffer": 100, "batch": 8, "interval": 4, "target_interval": 20, "anneal": 2000},
}


@pytest.mark.slow
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
        one, other = load_file(left), load_file(right)
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    ends = [[segments.span_of(p)[1] for p in segments.stored(folder)[-1:]] for folder in folders]
    assert ends[0] == ends[1]
    assert bool(ends[0]) == ("buffer" in options)


def test_a_lost_segment_is_one_sentence_and_nothing_is_touched(tmp_path):
    options = SIZES | OWN["grasp-qmix"] | {"steps": 80 * 14, "parallel": "vmap"}
    run = grasp.train("qmix", "probe/memory", out=tmp_path / "run", **options)
    segments.stored(run.checkpoints(0))[-1].unlink()
    before = run.journal(0).read_bytes()
    with pytest.raises(grasp.GraspError, match=r"lacks some of the episodes .* restore it, or train anew"):
        grasp.resume(run.path, steps=80 * 28)
    assert run.journal(0).read_bytes() == before


def test_a_checkpoint_of_a_q_learner_holds_no_finished_episode(tmp_path):
    options = SIZES | OWN["grasp-qmix"] | {"steps": 80 * 14, "parallel": "vmap"}
    sizes = []
    for buffer in (100, 1000):
        run = grasp.train("qmix", "probe/memory", out=tmp_path / str(buffer), **options | {"buffer": buffer})
        sizes.append(checkpoint.stored(run.checkpoints(0))[-1].stat().st_size)
    assert sizes[0] == sizes[1]
