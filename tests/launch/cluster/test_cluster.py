"""Runs on a real Ray cluster of several nodes, all on this machine, some of which are killed."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import lines_of, start
from ray_nodes import MARKS, SMALL, WAIT, die, held, is_below, until
from rich.console import Console

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'grasp-marl[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402

from grasp import api, cli, reproduction  # noqa: E402
from grasp.launch import ray_cluster  # noqa: E402
from grasp.reproduction.suites import SUITES, Suite, plain  # noqa: E402
from grasp.types import GraspError  # noqa: E402

pytestmark = MARKS
SIZES = {
    "num_envs": 4, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_episodes": 4, "final_episodes": 8,
    "steps": 80 * 450, "eval_interval": 80 * 15, "seeds": 2, "preset": "default",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    """A head that trains nothing and two nodes with a core each."""
    # at Ray's own niceness its workers starve on a machine that is busy
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"})
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL})
    for _ in range(2):
        made.add_node(num_cpus=1, **SMALL)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setitem(SUITES, "small", Suite("a small thing", ("matrix/climbing",), plain("mappo", "grasp-mappo")))


def address_of(cluster) -> str:
    return f"ray://{cluster.address}"


def reproduce(out: Path, **changes) -> str:
    said = io.StringIO()
    reproduction.reproduce("small", out=out, console=Console(width=200, file=said), **SIZES | changes)
    return said.getvalue()


def workers_below(path: Path) -> list[int]:
    """The worker processes of the runs in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"grasp.launch.worker" in words and any(word.startswith(str(path).encode()) for word in words):
                found.append(int(entry.name))
    return found


def node_of(pid: int, cluster):
    return next((node for node in list(cluster.worker_nodes) if is_below(pid, node)), None)


def logs(home: Path) -> list[Path]:
    return sorted(home.rglob("metrics.jsonl"))


def is_over(log: Path) -> bool:
    return '"absolute"' in log.read_text()


def stamps(paths) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def settled(log: Path) -> bytes:
    """The lines up to the last evaluation but one, whose checkpoint is complete."""
    lines = [line for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    evaluations = [place for place, line in enumerate(lines) if json.loads(line)["kind"] == "evaluation"]
    return b"".join(lines[: evaluations[-2] + 1])


def test_a_node_killed_during_a_suite_changes_no_metrics_and_repeats_no_finished_run(cluster, small, tmp_path):
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    reproduce(straight)
    killed: dict[str, object] = {}

    def kill_one() -> None:
        """A node that is in the middle of a run, when another run has ended."""

        def strike() -> None:
            for pid in workers_below(cut):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                index = words.index(b"grasp.launch.worker")
                log = Path(os.fsdecode(words[index + 1]), f"seed-{words[index + 2].decode()}", "metrics.jsonl")
                node = node_of(pid, cluster)
                if node and log.read_bytes().count(b"\n") > 33:
                    with held(node):
                        if is_over(log):
                            continue
                        killed["log"], killed["settled"] = log, settled(log)
                        killed["ended"] = stamps(log for log in logs(cut) if is_over(log))
                        die(node, cluster)
                    return

        until(lambda: ended.is_set() or any(is_over(log) for log in logs(cut)))
        while not killed and not ended.is_set():
            with contextlib.suppress(OSError, ValueError):  # a worker that has just ended
                strike()

    ended = threading.Event()
    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        said = reproduce(cut, on=address_of(cluster))
    finally:
        ended.set()
        killer.join(WAIT)
    cluster.add_node(num_cpus=1, **SMALL)
    assert "the report:" in said
    assert killed["ended"]
    assert stamps(killed["ended"]) == killed["ended"], "a finished run was touched"
    # it was not over when its node died, and a line says when it was written: begun anew, it would have others
    assert killed["log"].read_bytes().startswith(killed["settled"]), "the run on the killed node lost a checkpoint"
    for algo in ("mappo", "grasp-mappo"):
        for seed in (0, 1):
            run = Path("matrix-climbing", algo)
            assert lines_of(cut / run, seed) == lines_of(straight / run, seed)
            assert not (cut / run / f"seed-{seed}" / "claim.json").exists()
            assert not (cut / run / f"seed-{seed}" / "worker.log").exists()
    before = stamps(logs(cut))
    assert reproduce(cut, on=address_of(cluster)).count("already finished") == 2
    assert stamps(logs(cut)) == before


def test_workers_end_with_a_killed_command_and_resume_continues(cluster, tmp_path):
    path, straight = tmp_path / "run", tmp_path / "straight"
    words = [part for name, value in SIZES.items() for part in (f"--{name}", str(value))]
    api.train("mappo", "matrix/climbing", out=straight, console=Console(file=io.StringIO()), **SIZES)
    process = start("train", "mappo", "matrix/climbing", "--on", address_of(cluster), "--out", str(path), *words)
    until(lambda: process.poll() is not None or min(len(lines_of(path, 0)), len(lines_of(path, 1))) > 5)
    assert process.poll() is None, process.communicate()[0]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not workers_below(path))
    assert not all(is_over(log) for log in logs(path))
    process = start("resume", str(path), "--on", address_of(cluster))
    said = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, said
    assert "run directory:" in said
    for seed in (0, 1):
        assert lines_of(path, seed) == lines_of(straight, seed)


