"""One run over several nodes of a real Ray cluster, all on this machine, of which some are killed."""

import contextlib
import io
import os
from pathlib import Path

import pytest
from processes import lines_of, start, wait_for
from ray_nodes import MARKS, SMALL, WAIT, die, held, is_below, until
from rich.console import Console
from trees import assert_close

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'grasp-marl[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

import grasp  # noqa: E402
from grasp.types import GraspError  # noqa: E402

pytestmark = MARKS
ITERATIONS = 60
SIZES = {
    "num_envs": 8, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_episodes": 4, "final_episodes": 4,
    "steps": 160 * ITERATIONS, "eval_interval": 160 * 6, "devices": 2,
}  # fmt: skip
WORDS = [part for name, value in SIZES.items() for part in (f"--{name}", str(value))]
LINES = ITERATIONS + ITERATIONS // 6 + 2


@pytest.fixture(scope="module")
def cluster():
    """A head that trains nothing and three nodes with a core each."""
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"})
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL})
    for _ in range(3):
        made.add_node(num_cpus=1, **SMALL)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The run of one machine with as many devices."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    grasp.train("grasp-mappo", "matrix/climbing", out=out, console=Console(file=io.StringIO()), **SIZES)
    assert len(lines_of(out)) == LINES
    return out


def begun(cluster, out: Path):
    return start(
        "train", "grasp-mappo", "matrix/climbing", *WORDS, "--on", f"ray://{cluster.address}", "--out", str(out)
    )


def finished(process) -> str:
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, output
    return output


def workers_of(run: Path) -> dict[int, int]:
    """The workers that train a run: their process ids by their number among them."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"grasp.launch.worker" in words and str(run).encode() in words:
                own = words[words.index(b"--join") + 1] if b"--join" in words else b"0/1"
                found[int(own.partition(b"/")[0])] = int(entry.name)
    return found


def kill_node_of(number: int, run: Path, cluster) -> int:
    """Kill the node of one of a run's workers; returns how many lines the run had then."""
    until(lambda: number in workers_of(run))
    pid = workers_of(run)[number]
    node = next(node for node in list(cluster.worker_nodes) if is_below(pid, node))
    with held(node):
        done = len(lines_of(run))
        die(node, cluster)
    return done


def same_files(one: Path, other: Path) -> None:
    """The same snapshots and policy, to the last bit."""
    names = [path.relative_to(one) for path in one.glob("seed-0/**/*.safetensors")]
    assert len(names) > ITERATIONS // 6
    assert_close(*({str(name): load_file(run / name) for name in names} for run in (other, one)))


@pytest.mark.parametrize("number", [1, 0], ids=["another node", "the node of process 0"])
def test_a_run_over_two_nodes_is_that_of_one_machine_through_the_loss_of_either(cluster, straight, tmp_path, number):
    while len(cluster.worker_nodes) < 3:
        cluster.add_node(num_cpus=1, **SMALL)
    cluster.wait_for_nodes(120)
    run = tmp_path / "run"
    process = begun(cluster, run)
    wait_for(lambda: len(lines_of(run)) >= 10, process)
    assert set(workers_of(run)) == {0, 1}
    done = kill_node_of(number, run, cluster)
    output = finished(process)
    assert 10 <= done < LINES
    assert output.count("training continues from the last checkpoint") == 1
    assert "the remaining nodes have" not in output
    assert lines_of(run) == lines_of(straight)
    same_files(straight, run)
    assert not list(run.glob("seed-0/*.log"))
    assert not (run / "seed-0" / "claim.json").exists()


def test_a_run_goes_on_with_fewer_devices_where_no_other_node_is_left(cluster, straight, tmp_path):
    while len(cluster.worker_nodes) > 2:
        cluster.remove_node(next(iter(cluster.worker_nodes)))
    cluster.wait_for_nodes(120)
    run = tmp_path / "run"
    process = begun(cluster, run)
    wait_for(lambda: len(lines_of(run)) >= 10, process)
    done = kill_node_of(1, run, cluster)
    output = finished(process)
    assert "the remaining nodes have 1 of 2 devices; training on these" in output
    found, expected = lines_of(run), lines_of(straight)
    assert len(found) == len(expected)
    settled = done // 7 * 7 - 7  # up to a checkpoint before the loss
    assert found[: max(settled, 1)] == expected[: max(settled, 1)]
    for line, other in zip(found[:20], expected[:20], strict=True):
        assert line.keys() == other.keys()
        for name in {"return_mean", "train_return", "value_loss", "u_norm", "weights"} & line.keys():
            assert line[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), (line["env_steps"], name)


def test_devices_that_the_nodes_cannot_give_are_refused(cluster, tmp_path):
    nodes = len(cluster.worker_nodes)
    sizes = SIZES | {"devices": 8, "out": tmp_path / "run", "console": Console(file=io.StringIO())}
    message = (
        f"--devices 8 cannot be divided evenly among .*, which have .* CPUs; give at most --devices {min(nodes, 2)}"
    )
    with pytest.raises(GraspError, match=message):
        grasp.train("mappo", "matrix/climbing", on=f"ray://{cluster.address}", **sizes)
    assert not (tmp_path / "run").exists()
