"""What is found below a directory, what state a run is in, and what the page is told."""

import fcntl
import json
import os
import time

import numpy as np
import pytest
from dashboard_runs import as_lines, evaluation, history, iteration, write_run

from grasp.analysis.plots import band
from grasp.dashboard import discovery, monitor, views
from grasp.dashboard.monitor import Watch
from grasp.runs.lock import here
from grasp.types import GraspError


def looked(root) -> Watch:
    found = Watch(root)
    found.refresh()
    return found


def only(found: Watch) -> monitor.Entry:
    (entry,) = found.entries.values()
    return entry


def age(folder, seconds):
    then = time.time() - seconds
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def test_runs_are_found_below_the_directory_and_ids_say_nothing_of_paths(tmp_path):
    write_run(tmp_path / "a", {0: history()})
    write_run(tmp_path / "deep" / "er" / "b", {0: history(), 3: history()})
    (tmp_path / ".hidden").mkdir()
    write_run(tmp_path / ".hidden" / "c", {0: history()})
    write_run(tmp_path / "a" / "inside", {0: history()})
    found = looked(tmp_path).entries
    assert [entry.found.name for entry in found.values()] == ["a", "deep/er/b"]
    assert all(len(name) == 12 and name.isalnum() for name in found)
    assert sorted(list(found.values())[1].seeds) == [0, 3]


def test_the_directory_may_be_a_run_itself_and_must_exist(tmp_path):
    write_run(tmp_path / "run", {0: history()})
    assert only(looked(tmp_path / "run")).found.name == "run"
    with pytest.raises(GraspError, match="no directory .*nothing"):
        Watch(tmp_path / "nothing")


def test_runs_too_deep_are_left(tmp_path):
    write_run(tmp_path.joinpath(*"abcdef"), {0: history()})
    write_run(tmp_path.joinpath(*"vwxyz"), {0: history()})
    assert only(looked(tmp_path)).found.name == "v/w/x/y/z"


def test_no_link_is_followed(tmp_path):
    outside = write_run(tmp_path / "outside" / "secret", {0: history()})
    root = tmp_path / "root"
    inside = write_run(root / "run", {0: history()})
    (root / "linked").symlink_to(outside)
    (inside / "seed-1").symlink_to(outside / "seed-0")
    (inside / "seed-2").mkdir()
    (inside / "seed-2" / "metrics.jsonl").symlink_to(outside / "seed-0" / "metrics.jsonl")
    (inside / "versions.json").unlink()
    (inside / "versions.json").symlink_to(outside / "versions.json")
    (root / "half" / "seed-0").mkdir(parents=True)
    (root / "half" / "config.json").symlink_to(outside / "config.json")
    entry = only(looked(root))
    assert sorted(entry.seeds) == [0, 2]
    assert entry.seeds[2].tail.seen.offset == 0
    assert entry.seeds[2].latest is None
    assert entry.versions == {}
    assert views.conflict(entry, 2)["iterations"] == 0


def test_a_folder_that_becomes_a_link_later_is_not_followed(tmp_path):
    outside = write_run(tmp_path / "outside", {0: history(top=99.0)})
    root = tmp_path / "root"
    run = write_run(root / "run", {0: as_lines(evaluation(0, 1.0))})
    found = looked(root)
    log = only(found).seeds[0].tail.path
    (run / "seed-0" / "metrics.jsonl").unlink()
    (run / "seed-0").rmdir()
    (run / "seed-0").symlink_to(outside / "seed-0")
    assert discovery.open_inside(log) is None
    with discovery.open_inside(outside.resolve() / "seed-0" / "metrics.jsonl") as file:
        assert file.read(1) == b"{"


@pytest.mark.parametrize(
    ("data", "seconds", "expected"),
    [
        (history(), 5, "live"),
        (history(), 100, "stopped"),
        (history(points=3) + as_lines(evaluation(1200, 9.0, "absolute")), 100, "finished"),
        (history(points=2) + as_lines(evaluation(800, 9.0, "absolute")), 100, "stopped"),
        (b"", 5, "starting"),
        (history() + b"x" * (1 << 20), 5, "live"),  # its end has no line to tell by
    ],
)
def test_states(tmp_path, data, seconds, expected):
    run = write_run(tmp_path / "run", {0: data})
    age(run, seconds)
    assert only(looked(tmp_path)).state(time.time()) == expected


def test_a_finished_seed_is_not_a_finished_run(tmp_path):
    run = write_run(tmp_path / "run", {0: as_lines(evaluation(1000, 9.0, "absolute"))}, seeds=2)
    age(run, 100)
    assert only(looked(tmp_path)).state(time.time()) == "stopped"


