"""`grasp reproduce`: what suites contain, and how they resume."""

import io
import re
import signal
import sys
from pathlib import Path
from statistics import stdev

import pytest
from paths import PAPER
from processes import WAIT, lines_of, start, wait_for
from rich.console import Console

from grasp import cli, runs
from grasp.analysis.run_data import LAST
from grasp.consensus import OPERATORS
from grasp.envs import base as envs
from grasp.envs.skirmish import env as skirmish
from grasp.reproduction import runner, suites
from grasp.reproduction.suites import BUDGETS, COUNTERPARTS, SUITES, Suite, plain
from grasp.types import GraspError

TINY = {
    "steps": 160, "seeds": 2, "num_envs": 4, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_interval": 80,
    "eval_episodes": 4, "final_episodes": 8, "preset": "default",
}  # fmt: skip


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("budget", BUDGETS)
def test_every_run_of_every_suite_can_be_configured(name, budget, monkeypatch):
    monkeypatch.setattr(runner, "resolved", lambda config, simulated: config)  # which would start simulators
    suite = SUITES[name]
    for env in suite.envs:
        for where in (env, COUNTERPARTS.get(env, env)):
            jobs = [runner.plan(Path("x"), where, entry, suite, BUDGETS[budget], {}) for entry in suite.entries]
            assert len({job.path for job in jobs}) == len(jobs), "two entries share a folder"
            if not BUDGETS[budget].sized:
                assert {job.config.steps for job in jobs} == {BUDGETS[budget].steps}, "all have the same budget"
            assert len({job.config for job in jobs}) == len(jobs), "two entries are the same run"


def test_an_entry_s_own_size_applies_only_to_the_budget_of_results():
    suite = SUITES["results-3m"]

    def planned(budget, **options):
        return runner.plan(Path("x"), "smax/3m", suite.entries[0], suite, BUDGETS[budget], options).config

    ours, short = planned("results"), planned("short")
    assert (ours.steps, ours.seeds, ours.hyper.decay) == (6_000_000, 5, 6_000_000)
    assert (short.steps, short.seeds, short.hyper.decay) == (1_000_000, 3, 1_000_000), (
        "learning rates are annealed over the run"
    )
    assert planned("results", steps=12_800).hyper.decay == 12_800
    assert planned("results", decay=7_000_000).hyper.decay == 7_000_000


def test_suites_name_existing_operators_environments_and_labels():
    assert tuple(OPERATORS) == suites.OPERATORS
    assert {name.removeprefix("skirmish/") for name in COUNTERPARTS.values()} <= set(skirmish.names())
    for suite in SUITES.values():
        labels = {entry.label for entry in suite.entries}
        assert set(suite.paper_scores) <= set(suite.envs)
        assert all(set(scores) <= labels for scores in suite.paper_scores.values())
        assert {env.partition("?")[0] for env in suite.envs} <= set(envs.names())


def test_the_paper_s_table_is_copied_correctly():
    """Compared with the paper's source, where it is available."""
    paper = PAPER
    if not paper.is_dir():
        pytest.skip("the paper's source is not available")
    text = "".join(path.read_text() for path in paper.glob("*.txt")).replace("$\\pm$", "±")
    text = re.sub(r"\\textbf\{([^}]*)\}", r"\1", text)
    rows = {"smac/MMM2": "MMM2", "smac/3s5z_vs_3s6z": "3s5z vs 3s6z", "smac/5m_vs_6m": "5m vs 6m"}
    rows |= {"smacv2/10gen_terran": "Terran (10 agents)", "smacv2/10gen_protoss": "Protoss (10 agents)"}
    rows |= {"smacv2/10gen_zerg?n_units=5": "Zerg (5 agents)"}
    for name in ("table1-smac", "table1-smacv2"):
        for env, scores in SUITES[name].paper_scores.items():
            line = " & ".join([rows[env], *(scores[algo] for algo in ("grasp-mappo", "mappo", "happo", "ma2e"))])
            assert line in text, env


