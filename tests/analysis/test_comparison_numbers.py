"""What a comparison holds beside its rows: every score, pairs, speed, scales, aggregates, profiles, and its exports."""

import csv
import dataclasses
import hashlib
import io
import json
import math

import numpy as np
import pytest
from comparison_runs import finished, has, ramp, text, write_run, write_seed

from grasp import cli
from grasp import config as configs
from grasp.analysis import export, statistics, tables
from grasp.analysis.comparison import OVERALL, compare
from grasp.analysis.permutation_test import permutation_p
from grasp.analysis.run_data import load_runs
from grasp.analysis.verdict import verdicts
from grasp.types import GraspError


@pytest.fixture
def pair(tmp_path):
    """Absolute scores that differ from the last evaluations; seeds 0-3 and 1-4."""
    a = write_run(tmp_path / "a", {s: (ramp(0.5 + 0.1 * s), 0.6 + 0.05 * s) for s in range(4)}, sampled=0.9)
    others = {s: (ramp(0.2 + 0.1 * s), 0.3 + 0.06 * s) for s in range(1, 5)}
    return [a, write_run(tmp_path / "b", others, algo="qmix", sampled=0.9)]


def compared(*paths, **keywords):
    return compare(load_runs(paths), **keywords)


def test_every_score_is_summarised_and_the_absolute_one_compared(pair):
    row = compared(*pair).rows[0]
    assert row.by["absolute"].scores == row.scores == pytest.approx((0.6, 0.65, 0.7, 0.75))
    assert row.by["last 10 %"].scores == pytest.approx((0.5, 0.6, 0.7, 0.8))
    assert (row.by["last 10 %"].iqm, row.by["last 10 %"].median) == pytest.approx((0.65, 0.65))
    assert row.by["last 10 %"].interval == statistics.bootstrap(row.by["last 10 %"].scores, statistics.iqm)
    shown = tables.markdown(compared(*pair))
    for name in tables.NAMES.values():
        assert shown.count(name) == 1
    assert shown.index(tables.NAMES["absolute"]) < shown.index(tables.NAMES["last 10 %"])


def test_the_whole_run_is_the_mean_of_all_evaluations_but_the_untrained(tmp_path):
    """The evaluation at step 0 counts only if there is no other."""
    late = {s: ([0.9, 0.0, 0.1 * s, 1.0], 1.0) for s in range(4)}
    run = write_run(tmp_path / "a", late, points=(0, 100, 200, 300))
    begun = write_run(tmp_path / "b", {0: [0.3], 1: [0.5]}, points=(0,), algo="qmix")
    rows = compared(run, begun).rows
    assert rows[0].by["whole run"].scores == pytest.approx([(1 + 0.1 * s) / 3 for s in range(4)])
    assert rows[1].by["whole run"].scores == pytest.approx((0.3, 0.5))


def test_scores_with_sampled_actions_are_those_of_the_evaluations_without_the_untrained(tmp_path):
    runs = {s: ([0.9, 0.2, 0.4, 0.1 * s], 1.0) for s in range(4)}
    run = write_run(tmp_path / "a", runs, points=(0, 100, 200, 300), sampled=0.5)
    row = compared(run, write_run(tmp_path / "b", finished([0.5]), algo="qmix")).rows[0]
    assert row.by["sampled, last 10 %"].scores == pytest.approx([0.05 * s for s in range(4)])
    assert row.by["sampled, whole run"].scores == pytest.approx([(0.3 + 0.05 * s) / 3 for s in range(4)])


def test_where_evaluations_were_only_greedy_the_episodes_of_training_are_the_sampled_ones(tmp_path):
    run = write_run(tmp_path / "a", {0: ramp(0.8)})
    log = run / "seed-0" / "metrics.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    trained = [
        {"kind": "iteration", "env_steps": step, "seed": 0, "wall": {"seconds": 1.0}} | rate
        for step, rate in ((40, {"train_win_rate": 0.3}), (380, {"train_win_rate": 0.7}), (390, {}))
    ]
    ordered = sorted(records + trained, key=lambda record: record["env_steps"])
    log.write_text("".join(json.dumps(record) + "\n" for record in ordered))
    seed = load_runs([run])[0].seeds[0]
    assert seed.score("win rate", "sampled, whole run") == pytest.approx(0.5)
    assert seed.score("win rate", "sampled, last 10 %") == pytest.approx(0.7)
    assert np.isnan(seed.score("return", "sampled, whole run"))


