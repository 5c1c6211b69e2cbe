"""Simulators on several nodes of a real Ray cluster, all on this machine, for one learner; one node is killed."""

import contextlib
import io
import os
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from processes import lines_of, start, wait_for
from ray_nodes import MARKS, SMALL, WAIT, die, held, is_below, until
from rich.console import Console

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'grasp-marl[ray]'")
pytest.importorskip("mpe2", reason="mpe2 is not installed: pip install 'grasp-marl[pettingzoo]'")

from ray.cluster_utils import Cluster  # noqa: E402

import grasp  # noqa: E402
from grasp import algos, runs  # noqa: E402
from grasp.envs import base as envs  # noqa: E402
from grasp.launch import ray_collectors  # noqa: E402
from grasp.runs import restore  # noqa: E402
from grasp.training import runner  # noqa: E402
from grasp.training.remote_rollout import HostPlayer, RolloutRequest  # noqa: E402
from grasp.types import GraspError  # noqa: E402

pytestmark = MARKS
ENV = "pettingzoo/mpe2.simple_spread_v3"
STEPS = 6 * 10
ITERATIONS = 36
SIZES = {
    "num_envs": 6, "nodes": 3, "rollout": 10, "chunk": 5, "epochs": 1, "hidden": 8, "eval_episodes": 2,
    "final_episodes": 2, "steps": STEPS * ITERATIONS, "eval_interval": STEPS * 6, "workers": 1,
}  # fmt: skip
WORDS = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="module")
def cluster():
    """A head without a core and three nodes with one each."""
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


def command_of(entry: Path) -> bytes:
    """The command line of a process; empty if it has exited."""
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def simulators(run: Path) -> set[Path]:
    """The logs that the simulators of a run write to."""
    found = set()
    for entry in processes():
        with contextlib.suppress(OSError):
            if b"serve.py" in command_of(entry):
                log = Path(os.readlink(entry / "fd" / "2"))
                found |= {log} if run in log.parents else set()
    return found


def learner_of(run: Path) -> int:
    for entry in processes():
        words = command_of(entry).split(b"\0")
        if b"grasp.launch.worker" in words and str(run).encode() in words:
            return int(entry.name)
    raise AssertionError("the run has no worker")


def iterations(run: Path) -> list[dict]:
    return [line for line in lines_of(run) if line["kind"] == "iteration"]


def test_every_batch_comes_from_all_nodes_and_the_newest_policy(straight):
    lines = iterations(straight)
    assert [line["env_steps"] for line in lines] == [STEPS * (k + 1) for k in range(ITERATIONS)]
    for line in lines:
        told = {name: line[name] for name in ("nodes", "lost_nodes", "staleness", "played_steps", "restarts")}
        assert told == {"nodes": 3, "lost_nodes": 0, "staleness": 0, "played_steps": STEPS, "restarts": 0}
    assert lines_of(straight)[-1]["kind"] == "absolute"
    until(lambda: not simulators(straight))


def test_a_run_killed_with_its_command_and_resumed_has_the_metrics_of_an_undisturbed_one(cluster, straight, tmp_path):
    run = tmp_path / "run"
    process = begun(cluster, run)
    wait_for(lambda: len(iterations(run)) >= 8, process)
    assert {log.name for log in simulators(run)} == {"simulators.log", "simulators-1.log", "simulators-2.log"}
    process.kill()
    process.communicate()
    until(lambda: not simulators(run))
    assert len(iterations(run)) < ITERATIONS
    ended(start("resume", str(run), "--on", f"ray://{cluster.address}"))
    assert lines_of(run) == lines_of(straight)


def test_more_nodes_than_there_are_is_refused(cluster, tmp_path):
    options = SIZES | {"nodes": 6, "out": tmp_path / "run", "console": Console(file=io.StringIO())}
    with pytest.raises(GraspError, match="the Ray cluster has 3 nodes with a CPU, and --nodes is 6; add one with: ray"):
        grasp.train("mappo", ENV, on=f"ray://{cluster.address}", **options)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def three_nodes(cluster):
    """Three nodes, whatever earlier tests have killed."""
    while len(cluster.worker_nodes) < 3:
        cluster.add_node(num_cpus=1, **SMALL)
    cluster.wait_for_nodes(120)  # and until the cluster knows who is dead


