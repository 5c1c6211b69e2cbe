"""`--on ray` on a machine where no Ray cluster is running."""

from pathlib import Path

import pytest
from processes import lines_of, start
from ray_nodes import MARKS, WAIT, until

pytest.importorskip("ray", reason="Ray is not installed: pip install 'grasp-marl[ray]'")

pytestmark = MARKS
WORDS = ["--steps", "160", "--num_envs", "4", "--rollout", "20", "--hidden", "8", "--eval_episodes", "4"]


def clusters() -> set[str]:
    """Ray's head processes on this machine."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"gcs_server" in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                found.add(entry.name)
        except OSError:
            continue
    return found


def test_a_cluster_is_started_for_the_command_and_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")
    assert clusters() == set(), "a cluster is running"
    process = start("train", "mappo", "matrix/climbing", *WORDS, "--on", "ray", "--out", str(tmp_path / "run"))
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, output
    assert output.count("no Ray cluster is running: started one on this machine, which ends with this command") == 1
    assert lines_of(tmp_path / "run")[-1]["kind"] == "absolute"
    until(lambda: clusters() == set())
