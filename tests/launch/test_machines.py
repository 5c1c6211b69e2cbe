"""One run on several machines. Here they are processes of one machine, which find each other at its own address."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from paths import REPOSITORY
from processes import WAIT, lines_of, start, wait_for
from safetensors.numpy import load_file

import grasp
from grasp import api, cli
from grasp.config import configure
from grasp.launch import assistant, head, links, machines, worker
from grasp.launch.base import Plan
from grasp.launch.head import leading
from grasp.launch.local import resolved
from grasp.launch.machines import Place, place_of
from grasp.nn import sharding
from grasp.runs import checkpoint
from grasp.types import GraspError

SIZES = {
    "num_envs": 8, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_episodes": 4, "final_episodes": 4,
    "steps": 160 * 24, "eval_interval": 160 * 4,
}  # fmt: skip
WORDS = [part for name, value in SIZES.items() for part in (f"--{name}", str(value))]
TRAIN = ["train", "grasp-mappo", "matrix/climbing", "--devices", "2", "--seeds", "2", *WORDS]


@pytest.fixture
def two():
    """The same command on both machines; only the first knows of the run directory."""
    begun = []

    def both(port: int, out: Path, *words: str) -> list[subprocess.Popen]:
        where = ["--out", str(out)] if words[0] == "train" else []
        begun.append(start(*words, *where, "--on", f"0/2@127.0.0.1:{port}"))
        begun.append(start(*words, "--on", f"1/2@127.0.0.1:{port}"))
        return begun[-2:]

    yield both
    for process in begun:
        process.kill()
        process.wait(WAIT)
        process.stdout.close()


def ended(process: subprocess.Popen) -> str:
    """A command's last line, once it has ended as it should where another machine is lost."""
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 2, output
    assert "Traceback" not in output
    return output.strip().splitlines()[-1]


def same_files(one: Path, other: Path) -> None:
    """Everything that was learned, to the last bit."""
    names = [path.relative_to(one) for path in one.glob("seed-*/**/*.safetensors")]
    assert len(names) >= 2 * (checkpoint.KEEP + 7 + 1)
    for name in names:
        expected, found = load_file(one / name), load_file(other / name)
        assert expected.keys() == found.keys()
        assert all((expected[leaf] == found[leaf]).all() for leaf in expected), name


