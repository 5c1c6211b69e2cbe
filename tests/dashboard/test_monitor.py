"""The status of runs and seeds, their labels, and when files are read."""

import fcntl
import json
import os
import time

import pytest
from dashboard_runs import as_lines, evaluation, history, iteration, only, refreshed, write_run

from grasp.analysis.run_data import load_runs
from grasp.dashboard import discovery, monitor
from grasp.dashboard.monitor import Monitor
from grasp.dashboard.tail import Tail
from grasp.runs.lock import here


def age(folder, seconds):
    then = time.time() - seconds
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


@pytest.mark.parametrize(
    ("data", "seconds", "expected"),
    [
        (history(), 5, "live"),
        (history(), 100, "stopped"),
        (history(points=3) + as_lines(evaluation(1200, 9.0, "absolute")), 100, "finished"),
        (history(points=2) + as_lines(evaluation(800, 9.0, "absolute")), 100, "stopped"),
        (b"", 5, "starting"),
        (history() + b"x" * (1 << 20), 5, "live"),  # no complete line at its end
    ],
)
def test_a_run_is_starting_live_stopped_or_finished_by_its_last_record_and_its_age(tmp_path, data, seconds, expected):
    run = write_run(tmp_path / "run", {0: data})
    age(run, seconds)
    assert only(refreshed(tmp_path)).status(time.time()) == expected


def test_a_finished_seed_is_not_a_finished_run(tmp_path):
    run = write_run(tmp_path / "run", {0: as_lines(evaluation(1000, 9.0, "absolute"))}, seeds=2)
    age(run, 100)
    assert only(refreshed(tmp_path)).status(time.time()) == "stopped"


DONE = as_lines(evaluation(1000, 9.0, "absolute"))


def test_a_seed_with_an_iteration_of_the_wrong_type_is_not_finished(tmp_path):
    """As for `grasp resume` and `grasp compare`, which parse every line."""
    wrong = as_lines(iteration(500, conflict_rate="hi"))
    run = write_run(tmp_path / "run", {0: as_lines(evaluation(0, 1.0), iteration(400)) + wrong + DONE})
    age(run, 100)
    found = refreshed(tmp_path)
    assert only(found).status(time.time()) == "stopped"
    assert only(found).seeds[0].tail.content.skipped == 1
    (seed,) = load_runs([run])[0].seeds
    assert not seed.is_finished
    log = run / "seed-0" / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"hi"', b"0.25"))  # as long as before
    age(run, 90)
    found.refresh()
    assert only(found).status(time.time()) == "finished"
    assert only(found).seeds[0].tail.content.skipped == 0


def test_the_lines_of_a_finished_seed_are_checked_once_and_between_requests(tmp_path, monkeypatch):
    for name in ("one", "two"):
        write_run(tmp_path / name, {0: as_lines(evaluation(0, 1.0), iteration(400)) + DONE})
    write_run(tmp_path / "three", {0: as_lines(evaluation(0, 1.0), iteration(400))})
    checked, check = [], Tail.check
    monkeypatch.setattr(Tail, "check", lambda tail: (checked.append(tail.path.parent.parent.name), check(tail)))
    found = Monitor(tmp_path)
    found.request()
    found.refresh()
    assert (checked, found.is_read) == ([], False)
    found._requested.clear()
    found.refresh()
    found.refresh()
    assert (sorted(checked), found.is_read) == (["one", "two"], True)


def test_a_silent_run_with_a_held_lock_is_live_then_stalled(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    with (run / "seed-0" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        age(run, 300)
        found = refreshed(tmp_path)
        assert only(found).status(time.time()) == "live"
        assert only(found).status(time.time() + monitor.STALLED) == "stalled"
    found.refresh()
    assert only(found).status(time.time()) == "stopped"


def test_a_silent_run_locked_on_another_machine_is_live(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    age(run / "seed-0", 100)
    lock = run / "seed-0" / "claim.json"
    for holder, seconds, expected in (
        ({"host": "away", "boot": "another"}, 0, "live"),
        ({"host": "away", "boot": "another"}, 70, "stopped"),
        (here(), 0, "stopped"),  # a process on this machine was killed: its lock is free
    ):
        lock.write_text(json.dumps(holder))
        os.utime(lock, (time.time() - seconds,) * 2)
        assert only(refreshed(tmp_path)).status(time.time()) == expected


def test_monitoring_never_takes_the_lock(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    (run / "seed-0" / "lock").touch()
    refreshed(tmp_path)
    with (run / "seed-0" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert os.fstat(lock.fileno()).st_ino in discovery.held_locks()


def test_runs_of_one_algorithm_are_labelled_by_folder(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / name, {0: history()})
    write_run(tmp_path / "three", {0: history()}, algo="mappo")
    labels = [entry.label for entry in refreshed(tmp_path).entries.values()]
    assert labels == ["grasp-mappo (one)", "mappo", "grasp-mappo (two)"]


def test_labels_omit_the_common_part_of_the_folders(tmp_path):
    for name in ("sweep/deep/lr1/a", "sweep/deep/lr1/b", "sweep/deep/lr2/a"):
        write_run(tmp_path / name, {0: history()})
    found = refreshed(tmp_path)
    assert [e.label for e in found.entries.values()] == [f"grasp-mappo ({n})" for n in ("lr1/a", "lr1/b", "lr2/a")]
    assert refreshed(tmp_path / "sweep/deep/lr1/a").entries.popitem()[1].label == "grasp-mappo"


def test_a_changed_number_of_steps_is_read(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    found = refreshed(tmp_path)
    config = json.loads((run / "config.json").read_text()) | {"steps": 5000}
    (run / "config.json").write_text(json.dumps(config))
    os.utime(run / "config.json", (1, 1))
    found.refresh()
    assert only(found).planned == 5000


def test_nothing_is_read_without_a_request(tmp_path, monkeypatch):
    found = Monitor(tmp_path)
    calls = []
    monkeypatch.setattr(monitor, "PERIOD", 0.01)
    monkeypatch.setattr(found, "refresh", lambda: calls.append(1))
    found.start()
    time.sleep(0.1)
    assert calls == []
    found.request()
    time.sleep(0.1)
    found.close()
    assert calls == [1]
