"""Tasks of several runs on one machine's cores, and what is seen of tasks elsewhere."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from processes import WAIT, lines_of
from rich.console import Console

import grasp
from grasp import cli, runs
from grasp.config import configure
from grasp.envs import base as envs
from grasp.launch import base, local, memory_check
from grasp.launch.base import ANY_CORE, EVERY_CORE, Plan, Task, tasks_of
from grasp.launch.local import Pool, Worker
from grasp.launch.places import address_of
from grasp.launch.status import Row, Status
from grasp.runs import lock
from grasp.runs.metrics_log import Follower

TINY = {
    "steps": 160, "num_envs": 4, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_interval": 80,
    "eval_episodes": 4, "final_episodes": 8,
}  # fmt: skip
STUB = """
import json, sys, time
print(json.dumps({"kind": "notice", "seed": 0, "text": "begun"}), flush=True)
time.sleep(float(sys.argv[1]))
print("grasp: it went wrong", file=sys.stderr)
sys.exit(int(sys.argv[2]))
"""


def made(path: Path, seeds: int = 2, **options):
    config = configure("mappo", "matrix/climbing", TINY | {"seeds": seeds, "parallel": "processes"} | options)
    return runs.create(path, config, envs.make("matrix/climbing").spec)


class Stubs(Pool):
    """A pool whose workers do nothing for as long as their run's name says."""

    def __init__(self, places):
        super().__init__(places)
        self.began: list[tuple[float, str, str]] = []
        self.ended: list[tuple[float, str, str]] = []

    def start(self, task, place):
        seconds, code = task.run.path.name.split("_")
        task.log.parent.mkdir()
        with task.log.open("w") as log:
            pipe = subprocess.PIPE
            command = [sys.executable, "-S", "-c", STUB, seconds, code]
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
        self.began.append((time.monotonic(), task.run.path.name, place))
        worker = Worker(task, place, process)
        threading.Thread(target=self.listen, args=(worker,), daemon=True).start()
        return worker

    def listen(self, worker):
        super().listen(worker)
        self.ended.append((time.monotonic(), worker.task.run.path.name, worker.place))


def at_once(pool: Stubs) -> int:
    """The most workers that ran at the same time."""
    events = sorted([(moment, 1) for moment, *_ in pool.began] + [(moment, -1) for moment, *_ in pool.ended])
    return max(sum(step for _, step in events[: n + 1]) for n in range(len(events)))


def test_the_seeds_of_several_runs_fill_all_cores(tmp_path):
    all_runs = [made(tmp_path / name, seeds) for name, seeds in (("0.2_0", 1), ("0.21_0", 3), ("0.22_0", 1))]
    work = [task for run in all_runs for task in tasks_of(run)]
    told = []
    pool = Stubs([5, 7])
    assert pool.train(work, lambda task, message: told.append((task, message["kind"]))) == []
    assert at_once(pool) == 2
    assert told[:2] == [(work[0], "began"), (work[1], "began")], "the third waits for a core"
    for task in work:
        assert [kind for one, kind in told if one is task] == ["began", "notice"]
    assert [name for _, name, _ in pool.began] == ["0.2_0", "0.21_0", "0.21_0", "0.21_0", "0.22_0"]
    assert {place for *_, place in pool.began} == {"5", "7"}
    assert {task for task, _ in told} == set(work)
    assert not any(task.log.exists() for task in work)


def test_tasks_whose_simulators_take_all_cores_train_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(local.envs, "simulated", lambda env: env == "matrix/penalty")
    first = made(tmp_path / "0.2_0")
    slow = runs.create(
        tmp_path / "0.21_0", replace(first.config, env="matrix/penalty"), envs.make("matrix/penalty").spec
    )
    pool = Stubs([0, 1])
    pool.train([*tasks_of(slow), *tasks_of(first)], lambda *_: None)
    assert [place for *_, place in pool.began] == ["0", "1", EVERY_CORE, EVERY_CORE]
    alone = Stubs([0, 1])
    alone.began, alone.ended = pool.began[2:], [event for event in pool.ended if event[1] == "0.21_0"]
    assert at_once(alone) == 1
    assert pool.began[2][0] >= max(moment for moment, name, _ in pool.ended if name == "0.2_0")