@pytest.mark.parametrize(
    ("first", "second", "title", "degree"),
    [
        (1.0, 1.0, "mappo is better than qmix on smax/3m", "clear"),
        (0.5, 1.0, "mappo is better than qmix on smax/3m; with sampled actions it is not", "likely"),
        (0.1, 1.0, "mappo is better than qmix on smax/3m; with sampled actions it is not", "likely"),
    ],
    ids=["also_sampled", "equal_sampled", "reversed_sampled"],
)
def test_a_verdict_on_greedy_scores_says_whether_it_holds_with_sampled_actions(tmp_path, first, second, title, degree):
    tops = [0.8, 0.82, 0.84, 0.86, 0.88]
    a = write_run(tmp_path / "a", finished(tops), sampled=first)
    b = write_run(tmp_path / "b", finished([0.5 * top for top in tops]), algo="qmix", sampled=second)
    found = verdicts(compared(a, b))[0]
    assert (found.title, found.sure) == (title, degree)
    gap = first * 0.84 - second * 0.42
    assert f"With sampled actions (last 10 %): {'+' if gap >= 0 else '−'}{abs(gap):.3f}" in found.detail


def test_equal_greedy_scores_do_not_hide_a_difference_with_sampled_actions(tmp_path):
    tops = [0.8, 0.82, 0.84, 0.86, 0.88]
    a = write_run(tmp_path / "a", finished(tops), sampled=0.5)
    b = write_run(tmp_path / "b", finished(tops), algo="qmix", sampled=1)
    title = verdicts(compared(a, b))[0].title
    assert title == "No clear difference between mappo and qmix on smax/3m; with sampled actions qmix is better"


def test_the_score_can_be_chosen(tmp_path):
    """One learns late and ends higher, the other learns early and ends lower: each wins by one score."""
    late = write_run(
        tmp_path / "a", {s: ([0.0, 0.0, 0.1, 0.9 + 0.01 * s], 0.9 + 0.01 * s) for s in range(5)}, sampled=1
    )
    early = write_run(
        tmp_path / "b", {s: ([0.6, 0.6, 0.6, 0.6 + 0.01 * s], 0.6 + 0.01 * s) for s in range(5)}, algo="qmix", sampled=1
    )
    for score, final, best in (
        (None, "absolute", "mappo"),
        ("absolute", "absolute", "mappo"),
        ("last", "last 10 %", "mappo"),
        ("whole", "whole run", "qmix"),
        ("sampled-last", "sampled, last 10 %", "mappo"),
        ("sampled-whole", "sampled, whole run", "qmix"),
    ):
        found = compared(late, early, score=score)
        assert {row.final for row in found.rows} == {final}
        assert [row.scores for row in found.rows] == [row.by[final].scores for row in found.rows]
        assert verdicts(found)[0].title == f"{best} is better than {'qmix' if best == 'mappo' else 'mappo'} on smax/3m"
    assert "win rate over the whole run" in verdicts(compared(late, early, score="whole"))[0].detail
    unfinished = write_run(tmp_path / "c", {0: [0.1, 0.2]}, algo="vdn")
    with pytest.raises(GraspError, match="not every seed has its absolute metric yet; use --score last or whole"):
        compared(late, unfinished, score="absolute")
    names = "absolute, last, whole, sampled-last, sampled-whole"
    with pytest.raises(GraspError, match=f"score must be one of {names}, not 'best'"):
        compared(late, early, score="best")


def test_pairs_hold_difference_permutation_and_equal_seeds(pair):
    result = compared(*pair)
    a, b = result.rows
    (found,) = result.improvements
    assert found.difference == statistics.difference(a.scores, b.scores)
    assert found.p == permutation_p(a.scores, b.scores)
    assert found.fewest == 4
    assert found.paired is not None
    assert (found.paired.seeds, found.paired.alone) == ((1, 2, 3), (0, 4))
    assert found.paired.mean == pytest.approx(np.mean([0.65 - 0.36, 0.7 - 0.42, 0.75 - 0.48]))
    assert "mappo − qmix at equal seeds: 0.280 [" in tables.markdown(result)
    assert "3 pairs (without seeds 0, 4)" in tables.markdown(result)


