"""`grasp check-env` names the rule that an environment breaks."""

import sys
from dataclasses import replace

import jax.numpy as jnp
import pytest
from paths import STANDINS

from grasp import cli
from grasp.envs import check
from grasp.envs.check import inspect
from grasp.envs.host import from_adapter
from grasp.types import Env, EnvSpec, GraspError, Observation, Step

SPEC = EnvSpec("own/x", num_agents=2, obs_dim=3, state_dim=1, num_actions=2, horizon=4)


def an_env(observe=lambda seen, clock: seen, step=lambda after, clock: after, spec=SPEC) -> Env:
    """An environment that keeps the contract, except for what `observe` and `step` change."""

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


def test_an_environment_that_keeps_the_contract():
    found = inspect(an_env())
    assert found.lengths == [4, 4, 4]
    assert found.returns == [4.0, 4.0, 4.0]
    assert not found.seeds_differ


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (an_env(lambda seen, _: seen._replace(obs=seen.obs[:, :2])), r"obs has the shape \(2, 2\) at reset"),
        (an_env(lambda seen, _: seen._replace(avail=seen.avail.astype(jnp.int32))), "avail is int32 at reset"),
        (an_env(lambda seen, t: seen._replace(state=seen.state / (t != 2))), "state contains a number .* at step 2"),
        (an_env(lambda seen, t: seen._replace(avail=seen.avail & (t != 3))), "agent 0 has no legal action at step 3"),
        (an_env(step=lambda after, t: after._replace(reward=jnp.float32(jnp.nan))), "the reward at step 1 is nan"),
        (an_env(step=lambda after, t: after._replace(terminated=t >= 4)), "step 4 is both terminated and truncated"),
        (an_env(step=lambda after, t: after._replace(won=t == 4)), "step 4 is won, but spec.has_wins is False"),
        (
            an_env(step=lambda after, t: after._replace(won=t == 2), spec=replace(SPEC, has_wins=True)),
            "step 2 is won, but neither terminated nor truncated",
        ),
        (an_env(step=lambda after, t: after._replace(truncated=t > 9)), "continues after its horizon of 4 steps"),
        (an_env(step=lambda after, t: after._replace(truncated=t >= 3)), "was truncated after 3 steps"),
    ],
)
def test_a_broken_rule_is_named(env, sentence):
    with pytest.raises(GraspError, match=sentence):
        inspect(env)


def test_the_same_rules_hold_for_a_simulator():
    toy = STANDINS / "toy.py"
    found = inspect(from_adapter("host/toy", sys.executable, toy, "toy", {"seeded": True}))
    assert found.seeds_differ
    with pytest.raises(GraspError, match="not finite"):
        inspect(from_adapter("host/toy", sys.executable, toy, "toy", {"fault": "nan", "at": 2}))


def test_a_simulator_that_ignores_its_seed_is_named(monkeypatch):
    restless = from_adapter("host/toy", sys.executable, STANDINS / "toy.py", "toy", {"restless": True})
    with pytest.raises(GraspError, match="the same seed and actions gave two different episodes"):
        inspect(restless)
    monkeypatch.setattr(check, "NOT_REPEATABLE", ("numpy",))  # the package in the spec of the toy
    assert "cannot repeat an episode" in inspect(restless).notes[0]


def test_a_simulator_may_truncate_before_its_horizon():
    found = inspect(from_adapter("host/toy", sys.executable, STANDINS / "toy.py", "toy", {"cut": 1}))
    assert found.lengths == [1, 1, 1]
    assert found.notes == ["an episode was truncated before the horizon of 5 steps"]


def test_check_env_prints_the_command_to_train(capsys):
    assert cli.main(["check-env", "matrix/climbing"]) == 0
    out = capsys.readouterr().out
    assert "2 agents" in out
    assert "grasp train grasp-mappo 'matrix/climbing'" in out
    assert cli.main(["check-env", "matrix/climbin"]) == 2
    assert "did you mean 'matrix/climbing'?" in capsys.readouterr().err
