"""Scenes of SMAC are drawn from its global state. Skirmish has the same state and draws from its units: both agree."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from grasp.envs import make, smac
from grasp.envs.smac import Rows, scenes

MAPS = {
    "3m": smac.MAPS["3m"],
    "2s3z": smac.MAPS["2s3z"],
    "MMM2": smac.MAPS["MMM2"],
    "terran_5_vs_5": smac.RACES["10gen_terran"],
    "protoss_5_vs_5": smac.RACES["10gen_protoss"],
}


def fought(env, steps, key):
    """(scene, state) of every time step of a battle with random legal actions."""
    step, scene = jax.jit(env.step), jax.jit(env.scene)
    state, seen = jax.jit(env.reset)(key)
    drawn = [(scene(state), seen.state)]
    for k in range(steps):
        act_key, step_key = jax.random.split(jax.random.fold_in(key, k))
        action = jax.random.categorical(act_key, np.where(seen.avail, 0.0, -1e9))
        state, after = step(state, action, step_key)
        seen = after.observation
        drawn.append((scene(state), seen.state))
    return jax.device_get(drawn)


@pytest.mark.parametrize("task", MAPS)
def test_a_state_is_drawn_as_the_battle_it_describes(task):
    env = make(f"skirmish/{task}")
    drawn = scenes(env.spec, MAPS[task])
    expected_scenes = fought(env, 40, jax.random.key(3))
    healed = attacked = 0
    for expected, state in expected_scenes:
        found, allies = drawn(np.asarray(state)), env.spec.num_agents
        np.testing.assert_array_equal(found.shown, expected.shown)
        np.testing.assert_array_equal(found.group, expected.group)
        living = found.shown
        centred = expected.position[living] - 16.0
        np.testing.assert_allclose(found.position[living], centred, atol=1e-4)
        np.testing.assert_allclose(found.health[living], expected.health[living], atol=1e-5)
        assert (found.shield is None) == (expected.shield is None)
        if expected.shield is not None:
            np.testing.assert_allclose(found.shield[living], expected.shield[living], atol=1e-5)
        # an ally that fights after a step was ordered to in that step
        aims = living[:allies] & (expected.target[:allies] >= 0)
        np.testing.assert_array_equal(found.target[:allies][aims], expected.target[:allies][aims])
        assert (found.target[allies:] == -1).all()
        attacked += np.sum(found.target[:allies] >= allies)
        healed += np.sum((found.target[:allies] >= 0) & (found.target[:allies] < allies))
    assert attacked > 0
    assert healed == 0 or MAPS[task].heals


def test_the_target_of_a_healer_is_an_ally():
    env = make("skirmish/MMM2")
    has, spec = MAPS["MMM2"], env.spec
    state = np.zeros(spec.state_dim, np.float32)
    medivac = 9 * (4 + has.types)
    state[medivac] = state[medivac + 4 + 2] = 1.0  # alive, and of the third type
    last = state[-spec.num_agents * spec.num_actions :].reshape(spec.num_agents, -1)
    last[9, smac.FIRST_TARGET + 4] = last[8, smac.FIRST_TARGET + 4] = 1.0
    target = scenes(spec, has)(state).target
    assert target[9] == 4
    assert target[8] == spec.num_agents + 4
    assert (np.delete(target, [8, 9]) == -1).all()


def test_a_state_of_another_length_is_not_drawn():
    env = make("skirmish/3m")
    assert scenes(env.spec, Rows(1, 1)) is None
    assert scenes(replace(env.spec, state_dim=env.spec.state_dim + 1), Rows()) is None


def test_battles_of_the_stand_in_are_drawn(starcraft):
    for name in ("smac/3m", "smac/MMM2", "smac/2s3z", "smacv2/10gen_protoss"):
        host = make(name)
        assert host.scene is not None, name
        assert host.scene(np.zeros(host.spec.state_dim, np.float32)).shown.sum() == 0