@pytest.mark.slow
def test_two_machines_train_the_run_of_one_through_the_loss_of_each(two, tmp_path, monkeypatch):
    # nine workers of two programs: none compiles what another has compiled
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(REPOSITORY / ".pytest_cache" / "jax"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
    one, many = tmp_path / "one", tmp_path / "many"
    grasp.train("grasp-mappo", "matrix/climbing", out=one, devices=2, seeds=2, **SIZES)
    port = links.free_port()
    first, second = two(port, many, *TRAIN)
    wait_for(lambda: len(lines_of(many)) >= 12, first)
    second.send_signal(signal.SIGKILL)
    began = time.monotonic()
    said = ended(first)
    assert time.monotonic() - began < 30
    assert said.startswith("grasp: machine 1 of 2 (")
    assert said.endswith(f"is gone; continue with: grasp resume {many}")
    second.communicate(timeout=WAIT)

    # on again from a checkpoint of which the second has nothing, and into the second seed
    first, second = two(port, many, "resume", str(many))
    wait_for(lambda: len(lines_of(many, 1)) >= 12, first)
    assert lines_of(many) == lines_of(one)
    first.send_signal(signal.SIGKILL)
    assert f"the head at 127.0.0.1:{port} is gone or silent" in ended(second)
    first.communicate(timeout=WAIT)

    process = start("resume", str(many))
    output = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, output
    assert [lines_of(many, seed) for seed in (0, 1)] == [lines_of(one, seed) for seed in (0, 1)]
    same_files(one, many)


PEER = """
import sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from grasp import devices
devices.meet(4)
first = jax.process_index() == 0
assert devices.agreed(first) and not devices.agreed(not first)
assert jax.device_count() == 4
assert [device.process_index for device in devices.mesh(2).devices] == [0, 1]
print("done")
"""


@pytest.mark.slow
def test_the_first_machine_decides_and_each_gives_as_many_devices():
    address = f"127.0.0.1:{links.free_port()}"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": os.environ | flags}
    peers = [subprocess.Popen([sys.executable, "-c", PEER, address, str(rank)], **pipes) for rank in (0, 1)]
    try:
        for peer in peers:
            output = peer.communicate(timeout=120)[0]
            assert "done" in output, output
    finally:
        for peer in peers:
            peer.kill()


def test_workers_meet_before_anything_that_may_take_one_of_them_longer(monkeypatch, capsys):
    def met(number):
        raise GraspError(f"met with {number}")

    monkeypatch.setattr(sharding, "meet", met)
    assert worker.train_task("no/such/run", [0], 4, 0.0, "", "0/2", lambda _: None) == 2
    assert capsys.readouterr().err == "grasp: met with 4\n"


def test_whether_to_save_is_agreed_on(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(sharding, "agreed", lambda answer: not asked.append(answer))
    sizes = SIZES | {"steps": 160 * 3, "eval_interval": 160 * 10}
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "run", parallel="vmap", **sizes)
    assert asked == [False, False], "asked wherever the clock decides, and the clock had not struck"
    assert [checkpoint.number_of(path) for path in checkpoint.stored(run.checkpoints(0))] == [2, 3]


def config_of(**options):
    return resolved(configure("mappo", "matrix/climbing", SIZES | {"devices": 2} | options))


@contextlib.contextmanager
def waiting_head(place: Place, config):
    """A head that waits for its machines, in a thread; what it complains of is in the list."""
    complaints = []

    def wait():
        with contextlib.suppress(GraspError), leading(place, lambda _: None) as crew:
            try:
                crew.check([Plan(Path("nowhere"), config, 1)])
            except GraspError as mistake:
                complaints.append(str(mistake))
                raise

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield complaints
    thread.join(WAIT)
    assert not thread.is_alive()


@pytest.fixture
def place(monkeypatch):
    monkeypatch.setattr(head, "MEET_SECONDS", 20.0)
    monkeypatch.setattr(assistant, "MEET_SECONDS", 20.0)
    return Place(0, 2, "127.0.0.1", links.free_port())


@pytest.mark.parametrize(
    ("there", "options", "sentence"),
    [
        ((1, 2), {"epochs": 3}, "was given epochs 3, and the head 2; type the same options on all machines"),
        ((1, 2), {"seed": 5}, "was given seed 5, and the head 0"),
        ((1, 3), {"devices": 6, "num_envs": 12}, "is not one of 2; type the same number of machines on all of them"),
    ],
)
def test_machines_that_would_train_something_else_are_refused_on_both_sides(place, there, options, sentence):
    with waiting_head(place, config_of()) as complaints, pytest.raises(GraspError) as mistake:
        assistant.assist(place._replace(number=there[0], machines=there[1]), config_of(**options), lambda _: None)
    assert sentence in str(mistake.value)
    assert str(mistake.value).startswith(f"machine 1 of {there[1]} (")
    assert complaints == [str(mistake.value)]


def test_other_versions_are_refused(place, monkeypatch):
    monkeypatch.setattr(assistant, "alike", lambda: machines.alike() | {"jax": "0.0.1"})
    with waiting_head(place, config_of()) as complaints, pytest.raises(GraspError, match="has jax 0.0.1, and the head"):
        assistant.assist(place._replace(number=1), None, lambda _: None)
    assert len(complaints) == 1


def test_a_machine_that_cannot_play_says_why(place):
    config = dataclasses.replace(config_of(), env="smax/no_such_map")
    with waiting_head(place, config) as complaints, pytest.raises(GraspError, match="cannot take part: .*no_such_map"):
        assistant.assist(place._replace(number=1), None, lambda _: None)
    assert "no_such_map" in complaints[0]


def test_a_number_is_given_once_and_strangers_are_let_go(place):
    three = place._replace(machines=3)
    config = config_of(devices=3, num_envs=6)
    with waiting_head(three, config) as complaints:
        with contextlib.closing(assistant.knock(three)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
        first = threading.Thread(target=helped, args=(three._replace(number=1), config), daemon=True)
        first.start()
        second = threading.Thread(target=helped, args=(three._replace(number=1), config), daemon=True)
        second.start()
    assert "is there already" in complaints[0]
    for thread in (first, second):
        thread.join(WAIT)
        assert not thread.is_alive(), "everybody is told that it is over"


def helped(place, config):
    with contextlib.suppress(GraspError):
        assistant.assist(place, config, lambda _: None)


def test_who_does_not_come_is_named(place, monkeypatch):
    monkeypatch.setattr(head, "MEET_SECONDS", 0.2)
    monkeypatch.setattr(assistant, "MEET_SECONDS", 0.2)
    with pytest.raises(GraspError, match=r"machine 1 of 2 did not come to .* with --on 1/2@127.0.0.1"):
        head.Head(place, lambda _: None).check([Plan(Path("nowhere"), config_of(), 1)])
    with pytest.raises(GraspError, match=r"no head answers at .*; type the same command there with --on 0/2@127.0.0.1"):
        assistant.assist(place._replace(number=1), None, lambda _: None)
    with socket.create_server(("", place.port)), pytest.raises(GraspError, match="cannot wait for machines at port"):
        head.Head(place, lambda _: None).check([Plan(Path("nowhere"), config_of(), 1)])


def test_a_name_that_means_only_the_machine_itself_is_refused(monkeypatch):
    server = socket.create_server(("127.0.0.1", 0))
    with server, contextlib.closing(links.Link(socket.create_connection(server.getsockname()))) as link:
        monkeypatch.setattr(socket, "gethostbyname", lambda _: "127.0.1.1")
        links.check_name(link)  # another process of this machine does find it
        link.is_inside = False
        with pytest.raises(GraspError, match=r"its own name means 127.0.1.1, where no other machine finds it"):
            links.check_name(link)
        monkeypatch.setattr(socket, "gethostbyname", lambda _: "10.1.2.3")
        links.check_name(link)


def test_a_copy_has_what_training_reads_and_no_claim(tmp_path):
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "run", parallel="vmap", **SIZES | {"steps": 160})
    (run.folder(0) / "claim.json").write_text("{}")
    copy = links.unpacked(links.packed(run, (0,)), tmp_path / "copy")
    assert copy.config == run.config
    found = {path.relative_to(copy.path).as_posix() for path in copy.path.rglob("*") if path.is_file()}
    assert found == {
        "config.json",
        "seed-0/metrics.jsonl",
        *(f"seed-0/{kind}/{checkpoint.name_of(n)}" for kind, n in (("checkpoints", 0), ("checkpoints", 1))),
        *(f"seed-0/snapshots/{checkpoint.name_of(n)}" for n in (0, 160)),
    }


@pytest.mark.parametrize("on", ["2/2@head:9000", "0/1@head:9000", "0/0@head:9000", "0/2@head:0", "0/2@head:99999"])
def test_machines_that_cannot_be_are_one_sentence(on, tmp_path, capsys):
    assert cli.main([*TRAIN, "--out", str(tmp_path / "run"), "--on", on]) == 2
    assert f"--on {on} names no machine: of 2 machines the first is 0/2@HEAD:PORT" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--devices", "3", "--num_envs", "6"], "3 devices cannot be shared out to 2 machines; give --devices 4"),
        ([], "1 device cannot be shared out to 2 machines; give --devices 2, or another multiple of 2"),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_devices_that_cannot_be_shared_out_are_refused_before_anybody_is_waited_for(
    number, words, sentence, tmp_path, capsys
):
    where = ["--out", str(tmp_path / "run"), "--on", f"{number}/2@localhost:9000"]
    assert cli.main(["train", "mappo", "matrix/climbing", *words, *where]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_that_goes_on_elsewhere_must_be_shared_out_too(tmp_path, capsys):
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "run", parallel="vmap", **SIZES | {"steps": 160})
    before = (run.path / "config.json").read_bytes()
    words = ["resume", str(run.path), "--steps", "320", "--on", "0/2@localhost:9000"]
    assert cli.main(words) == 2
    assert "1 device cannot be shared out to 2 machines" in capsys.readouterr().err
    assert cli.main([*words, "--devices", "6"]) == 2
    assert "num_envs 8 cannot be sharded over 6 devices" in capsys.readouterr().err
    assert (run.path / "config.json").read_bytes() == before


def test_what_is_not_for_several_machines_says_so(capsys):
    assert cli.main(["reproduce", "controls", "--on", "0/2@head:9000"]) == 2
    assert "a suite takes local or ray" in capsys.readouterr().err
    with pytest.raises(GraspError, match=r"call grasp\.api\.assist"):
        grasp.train("mappo", "matrix/climbing", devices=2, on="1/2@head:9000", **SIZES)
    with pytest.raises(GraspError, match="only machines 1 to N-1 of N assist"):
        api.assist("0/2@head:9000")
    assert place_of("3/4@node-7.cluster:9000") == Place(3, 4, "node-7.cluster", 9000)
    assert json.dumps(machines.alike())
