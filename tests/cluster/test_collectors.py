"""Simulators on the nodes of a real Ray cluster, all on this machine, play for one learner; one node is killed."""

import contextlib
import io
import os
import time
from pathlib import Path

import pytest
from processes import lines_of, start, wait_for
from rich.console import Console

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'grasp-marl[ray]'")
pytest.importorskip("mpe2", reason="mpe2 is not installed: pip install 'grasp-marl[pettingzoo]'")

from ray.cluster_utils import Cluster  # noqa: E402

import grasp  # noqa: E402
from grasp.types import GraspError  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("cluster"),
    # ray's own, in its own modules
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ENV = "pettingzoo/mpe2.simple_spread_v3"
SMALL = {"object_store_memory": 80 << 20}
STEPS = 6 * 10
SIZES = {
    "num_envs": 6, "nodes": 3, "rollout": 10, "chunk": 5, "epochs": 1, "hidden": 8, "eval_episodes": 2,
    "final_episodes": 2, "steps": STEPS * 18, "eval_interval": STEPS * 6, "workers": 1,
}  # fmt: skip
WORDS = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
WAIT = 600.0


@pytest.fixture(scope="module")
def cluster():
    """A head that plays nothing and three nodes with a core each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL})
    for _ in range(3):
        made.add_node(num_cpus=1, **SMALL)
    yield made
    ray.shutdown()
    made.shutdown()


def begun(cluster, out: Path):
    return start("train", "mappo", ENV, *WORDS, "--on", f"ray://{cluster.address}", "--out", str(out))


def ended(process) -> str:
    said = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def straight(cluster, tmp_path_factory):
    """An undisturbed run."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    ended(begun(cluster, out))
    return out


def processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def simulators(run: Path) -> set[Path]:
    """The logs that a run's simulators hold open."""
    found = set()
    for entry in processes():
        with contextlib.suppress(OSError):
            if b"serve.py" in (entry / "cmdline").read_bytes():
                log = Path(os.readlink(entry / "fd" / "2"))
                found |= {log} if run in log.parents else set()
    return found


def learner_of(run: Path) -> int:
    for entry in processes():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"grasp.launch.worker" in words and str(run).encode() in words:
                return int(entry.name)
    raise AssertionError("nobody learns")


def is_below(pid: int, node) -> bool:
    """Whether a node's raylet has started a process."""
    while pid > 1 and pid != node.all_processes["raylet"][0].process.pid:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid > 1


def until(condition) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "nothing happened for too long"
        time.sleep(0.02)


def iterations(run: Path) -> list[dict]:
    return [line for line in lines_of(run) if line["kind"] == "iteration"]


def test_every_batch_comes_from_all_nodes_and_the_newest_policy(straight):
    lines = iterations(straight)
    assert [line["env_steps"] for line in lines] == [STEPS * (k + 1) for k in range(18)]
    for line in lines:
        told = {name: line[name] for name in ("nodes", "lost_nodes", "staleness", "played_steps", "restarts")}
        assert told == {"nodes": 3, "lost_nodes": 0, "staleness": 0, "played_steps": STEPS, "restarts": 0}
    assert lines_of(straight)[-1]["kind"] == "absolute"
    until(lambda: not simulators(straight))


def test_a_run_killed_with_its_command_and_resumed_repeats_the_undisturbed_one(cluster, straight, tmp_path):
    run = tmp_path / "run"
    process = begun(cluster, run)
    wait_for(lambda: len(iterations(run)) >= 8, process)
    assert {log.name for log in simulators(run)} == {"simulators.log", "simulators-1.log", "simulators-2.log"}
    process.kill()
    process.communicate()
    until(lambda: not simulators(run))
    assert len(iterations(run)) < 18
    ended(start("resume", str(run), "--on", f"ray://{cluster.address}"))
    assert lines_of(run) == lines_of(straight)


def test_more_nodes_than_there_are_is_refused(cluster, tmp_path):
    options = SIZES | {"nodes": 6, "out": tmp_path / "run", "console": Console(file=io.StringIO())}
    with pytest.raises(GraspError, match="the Ray cluster has 3 nodes with a CPU, and --nodes is 6; add one with: ray"):
        grasp.train("mappo", ENV, on=f"ray://{cluster.address}", **options)
    assert not (tmp_path / "run").exists()


def test_a_node_killed_in_the_middle_shrinks_the_batch_and_the_run_goes_on(cluster, straight, tmp_path):
    run = tmp_path / "run"
    process = begun(cluster, run)
    wait_for(lambda: len(iterations(run)) >= 3, process)
    learner = learner_of(run)
    node = next(node for node in cluster.worker_nodes if not is_below(learner, node))
    cluster.remove_node(node, allow_graceful=False)
    said = ended(process)
    assert said.count("no longer plays") == 1
    assert "training goes on with 2 of 3 nodes" in said
    lines, before = iterations(run), iterations(straight)
    assert [line["env_steps"] for line in lines] == [line["env_steps"] for line in before], "not one is missing"
    after = next(place for place, line in enumerate(lines) if line["lost_nodes"])
    assert 3 <= after < 18
    assert lines[:after] == before[:after], "nothing that was learned is lost"
    for line in lines[after:]:
        assert (line["nodes"], line["lost_nodes"], line["played_steps"]) == (2, 1, STEPS * 2 // 3)
    assert lines_of(run)[-1]["kind"] == "absolute"
    until(lambda: not simulators(run))
