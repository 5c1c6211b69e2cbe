"""The report: one self-contained file with every number, which executes nothing that came from a run."""

import json
import os
import re
import shutil
import subprocess

import pytest
from comparison_runs import finished, write_run, write_seed

from grasp.analysis import comparison, html_report
from grasp.analysis.run_data import load_runs
from grasp.types import GraspError

EVIL = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>'


def report(*paths, **keywords):
    runs = load_runs(paths)
    return html_report.page(comparison.compare(runs, **keywords), runs)


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.fixture
def two(tmp_path):
    tops = [0.5, 0.75, 0.25, 0.625, 1.0], [0.75, 1.0, 0.875, 0.9375, 0.5]
    return [
        write_run(tmp_path / "a", finished(tops[0]), training=True),
        write_run(tmp_path / "b", finished(tops[1]), algo="grasp-mappo", training=True),
    ]


@pytest.fixture
def several(tmp_path, two):
    return [
        *two,
        write_run(tmp_path / "c", finished([1.0, 2.0]), env="mpe/spread", wins=False),
        write_run(tmp_path / "d", finished([2.0, 3.0]), env="mpe/spread", algo="grasp-mappo", wins=False),
        write_run(tmp_path / "e", finished([0.5]), algo="qmix"),
    ]


def test_the_file_refers_to_nothing_outside_itself(two):
    page = report(*two)
    code = page.replace(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1], "")
    # The name of a vocabulary, which no browser fetches.
    code = code.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(|<link|<img|<iframe|\bfetch\(|\bimport\b[ (]", code)
    assert "default-src 'none'" in code
    assert "\nexport " not in code
    assert page.count("<script") == page.count("</script>") == 2


def test_text_from_runs_is_data_and_never_markup(tmp_path):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]), algo=EVIL, env=EVIL, config={"note": EVIL})
    page = report(run)
    assert page.count("<script") == 2
    assert "<img" not in page
    found = data_of(page)
    assert found["runs"][0]["config"]["note"] == EVIL
    assert found["envs"][0]["env"] == EVIL
    assert "innerHTML" not in page


def test_it_has_hashes_commands_and_protocols(two):
    runs = load_runs(two)
    result = comparison.compare(runs)
    found = html_report.content(result, runs)
    assert found["summary"] == "2 algorithms, 1 environment, 10 seeds"
    for run, shown in zip(runs, found["runs"], strict=True):
        assert [s["sha256"] for s in shown["seeds"]] == [seed.sha256 for seed in run.seeds]
        assert shown["config"] == run.config
        assert shown["command"] == run.command != ""
        assert (shown["protocol"], shown["versions"]["env_version"]) == (run.protocol, "0.2.0")
    env = found["envs"][0]
    # From the best to the worst, whatever the order they were named in.
    assert [line["label"] for line in env["curves"]] == ["grasp-mappo", "mappo"]
    assert [len(line["faint"]) for line in env["curves"]] == [5, 5]
    assert env["curves"][0]["x"] == [100, 200, 300, 400]
    assert [score["compared"] for score in env["scores"]] == [True, False, False]
    assert env["scores"][0]["dots"][1] | {"text": ""} == {
        "label": "mappo",
        "value": 0.625,
        "low": result.rows[0].interval[0],
        "high": result.rows[0].interval[1],
        "dots": (0.5, 0.75, 0.25, 0.625, 1.0),
        "text": "",
    }
    assert [panel["title"] for panel in env["training"]] == ["conflict rate", "‖u*‖ / mean ‖g‖"]
    assert found["overall"] is None
    assert found["styles"]["mappo"] == {"colour": "#D55E00", "dash": ""}


def test_several_environments_have_an_overall_section(several):
    runs = load_runs(several)
    found = html_report.content(comparison.compare(runs), runs)
    assert [line[0] for line in found["overall"]["lines"]] == ["mappo", "grasp-mappo"]
    assert [chart["title"].split()[0] for chart in found["overall"]["charts"]] == [
        "IQM",
        "mean",
        "median",
        "optimality",
    ]
    assert len(found["verdicts"]) == 3
    assert len(found["envs"][0]["pairs"]) == 3
    assert any("without qmix" in warning for warning in found["warnings"])