def test_sides_without_common_seeds_have_no_paired_difference(tmp_path):
    a = write_run(tmp_path / "a", {0: (ramp(0.5), 0.5), 1: (ramp(0.6), 0.6)})
    b = write_run(tmp_path / "b", {2: (ramp(0.5), 0.5), 3: (ramp(0.7), 0.7)}, algo="qmix")
    result = compared(a, b)
    assert result.improvements[0].paired is None
    assert "no common seeds" in tables.markdown(result)


def test_speed_is_timed_at_three_quarters_of_the_best_and_late_seeds_are_counted(tmp_path):
    points = tuple(range(0, 1000, 100))
    fast, slow = [0.0] * 3 + [0.8] * 7, [0.0] * 6 + [0.8] * 4
    a = write_run(tmp_path / "a", {0: (fast, 0.8), 1: (slow, 0.8), 2: (fast, 0.8)}, points=points)
    b = write_run(tmp_path / "b", {0: ([0.1] * 10, 0.1), 1: (slow, 0.8), 2: ([0.1] * 10, 0.1)}, "qmix", points=points)
    rows = compared(a, b).rows
    assert [row.reached.threshold for row in rows] == pytest.approx([0.6, 0.6])
    assert rows[0].reached.steps == (500.0, 800.0, 500.0)
    assert rows[0].reached.median == 500.0
    assert rows[1].reached.steps == (math.inf, 800.0, math.inf)
    assert rows[1].reached.median == math.inf
    shown = tables.markdown(compared(a, b))
    assert (
        "average 0.600; 'never' counts as infinite: mappo 500 [500, 800]; qmix never [800, never], 1 of 3 seeds."
        in shown
    )
    assert compared(a, b, threshold=0.1).rows[1].reached.steps == (200.0, 600.0, 200.0)
    with pytest.raises(GraspError, match="threshold must be above 0 and at most 1"):
        compared(a, b, threshold=80.0)


def test_returns_are_scaled_from_the_worst_evaluation_or_chance_to_the_best_seed(tmp_path):
    a = write_run(tmp_path / "a", finished([1.0, 2.0]), wins=False)
    b = write_run(tmp_path / "b", finished([4.0, 3.0]), algo="qmix", wins=False)
    scale = compared(a, b).scales[0]
    assert (scale.low, scale.high) == (2.5, 40.0)
    assert scale.of([2.5, 40.0]).tolist() == [0.0, 1.0]
    assert "0 is 2.50 (the lowest evaluation of any seed), 1 is 40.00 (the highest score of a seed)" in scale.words
    given = compared(a, b, chance={"smax/3m": 0.0}).scales[0]
    assert (given.low, given.high) == (0.0, 40.0)
    assert "0 is 0.00 (random play)" in given.words
    # The threshold is a fraction of the scale: half way from 0 to 40 is 20, which the mean of three reaches at 300.
    assert compared(a, b, chance={"smax/3m": 0.0}, threshold=0.5).rows[1].reached.threshold == 20.0


def test_scores_that_never_rise_are_not_scaled_and_warned_of(tmp_path):
    flat = write_run(tmp_path / "a", {0: ([0.0] * 4, 0.0), 1: ([0.0] * 4, 0.0)}, wins=False)
    result = compared(flat)
    assert math.isnan(result.scales[0].high)
    assert has(result.warnings, "none is normalised")


@pytest.fixture
def several(tmp_path):
    """Two algorithms on a map with wins and on a game without; a third on the map only."""
    seeds = [[0.5, 0.75, 0.25], [0.75, 1.0, 0.875], [1.0, 2.0, 4.0, 3.0], [3.0, 4.0, 2.0, 3.5]]
    return [
        write_run(tmp_path / "a", finished(seeds[0])),
        write_run(tmp_path / "b", finished(seeds[1]), algo="qmix"),
        write_run(tmp_path / "c", finished(seeds[2]), env="mpe/spread", wins=False),
        write_run(tmp_path / "d", finished(seeds[3]), env="mpe/spread", algo="qmix", wins=False),
        write_run(tmp_path / "e", finished([0.5, 0.6]), algo="vdn"),
    ]


