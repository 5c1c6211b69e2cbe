"""Comparisons of synthetic run directories: numbers, warnings, tables and plots."""

import csv
import json
import sys

import numpy as np
import pytest
from comparison_runs import finished, has, ramp, text, write_run, write_seed

from grasp.analysis import comparison, export, plots, tables
from grasp.analysis.run_data import load_runs, short
from grasp.analysis.statistics import bootstrap, iqm, probability_of_improvement
from grasp.analysis.tables import latex, markdown, render
from grasp.api import compare
from grasp.config import configure, to_json
from grasp.types import GraspError


@pytest.fixture
def two(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 0.75, 0.25, 0.625, 1.0]), training=True)
    b = write_run(tmp_path / "b", finished([0.75, 1.0, 0.875, 0.9375, 0.5]), algo="grasp-mappo", training=True)
    return [a, b]


def test_rows_hold_the_statistics_of_the_absolute_scores(two):
    mappo, ours = compare(two).rows
    assert (mappo.label, ours.label) == ("mappo", "grasp-mappo")
    assert mappo.scores == (0.5, 0.75, 0.25, 0.625, 1.0)
    assert mappo.iqm == iqm(np.array(mappo.scores)) == 0.625
    assert mappo.mean == 0.625
    assert ours.interval == bootstrap(ours.scores, iqm)
    assert (mappo.metric, mappo.final, mappo.env_steps, mappo.seeds) == (
        "win rate",
        "absolute",
        (400, 400),
        (0, 1, 2, 3, 4),
    )
    assert mappo.protocol == (
        "32 greedy episodes at 4 evenly spaced points; best policy re-evaluated on 320 greedy episodes"
    )


def test_clean_runs_raise_no_warning(two):
    assert compare(two).warnings == ()


def test_improvement_of_each_pair_on_the_same_environment(two, tmp_path):
    third = write_run(tmp_path / "c", finished([0.9, 0.8]), algo="qmix", env="smax/8m")
    found = compare([*two, third]).improvements
    assert [(pair.env, pair.first, pair.second) for pair in found] == [("smax/3m", "mappo", "grasp-mappo")]
    rows = compare(two).rows
    assert (found[0].probability, found[0].interval) == probability_of_improvement(rows[0].scores, rows[1].scores)


def test_without_absolute_metric_the_last_tenth_counts(tmp_path):
    points = tuple(range(10, 210, 10))
    scores = [0.0] * 18 + [0.5, 1.0]
    run = write_run(tmp_path / "a", {0: scores, 1: scores}, config={"steps": 200, "final_episodes": 0}, points=points)
    row = compare([run]).rows[0]
    assert (row.scores, row.final) == ((0.75, 0.75), "last 10 %")
    assert row.protocol == "32 greedy episodes at 20 evenly spaced points"


def test_without_wins_returns_are_compared(tmp_path):
    run = write_run(tmp_path / "a", finished([1.0, 2.0]), wins=False)
    row = compare([run]).rows[0]
    assert (row.metric, row.scores) == ("return", (10.0, 20.0))


def test_wins_in_one_run_only_compare_returns_with_a_warning(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 1.0]))
    b = write_run(tmp_path / "b", finished([0.5, 1.0]), algo="qmix", wins=False)
    result = compare([a, b])
    assert {row.metric for row in result.rows} == {"return"}
    assert has(result.warnings, "only some runs record wins")


def test_an_unfinished_seed_is_warned_of_and_all_use_the_same_score(tmp_path):
    whole = write_run(tmp_path / "a", finished([0.5, 0.75]))
    broken = write_run(tmp_path / "b", {0: (ramp(1.0), 0.9), 1: [0.1, 0.3]}, algo="qmix")
    result = compare([whole, broken])
    rows = result.rows
    assert [row.final for row in rows] == ["last 10 %", "last 10 %"]
    assert [row.scores for row in rows] == [(0.5, 0.75), (1.0, 0.3)]
    assert (rows[1].by["absolute"].seeds, rows[1].by["absolute"].scores) == ((0,), (0.9,))
    assert rows[1].env_steps == (200, 400)
    assert has(result.warnings, "unfinished", "seed 1 at 200 of 400")
    assert has(result.warnings, "not every seed has an absolute metric")
    assert "200–400" in text(render(result))


