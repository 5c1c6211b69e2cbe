"""Runs are found below the watched directory, and nothing outside it is read."""

import pytest
from dashboard_runs import as_lines, evaluation, history, only, refreshed, write_run

from grasp.dashboard import discovery, views
from grasp.dashboard.monitor import Monitor
from grasp.types import GraspError


def test_runs_are_found_below_the_directory_and_ids_do_not_reveal_paths(tmp_path):
    write_run(tmp_path / "a", {0: history()})
    write_run(tmp_path / "deep" / "er" / "b", {0: history(), 3: history()})
    (tmp_path / ".hidden").mkdir()
    write_run(tmp_path / ".hidden" / "c", {0: history()})
    write_run(tmp_path / "a" / "inside", {0: history()})
    found = refreshed(tmp_path).entries
    assert [entry.found.name for entry in found.values()] == ["a", "deep/er/b"]
    assert all(len(name) == 12 and name.isalnum() for name in found)
    assert sorted(list(found.values())[1].seeds) == [0, 3]


def test_the_directory_may_be_a_run_itself_and_must_exist(tmp_path):
    write_run(tmp_path / "run", {0: history()})
    assert only(refreshed(tmp_path / "run")).found.name == "run"
    with pytest.raises(GraspError, match="no directory .*nothing"):
        Monitor(tmp_path / "nothing")


def test_runs_below_the_depth_limit_are_ignored(tmp_path):
    write_run(tmp_path.joinpath(*"abcdef"), {0: history()})
    write_run(tmp_path.joinpath(*"vwxyz"), {0: history()})
    assert only(refreshed(tmp_path)).found.name == "v/w/x/y/z"


def test_symbolic_links_are_not_followed(tmp_path):
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
    entry = only(refreshed(root))
    assert sorted(entry.seeds) == [0, 2]
    assert entry.seeds[2].tail.content.offset == 0
    assert entry.seeds[2].latest is None
    assert entry.versions == {}
    assert views.conflict(entry, 2)["iterations"] == 0


def test_a_folder_later_replaced_by_a_link_is_not_followed(tmp_path):
    outside = write_run(tmp_path / "outside", {0: history(top=99.0)})
    root = tmp_path / "root"
    run = write_run(root / "run", {0: as_lines(evaluation(0, 1.0))})
    found = refreshed(root)
    path = only(found).seeds[0].tail.path
    (run / "seed-0" / "metrics.jsonl").unlink()
    (run / "seed-0").rmdir()
    (run / "seed-0").symlink_to(outside / "seed-0")
    assert discovery.open_inside(path) is None
    with discovery.open_inside(outside.resolve() / "seed-0" / "metrics.jsonl") as file:
        assert file.read(1) == b"{"