def test_aggregates_are_of_algorithms_that_ran_on_every_environment(several):
    result = compared(*several)
    assert [found.label for found in result.aggregates] == ["mappo", "qmix"]
    tasks = [[0.5, 0.75, 0.25], (np.array([10.0, 20.0, 40.0, 30.0]) - 2.5) / 37.5]
    expected = statistics.aggregate(tasks)
    assert result.aggregates[0].iqm == expected["IQM"]
    assert result.aggregates[0].optimality_gap == expected["optimality gap"]
    assert has(result.warnings, "without vdn")
    assert has(result.warnings, "different numbers of seeds")
    over_all = [p for p in result.improvements if p.env == OVERALL]
    assert [(p.first, p.second, p.paired, p.fewest) for p in over_all] == [("mappo", "qmix", None, 3)]
    assert 0 < over_all[0].p <= 1
    other = [[0.75, 1.0, 0.875], (np.array([30.0, 40.0, 20.0, 35.0]) - 2.5) / 37.5]
    assert over_all[0].probability == statistics.probability_of_improvement(tasks, other)[0]
    shown = tables.markdown(result)
    assert "## all environments: normalised score" in shown
    assert "- mpe/spread: returns on a scale where 0 is 2.50" in shown
    assert "all environments: normalised score" in text(tables.render(result))


def test_one_environment_has_no_aggregate(pair):
    result = compared(*pair)
    assert result.aggregates == ()
    assert all(p.env != OVERALL for p in result.improvements)
    assert {p.env for p in result.profiles} == {"smax/3m"}


def test_profiles_fall_from_one_to_zero_over_the_range_of_all_scores(several):
    result = compared(*several)
    assert {(p.env, p.label) for p in result.profiles if p.env == OVERALL} == {(OVERALL, "mappo"), (OVERALL, "qmix")}
    for found in result.profiles:
        assert (found.share[0], found.share[-1]) == (1.0, 0.0)
    mappo, qmix, vdn = (p for p in result.profiles if p.env == "smax/3m")
    assert mappo.thresholds == qmix.thresholds == vdn.thresholds
    middle = int(np.searchsorted(mappo.thresholds, 0.6))
    assert (mappo.share[middle], qmix.share[middle]) == (pytest.approx(1 / 3), 1.0)


def test_csv_has_a_line_for_each_score_and_quotes_its_cells(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 0.75]), config={"lr": 1, "hidden": 2})
    b = write_run(tmp_path / "b", finished([0.5, 0.5]), config={"lr": 2, "hidden": 3})
    result = compared(a, b)
    lines = list(csv.DictReader(io.StringIO(export.rows(result))))
    assert [line["score"] for line in lines] == ["absolute", "last 10 %", "whole run"] * 2
    assert lines[0]["algorithm"] == "mappo (lr=1, hidden=2)"
    assert (lines[0]["iqm"], lines[0]["compared"], lines[1]["compared"]) == ("0.625", "true", "false")
    assert (lines[3]["low"], lines[3]["iqm"]) == ("", "0.5")  # seeds that agree have no interval
    assert {len(line) for line in lines} == {18}
    points = list(csv.DictReader(io.StringIO(export.points(result, load_runs([a, b])))))
    assert {line["algorithm"] for line in points} == {"mappo (lr=1, hidden=2)", "mappo (lr=2, hidden=3)"}
    assert {line["value"] for line in points if line["env_steps"] == "400"} == {"0.5", "0.75"}