def test_a_seed_is_finished_after_whole_iterations(tmp_path):
    """1,000 steps are three iterations of 320."""
    run = write_run(tmp_path / "a", {0: (ramp(1.0), 0.9), 1: ramp(1.0)[:2]}, points=(240, 640, 720, 960))
    options = {"steps": 1000, "num_envs": 16, "rollout": 20, "final_episodes": 320}
    (run / "config.json").write_text(to_json(configure("mappo", "smax/3m", options)))
    assert has(compare([run]).warnings, "mappo is unfinished (seed 1 at 640 of 960 env steps)")


def test_unequal_steps_and_seeds_between_runs_are_warned_of(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 0.6, 0.7]))
    b = write_run(tmp_path / "b", {0: ([0.1, 0.2], 0.2), 2: ([0.3, 0.4], 0.4)}, algo="qmix")
    warnings = compare([a, b]).warnings
    assert has(warnings, "env steps differ", "mappo: 400", "qmix: 200")
    assert has(warnings, "seeds differ", "mappo: 0 1 2", "qmix: 0 2")


def test_different_commits_are_warned_of(two):
    for name, commit in (("a", "abc"), ("b", "abc-dirty")):
        file = two[0].parent / name / "versions.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"commit": commit}))
    warnings = compare(two).warnings
    assert has(warnings, "commits of grasp differ", ": abc;", ": abc-dirty)")


def test_different_versions_of_grasp_or_jax_are_warned_of(two):
    file = two[1] / "versions.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"grasp": "0.2.0", "jax": "0.10.2"}))
    assert compare(two).warnings == (
        "smax/3m: versions of grasp differ between the runs (mappo: 0.1.0; grasp-mappo: 0.2.0)",
        "smax/3m: versions of jax differ between the runs (mappo: unknown; grasp-mappo: 0.10.2)",
    )


def test_a_seed_without_evaluation_is_left_out_with_a_warning(tmp_path):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]))
    (run / "seed-2").mkdir()
    (run / "seed-2" / "metrics.jsonl").write_text("")
    result = compare([run])
    assert result.rows[0].seeds == (0, 1)
    assert has(result.warnings, "seed 2 has no evaluation")


def refusal(*paths):
    with pytest.raises(GraspError) as caught:
        comparison.compare(load_runs(paths))
    assert str(caught.value).count(". ") == 0  # one sentence
    return str(caught.value)


def test_different_environment_versions_are_refused_unless_forced(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 0.6]))
    b = write_run(tmp_path / "b", finished([0.5, 0.7]), algo="qmix", version="0.1.0")
    words = ("environment versions differ", "mappo: jaxmarl 0.2.0", "qmix: jaxmarl 0.1.0")
    assert has([refusal(a, b)], *words, "--force")
    assert has(comparison.compare(load_runs([a, b]), force=True).warnings, *words)
    (b / "versions.json").unlink()
    assert has([refusal(a, b)], "environment versions differ", "unknown")
    (a / "versions.json").unlink()
    assert has(compare([a, b]).warnings, "has recorded the environment's version")