def test_settings_that_differ_are_listed(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 0.6]), config={"hyper": {"lr": 1e-3, "hidden": 64}})
    b = write_run(
        tmp_path / "b", finished([0.5, 0.7]), algo="qmix", config={"hyper": {"lr": 1e-2, "batch": 8, "hidden": 64}}
    )
    runs = load_runs([a, b])
    found = html_report.content(comparison.compare(runs), runs)["envs"][0]["differences"]
    assert found["labels"] == ["qmix", "mappo"]
    assert found["lines"] == [["lr", "0.01", "0.001"], ["batch", "8", ""]]


def test_write_makes_one_file_in_the_directory(two, tmp_path):
    runs = load_runs(two)
    result = comparison.compare(runs)
    path = html_report.write(result, runs, tmp_path / "deep" / "out")
    assert path == tmp_path / "deep" / "out" / "report.html"
    assert path.read_text(encoding="utf-8") == html_report.page(result, runs)
    with pytest.raises(GraspError, match="is a file; give --out a directory"):
        html_report.write(result, runs, path)


def dom(page, tmp_path):
    """The document after its script has run, and the console's messages."""
    if "GRASP_BROWSER" not in os.environ:
        pytest.skip("this test needs a browser; type: make test-browser")
    browser = shutil.which("chromium") or pytest.fail("no chromium; type: apt-get install -y chromium")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --virtual-time-budget=4000 --window-size=1280,3000 --dump-dom"
    command = [browser, *flags.split(), "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]
    command.append(f"file://{tmp_path}/page.html")
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_a_browser_shows_verdict_curves_tables_and_provenance(several, tmp_path):
    # Hard cases beside the plain ones: one seed, seeds that diverged, seeds that agree.
    diverged = write_run(tmp_path / "f", finished([float("nan"), 0.5]), algo="vdn")
    same = write_run(tmp_path / "g", finished([1.0, 1.0]), algo="happo")
    shown, complaints = dom(report(*several, diverged, same), tmp_path)
    assert complaints == []
    assert "over all environments.</h2>" in shown
    assert shown.count('class="gc-line"') > 10
    assert shown.count('class="bar"') > 6
    for words in ("Learning curves", "Performance profile", "Speed", "P(row &gt; column)", "grasp train mappo smax/3m"):
        assert words in shown, words
    seed = load_runs(several[:1])[0].seeds[0]
    assert seed.sha256 in shown
    warned = r"has a score of NaN|A score of \S+ or \S+ is NaN"  # in words, and nowhere as a number or a coordinate
    assert "NaN" not in re.sub(rf"<script.*?</script>|{warned}", "", shown, flags=re.DOTALL)


def test_a_browser_shows_hostile_text_as_text(tmp_path):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]), algo=EVIL, env=EVIL, config={"note": EVIL})
    write_seed(run, 7, [])
    shown, complaints = dom(report(run), tmp_path)
    assert complaints == []
    assert "<title>GRASP comparison</title>" in shown
    assert "<img" not in shown
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown


def test_the_side_with_the_higher_score_is_ahead(tmp_path):
    paths = [
        write_run(tmp_path / name, finished(top), algo=name)
        for name, top in (("mappo", [0.1, 0.2]), ("vdn", [0.8, 0.9]))
    ]
    runs = load_runs(paths)
    (pair,) = html_report.content(comparison.compare(runs), runs)["envs"][0]["pairs"]
    assert (pair["first"], pair["second"], pair["ahead"]) == ("mappo", "vdn", "vdn")
    assert pair["probability"] == 0


def test_speed_is_in_steps(tmp_path):
    runs = load_runs([write_run(tmp_path / "a", {0: ([0.1, 0.9, 0.9, 0.9], 0.9), 1: ([0.9] * 4, 0.9)})])
    (row,) = html_report.content(comparison.compare(runs), runs)["envs"][0]["speed"]["rows"]
    assert (row["dots"], row["value"]) == ((400.0, 300.0), 350.0)