def test_tasks_with_several_devices_take_as_many_cores(tmp_path):
    two = made(tmp_path / "0.1_0", 3, devices=2)
    one = made(tmp_path / "0.11_0", 1)
    pool = Stubs([3, 4, 5, 6, 7])
    pool.train([*tasks_of(two), *tasks_of(one)], lambda *_: None)
    assert sorted(place for _, name, place in pool.began if name == "0.1_0")[0] == "3,4"
    assert {place for _, name, place in pool.began if name == "0.1_0"} == {"3,4", "5,6"}, (
        "none is left over for a third"
    )
    assert {place for _, name, place in pool.began if name == "0.11_0"} <= set("34567")
    assert local.grouped([3], 2) == ["3"], "too few cores are one group"
    assert tasks_of(two)[0].words_at("3,4")[1:] == ["0", "3,4", "2"]


def test_a_task_that_fails_does_not_keep_the_others_from_training(tmp_path):
    work = [task for name in ("0.1_2", "0.1_3", "0.1_0") for task in tasks_of(made(tmp_path / name, 1))]
    failures = Stubs([0]).train(work, lambda *_: None)
    assert [failure.task for failure in failures] == work[:2]
    assert failures[0].words == "it went wrong"
    assert failures[1].words == f"seed 0 failed with exit code 3 (its last words: {work[1].log})"
    with pytest.raises(grasp.GraspError, match=f"it went wrong; continue with: grasp resume {work[0].run.path}"):
        base.check_failures(work[0].run, failures[:1])


def test_finished_seeds_are_no_tasks_and_mapped_seeds_are_one(tmp_path):
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "run", parallel="vmap", seeds=2, **TINY)
    assert tasks_of(run) == []
    run.metrics_log(1).write_text("")
    assert tasks_of(run) == [Task(run, (0, 1))]
    with pytest.raises(grasp.GraspError, match="train as one program"):
        tasks_of(runs.find(run.folder(1)))
    apart = replace(run, config=replace(run.config, parallel="processes"))
    assert tasks_of(apart) == [Task(apart, (1,))]


def work(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-P", "-m", "grasp.launch.worker", *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as p:
        # communicate() would close the worker's standard input, which ends it
        said, errors = p.stdout.read(), p.stderr.read()
        return subprocess.CompletedProcess(command, p.wait(WAIT), said, errors)


@pytest.mark.slow
def test_a_worker_trains_mapped_seeds_as_this_process_does_and_waits_for_a_lost_machine(tmp_path):
    here = grasp.train("mappo", "matrix/climbing", out=tmp_path / "here", parallel="vmap", seeds=2, **TINY)
    there = runs.create(tmp_path / "there", here.config, envs.make("matrix/climbing").spec)
    there.folder(1).mkdir()
    claim = there.folder(1) / "claim.json"
    claim.write_text(json.dumps({"host": "away", "boot": "another", "token": "theirs"}))
    os.utime(claim, (time.time() - lock.STALE + 20,) * 2)
    done = work(str(there.path), "0,1", EVERY_CORE, "1")
    assert done.returncode == 2
    assert "is being written on away; wait for it or stop it first" in done.stderr
    done = work(str(there.path), "0,1", EVERY_CORE, "1", str(WAIT))
    assert done.returncode == 0, done.stderr
    assert [lines_of(there.path, seed) for seed in (0, 1)] == [lines_of(here.path, seed) for seed in (0, 1)]
    before = {path: path.stat().st_mtime_ns for path in there.path.rglob("*.*")}
    assert work(str(there.path), "0,1", ANY_CORE, "1").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in there.path.rglob("*.*")} == before


def test_workers_of_one_machine_choose_different_cores():
    """Until one of them ends, however it ends; where there are no more, any will do."""
    name = f"grasp-test-{os.getpid()}"  # real workers may have taken cores, too
    taking = f"print(*free_cores(1, '{name}'), flush=True)"
    code = f"from grasp.launch.worker import free_cores; import sys; {taking}; sys.stdin.read()"
    places = sorted(os.sched_getaffinity(0))
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    held = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in [*places, "one more"]]
    try:
        found = [int(process.stdout.readline()) for process in held]
        assert set(found) == set(places)
        first = found.index(places[0])
        if found.count(places[0]) == 1:
            held[first].kill()
            held[first].wait(WAIT)
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as again:
                assert int(again.stdout.readline()) == places[0]
                again.kill()
    finally:
        for process in held:
            process.kill()
            process.communicate()