def test_different_numbers_of_episodes_are_refused_and_different_intervals_warned_of(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 0.6]))
    often = write_run(tmp_path / "b", finished([0.5, 0.7]), algo="qmix", points=(50, 100, 150, 200))
    early = write_run(tmp_path / "c", {0: [0.1, 0.2], 1: [0.1, 0.3]}, algo="vdn")
    warnings = compare([a, often]).warnings
    assert has(warnings, "evaluation points differ", "mappo: every 100 env steps", "qmix: every 50 env steps")
    assert not has(compare([a, early]).warnings, "evaluation points differ")
    thorough = write_run(tmp_path / "d", finished([0.5, 0.7]), algo="happo", config={"final_episodes": 1000})
    words = (
        "evaluation protocols differ",
        "mappo: 32 greedy episodes per evaluation, 320 at the end",
        "1000 at the end",
    )
    assert has([refusal(a, thorough)], *words)
    assert has(comparison.compare(load_runs([a, thorough]), force=True).warnings, *words)
    metrics = often / "seed-1" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"episodes": 32,', '"episodes": 8,'))
    assert has([refusal(a, often)], "evaluation protocols differ", "qmix: 8–32 greedy episodes")


def test_versions_may_differ_between_environments(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 0.6]))
    b = write_run(tmp_path / "b", finished([0.5, 0.7]), env="smax/8m", version="0.1.0")
    assert compare([a, b]).warnings == ()


def test_unevenly_spaced_points_are_not_described_as_even(tmp_path):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]), points=(10, 20, 200, 400))
    assert "at 4 points" in compare([run]).rows[0].protocol


def test_one_seed_has_no_interval_over_seeds_but_one_over_episodes(tmp_path):
    run = write_run(tmp_path / "a", finished([0.5]))
    result = compare([run])
    assert result.rows[0].interval is None
    assert "n/a" in text(render(result))
    assert has(result.warnings, "one seed", "320 episodes", "[0.446, 0.554] (Wilson)")


def test_seeds_that_agree_and_seeds_that_diverged_have_no_interval(tmp_path):
    same = compare([write_run(tmp_path / "a", finished([1.0, 1.0, 1.0]))])
    assert same.rows[0].interval is None
    assert has(same.warnings, "all 3 seeds", "the same score")
    runs = [write_run(tmp_path / "b", finished([1.0, 2.0, 3.0, float("nan")]), wins=False)]
    diverged = compare(runs, out=tmp_path / "out")
    assert np.isnan(diverged.rows[0].iqm)
    assert has(diverged.warnings, "NaN")
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["rows"][0]["scores"] == [
        10.0,
        20.0,
        30.0,
        None,
    ]


def test_a_truncated_last_line_is_ignored_and_a_damaged_one_elsewhere_reported(tmp_path):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]))
    metrics = run / "seed-0" / "metrics.jsonl"
    whole = metrics.read_text()
    metrics.write_text(whole + '{"kind": "evaluation", "env_st')
    assert compare([run]).warnings == ()
    lines = whole.splitlines()
    metrics.write_text("\n".join([lines[0], lines[1][:20], *lines[2:]]) + "\n")
    result = compare([run])
    assert has(result.warnings, "seed-0", "line 2")
    assert has(result.warnings, "mappo is unfinished (the log of seed 0 has a damaged line)")
    assert load_runs([run])[0].seeds[0].curve("win rate")[0].tolist() == [100, 300, 400]


def test_records_without_required_keys_are_damaged_lines(tmp_path):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]))
    metrics = run / "seed-1" / "metrics.jsonl"
    broken = ["3", '{"kind": "evaluation"}', '{"kind": "evaluation", "env_steps": 50}']
    metrics.write_text("\n".join(broken) + "\n" + metrics.read_text())
    warnings = compare([run]).warnings
    assert sum("is left out" in warning for warning in warnings) == 3
    assert has(warnings, "mappo is unfinished (the log of seed 1 has a damaged line)")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("evaluation", {"win_rate": "high"}),
        ("evaluation", {"return_mean": "0.5"}),
        ("evaluation", {"episodes": float("nan")}),
        ("evaluation", {"env_steps": "200"}),
        ("evaluation", {"env_steps": float("inf")}),
        ("evaluation", {"returns": [1.0, "x"]}),
        ("evaluation", {"wins": 3}),
        ("iteration", {"conflict_rate": "high"}),
        ("absolute", {"win_rate": [1.0]}),
    ],
)
def test_a_line_with_scores_that_are_not_numbers_is_damaged_also_at_the_end(tmp_path, kind, values):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]), training=True)
    metrics = run / "seed-1" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    place = [line["kind"] for line in lines].index(kind)
    lines[place] |= values
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = load_runs([run])
    assert found.warnings == (f"line {place + 1} of {metrics} is damaged and is left out",)
    seed = found.seeds[1]
    assert len(seed.evaluations) == (3 if kind == "evaluation" else 4)
    assert (seed.absolute is None) == (kind == "absolute")
    assert seed.training["conflict_rate"].shape == (2, 3 if kind == "iteration" else 4)


