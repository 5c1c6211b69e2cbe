"""SMAX: terminations and wins from the units, truncation at exactly 100 steps, all else equal to jaxmarl."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE

from grasp.envs import make, smax
from grasp.envs.jaxmarl import Timed, load

STOP = jnp.array([4, 4, 4])


@pytest.fixture(scope="module")
def battle():
    """The environment 3m, its compiled step, and a start state."""
    env = make("smax/3m")
    env_state, _ = jax.jit(env.reset, compiler_options=FAST_COMPILE)(jax.random.key(0))
    return env, jax.jit(env.step, compiler_options=FAST_COMPILE), env_state


def with_alive(env_state: Timed, alive: list[bool], clock: int = 0) -> Timed:
    """The state with these units (3 allies, then 3 enemies) alive and the others dead."""
    units = env_state.inner.state
    mask = jnp.array(alive)
    units = units.replace(unit_alive=mask, unit_health=jnp.where(mask, units.unit_health, 0.0))
    return Timed(env_state.inner.replace(state=units), jnp.int32(clock))


def test_tasks_are_jaxmarls_maps_and_8m_vs_9m():
    assert set(smax.names()) == set(load("smax.smax_env", "MAP_NAME_TO_SCENARIO")) | {"8m_vs_9m"}


def test_8m_vs_9m_is_eight_marines_against_nine():
    spec = make("smax/8m_vs_9m").spec
    assert (spec.num_agents, spec.num_actions, spec.obs_dim, spec.state_dim) == (8, 14, 218, 204)


@pytest.mark.parametrize(
    ("alive", "terminated", "won"),
    [
        ([True, True, True, True, True, True], False, False),
        ([True, False, False, False, False, True], False, False),
        ([False, False, True, False, False, False], True, True),
        ([False, False, False, True, False, False], True, False),
        ([False, False, False, False, False, False], True, False),
    ],
    ids=["all alive", "one each", "won", "lost", "draw"],
)
def test_terminations_and_wins_follow_from_the_units(battle, alive, terminated, won):
    _, step_once, start = battle
    _, step = step_once(with_alive(start, alive), STOP, jax.random.key(1))
    assert (bool(step.terminated), bool(step.won), bool(step.truncated)) == (terminated, won, False)
    assert float(step.reward) == (1.0 if won else 0.0)
    assert step.observation.alive.tolist() == alive[:3]


def test_truncation_at_exactly_100_steps_unless_terminated(battle):
    _, step_once, start = battle
    everyone, winners = [True] * 6, [True, True, True, False, False, False]
    key = jax.random.key(1)
    before, at_limit = (step_once(with_alive(start, everyone, clock), STOP, key)[1] for clock in (98, 99))
    assert (bool(before.truncated), bool(at_limit.truncated)) == (False, True)
    assert not bool(at_limit.terminated)
    _, last = step_once(with_alive(start, winners, 99), STOP, key)
    assert (bool(last.terminated), bool(last.truncated), bool(last.won)) == (True, False, True)


def test_dead_allies_observe_zeros_and_can_only_stop(battle):
    _, step_once, start = battle
    _, step = step_once(with_alive(start, [True, False, True, True, True, True]), STOP, jax.random.key(1))
    assert np.flatnonzero(step.observation.avail[1]).tolist() == [4]
    assert not step.observation.obs[1].any()
    assert step.observation.obs[0].any()


def test_every_step_equals_jaxmarls(battle):
    """A whole fight under jaxmarl's published settings, whose limit of 100 changes neither observations nor rewards."""
    _, step_once, start = battle
    theirs = load("smax", "HeuristicEnemySMAX")(scenario=load("smax", "map_name_to_scenario")("3m"))
    with jax.numpy_rank_promotion("allow"):
        their_step = jax.jit(theirs.step_env, compiler_options=FAST_COMPILE)
        their_avail = jax.jit(theirs.get_avail_actions, compiler_options=FAST_COMPILE)
        env_state, avail, paid = start, jnp.ones((3, 8), bool), 0.0
        for t in range(40):
            key = jax.random.fold_in(jax.random.key(2), t)
            # the last legal action: shoot if possible, else stop and let the enemy come
            action = jnp.array([int(np.flatnonzero(row)[-1]) for row in avail]) if t else STOP
            actions = {agent: action[i] for i, agent in enumerate(theirs.agents)}
            obs, inner, rewards, _, _ = their_step(key, env_state.inner, actions)
            env_state, step = step_once(env_state, action, key)
            avail = step.observation.avail
            assert float(step.reward) == float(rewards["ally_0"]) == float(rewards["ally_2"])
            np.testing.assert_array_equal(step.observation.obs, np.stack([obs[agent] for agent in theirs.agents]))
            np.testing.assert_array_equal(step.observation.state, obs["world_state"])
            legal = their_avail(inner)
            np.testing.assert_array_equal(avail, np.stack([legal[agent] for agent in theirs.agents]).astype(bool))
            paid += float(step.reward)
            if step.terminated:
                break
    assert paid > 0.5, "there was no fight, so no reward was compared"
    assert bool(step.terminated)