def sent(stored: runs.Run, iteration: int) -> tuple[RolloutRequest, list[HostPlayer]]:
    """A request of a learner before its first iteration, and players in this process for the same parts."""
    host = envs.make(ENV)
    algorithm = algos.make(stored.config, host.spec)
    run = runner.begin_seed(stored.config, host, algorithm, 0)
    request = runner.HostRunner(stored.config, host, algorithm).request(runner.one(run), iteration, True)
    return request, [HostPlayer(stored.config, host, algorithm, number) for number in (1, 2)]


@pytest.mark.usefixtures("three_nodes")
def test_nodes_play_what_this_process_would_and_one_that_hangs_is_dropped(cluster, straight, monkeypatch):
    stored, notices = runs.find(straight), []
    remote = ray_collectors.Collectors(stored, 0, cluster.address, "", notices.append)
    request, players = sent(stored, 0)
    state = algos.make(stored.config, players[0].host.spec).init(restore.seed_keys(0).init)
    stopped = 0
    try:
        remote.request(request)
        found = remote.receive(0)
        key = jax.random.wrap_key_data(jnp.asarray(request.key))
        for part, player in zip(found, players, strict=True):
            expected = player.play(0, state, key, True)
            np.testing.assert_array_equal(part.trajectory.action, expected.trajectory.action)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), part, expected)
        assert (found[0].trajectory.observation.obs != found[1].trajectory.observation.obs).any()
        monkeypatch.setattr(ray_collectors, "START_SECONDS", 3.0)
        actors = [int(entry.name) for entry in processes() if b"ray::Collector" in command_of(entry)]
        stopped = next(pid for pid in actors if any(is_below(pid, node) for node in cluster.worker_nodes))
        os.kill(stopped, signal.SIGSTOP)
        remote.request(sent(stored, 1)[0])
        assert len(remote.receive(1)) == 1
        assert remote.missing() == 1
        assert len(notices) == 1
        assert "no longer collects (did not collect within" in notices[0]["text"]
        assert notices[0]["text"].endswith("training continues with 2 of 3 nodes")
    finally:
        if stopped:
            os.kill(stopped, signal.SIGCONT)
        remote.close()
        for player in players:
            player.close()


@pytest.mark.usefixtures("three_nodes")
@pytest.mark.parametrize("is_learners", [False, True], ids=["another", "the learner's"])
def test_a_node_killed_during_training_makes_the_batch_smaller_and_the_run_continues(
    cluster, straight, tmp_path, is_learners
):
    run = tmp_path / "run"
    process = begun(cluster, run)
    wait_for(lambda: len(iterations(run)) >= 7, process)
    learner = learner_of(run)
    node = next(node for node in cluster.worker_nodes if is_below(learner, node) == is_learners)
    with held(node):
        done = len(iterations(run))
        die(node, cluster)
    said = ended(process)
    # a learner that begins again may be quicker than the cluster's list of nodes, and call the lost one in vain
    assert is_learners or said.count("no longer collects") == 1
    assert said.count("training continues with 2 of 3 nodes") == 1
    lines, before = iterations(run), iterations(straight)
    assert [line["env_steps"] for line in lines] == [line["env_steps"] for line in before], "not one is missing"
    after = next(place for place, line in enumerate(lines) if line["lost_nodes"])
    assert 7 <= done < ITERATIONS
    assert after == done // 6 * 6 if is_learners else after >= done  # a learner goes on from its last evaluation
    assert lines[:after] == before[:after], "nothing that was learned is lost"
    for line in lines[after:]:
        assert (line["nodes"], line["lost_nodes"], line["played_steps"]) == (2, 1, STEPS * 2 // 3)
    assert lines_of(run)[-1]["kind"] == "absolute"
    until(lambda: not simulators(run))