@pytest.mark.parametrize("content", ["garbage", "garbage\n" * 9, "\0" * 100, '{"kind": 1}\n'])
def test_an_unreadable_file_is_reported(tmp_path, content):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]))
    metrics = run / "seed-0" / "metrics.jsonl"
    metrics.write_text(content)
    warnings = compare([run]).warnings
    assert warnings[:2] == (f"no line of {metrics} can be read", f"{run}: seed 0 has no evaluation and is left out")
    words = f"has no evaluation: no line of {metrics} can be read; restore the file, or leave this run out"
    assert refusal(run / "seed-0") == f"run '{run / 'seed-0'}' {words}"
    (run / "seed-1" / "metrics.jsonl").write_text("")
    assert refusal(run) == f"run '{run}' {words}"


def test_of_a_point_repeated_after_resume_the_later_counts(tmp_path):
    run = write_run(tmp_path / "a", {0: [0.1, 0.2], 1: [0.1, 0.2]})
    with (run / "seed-0" / "metrics.jsonl").open("a") as file:
        file.write(
            '{"kind": "evaluation", "env_steps": 200, "seed": 0, "return_mean": 7, "win_rate": 0.7, "episodes": 32}\n'
        )
    assert load_runs([run])[0].seeds[0].curve("win rate").tolist() == [[100.0, 200.0], [0.1, 0.7]]


def test_one_seed_of_a_run_can_be_compared(two):
    run = load_runs([two[0] / "seed-3", two[0] / "seed-3"])
    assert [[s.seed for s in r.seeds] for r in run] == [[3]]
    assert compare([two[0] / "seed-3"]).rows[0].scores == (0.625,)


def test_labels_show_the_settings_that_differ(tmp_path):
    seeds = finished([0.5, 0.6])
    a = write_run(tmp_path / "x" / "a", seeds, config={"optimiser": {"lr": 0.001}, "out": "p"})
    b = write_run(tmp_path / "x" / "b", seeds, config={"optimiser": {"lr": 0.01}, "out": "q"})
    c = write_run(tmp_path / "y" / "c", seeds, config={"optimiser": {"lr": 0.01}})
    d = write_run(tmp_path / "y" / "b", seeds, config={"optimiser": {"lr": 0.01}})
    other = write_run(tmp_path / "z", seeds, env="smax/8m")

    def labels(*paths):
        return [run.label for run in load_runs(paths)]

    assert labels(a, b, other) == ["mappo (optimiser.lr=0.001)", "mappo (optimiser.lr=0.01)", "mappo"]
    assert labels(b, c) == ["mappo (b)", "mappo (c)"]
    assert labels(b, d) == [f"mappo ({b})", f"mappo ({d})"]


