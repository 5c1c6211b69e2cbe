"""Skirmish's version: a change that moves a battle must raise it."""

import functools

import jax
import numpy as np
import pytest
from env_contract import FAST_COMPILE

from grasp import runs
from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import scripted_policies

STEPS = 12
PINNED_AT = "skirmish-1"
PINNED = {
    "2s3z": (143.3694, 160.1477, 790.0, 491.0),
    "MMM2": (327.5745, 352.9404, 1377.4375, 0.0),
    "zerg_5_vs_5": (170.4325, 149.9829, 230.3581, 0.0),
}
"""Sums over all units of x, y, hit points and shields, of that version."""


def fought(task: str) -> list[float]:
    """Those sums after some steps of a scripted team, under a fixed key."""
    field = skirmish.field_of(task)
    reset, step = (
        jax.jit(functools.partial(f, field), compiler_options=FAST_COMPILE) for f in (skirmish.reset, skirmish.step)
    )
    reset_key, step_key = jax.random.split(jax.random.key(0))
    state, shown = reset(reset_key)
    for t in range(STEPS):
        act_key, env_key = jax.random.split(jax.random.fold_in(step_key, t))
        unit = skirmish.stats(field, state.kind)
        action = scripted_policies.nearest(field.rules, unit, state.battle, shown.avail, act_key)
        state, result = step(state, action, env_key)
        shown = result.observation
    battle = state.battle
    return [float(v.sum()) for v in (battle.x, battle.y, battle.hp, battle.shield)]


@pytest.mark.parametrize("task", PINNED)
def test_a_change_that_moves_a_battle_raises_the_version(task):
    """Compilers differ by a ten-millionth; twice the turn aside of a push would move a sum by a two-thousandth."""
    found = fought(task)
    told = f"raise skirmish.VERSION, and pin the battles of the new one: {task} has {found}"
    np.testing.assert_allclose(found, PINNED[task], rtol=2e-4, err_msg=f"battles are no longer as they were: {told}")
    assert skirmish.VERSION == PINNED_AT, f"a version without its battles: pin {task} as {found}"


def test_the_version_is_recorded_with_every_run():
    assert runs.versions(skirmish.make("3m").spec)["env_version"] == skirmish.VERSION
