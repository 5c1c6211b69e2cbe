"""`grasp check-env` and `grasp doctor`: every rule has an environment that breaks it, and is named."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import pytest
from paths import STANDINS

from grasp import cli
from grasp.cli import doctor
from grasp.envs import check
from grasp.envs.check import inspect
from grasp.envs.host import ask
from grasp.types import Env, EnvSpec, GraspError, Observation, Step

SPEC = EnvSpec("own/x", num_agents=2, obs_dim=3, state_dim=1, num_actions=2, horizon=4)


def an_env(observe=lambda seen, clock: seen, step=lambda after, clock: after, spec=SPEC) -> Env:
    """An environment that keeps the rules, but for what is done to its answers."""

    def seen(clock):
        obs = jnp.full((2, 3), clock, jnp.float32)
        return observe(Observation(obs, obs[0, :1], jnp.ones((2, 2), bool), jnp.ones(2, bool)), clock)

    def reset(key):
        return jnp.zeros((), jnp.int32), seen(jnp.zeros((), jnp.int32))

    def advance(clock, action, key):
        clock = clock + 1
        none = jnp.zeros((), bool)
        return clock, step(Step(seen(clock), jnp.float32(1.0), none, clock >= 4, none), clock)

    return Env(spec, reset, advance)


def test_an_environment_that_keeps_the_rules():
    found = inspect(an_env())
    assert found.lengths == [4, 4, 4]
    assert found.returns == [4.0, 4.0, 4.0]
    assert not found.seeds_differ


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (an_env(lambda seen, _: seen._replace(obs=seen.obs[:, :2])), r"obs has the shape \(2, 2\) at reset"),
        (an_env(lambda seen, _: seen._replace(avail=seen.avail.astype(jnp.int32))), "avail is int32 at reset"),
        (an_env(lambda seen, t: seen._replace(state=seen.state / (t != 2))), "state holds a number .* at step 2"),
        (an_env(lambda seen, t: seen._replace(avail=seen.avail & (t != 3))), "agent 0 has no legal action at step 3"),
        (an_env(step=lambda after, t: after._replace(reward=jnp.float32(jnp.nan))), "the reward at step 1 is nan"),
        (an_env(step=lambda after, t: after._replace(terminated=t >= 4)), "step 4 is both terminated and truncated"),
        (an_env(step=lambda after, t: after._replace(won=t == 4)), "step 4 is won, but its spec says"),
        (
            an_env(step=lambda after, t: after._replace(won=t == 2), spec=replace(SPEC, has_wins=True)),
            "step 2 is won, but the episode goes on",
        ),
        (an_env(step=lambda after, t: after._replace(truncated=t > 9)), "goes on after its horizon of 4 steps"),
        (an_env(step=lambda after, t: after._replace(truncated=t >= 3)), "was truncated after 3 steps"),
    ],
)
def test_a_broken_rule_is_named(env, sentence):
    with pytest.raises(GraspError, match=sentence):
        inspect(env)


def test_a_simulator_is_held_to_the_same_rules():
    toy = STANDINS / "toy.py"
    found = inspect(ask("host/toy", sys.executable, toy, "toy", {"seeded": True}))
    assert found.seeds_differ
    with pytest.raises(GraspError, match="not finite"):
        inspect(ask("host/toy", sys.executable, toy, "toy", {"fault": "nan", "at": 2}))


def test_a_simulator_that_ignores_its_seed_is_told_so(monkeypatch):
    restless = ask("host/toy", sys.executable, STANDINS / "toy.py", "toy", {"restless": True})
    with pytest.raises(GraspError, match="the same seed and actions gave another episode"):
        inspect(restless)
    monkeypatch.setattr(check, "UNREPEATED", ("numpy",))  # the package that the toy names
    assert "a seed does not repeat a battle" in inspect(restless).notes[0]


def test_a_simulator_may_cut_its_episodes_short():
    found = inspect(ask("host/toy", sys.executable, STANDINS / "toy.py", "toy", {"cut": 1}))
    assert found.lengths == [1, 1, 1]
    assert found.notes == ["an episode was truncated before the horizon of 5 steps"]


def test_check_env_prints_the_command_to_train(capsys):
    assert cli.main(["check-env", "matrix/climbing"]) == 0
    out = capsys.readouterr().out
    assert "2 agents" in out
    assert "grasp train grasp-mappo 'matrix/climbing'" in out
    assert cli.main(["check-env", "matrix/climbin"]) == 2
    assert "did you mean 'matrix/climbing'?" in capsys.readouterr().err


def test_the_doctor_names_what_is_missing_and_the_command(monkeypatch, capsys):
    monkeypatch.delenv("SC2PATH", raising=False)
    monkeypatch.setenv("GRASP_SMAC_PYTHON", sys.executable)
    monkeypatch.setenv("GRASP_SMACV2_PYTHON", sys.executable)
    monkeypatch.setenv("GRASP_FOOTBALL_PYTHON", "/no/python")
    assert cli.main(["doctor", "--json"]) == 0
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["training"]["fine"]
    assert found["grf/"] == {"what": "grf/", "fine": False, "words": "make football"}
    assert "export SC2PATH" in found["smac/ and smacv2/: SC2PATH"]["words"]
    assert cli.main(["doctor"]) == 0
    assert "no  grf/: make football" in capsys.readouterr().out


def test_the_doctor_finds_the_game_where_it_is(monkeypatch):
    monkeypatch.setenv("SC2PATH", str(STANDINS / "StarCraftII"))
    monkeypatch.syspath_prepend(str(STANDINS))
    monkeypatch.setenv("GRASP_SMAC_PYTHON", sys.executable)
    monkeypatch.setenv("GRASP_SMACV2_PYTHON", sys.executable)
    rows = doctor.starcraft()
    assert len(rows) == 7
    assert all(row.fine for row in rows), [row for row in rows if not row.fine]


def test_the_doctor_does_not_lend_our_packages_to_another_interpreter(monkeypatch, tmp_path):
    other = tmp_path / "python"
    other.symlink_to(Path(sys.executable).resolve())
    monkeypatch.setenv("SC2PATH", str(STANDINS / "StarCraftII"))
    monkeypatch.setenv("PYTHONPATH", str(STANDINS))
    monkeypatch.setenv("GRASP_SMAC_PYTHON", str(other))
    monkeypatch.setenv("GRASP_SMACV2_PYTHON", str(other))
    wrong = {row.what: row.words for row in doctor.starcraft() if not row.fine}
    assert {"smac/ and smacv2/: package smac", "smac/ and smacv2/: package smacv2"} <= wrong.keys()
    assert "venv-smac" not in "".join(wrong.values()), "it has no JAX to be spared"