def test_equal_configurations_have_the_same_label_on_every_environment(tmp_path):
    """Settings that differ between environments only, as presets do, are not in a label."""
    seeds = finished([0.5, 0.6])

    def run(name, algo, env, operator, **hyper):
        config = {"hyper": {"operator": operator} | hyper}
        return write_run(tmp_path / env[5:] / name, seeds, algo, env, config=config)

    plain = [run("mappo", "mappo", env, "none") for env in ("smax/3m", "smax/8m")]
    ours = [run("ours", "grasp-mappo", "smax/3m", "min_norm", hidden=64)]
    ours += [run("mean", "grasp-mappo", "smax/3m", "mean", hidden=64)]
    ours += [run("ours", "grasp-mappo", "smax/8m", "min_norm", hidden=128)]
    result = compare([*plain, *ours])
    labels = ["grasp-mappo", "grasp-mappo (operator=mean)", "grasp-mappo"]
    assert [found.label for found in load_runs([*plain, *ours])] == ["mappo", "mappo", *labels]
    assert [found.label for found in result.aggregates] == ["mappo", labels[0]]
    # a second setting that sets runs apart elsewhere names all of them
    ours += [run("wide", "grasp-mappo", "smax/8m", "min_norm", hidden=256)]
    more = ("", " (operator=mean)", " (hidden=128)", " (hidden=256)")  # what is usual goes without saying
    assert [found.label for found in load_runs(ours)] == [f"grasp-mappo{words}" for words in more]
    # too many: the directories' names, also where there is one run
    ours += [run("far", "grasp-mappo", "smax/8m", "sum", hidden=512, lr=1, kl=1, clip=1, gamma=1)]
    ours += [run("farther", "grasp-mappo", "smax/8m", "sum", hidden=512, lr=2, kl=2, clip=2, gamma=2)]
    ours += [run("ours", "grasp-mappo", "smax/2s3z", "min_norm")]
    assert [found.label for found in load_runs([ours[0], *ours[4:]])] == [
        f"grasp-mappo ({name})" for name in ("ours", "far", "farther", "ours")
    ]


def test_errors_are_one_sentence_with_a_suggestion(two, tmp_path):
    def message(*paths):
        with pytest.raises(GraspError) as caught:
            load_runs(paths)
        return str(caught.value)

    run = tmp_path / "a"
    assert "name at least one run directory" in message()
    assert f"did you mean '{tmp_path / 'b'}'?" in message(tmp_path / "bb")
    assert "grasp train" in message(tmp_path / "nothing-like-it")
    assert f"did you mean {run} {tmp_path / 'b'}?" in message(tmp_path)
    assert f"did you mean {run}?" in message(run / "seed-0" / "metrics.jsonl")
    assert f"did you mean '{run / 'seed-1'}'?" in message(run / "seed-11")
    assert message(run, run / "seed-1").endswith(f"is a seed of '{run}', which is named too; name one of them")
    empty = write_run(tmp_path / "new", {0: []})
    assert "no evaluation yet (0 of 400 env steps done)" in message(empty)
    for name in ("c", "d"):
        write_run(tmp_path / name, {0: []})
    assert f"did you mean {tmp_path / '*'}?" in message(tmp_path)
    deep = write_run(tmp_path / "suite" / "env" / "run", {0: []})
    assert f"did you mean {deep}?" in message(tmp_path / "suite")
    (empty / "config.json").write_text("{")
    assert "is not a configuration of grasp" in message(empty)


def test_every_output_includes_the_protocol(two):
    result = compare(two)
    for shown in (text(render(result)), markdown(result), latex(result)):
        assert "32 greedy episodes at 4 evenly spaced points" in shown
        assert "jaxmarl 0.2.0" in shown
        assert "0.625" in shown
    assert "P(mappo > grasp-mappo)" in text(render(result))


def test_many_pairs_have_a_line_per_algorithm(tmp_path):
    seeds = finished([0.5, 0.6])
    runs = [write_run(tmp_path / str(k), seeds, config={"layers": str(k)}) for k in range(4)]
    result = compare(runs)
    lines = [line for line in markdown(result).splitlines() if line.startswith("- P(")]
    assert [line.count("0.500 [") for line in lines] == [3, 2, 1]
    assert lines[0].startswith("- P(mappo (layers=0) > ·): mappo (layers=1) 0.500 [")
    assert latex(result).count("$\\cdot$") == 3