def test_a_run_s_own_failure_is_reported_as_locally_and_not_retried(cluster, tmp_path):
    sizes = SIZES | {"steps": 80 * 2, "eval_interval": 80, "seeds": 1}
    run = api.train("mappo", "matrix/climbing", out=tmp_path / "run", console=Console(file=io.StringIO()), **sizes)
    for file in [*run.checkpoints(0).iterdir()]:
        file.write_bytes(b"?")
    run.metrics_log(0).write_text("")
    with pytest.raises(
        GraspError, match="no other checkpoint is left; restore one, or train anew; continue with: grasp"
    ):
        api.resume(run.path, on=address_of(cluster))


@contextlib.contextmanager
def outsider(cluster, prefix: list[str], **surroundings: str):
    """Another node, started by the command that other machines use."""
    known = {node["NodeID"] for node in cluster_nodes(cluster)}
    words = ["--address", cluster.address, "--num-cpus", "1", "--object-store-memory", str(80 << 20), "--block"]
    command = [*prefix, str(Path(sys.executable).with_name("ray")), "start", *words]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=os.environ | surroundings, start_new_session=True, **quiet)
    try:
        until(lambda: process.poll() is not None or {n["NodeID"] for n in cluster_nodes(cluster)} - known)
        assert process.poll() is None, "the node did not start"
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        until(lambda: {node["NodeID"] for node in cluster_nodes(cluster)} <= known)


def cluster_nodes(cluster) -> list[dict]:
    if not ray.is_initialized():
        ray.init(address=cluster.address, log_to_driver=False, logging_level="critical")
    return [node for node in ray.nodes() if node["Alive"]]


def refused(capsys, out: Path, env: str, on: str) -> str:
    """The error of a command that must write nothing."""
    assert cli.main(["train", "mappo", env, "--steps", "3200", "--out", str(out), "--on", on]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert not out.exists()
    return said


def test_a_node_that_does_not_share_the_storage_is_named_before_anything_starts(cluster, tmp_path, capsys):
    hidden = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{tmp_path}" && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*hidden, "true"], capture_output=True).returncode:
        pytest.skip("a folder can be hidden from a process only by root")
    with outsider(cluster, hidden):
        said = refused(capsys, tmp_path / "run", "matrix/climbing", address_of(cluster))
    assert said.startswith("grasp: node ")
    assert f"does not see {tmp_path}; choose an --out on storage that all nodes share" in said
    assert list(tmp_path.iterdir()) == []


def test_a_node_without_the_simulator_is_named_before_anything_starts(cluster, tmp_path, capsys):
    shadow = tmp_path / "shadow" / "jaxmarl"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'jaxmarl'\", name='jaxmarl')")
    with outsider(cluster, [], PYTHONPATH=str(shadow.parent)):
        said = refused(capsys, tmp_path / "run", "mpe/simple_spread", address_of(cluster))
    assert "cannot run mpe/simple_spread: " in said
    assert "grasp-marl[jaxmarl]" in said


def test_a_node_without_grasp_is_named_before_anything_starts(cluster, tmp_path, capsys):
    shadow = tmp_path / "shadow" / "grasp"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'grasp'\", name='grasp')")
    with outsider(cluster, [], PYTHONPATH=str(shadow.parent)):
        said = refused(capsys, tmp_path / "run", "matrix/climbing", address_of(cluster))
    assert re.search(
        r"node .* cannot run grasp \(.*No module named 'grasp'.*\); install there what is installed here", said
    )


def test_a_replay_that_fits_no_node_is_refused(cluster, tmp_path):
    with pytest.raises(
        GraspError, match="the replay buffer does not fit: .* the largest one offers .* smaller --buffer"
    ):
        api.train("qmix", "matrix/climbing", buffer=10**9, out=tmp_path / "run", on=address_of(cluster))
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_does_not_answer_is_one_error(tmp_path, capsys, monkeypatch):
    ray.shutdown()
    began = time.monotonic()
    said = refused(capsys, tmp_path / "run", "matrix/climbing", "ray://127.0.0.1:1")
    assert "no Ray cluster answers at 127.0.0.1:1 (Connection refused); " in said
    assert "ray start --head" in said
    monkeypatch.setattr(ray_cluster, "JOIN_SECONDS", 10.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = refused(capsys, tmp_path / "run", "matrix/climbing", f"ray://{address}")
    assert f"the Ray cluster at {address} did not answer in 10 s; " in said
    assert time.monotonic() - began < 120
