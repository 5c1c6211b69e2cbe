"""The JSON that the page receives."""

import json

import numpy as np
import pytest
from dashboard_runs import as_lines, evaluation, history, iteration, only, refreshed, write_run

from grasp.analysis.plots import band
from grasp.dashboard import views


def test_overview_has_progress_rate_and_time_left(tmp_path):
    write_run(tmp_path / "run", {0: history(points=1), 1: history(points=1)}, seeds=4)
    (row,) = views.overview(refreshed(tmp_path))["runs"]
    assert row["done"] == 800
    assert row["planned"] == 4000
    assert row["rate"] == 2000
    assert row["eta"] == 2
    assert row["return_mean"] == 10.0
    assert row["win_rate"] is None
    assert (row["algo"], row["label"], row["state"]) == ("grasp-mappo", "grasp-mappo", "live")


def test_an_invalid_config_is_reported_and_a_foreign_one_ignored(tmp_path):
    run = write_run(tmp_path / "run", {0: history()})
    (run / "config.json").write_text("{")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.json").write_text('{"name": "something else"}')
    (row,) = views.overview(refreshed(tmp_path))["runs"]
    assert row["problem"] == "its config.json is not a configuration of grasp"


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"format": 1, "algo": "x", "env": "y", "steps": 1e400}', "x" * (2 << 20)]
)
def test_a_malicious_config_causes_no_error(tmp_path, text):
    run = write_run(tmp_path / "run", {0: history()})
    (run / "config.json").write_text(text)
    (row,) = views.overview(refreshed(tmp_path))["runs"]
    json.dumps(row, allow_nan=False)
    assert row["planned"] == 0


def test_curves_equal_those_of_compare(tmp_path):
    write_run(tmp_path / "run", {k: history(top=10.0 + k) for k in range(5)})
    found = refreshed(tmp_path)
    (curve,) = views.curves(list(found.entries.values()))["runs"]
    steps = np.array([0, 400, 800, 1200, 1600, 2000.0])
    expected = band([np.stack([steps, (10.0 + k) * steps / 2000]) for k in range(5)])
    got = curve["metrics"]["return_mean"]
    assert got["x"] == steps.tolist()
    for name in ("line", "low", "high"):
        np.testing.assert_allclose(got[name], getattr(expected, name), rtol=1e-3)
    assert got["seeds"][3] == [steps.tolist(), [0.0, 2.6, 5.2, 7.8, 10.4, 13.0]]
    assert curve["statistic"] == "IQM of 5 seeds, 95 % bootstrap interval"
    assert curve["colour"] == "#0072B2"


def test_a_diverged_seed_is_a_gap(tmp_path):
    write_run(tmp_path / "run", {0: as_lines(evaluation(0, 1.0), evaluation(100, None), evaluation(200, 3.0))})
    (curve,) = views.curves([only(refreshed(tmp_path))])["runs"]
    assert curve["metrics"]["return_mean"]["line"] == [1.0, None, 3.0]
    assert "win_rate" not in curve["metrics"]


def test_a_run_without_evaluation_has_no_curve(tmp_path):
    write_run(tmp_path / "run", {0: as_lines(iteration(100))})
    (curve,) = views.curves([only(refreshed(tmp_path))])["runs"]
    assert curve["metrics"] == {}


def test_the_conflict_view_has_every_agent(tmp_path):
    lines = as_lines(*[iteration(100 * k, factors=[0.5, None, 0.7], residual=None) for k in range(1, 6)])
    write_run(tmp_path / "run", {0: lines})
    (group,) = views.conflict(only(refreshed(tmp_path)), 0)["groups"]
    assert group["num_agents"] == 3
    assert group["x"] == [100, 200, 300, 400, 500]
    assert group["cosines"][0] == [-0.9, -0.8, -0.7]
    assert group["factors"][0] == [0.5, None, 0.7]
    assert group["statuses"] == {"certified": 5}
    assert "residual" not in group


def test_heads_and_backbone_have_one_group_each(tmp_path):
    more = {f"backbone_{name}": value for name, value in iteration(1, 3).items() if name in ("weights", "cosines")}
    write_run(tmp_path / "run", {0: as_lines(iteration(100, **more))})
    groups = views.conflict(only(refreshed(tmp_path)), 0)["groups"]
    assert [group["name"] for group in groups] == ["", "backbone"]


def test_a_run_without_consensus_has_no_conflict_view(tmp_path):
    line = {"kind": "iteration", "env_steps": 100, "seed": 0, "skipped_steps": 0.0}
    write_run(tmp_path / "run", {0: as_lines(line)}, algo="mappo")
    got = views.conflict(only(refreshed(tmp_path)), 0)
    assert got["groups"] == []
    assert got["iterations"] == 1


@pytest.mark.parametrize("cosines", [[1], "text", None, [[1]], [{}, {}, {}]])
def test_cosines_of_the_wrong_shape_are_gaps(tmp_path, cosines):
    text = as_lines(iteration(100), iteration(200, cosines=cosines))
    write_run(tmp_path / "run", {0: text})
    (group,) = views.conflict(only(refreshed(tmp_path)), 0)["groups"]
    json.dumps(group, allow_nan=False)
    assert group["cosines"][0] == [-0.9, -0.8, -0.7]
    assert not group["cosines"][1] or None in group["cosines"][1]


def test_many_agents_stay_within_bounds(tmp_path):
    write_run(tmp_path / "run", {0: as_lines(*[iteration(100 * k, 60) for k in range(1, 200)])})
    (group,) = views.conflict(only(refreshed(tmp_path)), 0)["groups"]
    assert group["num_agents"] == 60
    assert sum(map(len, group["cosines"])) <= views.MOST_COSINES + 60 * 59 // 2
    assert group["x"][-1] == 19_900
    assert len(group["x"]) == len(group["weights"]) == len(group["conflict_rate"])


def test_the_conflict_view_follows_a_growing_file(tmp_path):
    run = write_run(tmp_path / "run", {0: as_lines(iteration(100))})
    found = refreshed(tmp_path)
    assert views.conflict(only(found), 0)["groups"][0]["x"] == [100]
    with (run / "seed-0" / "metrics.jsonl").open("ab") as file:
        file.write(as_lines(iteration(200)))
    found.refresh()
    assert views.conflict(only(found), 0)["groups"][0]["x"] == [100, 200]


def test_configurations_become_rows(tmp_path):
    write_run(tmp_path / "run", {0: history()}, hyper={"lr": 0.1, "nested": {"x": [1, 2]}})
    got = views.config(only(refreshed(tmp_path)))
    assert ["hyper.nested.x", "[1, 2]"] in got["config"]
    assert ["jax", "0.10.2"] in got["versions"]