def test_labels_in_brackets_survive_the_terminal(tmp_path):
    seeds = finished([0.5, 0.6])
    a = write_run(tmp_path / "a", seeds, config={"layers": "[bold]"})
    b = write_run(tmp_path / "b", seeds, config={"layers": "[64, 64]"})
    shown = text(render(compare([a, b]))).splitlines()
    assert sum(line.startswith(("│ mappo (layers=[bold])", "│ mappo (layers=[64, 64])")) for line in shown) == 6


def test_latex_is_booktabs_and_escaped(two):
    lines = latex(compare(two)).splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrr}"
    assert [r"\toprule" in lines, lines.count(r"\midrule"), r"\bottomrule" in lines] == [True, 5, True]
    assert "absolute metric" in lines[2]
    assert r"95 \% interval" in lines[3]
    rows = [line for line in lines if line.startswith(("mappo &", "grasp-mappo &"))]
    assert all(line.count(" & ") == 6 and line.endswith(r"\\") for line in rows)
    assert len(rows) == 6
    assert "P(mappo $>$ grasp-mappo)" in "\n".join(lines)
    assert "mappo $-$ grasp-mappo at equal seeds" in "\n".join(lines)


def test_latex_has_warnings_as_comments(tmp_path):
    run = write_run(tmp_path / "a_b", finished([0.5]), env="smax/5m_vs_6m")
    shown = latex(compare([run]))
    assert r"smax/5m\_vs\_6m" in shown
    assert shown.startswith("% warning: smax/5m_vs_6m: mappo has one seed")


def test_markdown_table_has_as_many_cells_in_every_line(two):
    table = [line for line in markdown(compare(two)).splitlines() if line.startswith("|")]
    assert len(table) == 12
    assert {line.count("|") for line in table} == {8}


def test_out_writes_table_json_and_curves(two, tmp_path):
    out = tmp_path / "deep" / "out"
    result = compare(two, out=out)
    assert sorted(p.name for p in out.iterdir()) == [
        "comparison.json",
        "curves.csv",
        "curves.png",
        "report.html",
        "rows.csv",
        "table.md",
    ]
    assert (out / "table.md").read_text() == markdown(result)
    read = json.loads((out / "comparison.json").read_text())
    assert [row["label"] for row in read["rows"]] == ["mappo", "grasp-mappo"]
    assert tuple(read["rows"][1]["interval"]) == result.rows[1].interval
    assert read["improvements"][0]["probability"] == result.improvements[0].probability
    with (out / "curves.csv").open() as file:
        points = list(csv.DictReader(file))
    for algo, path in zip(("mappo", "grasp-mappo"), two, strict=True):
        for seed in range(5):
            lines = [json.loads(line) for line in (path / f"seed-{seed}" / "metrics.jsonl").read_text().splitlines()]
            expected = [(line["env_steps"], line["win_rate"]) for line in lines if line["kind"] == "evaluation"]
            mine = [p for p in points if (p["algorithm"], p["seed"]) == (algo, str(seed))]
            found = [(int(p["env_steps"]), float(p["value"])) for p in mine]
            assert len(found) > 2
            assert found == [(steps, pytest.approx(rate, rel=1e-5)) for steps, rate in expected]
            assert {p["metric"] for p in mine} == {"win rate"}
    compare(two, out=tmp_path / "tex", latex=True)
    assert (tmp_path / "tex" / "table.tex").read_text() == latex(result)
    with pytest.raises(GraspError, match="is a file; give --out a directory"):
        compare(two, out=out / "table.md")


def pixels(path):
    from matplotlib.image import imread

    return imread(path)[..., :3]


def near(image, colour):
    from matplotlib.colors import to_rgb

    return int((np.abs(image - np.array(to_rgb(colour))).max(axis=-1) < 0.02).sum())


def test_curves_are_drawn_in_the_colours_of_their_algorithms(two, tmp_path):
    plots.curves(load_runs(two), tmp_path / "both.png")
    plots.curves(load_runs(two[:1]), tmp_path / "one.png")
    both, one = pixels(tmp_path / "both.png"), pixels(tmp_path / "one.png")
    assert both.shape[1] >= 900
    assert (tmp_path / "both.png").stat().st_size > 20_000
    blue, vermilion = (plots.styles([label])[label][0] for label in ("grasp-mappo", "mappo"))
    assert near(both, blue) > 1000
    assert near(both, vermilion) > 1000
    assert near(one, blue) == 0
    assert near(one, vermilion) > 1000


