"""Tasks of several runs on one machine's cores, and how their progress is followed and shown."""

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
from grasp.launch.base import ANY_CORE, EVERY_CORE, Plan, Task, TaskFollower, address_of, tasks_of
from grasp.launch.local import LocalLauncher, Worker
from grasp.launch.progress import RunProgress, RunTable, SeedProgress
from grasp.runs import lock
from grasp.runs.metrics_log import Follower
from grasp.training import runner
from grasp.types import Host

TINY = {
    "steps": 160, "num_envs": 4, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_interval": 80,
    "eval_episodes": 4, "final_episodes": 8,
}  # fmt: skip
BUILT = runner.make(configure("mappo", "matrix/climbing", TINY))
STUB = """
import sys, time
print("notice: seed 0: started", file=sys.stderr)
time.sleep(float(sys.argv[1]))
print("grasp: it went wrong", file=sys.stderr)
sys.exit(int(sys.argv[2]))
"""


def made(path: Path, seeds: int = 2, **options):
    config = configure("mappo", "matrix/climbing", TINY | {"seeds": seeds, "parallel": "processes"} | options)
    return runs.create(path, config, envs.make("matrix/climbing").spec)


class Stubs(LocalLauncher):
    """A launcher whose workers sleep for as long as their run's name says, and exit with the code it says."""

    def __init__(self, cores):
        super().__init__(cores)
        self.began: list[tuple[float, str, str]] = []
        self.ended: list[tuple[float, str, str]] = []

    def start(self, task, cores):
        seconds, code = task.run.path.name.split("_")
        task.log.parent.mkdir()
        follower = TaskFollower(task)
        with task.log.open("ab") as log:
            command = [sys.executable, "-S", "-c", STUB, seconds, code]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        event = task.run.path.name, cores
        self.began.append((time.monotonic(), *event))
        threading.Thread(target=lambda: (process.wait(), self.ended.append((time.monotonic(), *event)))).start()
        return Worker(task, cores, process, follower)


def most_at_once(began, ended) -> int:
    """The most workers that ran at the same time."""
    events = sorted([(moment, 1) for moment, *_ in began] + [(moment, -1) for moment, *_ in ended])
    return max(sum(step for _, step in events[: n + 1]) for n in range(len(events)))


def test_the_seeds_of_several_runs_fill_all_cores(tmp_path):
    all_runs = [made(tmp_path / name, seeds) for name, seeds in (("0.2_0", 1), ("0.21_0", 3), ("0.22_0", 1))]
    tasks = [task for run in all_runs for task in tasks_of(run, BUILT)]
    messages = []
    launcher = Stubs([5, 7])
    assert launcher.train(tasks, lambda task, message: messages.append((task, message["kind"]))) == []
    assert most_at_once(launcher.began, launcher.ended) == 2
    for task in tasks:
        assert [kind for one, kind in messages if one is task] == ["began", "notice"]
    assert [kind for _, kind in messages[:4]].count("began") == 2, "the third waits for a core"
    assert [name for _, name, _ in launcher.began] == ["0.2_0", "0.21_0", "0.21_0", "0.21_0", "0.22_0"]
    assert {cores for *_, cores in launcher.began} == {"5", "7"}
    assert not any(task.log.exists() for task in tasks)


def test_tasks_whose_simulators_take_all_cores_train_alone(tmp_path):
    first = made(tmp_path / "0.2_0")
    slow = runs.create(
        tmp_path / "0.21_0", replace(first.config, env="matrix/penalty"), envs.make("matrix/penalty").spec
    )
    launcher = Stubs([0, 1])
    simulator = BUILT._replace(env=Host(BUILT.env.spec, ()))
    launcher.train([*tasks_of(slow, simulator), *tasks_of(first, BUILT)], lambda *_: None)
    assert [cores for *_, cores in launcher.began] == ["0", "1", EVERY_CORE, EVERY_CORE]
    assert most_at_once(launcher.began[2:], [event for event in launcher.ended if event[1] == "0.21_0"]) == 1
    assert launcher.began[2][0] >= max(moment for moment, name, _ in launcher.ended if name == "0.2_0")


