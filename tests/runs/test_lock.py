"""The lock on a seed's folder: one process at a time, on one node or several."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from processes import WAIT, lines_of

import grasp
from grasp import runs
from grasp.runs import lock
from grasp.runs.lock import Busy, locked
from grasp.training import loop

AWAY = {"host": "away", "boot": "another", "pid": 1, "token": "theirs"}
TINY = {
    "steps": 480, "seeds": 1, "num_envs": 4, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_interval": 160,
    "eval_episodes": 4, "final_episodes": 8, "parallel": "vmap",
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(lock, "SETTLED", 0.05)
    monkeypatch.setattr(lock, "RENEWED", 0.05)
    monkeypatch.setattr(lock, "PAUSE", 0.05)


def leave(folder, age: float, content: dict | bytes = AWAY) -> None:
    """Another process's `claim.json`, touched `age` seconds ago."""
    path = folder / "claim.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    os.utime(path, (time.time() - age,) * 2)


def eventually(condition) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "nothing happened for too long"
        time.sleep(0.02)


def test_a_lock_names_its_holder_is_renewed_and_removed(tmp_path):
    with locked(tmp_path):
        path = tmp_path / "claim.json"
        holder = json.loads(path.read_text())
        assert holder["pid"] == os.getpid()
        assert lock.here().items() <= holder.items()
        os.utime(path, (0, 0))
        eventually(lambda: path.stat().st_mtime > time.time() - 60)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_second_process_of_the_same_node_is_refused_at_once(tmp_path):
    with locked(tmp_path), pytest.raises(Busy, match="is being written by another process"), locked(tmp_path):
        pass


@pytest.mark.parametrize("content", [AWAY, b"", b"[1]", {"host": lock.here()["host"], "boot": "before it was started"}])
def test_a_lock_of_another_node_holds_while_it_is_fresh(tmp_path, content):
    """Also one that is just being written, and one of another node with the same name."""
    leave(tmp_path, lock.STALE - 5, content)
    before = (tmp_path / "claim.json").read_bytes()
    with pytest.raises(Busy, match=r"is being written on \S+.*; wait for it or stop it first"), locked(tmp_path):
        pass
    assert (tmp_path / "claim.json").read_bytes() == before


def test_a_stale_lock_of_another_node_is_taken_over(tmp_path):
    leave(tmp_path, lock.STALE + 5)
    with locked(tmp_path) as held:
        held.check()
    assert not (tmp_path / "claim.json").exists()


def test_age_is_measured_by_the_storage_s_clock(tmp_path, monkeypatch):
    """A clock that is ahead or behind does not make a fresh lock stale."""
    leave(tmp_path, 0.0)
    for hours in (-5, 5):
        monkeypatch.setattr(lock.time, "time", lambda shift=hours * 3600, real=time.time: real() + shift)
        with pytest.raises(Busy), locked(tmp_path):
            pass


def test_the_lock_of_a_killed_process_on_this_node_is_taken_over_at_once(tmp_path):
    code = f"""
import pathlib, time
from grasp.runs.lock import locked
with locked(pathlib.Path({str(tmp_path)!r})):
    print("held", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(Busy), locked(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT)
    with locked(tmp_path) as held:
        held.check()


def test_without_file_locks_only_age_decides(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(lock.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with locked(tmp_path), pytest.raises(Busy), locked(tmp_path):
        pass
    leave(tmp_path, lock.STALE + 5, lock.here())
    with locked(tmp_path) as held:
        held.check()


def test_a_waiting_process_gets_a_lock_that_is_released_or_grows_stale(tmp_path, monkeypatch):
    leave(tmp_path, 0.0)
    threading.Timer(0.3, (tmp_path / "claim.json").unlink).start()
    with locked(tmp_path, patience=WAIT):
        pass
    monkeypatch.setattr(lock, "STALE", 1.0)
    leave(tmp_path, 0.0)
    with locked(tmp_path, patience=WAIT):
        pass
    monkeypatch.setattr(lock, "STALE", 60.0)
    leave(tmp_path, 0.0)
    with pytest.raises(Busy, match="is being written on away"), locked(tmp_path, patience=0.3):
        pass


def test_of_two_processes_that_take_over_at_the_same_time_one_goes_on(tmp_path, monkeypatch):
    """The other node's write comes between ours and our second check."""
    leave(tmp_path, lock.STALE + 5)
    monkeypatch.setattr(lock.time, "sleep", lambda _: leave(tmp_path, 0.0))
    with pytest.raises(Busy, match="is being written on away"), locked(tmp_path):
        pass
    assert json.loads((tmp_path / "claim.json").read_text()) == AWAY


def test_a_former_holder_neither_renews_nor_removes_the_lock(tmp_path):
    with locked(tmp_path) as held:
        leave(tmp_path, 1000.0)
        with pytest.raises(
            grasp.GraspError, match="was taken over by a process on away while this one did not respond"
        ):
            held.check()
        eventually(lambda: not held.thread.is_alive())
    assert json.loads((tmp_path / "claim.json").read_text()) == AWAY
    assert time.time() - (tmp_path / "claim.json").stat().st_mtime > 900


@pytest.mark.parametrize("kind", ["iteration", "evaluation"])
def test_a_training_process_without_its_lock_writes_nothing(tmp_path, kind):
    """Whatever the holder would write next: a line of the metrics log, or a snapshot."""
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "straight", **TINY)
    expected = lines_of(run.path)
    cut = runs.create(tmp_path / "cut", run.config, grasp.envs.base.make("matrix/climbing").spec)
    frozen = {}

    def report(line):
        if line["kind"] == kind and line["env_steps"] == 160:
            leave(cut.folder(0), 0.0)
            frozen.update(contents(cut.folder(0)))

    with pytest.raises(grasp.GraspError, match="was taken over by a process on away"):
        loop.train(cut, [0], report)
    assert frozen
    assert contents(cut.folder(0)) == frozen
    with pytest.raises(grasp.GraspError, match="is being written on away"):
        grasp.resume(cut.path)
    leave(cut.folder(0), lock.STALE + 5)
    grasp.resume(cut.path)
    assert lines_of(cut.path) == expected


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_a_process_that_waited_for_one_that_finished_touches_nothing(tmp_path):
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "run", **TINY)
    before = {path: (path.stat().st_mtime_ns, data) for path, data in contents(run.path).items()}
    loop.train(run, [0], lambda line: pytest.fail("everything is done"))
    assert {path: (path.stat().st_mtime_ns, data) for path, data in contents(run.path).items()} == before