def test_drawing_does_not_change_pyplot(two, tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plots.curves(load_runs(two), tmp_path / "x.png")
    assert dict(mpl.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_training_panels_only_where_a_run_has_them(two, tmp_path):
    plain = write_run(tmp_path / "plain", finished([0.5, 0.6]), algo="qmix")
    plots.curves(load_runs([plain]), tmp_path / "low.png")
    plots.curves(load_runs([plain, *two]), tmp_path / "high.png")
    assert pixels(tmp_path / "high.png").shape[0] > 1.5 * pixels(tmp_path / "low.png").shape[0]


def test_hard_cases_can_be_drawn(tmp_path):
    runs = [
        write_run(tmp_path / "a", {0: [0.5]}),
        write_run(tmp_path / "b", {0: ramp(0.5), 1: [0.1], 2: ramp(0.9)}, algo="qmix", training=True),
        write_run(tmp_path / "c", finished([0.1, float("nan"), 0.3]), algo="$x_{$", env="e$^{$"),
        *(write_run(tmp_path / f"d{i}", finished([0.1, 0.2]), env=f"smax/{i}") for i in range(3)),
    ]
    # Seeds whose ranges do not meet have no common point at all.
    late = write_run(tmp_path / "e", {0: [0.1, 0.2]}, algo="vdn")
    write_seed(late, 1, [0.3, 0.4], points=(300, 400))
    plots.curves(load_runs([*runs, late]), tmp_path / "x.png")
    assert pixels(tmp_path / "x.png").std() > 0.05


def test_common_points_never_extrapolate():
    long = np.array([[100.0, 200.0, 300.0, 400.0], [0.0, 1.0, 2.0, 3.0]])
    odd = np.array([[150.0, 250.0], [5.0, 7.0]])
    found = plots.band([long, odd])
    assert found.steps.tolist() == [150.0, 200.0, 250.0]
    np.testing.assert_allclose(found.line, [(0.5 + 5) / 2, (1 + 6) / 2, (1.5 + 7) / 2])
    np.testing.assert_allclose(found.low, [0.5, 1.0, 1.5])
    np.testing.assert_allclose(found.high, [5.0, 6.0, 7.0])


@pytest.mark.parametrize("n", [3, 5])
def test_band_is_the_bootstrap_of_the_drawn_statistic(n):
    values = np.random.default_rng(0).normal(size=(n, 2))
    found = plots.band([np.array([[0.0, 1.0], v]) for v in values])
    for i in range(2):
        statistic = iqm if n >= 4 else (lambda x: x.mean(axis=-1))
        assert found.line[i] == pytest.approx(statistic(values[:, i]))
        assert (found.low[i], found.high[i]) == pytest.approx(bootstrap(values[:, i], statistic))


def test_styles_are_fixed_for_known_algorithms_and_distinct_for_all():
    many = [f"mappo (lr={i})" for i in range(20)]
    found = plots.styles([*many, "qmix", "mappo"])
    assert len(set(found.values())) == 22
    assert found["mappo"] == plots.styles(["mappo"])["mappo"]
    assert found["qmix"] == plots.styles(["vdn", "qmix"])["qmix"]


def test_binned_training_metric_keeps_its_mean():
    steps = np.arange(1.0, 1001.0)
    found = plots.binned(np.array([steps, steps]), 1000.0)
    assert found.shape == (2, 50)
    np.testing.assert_allclose(found[0], found[1])
    assert found[1].mean() == pytest.approx(500.0, abs=1.0)


@pytest.mark.parametrize(("steps", "expected"), [(0, "0"), (950, "950"), (1500, "1.5k"), (1_228_800, "1.2288M")])
def test_numbers_of_steps_are_abbreviated_without_rounding(steps, expected):
    assert short(steps) == expected


def test_a_seed_that_has_not_begun_is_warned_of(tmp_path):
    run = write_run(tmp_path / "a", finished([0.5, 0.6]), config={"seed": 0, "seeds": 4})
    warnings = compare([run]).warnings
    assert has(warnings, "seed 2 has not begun")
    assert has(warnings, "seed 3 has not begun")
    assert not has(compare([run / "seed-0"]).warnings, "has not begun"), "one seed was asked for"


def test_an_algorithm_that_never_wins_reaches_no_threshold(tmp_path):
    run = write_run(tmp_path / "a", {0: ([0.0] * 4, 0.0), 1: ([0.0] * 4, 0.0)})
    row = compare([run]).rows[0]
    assert row.reached.steps == (np.inf, np.inf)
    assert np.isnan(row.reached.threshold)


def test_every_number_of_a_row_is_in_its_column(two, tmp_path):
    """Scores whose mean, median, IQM and interval all differ."""
    run = write_run(tmp_path / "c", finished([0.1, 0.2, 0.3, 0.4, 0.9]), algo="vdn")
    result = compare([*two, run])
    row = result.rows[-1]
    assert (row.mean, row.median) == (pytest.approx(0.38), pytest.approx(0.3))
    assert tables.cells(row, row)[2:6] == (
        f"{row.iqm:.3f}", f"[{row.interval[0]:.3f}, {row.interval[1]:.3f}]", "0.380", "0.300"
    )  # fmt: skip
    line = next(line for line in csv.DictReader(export.rows(result).splitlines()) if line["algorithm"] == "vdn")
    low, high = row.interval
    for name, value in {"iqm": row.iqm, "low": low, "high": high, "mean": 0.38, "median": 0.3}.items():
        assert float(line[name]) == pytest.approx(value, rel=1e-5), name
    assert low < row.iqm < high


def test_an_undefined_number_is_an_empty_cell(tmp_path):
    run = write_run(tmp_path / "a", {0: ([0.0] * 4, 0.0), 1: ([0.0] * 4, 0.0)})
    (line, *_) = csv.DictReader(export.rows(compare([run])).splitlines())
    assert line["threshold"] == ""
    assert line["steps_to_threshold"] in ("", "None")


def test_mean_and_median_over_all_environments(two, tmp_path):
    more = [
        write_run(tmp_path / f"8m-{name}", finished(tops), algo=name, env="smax/8m")
        for name, tops in (("mappo", [0.0, 0.1, 0.2, 0.3, 0.9]), ("grasp-mappo", [0.2, 0.2, 0.2, 0.2, 1.0]))
    ]
    found = compare([*two, *more]).aggregates[0]
    means = [np.mean([0.5, 0.75, 0.25, 0.625, 1.0]), np.mean([0.0, 0.1, 0.2, 0.3, 0.9])]
    assert found.mean.value == pytest.approx(np.mean(means))
    assert found.median.value == pytest.approx(np.median(means)), "of the means of the tasks"
    assert found.iqm.value != pytest.approx(found.mean.value)


def test_the_paper_s_scores_are_beside_ours_in_every_table(two, tmp_path):
    claims = {("smax/3m", "grasp-mappo"): "0.967 ± 0.031"}
    result = compare(two, out=tmp_path / "out", claims=claims, notes=["the maps are our guess"])
    ours = [0.75, 1.0, 0.875, 0.9375, 0.5]
    mean = f"{np.mean(ours):.3f} ± {np.std(ours, ddof=1):.3f}"
    for name in ("table.md", "report.html"):
        shown = (tmp_path / "out" / name).read_text()
        for words in ("the paper's mean", "0.967 ± 0.031", mean, "the maps are our guess"):
            assert words in shown.replace("\\u00b1", "±"), (name, words)
    assert "0.967" in latex(result)
    assert "the paper's" not in markdown(compare(two))
