"""Pools of simulators in worker processes: time limits, failures, shared memory, and no process left."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from paths import TOY
from toy_pools import pools

from grasp.envs import host
from grasp.envs.host import SimulatorFault, from_adapter
from grasp.envs.workers import serve
from grasp.types import GraspError


@pytest.fixture
def opened():
    yield from pools()


def test_no_worker_outlives_its_pool(opened):
    pool = opened()
    pids = [worker.process.pid for worker in pool.workers]
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


ORPHANS = """
import sys, time
import numpy as np
from grasp.envs.host import SimulatorPool, from_adapter
host = from_adapter("host/toy", sys.executable, sys.argv[1], "toy", {"fault": "hang", "at": 1})
pool = SimulatorPool(host, 1, 1, 60.0, 0)
one = np.zeros(1, int)
pool.send("reset", one)
pool.wait(one)
pool.send("step", one)
print(pool.workers[0].process.pid, flush=True)
time.sleep(600)
"""


def test_a_hanging_simulator_does_not_outlive_a_killed_learner():
    command = [sys.executable, "-c", ORPHANS, str(TOY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as learner:
        pid = int(learner.stdout.readline())
        assert is_running(pid)
        learner.kill()
    end = time.monotonic() + serve.GRACE + 20
    while is_running(pid):
        assert time.monotonic() < end, "the simulator is still running"
        time.sleep(0.1)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_worker_is_noticed_without_waiting_for_the_deadline(opened):
    pool = opened(deadline=60.0)
    everyone = np.arange(4)
    pool.send("reset", everyone)
    pool.wait(everyone)
    os.kill(pool.workers[0].process.pid, signal.SIGKILL)
    began = time.monotonic()
    pool.send("step", everyone)
    assert pool.wait(everyone).tolist() == [True, True, False, False]
    assert time.monotonic() - began < 30
    assert pool.restarts == 1


def run(pool, command, copies):
    pool.send(command, np.array(copies))
    return pool.wait(np.array(copies)).tolist()


def test_the_first_reset_of_each_copy_has_the_long_time_limit(opened, monkeypatch):
    monkeypatch.setattr(host, "START_SECONDS", 5.0)
    pool = opened(workers=1, deadline=0.5, slow=1.0)
    monkeypatch.setattr(host, "START_SECONDS", 1.8)
    assert run(pool, "reset", [0]) == [False]
    assert run(pool, "reset", [0, 1]) == [False, False]
    assert run(pool, "reset", [0, 2, 3]) == [False, False, False]  # two first resets, 1.0 s each
    assert pool.restarts == 0
    pool.workers[0].pending.append(("reset", np.array([0, 2])))
    assert pool.workers[0].time_limit(0.5) == 0.5
    pool.workers[0].pending.clear()


def test_first_resets_in_a_new_worker_have_the_long_time_limit_again(opened, monkeypatch):
    monkeypatch.setattr(host, "START_SECONDS", 5.0)
    pool = opened(num_envs=1, workers=1, deadline=0.5, slow=1.0)
    assert run(pool, "reset", [0]) == [False]
    os.kill(pool.workers[0].process.pid, signal.SIGKILL)
    assert run(pool, "step", [0]) == [True]
    assert run(pool, "reset", [0]) == [False]


@pytest.mark.parametrize(("fault", "sentence"), [("exit", "failed: SystemExit: 4"), ("mute", "closed its pipe")])
def test_a_worker_that_stays_alive_without_replying_is_replaced(opened, fault, sentence):
    pool = opened(num_envs=1, workers=1, restarts=0, fault=fault, at=1)
    run(pool, "reset", [0])
    pid = pool.workers[0].process.pid
    with pytest.raises(SimulatorFault, match=sentence):
        run(pool, "step", [0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_full_shared_memory_is_detected_when_it_is_reserved(monkeypatch, tmp_path):
    asked, take = [], os.posix_fallocate

    def full(file, start, size):
        asked.append(os.path.dirname(os.readlink(f"/proc/self/fd/{file}")))
        if asked[-1] == str(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")
        take(file, start, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(host, "SHARED", str(tmp_path))
    with host.shared_file(5000) as file:
        assert os.fstat(file.fileno()).st_size == 5000
        assert os.fstat(file.fileno()).st_blocks > 0
    assert asked == [str(tmp_path), tempfile.gettempdir()]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(GraspError, match="has the 5000 bytes"):
        host.shared_file(5000)


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        ("tey", {}, "environment 'host/x': there is no task 'tey'; did you mean 'toy'?"),
        ("TOY", {}, "environment 'host/x': there is no task 'TOY'; did you mean 'toy'?"),
        ("roy", {}, "environment 'host/x': there is no task 'roy'; did you mean 'zoo.toy'?"),
        ("combat", {}, "environment 'host/x': there is no task 'combat'; known: toy, joystick"),
        ("toy", {"colour": 1}, "colour"),
    ],
)
def test_the_error_of_a_simulator_that_cannot_be_made_is_shown(task, options, sentence):
    with pytest.raises(GraspError, match=sentence.replace("?", r"\?")):
        from_adapter("host/x", sys.executable, TOY, task, options)


def test_a_missing_interpreter_is_named():
    with pytest.raises(GraspError, match="there is no interpreter /no/python"):
        from_adapter("host/x", "/no/python", TOY, "toy", {})