def test_tasks_with_several_devices_take_as_many_cores(tmp_path):
    two = made(tmp_path / "0.1_0", 3, devices=2)
    one = made(tmp_path / "0.11_0", 1)
    launcher = Stubs([3, 4, 5, 6, 7])
    launcher.train([*tasks_of(two, BUILT), *tasks_of(one, BUILT)], lambda *_: None)
    taken = [cores for _, name, cores in launcher.began if name == "0.1_0"]
    assert sorted(taken)[0] == "3,4"
    assert set(taken) == {"3,4", "5,6"}, "the fifth core is not enough for another task"
    assert {cores for _, name, cores in launcher.began if name == "0.11_0"} <= set("34567")
    assert local.core_groups([3], 2) == ["3"], "too few cores are one group"
    assert tasks_of(two, BUILT)[0].arguments("3,4")[1:] == ["0", "3,4", "2"]


def test_a_task_that_fails_does_not_keep_the_others_from_training(tmp_path):
    tasks = [task for name in ("0.1_2", "0.1_3", "0.1_0") for task in tasks_of(made(tmp_path / name, 1), BUILT)]
    failures = Stubs([0]).train(tasks, lambda *_: None)
    assert [failure.task for failure in failures] == tasks[:2]
    assert failures[0].message == "it went wrong"
    assert failures[1].message == f"seed 0 failed with exit code 3 (log: {tasks[1].log})"
    with pytest.raises(grasp.GraspError, match=f"it went wrong; continue with: grasp resume {tasks[0].run.path}"):
        base.check_failures(tasks[0].run, failures[:1])


def test_a_task_s_log_is_followed_by_whole_lines_and_the_log_of_an_earlier_failure_is_not(tmp_path):
    (task,) = tasks_of(made(tmp_path / "run", 1), BUILT)
    task.log.parent.mkdir()
    task.log.write_text("notice: seed 0: stale\n")
    follower, found = TaskFollower(task), []
    assert not task.log.exists()

    def news() -> list:
        found.clear()
        follower.report(lambda one, message: found.append((one is task, message)))
        return [message.get("text", message["kind"]) for is_own, message in found if is_own]

    assert news() == []
    task.log.write_text("a warning\nnotice: seed 0: first\nnotice: se")
    assert news() == ["began", "first"]
    with task.log.open("a") as log:
        log.write("ed 0: second\nnotice: of no seed\n")
    assert news() == ["second"]
    assert news() == []


def test_finished_seeds_are_no_tasks_and_mapped_seeds_are_one(tmp_path):
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "run", parallel="vmap", seeds=2, **TINY)
    assert tasks_of(run, BUILT) == []
    run.metrics_log(1).write_text("")
    assert tasks_of(run, BUILT) == [Task(run, (0, 1), BUILT)]
    with pytest.raises(grasp.GraspError, match="train as one program"):
        tasks_of(runs.find(run.folder(1)), BUILT)
    apart = replace(run, config=replace(run.config, parallel="processes"))
    assert tasks_of(apart, BUILT) == [Task(apart, (1,), BUILT)]


def work(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-P", "-m", "grasp.launch.worker", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as p:
        # communicate() would close the worker's standard input, which ends it
        errors = p.stderr.read().decode()
        return subprocess.CompletedProcess(command, p.wait(WAIT), None, errors)


@pytest.mark.full("several processes one after another")
def test_a_worker_trains_mapped_seeds_as_this_process_does_and_waits_for_the_lock_of_a_lost_machine(tmp_path):
    here = grasp.train("mappo", "matrix/climbing", out=tmp_path / "here", parallel="vmap", seeds=2, **TINY)
    there = runs.create(tmp_path / "there", here.config, envs.make("matrix/climbing").spec)
    there.folder(1).mkdir()
    claim = there.folder(1) / "claim.json"
    claim.write_text(json.dumps({"host": "away", "boot": "another", "token": "theirs"}))
    os.utime(claim, (time.time() - lock.STALE + 20,) * 2)
    done = work(str(there.path), "0,1", EVERY_CORE, "1")
    assert done.returncode == 2
    assert "is being written on away; wait for it or stop it first" in done.stderr
    done = work(str(there.path), "0,1", EVERY_CORE, "1", "--patience", str(WAIT))
    assert done.returncode == 0, done.stderr
    assert [lines_of(there.path, seed) for seed in (0, 1)] == [lines_of(here.path, seed) for seed in (0, 1)]
    before = {path: path.stat().st_mtime_ns for path in there.path.rglob("*.*")}
    assert work(str(there.path), "0,1", ANY_CORE, "1").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in there.path.rglob("*.*")} == before


