"""The command line as a user meets it: mistakes in one sentence with exit code 2, nothing written."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import TINY

import grasp
from grasp import cli, runs
from grasp.config import configure
from grasp.config.hyperparameters import ALGORITHMS
from grasp.envs import base as envs
from grasp.runs.metrics_log import read

FLAGS = [part for name, value in TINY.items() for part in (f"--{name}", str(value))]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "mapo", "matrix/climbing"], "unknown algorithm 'mapo'; did you mean 'mappo'?"),
        (["train", "mappo", "smax/5m_v_6m"], "unknown environment 'smax/5m_v_6m'; did you mean 'smax/5m_vs_6m'?"),
        (["train", "mappo", "matrix/climbing", "--lrr", "1"], "unknown option '--lrr'; did you mean '--lr'?"),
        (["train", "mappo", "matrix/climbing", "--lr", "fast"], "lr must be a number, not 'fast'"),
        (["train", "mappo", "matrix/climbing", "--num_envs", "-4"], "num_envs must be at least 1, not -4"),
        (["train", "mappo", "matrix/climbing", "--chunk", "3"], "chunk 3 does not divide rollout 100"),
        (["train", "mappo", "matrix/climbing", "--steps", "10"], "steps 10 does not reach one iteration"),
        (["train", "grasp-mappo", "matrix/climbing", "--operator", "min_nrm"], "did you mean 'min_norm'?"),
        (["train", "mappo", "matrix/climbing", "--sharing", "all"], "sharing must be one of shared, hybrid, separate"),
        (["train", "mappo", "skirmish/3m", "--env.enemi", "hold"], "did you mean '--env.enemy'?"),
        (["train", "mappo", "skirmish/3m", "--env.enemy", "brave"], "enemy must be one of attack, focus, hold"),
        (["train", "mappo", "matrix/climbing", "--env.enemy", "hold"], "unknown option '--env.enemy'"),
        (["train", "mappo"], "the following arguments are required: ENV"),
        (["tran"], "unknown command 'tran'; did you mean 'train'?"),
        (["compare", "runs/a", "--scroe", "last"], "unknown option '--scroe'; did you mean '--score'?"),
        (["watch", "--prot", "1"], "unknown option '--prot'; did you mean '--port'?"),
        (["reproduce", "fig-mpe", "--lr", "1"], "unknown option '--lr'; known: --help, --budget,"),
        (["reproduce", "FIG-MPE"], "unknown suite 'FIG-MPE'; did you mean 'fig-mpe'?"),
        (["resume", "nowhere"], "no run directory 'nowhere'"),
        (["evaluate", "."], "'.' is not a run directory"),
        (["compare"], "the following arguments are required: RUN"),
        (["resume", "nowhere", "--steps", "many"], "steps must be a whole number, not 'many'"),
        (["bench", "nothing"], "unknown benchmark 'nothing'"),
        (["train", "mappo", "matrix/climbing", "--lr", "inf"], "lr must be a number up to"),
        (["train", "mappo", "matrix/climbing", "--lr", "nan"], "lr must be a number up to"),
        (["train", "mappo", "matrix/climbing", "--seed", "1e30"], "seed must be a number up to"),
        (["train", "mappo", "matrix/climbing", "--num_envs", "1e11"], "num_envs must be a number up to"),
        (["train", "grasp-mappo", "matrix/climbing", "--operator", "os:getcwd"], "does not take (G[N, N], key)"),
        (["train", "mappo", "json:dumps"], "environment 'json:dumps' cannot be made without arguments"),
        (["train", "mappo", "os:getcwd"], "is a str; it must be a PettingZoo parallel environment"),
        (["train", "mappo", "matrix/climbing", "--out", ""], "--out needs a name"),
        (["train", "mappo", "matrix/climbing", "--out", "x" * 300], "cannot write to"),
        (["train", "--steps", "100", "mappo", "matrix/climbing"], "the algorithm and the environment come first"),
        (["evaluate", "x" * 300], "File name too long"),
        (["train", "mappo", "matrix/climbing", "--parallel", "some"], "parallel must be one of auto, processes, vmap"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(words, sentence, here, capsys):
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.startswith("grasp: ")
    assert error.count("\n") == 1
    assert not (here / "runs").exists()


def test_an_existing_directory_is_never_written(finished, capsys):
    before = (finished / "config.json").read_bytes()
    assert cli.main(["train", "mappo", "matrix/climbing", "--out", str(finished)]) == 2
    assert "exists already; continue it with: grasp resume" in capsys.readouterr().err
    assert (finished / "config.json").read_bytes() == before


def test_a_directory_that_cannot_be_written_is_named(here, capsys):
    assert cli.main(["train", "mappo", "matrix/climbing", "--out", "/proc/run"]) == 2
    assert "cannot write to /proc/run" in capsys.readouterr().err


def test_a_directory_of_a_newer_version_is_refused(finished, here, capsys):
    config = json.loads((finished / "config.json").read_text()) | {"format": 99}
    (here / "run").mkdir()
    (here / "run" / "config.json").write_text(json.dumps(config))
    for command in ("resume", "evaluate", "compare"):
        assert cli.main([command, "run"]) == 2
        assert "newer grasp" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"format": "x"}, {"algo": ["x"]}, {"env": 3}, {"hyper": [1]}, {"steps": "abc"}])
def test_a_configuration_edited_into_nonsense_is_named(finished, here, capsys, change):
    config = json.loads((finished / "config.json").read_text()) | change
    (here / "run").mkdir()
    (here / "run" / "config.json").write_text(json.dumps(config))
    assert cli.main(["evaluate", "run"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_run_directory_holds_what_it_should(finished):
    config = json.loads((finished / "config.json").read_text())
    assert config["algo"] == "grasp-mappo"
    assert config["hyper"]["operator"] == "min_norm"
    assert config["eval_interval"] > 0
    assert set(json.loads((finished / "versions.json").read_text())) >= {"grasp", "jax", "env_version", "commit"}
    lines = [json.loads(line) for line in (finished / "seed-1" / "metrics.jsonl").read_text().splitlines()]
    assert [line["env_steps"] for line in lines if line["kind"] == "iteration"] == [40, 80, 120, 160]
    assert all(line["seed"] == 1 and "wall" in line for line in lines)
    iteration = next(line for line in lines if line["kind"] == "iteration")
    expected = {
        "cosines", "conflict_rate", "weights", "u_norm", "u_ratio", "residual", "skipped_steps", "approx_kl",
        "clip_fraction", "train_return",
    }  # fmt: skip
    assert set(iteration) >= expected
    assert sum(iteration["weights"]) == pytest.approx(1, abs=1e-5)
    assert lines[-1]["kind"] == "absolute"
    assert len(lines[-1]["returns"]) == TINY["final_episodes"]
    best = max((line for line in lines if line["kind"] == "evaluation"), key=lambda line: line["return_mean"])
    assert lines[-1]["best_env_steps"] == best["env_steps"]


def test_evaluate_makes_the_environment_once(finished, monkeypatch, capsys):
    """Making it may start a simulator."""
    made, make = [], envs.make
    monkeypatch.setattr(envs, "make", lambda name: made.append(name) or make(name))
    assert cli.main(["evaluate", str(finished / "seed-1"), "--episodes", "2", "--json"]) == 0
    assert made == ["matrix/climbing"]
    assert not {"win_rate", "wins"} & set(json.loads(capsys.readouterr().out)[0]), "its episodes cannot be won"
    log = runs.find(finished).metrics_log(1)
    kept = log.read_bytes()
    try:
        log.write_bytes(kept.replace(b'"return_mean": ', b'"win_rate": 0.5, "return_mean": '))
        assert cli.main(["evaluate", str(finished / "seed-1"), "--episodes", "2", "--json"]) == 0
    finally:
        log.write_bytes(kept)
    assert len(json.loads(capsys.readouterr().out)[0]["wins"]) == 2


def test_evaluate_prints_the_protocol_with_the_numbers(finished, capsys):
    assert cli.main(["evaluate", str(finished), "--episodes", "4"]) == 0
    assert "4 greedy episodes" in capsys.readouterr().out
    assert cli.main(["evaluate", str(finished / "seed-1"), "--episodes", "4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in rows] == [1]
    assert len(rows[0]["returns"]) == 4


def test_evaluate_takes_the_policy_of_any_evaluation(finished, capsys):
    steps = [
        line["env_steps"]
        for line in read(finished / "seed-0" / "metrics.jsonl").records
        if line["kind"] == "evaluation"
    ]
    for number in (steps[0], steps[-1]):
        assert cli.main(["evaluate", str(finished), "--episodes", "4", "--checkpoint", str(number)]) == 0
        assert f"the policy at {number:,} steps" in capsys.readouterr().out.replace("\n", " ")
    assert cli.main(["evaluate", str(finished), "--checkpoint", "7"]) == 2
    assert "has no snapshot at 7 steps" in capsys.readouterr().err


def test_a_finished_run_can_be_trained_longer_and_not_shorter(finished, here, capsys):
    assert cli.main(["resume", str(finished)]) == 2
    assert "is finished; train longer with" in capsys.readouterr().err
    assert cli.main(["resume", str(finished), "--steps", "100"]) == 2
    assert "has 160 steps already" in capsys.readouterr().err
    run = grasp.train("mappo", "matrix/penalty", out=here / "longer", **TINY)
    grasp.resume(run.path, steps=240)
    lines = read(run.path / "seed-0" / "metrics.jsonl").records
    assert [line["env_steps"] for line in lines if line["kind"] == "iteration"] == [40 * i for i in range(1, 7)]
    assert [line["env_steps"] for line in lines if line["kind"] == "absolute"] == [240]
    straight = grasp.train("mappo", "matrix/penalty", out=here / "straight", **(TINY | {"steps": 240}))
    values = [
        [line["value_loss"] for line in read(path / "seed-0" / "metrics.jsonl").records if "value_loss" in line]
        for path in (run.path, straight.path)
    ]
    assert values[0] == values[1]


def test_a_trained_team_acts_in_one_s_own_code(finished):
    team = grasp.load(finished)
    obs = np.ones((2, 1), np.float32)
    action = team.act(obs)
    assert action.shape == (2,)
    only = np.zeros((2, 3), bool)
    only[0, 2] = only[1, 1] = True
    np.testing.assert_array_equal(team.act(obs, avail=only), [2, 1])
    with pytest.raises(grasp.GraspError, match="observations of shape"):
        team.act(np.ones((3, 1)))


def test_a_team_remembers_within_an_episode_and_forgets_at_reset(finished):
    team = grasp.load(finished, seed=1)
    first = jnp.array(team._memory.actor)
    team.act(np.ones((2, 1), np.float32))
    assert not np.array_equal(first, team._memory.actor)
    team.reset()
    np.testing.assert_array_equal(first, team._memory.actor)


def test_metrics_reach_tensorboard_during_a_run_and_afterwards(finished, here, capsys):
    assert cli.main(["train", "mappo", "matrix/climbing", "--tensorboard", "--out", "live", *FLAGS]) == 0
    assert cli.main(["tensorboard", str(finished)]) == 0
    assert f"tensorboard --logdir {finished / 'tensorboard'}" in capsys.readouterr().out
    for folder in (here / "live" / "tensorboard" / "seed-0", finished / "tensorboard" / "seed-1"):
        (file,) = folder.iterdir()
        assert b"iteration/value_loss" in file.read_bytes()
        assert b"evaluation/return_mean" in file.read_bytes()


def test_list_names_everything(capsys):
    assert cli.main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["algorithms"]) == list(ALGORITHMS)
    assert found["environments"]["mpe/simple_spread"]["num_agents"] == 3
    assert found["operators"]["min_norm"] == {"pareto": "yes", "continuous": "yes", "hull": "yes"}


def test_help_shows_every_option_with_its_default(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "mappo", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "--num_envs" in shown
    assert "(default: none)" in shown


def test_a_second_writer_is_refused(finished):
    run = runs.find(finished)
    refused = pytest.raises(grasp.GraspError, match="being written by another process")
    with runs.writing(run, 0), refused, runs.writing(run, 0):
        pass


def test_an_option_of_the_environment_is_part_of_what_was_trained(here, capsys, monkeypatch):
    told = []
    monkeypatch.setattr("grasp.api.train", lambda algo, env, **options: told.append((algo, env)) or here)
    monkeypatch.setattr("grasp.cli.summary.print_run", lambda run, console: None)
    assert cli.main(["train", "mappo", "skirmish/3m", "--env.start_jitter", "0.5", "--env.enemy", "hold"]) == 0
    assert told == [("mappo", "skirmish/3m?enemy=hold,start_jitter=0.5")]
    config = configure("mappo", "skirmish/3m?enemy=hold", {})
    assert runs.default_path(config).name == "mappo_skirmish-3m-enemy=hold"
    with pytest.raises(SystemExit):
        cli.main(["train", "mappo", "skirmish/3m", "--help"])
    assert "--env.enemy" in capsys.readouterr().out