def test_marl_eval_export_follows_its_schema(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5, 0.75]), env="skirmish/MMM2", config={"lr": 1, "hidden": 2})
    b = write_run(tmp_path / "b", finished([0.5]), env="skirmish/MMM2", config={"lr": 2, "hidden": 3})
    c = write_run(tmp_path / "c", finished([float("nan")]), env="my.module:game", wins=False)
    metrics = a / "seed-1" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines[0] |= {"returns": [2.0, None], "wins": [1, 0]}
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = json.loads(export.marl_eval(load_runs([a, b, c])))
    assert set(found) == {"skirmish", "my.module:game"}
    assert set(found["skirmish"]) == {"mmm2"}
    assert set(found["skirmish"]["mmm2"]) == {"mappo (lr=1 hidden=2)", "mappo (lr=2 hidden=3)"}
    run = found["skirmish"]["mmm2"]["mappo (lr=1 hidden=2)"]
    assert list(run) == ["seed_0", "seed_1"]
    assert list(run["seed_1"]) == ["step_0", "step_1", "step_2", "step_3", "absolute_metrics"]
    assert run["seed_1"]["step_0"] == {"step_count": 100, "return": [2.0, None], "win_rate": [1.0, 0.0]}
    assert run["seed_1"]["step_3"] == {"step_count": 400, "return": [7.5], "win_rate": [0.75]}
    assert run["seed_0"]["absolute_metrics"] == {"return": [5.0], "win_rate": [0.5]}
    assert found["my.module:game"]["my.module:game"]["mappo"]["seed_0"]["step_0"] == {
        "step_count": 100,
        "return": [None],
    }


def test_marl_eval_refuses_other_output_options_and_writes_to_out(tmp_path, capsys):
    a = write_run(tmp_path / "a", finished([0.5, 0.75]))
    b = write_run(tmp_path / "b", finished([0.5, 0.6]), algo="qmix", version="0.1.0")
    arguments = ["compare", str(a), str(b), "--marl-eval"]
    assert cli.main(arguments) == 2
    assert "environment versions differ" in capsys.readouterr().err
    assert cli.main([*arguments, "--force", "--out", str(tmp_path / "out")]) == 0
    assert set(json.loads((tmp_path / "out" / "marl-eval.json").read_text())["smax"]["3m"]) == {"mappo", "qmix"}


@pytest.mark.parametrize(
    ("algo", "env", "options"),
    [
        ("mappo", "mpe/simple_spread", {}),
        ("grasp-mappo", "smax/3m", {"steps": 6_000_000, "seeds": 5, "hidden": 128, "value_norm": False, "lr": 1e-3}),
        ("qmix", "skirmish/MMM2?a=1", {"preset": "tuned", "batch": 64, "eval_interval": 777, "seed": 3}),
        ("ma2e", "matrix/climbing", {"preset": "paper", "steps": 20_000, "pretrain": 100}),
    ],
)
def test_the_command_makes_the_same_configuration(tmp_path, algo, env, options):
    wanted = configs.configure(algo, env, options)
    directory = write_run(tmp_path / "a", finished([0.5]), algo=algo, env=env)
    (directory / "config.json").write_text(configs.to_json(wanted))
    program, verb, *arguments = load_runs([directory])[0].command.split()
    assert (program, verb, arguments[0], arguments[1].strip("'")) == ("grasp", "train", algo, env)
    fields = {f.name: f.type for f in (*configs.RUN_FIELDS, *dataclasses.fields(wanted.hyper))}
    given = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    read = {flag[2:]: configs.parse(value, fields[flag[2:]]) for flag, value in given.items()}
    assert configs.configure(algo, env, read) == wanted
    assert set(read) <= set(options)


def test_unknown_algorithms_and_presets_have_no_command(tmp_path):
    a = write_run(tmp_path / "a", finished([0.5]), algo="future")
    b = write_run(tmp_path / "b", finished([0.5]), config={"preset": "future"})
    assert [run.command for run in load_runs([a, b])] == ["", ""]


def test_seeds_carry_the_hash_of_their_metrics(pair):
    seed = load_runs(pair[:1])[0].seeds[2]
    assert seed.sha256 == hashlib.sha256((pair[0] / "seed-2" / "metrics.jsonl").read_bytes()).hexdigest()


def test_a_seed_with_an_absolute_metric_but_no_evaluation_is_left_out_and_named(pair):
    write_seed(pair[0], 9, [0.5], absolute=0.5)
    metrics = pair[0] / "seed-9" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().splitlines()[1] + "\n")
    assert has(compared(*pair).warnings, "seed 9 has no evaluation and is left out")