def test_workers_of_one_machine_choose_different_cores():
    """A core is free again when its worker ends, even by SIGKILL. If none is free, a worker takes any."""
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


def test_a_metrics_log_is_followed_as_it_grows_and_as_it_is_truncated(tmp_path):
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


def test_the_table_shows_runs_in_training_and_counts_the_others(tmp_path):
    config = configure("mappo", "matrix/climbing", TINY | {"seeds": 2})
    rows = {Path(name): RunProgress(f"[{name}] mappo", config) for name in "abce"}
    rows[Path("d")] = RunProgress("[d] mappo", config, before=1)
    shown = io.StringIO()
    line = {"kind": "iteration", "env_steps": 0, "seed": 0, "wall": {"took": 9.0}}
    last = {"kind": "absolute", "env_steps": 160, "return_mean": 3.0, "wall": {"took": 0.5}}
    with RunTable(rows, Console(file=shown, width=120)) as table:
        rows[Path("a")].seeds[0] = SeedProgress(config)
        rows[Path("a")].seeds[0].update(line)
        table(Path("a"), line | {"env_steps": 80, "wall": {"took": 0.5}})
        table(Path("c"), {"kind": "began", "seed": 0})
        table(Path("b"), last | {"seed": 0})
        table(Path("b"), last | {"seed": 1})
        table(Path("d"), last | {"seed": 1})
        table(Path("a"), {"kind": "notice", "seed": 0, "text": "mind [the] gap"})
        Console(file=shown, width=120).print(table.table())
    text = shown.getvalue()
    assert "[a] mappo, seed 0   50%  160 steps/s" in text
    assert "[b] mappo, seed 1  100%  greedy 3.0" in text
    assert "[a] mappo, seed 0: mind [the] gap" in text
    assert "2 of 5 runs finished, 1 not started" in text
    assert [[cell.strip() for cell in row.strip("│").split("│")] for row in text.splitlines()[-4:-2]] == [
        ["[a] mappo", "0/2", "25%", "160 steps/s", ""],
        ["[c] mappo", "0/2", "0%", "compiling", ""],
    ]


@pytest.mark.parametrize(
    ("on", "address"),
    [("local", None), ("ray", "auto"), ("ray://head:6379", "head:6379"), ("ray://[::1]:6379", "[::1]:6379")],
)
def test_addresses_of_on(on, address):
    assert address_of(on) == address


@pytest.mark.parametrize("on", ["", "rya", "ray://", "ray://head", "ray://head:99999", "ray://a b:1", "slurm"])
def test_a_wrong_on_is_one_error(on, tmp_path, capsys):
    assert cli.main(["train", "mappo", "matrix/climbing", "--out", str(tmp_path / "run"), "--on", on]) == 2
    assert f"--on must be local, ray or ray://HOST:PORT, not '{on}'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["train", "mappo", "matrix/climbing"], ["reproduce", "controls"]])
def test_the_removed_form_of_on_names_its_replacement(command, here, capsys):
    assert cli.main([*command, "--on", "0/2@head:9000"]) == 2
    message = capsys.readouterr().err
    assert "--on 0/2@head:9000 is no longer supported; " in message
    assert "use --on ray --devices N (docs/cluster.md)" in message
    assert message.count("\n") == 1
    assert list(here.iterdir()) == []


def test_without_ray_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["train", "mappo", "matrix/climbing", "--out", str(tmp_path / "run"), "--on", "ray"]) == 2
    assert "--on ray needs ray; type: pip install 'grasp-marl[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_replays_of_all_runs_that_train_at_once_must_fit(monkeypatch):
    config = configure("qmix", "matrix/climbing", {"steps": 1000, "seeds": 1, "parallel": "processes"})
    built = runner.make(config)
    kept = memory_check.replay_of(config, built)
    monkeypatch.setattr(memory_check, "available", lambda: int(1.5 * kept.num_bytes / memory_check.FRACTION))
    assert len(LocalLauncher([0, 1]).check([Plan(Path("a"), config, 1, built)])) == 1
    with pytest.raises(grasp.GraspError, match="the replay buffer does not fit: .* 2 seeds at once"):
        LocalLauncher([0, 1]).check([Plan(Path("a"), config, 1, built), Plan(Path("b"), config, 1, built)])
    assert len(LocalLauncher([0]).check([Plan(Path("a"), config, 1, built), Plan(Path("b"), config, 1, built)])) == 2
