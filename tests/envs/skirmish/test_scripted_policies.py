"""Skirmish's scripted policies on battles placed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from skirmish_cases import battle_of, scenario_of
from skirmish_oracle import random_states

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import observation, scripted_policies, spawns
from grasp.envs.skirmish.state import Battle

FIELD = scenario_of("MMM")


MARAUDER, MARINE, OTHER, MEDIVAC = 0, 2, 3, 9


FOE_MEDIVAC = 19
"""Indices of units on MMM; its enemies start with marines, at 10."""


NOOP, STAND, NORTH, SOUTH, EAST, WEST, FIRST = range(7)


def placed(where: dict[int, tuple[float, ...]]) -> Battle:
    """A battle in which only the units placed at (x, y[, hit points, shield]) are alive."""
    unit = skirmish.stats(FIELD, jnp.asarray(spawns.fixed(FIELD.battlefield)[0]))
    x, y, hp, shield = np.zeros((4, len(unit.hp)), np.float32)
    for n, place in where.items():
        values = (*place, *(float(unit.hp[n]), 0.0)[len(place) - 2 :])
        x[n], y[n], hp[n], shield[n] = values
    return battle_of(x, y, hp, shield)


@pytest.fixture(scope="module")
def chosen():
    """(battles, keys) -> the actions of every script in each battle, and the masks."""
    rules, kind = FIELD.rules, jnp.asarray(spawns.fixed(FIELD.battlefield)[0])

    def choose(battle: Battle, key: jax.Array):
        unit = skirmish.stats(FIELD, kind)
        avail = observation.legal(rules, unit, battle)
        return {
            name: script(rules, unit, battle, avail, key) for name, script in scripted_policies.SCRIPTS.items()
        }, avail

    return jax.jit(jax.vmap(choose), compiler_options=FAST_COMPILE)


def apply(chosen, battles: list[Battle], number: int = 128):
    """`chosen` for these battles, repeated to a fixed number of copies so that it compiles once."""
    many = jax.tree.map(lambda *v: jnp.stack([v[k % len(v)] for k in range(number)]), *battles)
    return jax.tree.map(np.asarray, chosen(many, jax.random.split(jax.random.key(0), number)))


def test_the_target_of_each_script(chosen):
    """Nearest and hold: the enemy at distance 3, not that at 4 or the dead one at 2. Focus: the weakest by hit points
    and shield in range. Stop: none."""
    enemies = {10: (20.0, 16.0, 20.0), 11: (13.0, 16.0), 12: (16.0, 18.0, 0.0), 13: (16.0, 22.5, 1.0)}
    enemies[14] = (20.0, 17.0, 10.0, 15.0)
    actions, avail = apply(chosen, [placed({MARINE: (16.0, 16.0)} | enemies)])
    assert avail[0, MARINE, FIRST:].nonzero()[0].tolist() == [0, 1, 4]
    expected = {"stop": STAND, "hold": FIRST + 1, "nearest": FIRST + 1, "focus": FIRST}
    assert {name: int(actions[name][0, MARINE]) for name in expected} == expected
    dead = np.arange(10) != MARINE
    assert not any(action[:, dead].any() for action in actions.values()), "a dead agent acted"
    counts = np.bincount(actions["random"][:, MARINE], minlength=16)
    assert (counts > 0).tolist() == avail[0, MARINE].tolist(), "random did not choose from all legal actions"


def test_scripts_take_the_first_of_equal_targets(chosen):
    actions, _ = apply(chosen, [placed({MARINE: (16.0, 16.0), 12: (16.0, 19.0), 13: (19.0, 16.0)})])
    assert {int(actions[name][0, MARINE]) for name in ("hold", "nearest", "focus")} == {FIRST + 2}


WALKS = [
    ((16, 16), (23, 18), EAST),
    ((16, 16), (9, 14), WEST),
    ((16, 16), (18, 23), NORTH),
    ((16, 16), (14, 9), SOUTH),
    ((16, 16), (21, 21), EAST),
    ((16, 16), (25.1, 16), STAND),
    ((16, 23.5), (17, 31), EAST),
    ((16, 23.5), (15, 31), WEST),
    ((31.5, 23.5), (31.9, 31), STAND),
]
"""(start, goal, action): along the longer axis; not beyond a distance of 9; around a wall, or stand."""


def test_without_a_target_scripts_walk_to_the_nearest_enemy(chosen):
    """The goal is a flying unit, which may be behind the wall. Weaker distant enemies and dead ones are ignored."""
    actions, avail = apply(chosen, [placed({MARINE: start, FOE_MEDIVAC: goal}) for start, goal, _ in WALKS])
    for k, (start, goal, way) in enumerate(WALKS):
        assert not avail[k, MARINE, FIRST:].any()
        for name in ("nearest", "focus"):
            assert actions[name][k, MARINE] == way, (name, start, goal)
        assert actions["hold"][k, MARINE] == actions["stop"][k, MARINE] == STAND
    both = placed({MARINE: (16.0, 16.0), 10: (8.0, 16.0, 1.0), 11: (23.0, 16.0), 12: (16.0, 18.0, 0.0)})
    actions, _ = apply(chosen, [both])
    assert {int(actions[name][0, MARINE]) for name in ("nearest", "focus")} == {EAST}


def test_medivacs_heal_the_lowest_fraction_of_hit_points(chosen):
    """60 of 125 before 30 of 45, and no unit out of range or with full health: then they stand."""
    hurt = {MEDIVAC: (16.0, 16.0), MARAUDER: (16.0, 20.0, 60.0), MARINE: (17.0, 16.0, 30.0), OTHER: (16.0, 9.9, 1.0)}
    whole = {MEDIVAC: (16.0, 16.0), MARAUDER: (16.0, 20.0), 10: (20.0, 16.0), 11: (24.0, 16.0)}
    actions, _ = apply(chosen, [placed(hurt), placed(whole)])
    for name in ("hold", "nearest", "focus"):
        assert actions[name][:2, MEDIVAC].tolist() == [FIRST + MARAUDER, STAND], name
    assert actions["stop"][:2, MEDIVAC].tolist() == [STAND, STAND]


def test_scripts_choose_only_legal_actions(chosen):
    states = random_states("MMM")
    battles = [jax.tree.map(lambda v, b=b: v[b], states.battle) for b in range(128)]
    actions, avail = apply(chosen, battles)
    assert set(actions) == {"stop", "hold", "nearest", "focus", "random"}
    for name, action in actions.items():
        assert np.take_along_axis(avail, action[..., None], -1).all(), name
    assert not np.isin(actions["hold"], [NORTH, SOUTH, EAST, WEST]).any()