@pytest.fixture
def small(monkeypatch):
    made = Suite("a small thing", ("matrix/climbing",), plain("mappo", "grasp-mappo"), "default",
                 paper_scores={"matrix/climbing": {"mappo": "7.5 ± 0.5"}}, note="Mind the step.")  # fmt: skip
    monkeypatch.setitem(SUITES, "small", made)


def reproduce(out, **changes):
    printed = io.StringIO()
    result = runner.reproduce("small", out=out, console=Console(width=200, file=printed), **TINY | changes)
    return result, printed.getvalue()


def contents(home):
    return {path: path.read_bytes() for path in sorted(home.rglob("*.jsonl")) + sorted(home.rglob("*.safetensors"))}


def test_a_suite_writes_a_report_and_a_second_call_trains_nothing(small, tmp_path):
    result, printed = reproduce(tmp_path / "here")
    assert (tmp_path / "here" / "report" / "report.html").is_file()
    assert [row.label for row in result.rows] == ["mappo", "grasp-mappo"]
    assert "7.5 ± 0.5" in printed
    assert "Mind the step." in printed
    of = result.rows[0].by[LAST]
    assert re.search(rf"7.5 ± 0.5 +│ {of.mean:.2f} ± {stdev(of.scores):.2f}", printed), "in the paper's own form"
    assert "[2/2] grasp-mappo on matrix/climbing" in printed
    before = contents(tmp_path / "here")
    again, printed = reproduce(tmp_path / "here")
    assert contents(tmp_path / "here") == before
    assert printed.count("already finished") == 2
    assert again == result


@pytest.mark.full("a suite that is begun with other options")
def test_a_suite_refuses_runs_with_another_configuration(small, tmp_path):
    reproduce(tmp_path / "here")
    before = contents(tmp_path / "here")
    with pytest.raises(GraspError, match="mappo has a run with another configuration; remove it, or choose"):
        reproduce(tmp_path / "here", lr=1e-2)
    assert contents(tmp_path / "here") == before


@pytest.mark.full("several processes one after another")
def test_a_failed_run_does_not_stop_the_others(small, tmp_path):
    other = Suite("another", ("matrix/climbing",), plain("mappo"), "default")
    job = runner.plan(tmp_path / "here", "matrix/climbing", other.entries[0], other, BUDGETS["smoke"], TINY)
    run = runs.create(job.path, job.config, envs.make("matrix/climbing").spec)
    with runs.writing(run, 0), pytest.raises(GraspError, match="being written .*; type the same command to continue"):
        reproduce(tmp_path / "here")
    assert lines_of(job.path, 1)[-1]["kind"] == "absolute"
    for seed in (0, 1):
        assert lines_of(tmp_path / "here" / "matrix-climbing" / "grasp-mappo", seed)[-1]["kind"] == "absolute"
    assert "[1/2] mappo on matrix/climbing: resumed" in reproduce(tmp_path / "here")[1]


