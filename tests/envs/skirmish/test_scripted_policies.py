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
"""Places on MMM; its enemies begin with marines, at 10."""


NOOP, STAND, NORTH, SOUTH, EAST, WEST, FIRST = range(7)


def scene(where: dict[int, tuple[float, ...]]) -> Battle:
    """Only those are alive who are put at (x, y, hit points, shield); without the latter they are whole."""
    unit = skirmish.stats(FIELD, jnp.asarray(spawns.fixed(FIELD.battlefield)[0]))
    x, y, hp, shield = np.zeros((4, len(unit.hp)), np.float32)
    for n, place in where.items():
        values = (*place, *(float(unit.hp[n]), 0.0)[len(place) - 2 :])
        x[n], y[n], hp[n], shield[n] = values
    return battle_of(x, y, hp, shield)


@pytest.fixture(scope="module")
def chosen():
    """(battles, keys) -> what every script does in each, and what is legal; for however many there are."""
    rules, kind = FIELD.rules, jnp.asarray(spawns.fixed(FIELD.battlefield)[0])

    def choose(battle: Battle, key: jax.Array):
        unit = skirmish.stats(FIELD, kind)
        avail = observation.legal(rules, unit, battle)
        return {
            name: script(rules, unit, battle, avail, key) for name, script in scripted_policies.SCRIPTS.items()
        }, avail

    return jax.jit(jax.vmap(choose), compiler_options=FAST_COMPILE)


def over(chosen, battles: list[Battle], number: int = 128):
    """For so many copies always, that there is one compilation: the battles over and over."""
    many = jax.tree.map(lambda *v: jnp.stack([v[k % len(v)] for k in range(number)]), *battles)
    return jax.tree.map(np.asarray, chosen(many, jax.random.split(jax.random.key(0), number)))


def test_what_each_script_shoots_at(chosen):
    """Nearest and hold: at 3 rather than 4, and not at the dead at 2. Focus: the weakest with its shield, not the still
    weaker one out of range. Stop shoots at nobody."""
    enemies = {10: (20.0, 16.0, 20.0), 11: (13.0, 16.0), 12: (16.0, 18.0, 0.0), 13: (16.0, 22.5, 1.0)}
    enemies[14] = (20.0, 17.0, 10.0, 15.0)
    actions, avail = over(chosen, [scene({MARINE: (16.0, 16.0)} | enemies)])
    assert avail[0, MARINE, FIRST:].nonzero()[0].tolist() == [0, 1, 4]
    expected = {"stop": STAND, "hold": FIRST + 1, "nearest": FIRST + 1, "focus": FIRST}
    assert {name: int(actions[name][0, MARINE]) for name in expected} == expected
    dead = np.arange(10) != MARINE
    assert not any(action[:, dead].any() for action in actions.values()), "the dead did something"
    counts = np.bincount(actions["random"][:, MARINE], minlength=16)
    assert (counts > 0).tolist() == avail[0, MARINE].tolist(), "random chooses from all that is legal"


def test_of_equals_scripts_take_the_first(chosen):
    actions, _ = over(chosen, [scene({MARINE: (16.0, 16.0), 12: (16.0, 19.0), 13: (19.0, 16.0)})])
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
"""From, towards, and how: along the longer axis; not to who is more than 9 away; around a wall, or not at all."""


def test_who_has_nobody_to_shoot_at_walks_to_the_nearest(chosen):
    """The goal flies, so that it may be behind the wall. A weaker enemy further away, or a dead one, is no goal."""
    actions, avail = over(chosen, [scene({MARINE: start, FOE_MEDIVAC: goal}) for start, goal, _ in WALKS])
    for k, (start, goal, way) in enumerate(WALKS):
        assert not avail[k, MARINE, FIRST:].any()
        for name in ("nearest", "focus"):
            assert actions[name][k, MARINE] == way, (name, start, goal)
        assert actions["hold"][k, MARINE] == actions["stop"][k, MARINE] == STAND
    both = scene({MARINE: (16.0, 16.0), 10: (8.0, 16.0, 1.0), 11: (23.0, 16.0), 12: (16.0, 18.0, 0.0)})
    actions, _ = over(chosen, [both])
    assert {int(actions[name][0, MARINE]) for name in ("nearest", "focus")} == {EAST}


def test_medivacs_heal_the_lowest_share_of_hit_points(chosen):
    """60 of 125 rather than 30 of 45, and nobody out of range or whole: then they stand, whoever is near."""
    hurt = {MEDIVAC: (16.0, 16.0), MARAUDER: (16.0, 20.0, 60.0), MARINE: (17.0, 16.0, 30.0), OTHER: (16.0, 9.9, 1.0)}
    whole = {MEDIVAC: (16.0, 16.0), MARAUDER: (16.0, 20.0), 10: (20.0, 16.0), 11: (24.0, 16.0)}
    actions, _ = over(chosen, [scene(hurt), scene(whole)])
    for name in ("hold", "nearest", "focus"):
        assert actions[name][:2, MEDIVAC].tolist() == [FIRST + MARAUDER, STAND], name
    assert actions["stop"][:2, MEDIVAC].tolist() == [STAND, STAND]


def test_no_script_does_what_is_not_legal(chosen):
    states = random_states("MMM")
    battles = [jax.tree.map(lambda v, b=b: v[b], states.battle) for b in range(128)]
    actions, avail = over(chosen, battles)
    assert set(actions) == {"stop", "hold", "nearest", "focus", "random"}
    for name, action in actions.items():
        assert np.take_along_axis(avail, action[..., None], -1).all(), name
    assert not np.isin(actions["hold"], [NORTH, SOUTH, EAST, WEST]).any()