def test_a_held_lock_keeps_a_silent_run_live_and_then_calls_it_stalled(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    with (run / "seed-0" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        age(run, 300)
        found = looked(tmp_path)
        assert only(found).state(time.time()) == "live"
        assert only(found).state(time.time() + monitor.STALLED) == "stalled"
    found.refresh()
    assert only(found).state(time.time()) == "stopped"


def test_a_claim_of_another_machine_keeps_a_silent_run_live(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    age(run / "seed-0", 100)
    claim = run / "seed-0" / "claim.json"
    for words, seconds, expected in (
        ({"host": "away", "boot": "another"}, 0, "live"),
        ({"host": "away", "boot": "another"}, 70, "stopped"),
        (here(), 0, "stopped"),  # of a process here that was killed: its lock is free
    ):
        claim.write_text(json.dumps(words))
        os.utime(claim, (time.time() - seconds,) * 2)
        assert only(looked(tmp_path)).state(time.time()) == expected


def test_watching_never_takes_the_lock(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    (run / "seed-0" / "lock").touch()
    looked(tmp_path)
    with (run / "seed-0" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert os.fstat(lock.fileno()).st_ino in discovery.held_locks()


def test_the_overview_has_progress_rate_and_time_left(tmp_path):
    write_run(tmp_path / "run", {0: history(points=1), 1: history(points=1)}, seeds=4)
    (row,) = views.overview(looked(tmp_path))["runs"]
    assert row["done"] == 800
    assert row["planned"] == 4000
    assert row["rate"] == 2000
    assert row["eta"] == 2
    assert row["return_mean"] == 10.0
    assert row["win_rate"] is None
    assert (row["algo"], row["label"], row["state"]) == ("grasp-mappo", "grasp-mappo", "live")


def test_twins_are_told_apart_by_their_folders(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / name, {0: history()})
    write_run(tmp_path / "three", {0: history()}, algo="mappo")
    labels = [entry.label for entry in looked(tmp_path).entries.values()]
    assert labels == ["grasp-mappo (one)", "mappo", "grasp-mappo (two)"]


def test_what_all_folders_share_is_no_part_of_a_label(tmp_path):
    for name in ("sweep/deep/lr1/a", "sweep/deep/lr1/b", "sweep/deep/lr2/a"):
        write_run(tmp_path / name, {0: history()})
    found = looked(tmp_path)
    assert [e.label for e in found.entries.values()] == [f"grasp-mappo ({n})" for n in ("lr1/a", "lr1/b", "lr2/a")]
    assert looked(tmp_path / "sweep/deep/lr1/a").entries.popitem()[1].label == "grasp-mappo"


def test_a_config_that_is_none_is_said_and_a_strangers_folder_ignored(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    (run / "config.json").write_text("{")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.json").write_text('{"name": "something else"}')
    (row,) = views.overview(looked(tmp_path))["runs"]
    assert row["problem"] == "its config.json is not a configuration of grasp"


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"format": 1, "algo": "x", "env": "y", "steps": 1e400}', "x" * (2 << 20)]
)
def test_a_hostile_config_does_no_harm(tmp_path, text):
    run = write_run(tmp_path / "run", {0: history()})
    (run / "config.json").write_text(text)
    (row,) = views.overview(looked(tmp_path))["runs"]
    json.dumps(row, allow_nan=False)
    assert row["planned"] == 0


def test_more_steps_to_go_are_noticed(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    found = looked(tmp_path)
    config = json.loads((run / "config.json").read_text()) | {"steps": 5000}
    (run / "config.json").write_text(json.dumps(config))
    os.utime(run / "config.json", (1, 1))
    found.refresh()
    assert only(found).planned == 5000


def test_curves_are_those_of_compare(tmp_path):
    write_run(tmp_path / "run", {k: history(top=10.0 + k) for k in range(5)})
    found = looked(tmp_path)
    (curve,) = views.curves(list(found.entries.values()))["runs"]
    steps = np.array([0, 400, 800, 1200, 1600, 2000.0])
    expected = band([np.stack([steps, (10.0 + k) * steps / 2000]) for k in range(5)])
    told = curve["metrics"]["return_mean"]
    assert told["x"] == steps.tolist()
    for name in ("line", "low", "high"):
        np.testing.assert_allclose(told[name], getattr(expected, name), rtol=1e-3)
    assert told["seeds"][3] == [steps.tolist(), [0.0, 2.6, 5.2, 7.8, 10.4, 13.0]]
    assert curve["statistic"] == "IQM of 5 seeds, 95 % bootstrap interval"
    assert curve["colour"] == "#0072B2"


def test_a_diverged_seed_is_a_gap_not_an_error(tmp_path):
    write_run(tmp_path / "run", {0: as_lines(evaluation(0, 1.0), evaluation(100, None), evaluation(200, 3.0))})
    (curve,) = views.curves([only(looked(tmp_path))])["runs"]
    assert curve["metrics"]["return_mean"]["line"] == [1.0, None, 3.0]
    assert "win_rate" not in curve["metrics"]


def test_a_run_without_evaluation_has_no_curve(tmp_path):
    write_run(tmp_path / "run", {0: as_lines(iteration(100))})
    (curve,) = views.curves([only(looked(tmp_path))])["runs"]
    assert curve["metrics"] == {}


def test_the_conflict_view_has_every_agent(tmp_path):
    lines = as_lines(*[iteration(100 * k, factors=[0.5, None, 0.7], residual=None) for k in range(1, 6)])
    write_run(tmp_path / "run", {0: lines})
    (group,) = views.conflict(only(looked(tmp_path)), 0)["groups"]
    assert group["num_agents"] == 3
    assert group["x"] == [100, 200, 300, 400, 500]
    assert group["cosines"][0] == [-0.9, -0.8, -0.7]
    assert group["factors"][0] == [0.5, None, 0.7]
    assert group["statuses"] == {"certified": 5}
    assert "residual" not in group


def test_heads_and_backbone_have_a_view_each(tmp_path):
    more = {f"backbone_{name}": value for name, value in iteration(1, 3).items() if name in ("weights", "cosines")}
    write_run(tmp_path / "run", {0: as_lines(iteration(100, **more))})
    groups = views.conflict(only(looked(tmp_path)), 0)["groups"]
    assert [group["name"] for group in groups] == ["", "backbone"]


def test_a_run_without_consensus_has_no_conflict_view(tmp_path):
    line = {"kind": "iteration", "env_steps": 100, "seed": 0, "skipped_steps": 0.0}
    write_run(tmp_path / "run", {0: as_lines(line)}, algo="mappo")
    told = views.conflict(only(looked(tmp_path)), 0)
    assert told["groups"] == []
    assert told["iterations"] == 1


@pytest.mark.parametrize("cosines", [[1], "text", None, [[1]], [{}, {}, {}], [1e999, 1, 2]])
def test_cosines_of_the_wrong_shape_are_gaps(tmp_path, cosines):
    text = as_lines(iteration(100), iteration(200, cosines=cosines))
    write_run(tmp_path / "run", {0: text})
    (group,) = views.conflict(only(looked(tmp_path)), 0)["groups"]
    json.dumps(group, allow_nan=False)
    assert group["cosines"][0] == [-0.9, -0.8, -0.7]
    assert not group["cosines"][1] or None in group["cosines"][1]


def test_many_agents_stay_within_bounds(tmp_path):
    write_run(tmp_path / "run", {0: as_lines(*[iteration(100 * k, 60) for k in range(1, 200)])})
    (group,) = views.conflict(only(looked(tmp_path)), 0)["groups"]
    assert group["num_agents"] == 60
    assert sum(map(len, group["cosines"])) <= views.MOST_COSINES + 60 * 59 // 2
    assert group["x"][-1] == 19_900
    assert len(group["x"]) == len(group["weights"]) == len(group["conflict_rate"])


def test_the_conflict_view_follows_a_growing_file(tmp_path):
    run = write_run(tmp_path / "run", {0: as_lines(iteration(100))})
    found = looked(tmp_path)
    assert views.conflict(only(found), 0)["groups"][0]["x"] == [100]
    with (run / "seed-0" / "metrics.jsonl").open("ab") as file:
        file.write(as_lines(iteration(200)))
    found.refresh()
    assert views.conflict(only(found), 0)["groups"][0]["x"] == [100, 200]


def test_nobody_looks_and_nothing_is_read(tmp_path, monkeypatch):
    found = Watch(tmp_path)
    calls = []
    monkeypatch.setattr(monitor, "PERIOD", 0.01)
    monkeypatch.setattr(found, "refresh", lambda: calls.append(1))
    found.start()
    time.sleep(0.1)
    assert calls == []
    found.ask()
    time.sleep(0.1)
    found.close()
    assert calls == [1]


def test_configurations_become_rows(tmp_path):
    write_run(tmp_path / "run", {0: history()}, hyper={"lr": 0.1, "nested": {"x": [1, 2]}})
    told = views.config(only(looked(tmp_path)))
    assert ["hyper.nested.x", "[1, 2]"] in told["config"]
    assert ["jax", "0.10.2"] in told["versions"]
