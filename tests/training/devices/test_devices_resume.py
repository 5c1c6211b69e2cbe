"""A run may be resumed on another number of devices."""

import json
import signal
import time
from pathlib import Path

import pytest
from processes import WAIT, lines_of, start, wait_for

import grasp
from grasp import cli

SIZES = {
    "num_envs": 8, "rollout": 50, "chunk": 10, "epochs": 4, "hidden": 8, "eval_episodes": 4, "final_episodes": 4,
    "steps": 400 * 30, "eval_interval": 400 * 3,
}  # fmt: skip
WORDS = [part for name, value in SIZES.items() for part in (f"--{name}", str(value))]


def is_held(path: Path) -> bool:
    """Whether a worker of the run is alive."""
    found = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    for entry in found:
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"grasp.launch.worker" in words and str(path).encode() in words:
            return True
    return False


def ended(path: Path) -> None:
    end = time.monotonic() + 20
    while is_held(path):
        assert time.monotonic() < end, "a worker outlived its parent"
        time.sleep(0.02)


@pytest.mark.full("a kill, and two numbers of devices")
def test_a_run_killed_on_two_devices_resumes_on_four_with_the_numbers_of_one(tmp_path):
    one, many = tmp_path / "one", tmp_path / "many"
    grasp.train("grasp-mappo", "probe/mask_death", out=one, parallel="processes", **SIZES)
    process = start("train", "grasp-mappo", "probe/mask_death", "--devices", "2", "--out", str(many), *WORDS)
    wait_for(lambda: len(lines_of(many)) >= 6, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WAIT)
    ended(many)
    stopped = len(lines_of(many))
    process = start("resume", str(many), "--devices", "4")
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, output
    assert json.loads((many / "config.json").read_text())["devices"] == 4
    expected, found = lines_of(one), lines_of(many)
    assert stopped < len(found) == len(expected)
    for line, other in zip(found[: stopped + 6], expected, strict=False):
        assert line.keys() == other.keys()
        for name in {"return_mean", "train_return", "value_loss", "u_norm", "grad_norm", "weights"} & line.keys():
            assert line[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), (line["env_steps"], name)


def test_impossible_numbers_of_devices_are_refused_and_nothing_is_changed(tmp_path, capsys):
    path = tmp_path / "run"
    sizes = SIZES | {"steps": 400}
    grasp.train("mappo", "probe/value", out=path, parallel="processes", **sizes)
    before = (path / "config.json").read_bytes()
    for devices, sentence in (
        ("3", "num_envs 8 cannot be sharded over 3 devices"),
        ("0", "devices must be at least 1"),
    ):
        assert cli.main(["resume", str(path), "--steps", "800", "--devices", devices]) == 2
        assert sentence in capsys.readouterr().err
    assert (path / "config.json").read_bytes() == before