def test_a_metrics_log_is_followed_as_it_grows_and_as_it_is_cut_back(tmp_path):
    path = tmp_path / "metrics.jsonl"
    follower = Follower(path)
    assert follower.news() == []

    def line(steps: int) -> bytes:
        return json.dumps({"kind": "iteration", "env_steps": steps, "seed": 0}).encode() + b"\n"

    def news() -> list[int]:
        return [found["env_steps"] for found in follower.news()]

    path.write_bytes(line(1) + line(2)[:10])
    assert news() == [1]
    path.write_bytes(line(1) + line(2) + line(3))
    assert news() == [2, 3]
    assert news() == []
    path.write_bytes(line(1))
    assert news() == []
    path.write_bytes(line(1) + line(2))
    assert news() == [2]
    assert [found["env_steps"] for found in Follower(path).news()] == [], "what was written before is no news"


def test_the_table_shows_what_trains_and_counts_the_rest(tmp_path):
    config = configure("mappo", "matrix/climbing", TINY | {"seeds": 2})
    rows = {Path(name): Row(f"[{name}] mappo", config) for name in "abce"}
    rows[Path("d")] = Row("[d] mappo", config, before=1)
    said = io.StringIO()
    line = {"kind": "iteration", "env_steps": 80, "seed": 0, "wall": {"took": 0.5}}
    last = {"kind": "absolute", "env_steps": 160, "return_mean": 3.0, "wall": {"took": 0.5}}
    with Status(rows, Console(file=said, width=120)) as status:
        status(Path("a"), line)
        status(Path("c"), {"kind": "began", "seed": 0})
        status(Path("b"), last | {"seed": 0})
        status(Path("b"), last | {"seed": 1})
        status(Path("d"), last | {"seed": 1})
        status(Path("a"), {"kind": "notice", "seed": 0, "text": "mind [the] gap"})
        Console(file=said, width=120).print(status.table())
    shown = said.getvalue()
    assert "[a] mappo, seed 0   50%  160 steps/s" in shown
    assert "[b] mappo, seed 1  100%  greedy 3.0" in shown
    assert "[a] mappo, seed 0: mind [the] gap" in shown
    assert "2 of 5 runs finished, 1 not begun" in shown
    assert [[cell.strip() for cell in row.strip("│").split("│")] for row in shown.splitlines()[-4:-2]] == [
        ["[a] mappo", "0/2", "25%", "160 steps/s", ""],
        ["[c] mappo", "0/2", "0%", "compiling", ""],
    ]


@pytest.mark.parametrize(
    ("on", "address"),
    [("local", None), ("ray", "auto"), ("ray://head:6379", "head:6379"), ("ray://[::1]:6379", "[::1]:6379")],
)
def test_places(on, address):
    assert address_of(on) == address


@pytest.mark.parametrize("on", ["", "rya", "ray://", "ray://head", "ray://head:99999", "ray://a b:1", "slurm"])
def test_a_place_that_is_none_is_one_sentence(on, tmp_path, capsys):
    assert cli.main(["train", "mappo", "matrix/climbing", "--out", str(tmp_path / "run"), "--on", on]) == 2
    assert f"--on is local, ray, ray://HOST:PORT or K/N@HEAD:PORT, not '{on}'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_ray_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["train", "mappo", "matrix/climbing", "--out", str(tmp_path / "run"), "--on", "ray"]) == 2
    assert "--on ray needs ray; type: pip install 'grasp-marl[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_replays_of_all_runs_that_train_at_once_must_fit(monkeypatch):
    config = configure("qmix", "matrix/climbing", {"steps": 1000, "seeds": 1, "parallel": "processes"})
    kept = memory_check.replay_of(config)
    monkeypatch.setattr(memory_check, "available", lambda: int(1.5 * kept.num_bytes / memory_check.SHARE))
    assert len(Pool([0, 1]).check([Plan(Path("a"), config, 1)])) == 1
    with pytest.raises(grasp.GraspError, match="the replay does not fit: .* 2 seeds at once"):
        Pool([0, 1]).check([Plan(Path("a"), config, 1), Plan(Path("b"), config, 1)])
    assert len(Pool([0]).check([Plan(Path("a"), config, 1), Plan(Path("b"), config, 1)])) == 2