@pytest.mark.full("several processes one after another")
def test_a_killed_suite_resumes_and_repeats_no_finished_run(tmp_path):
    arguments = ("reproduce", "fig-mpe", "--budget", "smoke", "--steps", "9600", "--seeds", "2", "--out")
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    whole = start(*arguments, str(straight))
    assert "the report:" in whole.communicate(timeout=WAIT)[0]
    process = start(*arguments, str(cut))
    first, second = (cut / "mpe-simple_spread" / algo for algo in ("grasp-mappo", "mappo"))
    wait_for(lambda: len(lines_of(second)) >= 2, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ended = [path for path in cut.rglob("*.jsonl") if '"absolute"' in path.read_text()]
    assert ended
    finished = {path: path.stat().st_mtime_ns for path in ended}
    again = start(*arguments, str(cut))
    printed = again.communicate(timeout=WAIT)[0]
    assert "[2/2] mappo on mpe/simple_spread: resumed" in printed
    assert {path: path.stat().st_mtime_ns for path in ended} == finished
    for run in (first, second):
        for seed in (0, 1):
            assert lines_of(run, seed) == lines_of(straight / run.relative_to(cut), seed)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fig-mp"], "unknown suite 'fig-mp'; did you mean 'fig-mpe'?"),
        (["fig-mpe", "--budget", "shirt"], "unknown budget 'shirt'; did you mean 'short'?"),
        (["fig-mpe", "--sedes", "3"], "unknown option '--sedes'; did you mean '--seeds'?"),
        (
            ["table1-smac"],
            "no environment of table1-smac can run here; type: grasp reproduce table1-smac --budget smoke --jax",
        ),
        (["fig-grf", "--jax"], "no environment of fig-grf can run here, and none has a JAX counterpart; type:"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRASP_FOOTBALL_PYTHON", sys.executable)  # which has no football, as a new machine
    assert cli.main(["reproduce", *arguments]) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    if arguments[0] == "table1-smac":
        assert "smac/MMM2 is left out" in printed.out
        assert "skirmish/MMM2" in printed.out
    assert list(tmp_path.iterdir()) == []


def test_counterparts_and_controls_match_their_names():
    for real, ours in COUNTERPARTS.items():
        family, _, name = real.partition("/")
        if family == "smac":
            assert ours == f"skirmish/{name}"
        else:
            race, units = name.partition("?")[0].removeprefix("10gen_"), 5 if "n_units=5" in name else 10
            assert ours == f"skirmish/{race}_{units}_vs_{units}"
    chosen = {entry.label: dict(entry.options) for entry in suites.CONTROLS}
    assert [chosen[name] for name in ("placebo", "permuted", "step-size")] == [
        {"control": "placebo"}, {"control": "permuted"}, {"control": "step_size"}
    ]  # fmt: skip
    assert (chosen["once"], chosen["mean"], chosen["mappo"]) == ({"refresh": "first"}, {"operator": "mean"}, {})
    assert chosen["crossfit"] == {"gram": "crossfit"}


def test_a_suite_killed_while_creating_a_run_continues(small, tmp_path):
    folder = tmp_path / "here" / "matrix-climbing" / "mappo"
    folder.mkdir(parents=True)
    for name in ("versions.json", ".config.json.77"):
        (folder / name).write_text("{")
    reproduce(tmp_path / "here", seeds=1)
    assert lines_of(folder, 0)[-1]["kind"] == "absolute"
    assert runs.find(folder).config.env == "matrix/climbing"


@pytest.mark.parametrize("left", [[], ["versions.json"], [".versions.json.77"], ["versions.json", ".config.json.77"]])
def test_a_directory_whose_creation_was_interrupted_is_no_run(left, tmp_path):
    for name in left:
        (tmp_path / name).write_text("{")
    assert runs.is_unbegun(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert not runs.is_unbegun(tmp_path)


def test_a_directory_with_other_files_is_not_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    config = runner.plan(tmp_path, "matrix/climbing", plain("mappo")[0], SUITES["fig-mpe"], BUDGETS["smoke"], {}).config
    with pytest.raises(GraspError, match="exists already"):
        runs.create(tmp_path, config, envs.make("matrix/climbing").spec)


def test_the_paper_s_score_names_its_game_beside_our_simulation():
    played = {"skirmish/MMM2": "smac/MMM2", "smac/5m_vs_6m": "smac/5m_vs_6m"}
    found = runner.paper_scores(SUITES["table1-smac"], played)
    assert found["skirmish/MMM2", "mappo"] == "0.717 ± 0.218 (smac/MMM2)"
    assert found["smac/5m_vs_6m", "mappo"] == "0.815 ± 0.075"
    assert ("smac/MMM2", "mappo") not in found
