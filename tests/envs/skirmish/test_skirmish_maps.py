"""Skirmish's maps: the rules that follow from their units, and steps and episodes of real maps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from skirmish_cases import COPIES, RACES, TEAMS, Put, listed

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish.unit_stats import NAMES, SC2
from grasp.types import GraspError

STAND, EAST, FIRST = 1, 4, 6


@pytest.mark.parametrize("task", skirmish.names())
def test_the_rules_of_a_map_follow_from_its_teams(task):
    """Hits, splash damage, shields and layers by the types of the teams; healers at the indices of medivacs."""
    rules = skirmish.scenario_of(task).rules
    if task in TEAMS:
        allies, enemies = (listed(team) for team in TEAMS[task])
        everyone = [*sorted(allies), *enemies]
        healers = tuple(n for n, name in enumerate(everyone) if name == "medivac")
    else:
        race = task.split("_")[0]
        everyone = RACES[race]
        healers = tuple(range(rules.num_units)) if race == "terran" else ()
    types = set(everyone)
    assert rules.healers == healers
    assert rules.hits == (2 if types & {"zealot", "colossus"} else 1)
    assert rules.shields == bool(types & {"stalker", "zealot", "colossus"})
    assert rules.layers == bool(types & {"medivac", "colossus"})
    assert rules.sweeps == ("colossus" in types)
    assert rules.explodes == ("baneling" in types)


@pytest.mark.parametrize("generated", [False, True])
def test_the_rules_follow_from_the_table_of_units(monkeypatch, generated):
    """A changed unit in the table changes the rules of the maps on which it occurs."""
    task, name = ("zerg_5_vs_5", "hydralisk") if generated else ("3m", "marine")
    plain = skirmish.scenario_of(task).rules
    assert (plain.shields, plain.healers, plain.layers, plain.sweeps, plain.hits) == (False, (), False, False, 1)
    assert plain.explodes == generated
    odd = SC2[name]._replace(shield=10.0, heals=True, tall=True, sweeps=True, explodes=True, hits=3)
    monkeypatch.setitem(SC2, name, odd)
    rules = skirmish.scenario_of(task).rules
    assert rules.shields
    assert rules.layers
    assert rules.sweeps
    assert rules.explodes
    assert (rules.hits, rules.healers) == (3, tuple(range(rules.num_units)))


@pytest.mark.parametrize("task", ["zerg_5_vs_5", "zerg_10_vs_11"])
def test_profile_smaclite_is_refused_on_maps_with_other_units(task):
    """smaclite has no hydralisk, and its clock differs from that of the game's numbers."""
    with pytest.raises(GraspError, match=rf"no hydralisk.*'{task}'.*sc2"):
        skirmish.scenario_of(task, profile="smaclite")
    assert skirmish.scenario_of(task.replace("zerg", "protoss"), profile="smaclite").rules.smaclite


def keys(seed: int) -> jax.Array:
    return jax.random.split(jax.random.key(seed), COPIES)


@functools.cache
def stepper(task: str):
    """The compiled step of a map, for all copies."""
    return jax.jit(jax.vmap(skirmish.make(task).step), compiler_options=FAST_COMPILE)


@functools.cache
def begun(task: str) -> skirmish.State:
    return jax.jit(jax.vmap(skirmish.make(task).reset), compiler_options=FAST_COMPILE)(keys(0))[0]


def staged(task: str, placements: list[dict[int, Put]]) -> skirmish.State:
    """A battle of the map in which only the placed units of each copy are alive; types and orders are the map's."""
    state = begun(task)
    battle = jax.tree.map(np.array, state.battle)
    full_hp, full_shield = battle.hp.copy(), battle.shield.copy()
    battle.hp[:] = battle.shield[:] = 0
    for b, placement in enumerate(placements):
        for n, put in placement.items():
            assert NAMES[int(state.kind[b, n])] == put.name
            battle.x[b, n], battle.y[b, n] = put.x, put.y
            battle.hp[b, n] = full_hp[b, n] if put.hp is None else put.hp
            battle.shield[b, n] = full_shield[b, n] if put.shield is None else put.shield
    return state._replace(battle=jax.tree.map(jnp.asarray, battle))


def orders(num_agents: int, *given: dict[int, int]) -> np.ndarray:
    """Actions: the given ones per copy; all other agents stop."""
    action = np.full((COPIES, num_agents), STAND)
    for b, one in enumerate(given):
        for n, chosen in one.items():
            action[b, n] = chosen
    return action


def test_a_step_of_2s3z_by_hand():
    """A zealot's two hits of 8, each minus armour, take 14 from a stalker without shield, whose shot of 13 hits a
    shield. A shield of 10 absorbs the first hit and 2 of the second, whose remaining 6 are reduced by armour."""
    ours = {2: Put("zealot", 16, 16), 5: Put("stalker", 17.175, 16, shield=0.0)}
    theirs = {0: Put("stalker", 16, 16, shield=10.0), 7: Put("zealot", 17.175, 16)}
    state, result = stepper("2s3z")(staged("2s3z", [ours, theirs]), orders(5, {2: FIRST}), keys(1))
    hp, shield = np.asarray(state.battle.hp), np.asarray(state.battle.shield)
    assert (hp[0, 5], hp[0, 2], shield[0, 2]) == (80 - 14, 100, 50 - 13)
    assert (hp[1, 0], shield[1, 0], hp[1, 7], shield[1, 7]) == (80 - 5, 0, 100, 50)
    np.testing.assert_allclose(result.reward[:2], [14 * 20 / 1020, 0], rtol=1e-5)


def test_a_step_of_mmm_by_hand():
    """A marauder's 10 + 10 minus armour, and eight loops of healing, 4.5 hit points for 1.5 energy, by each side's
    medivac. SMAC rewards the enemy's healing as if it were damage."""
    fight = {0: Put("marauder", 9, 12, hp=100.0), 9: Put("medivac", 7, 12), 17: Put("marauder", 13, 12)}
    healing = {10: Put("marine", 23, 16, hp=20.0), 19: Put("medivac", 25, 16)}
    assert np.asarray(begun("MMM").battle.energy).tolist() == [[50.0 * (n in (9, 19)) for n in range(20)]] * COPIES
    state, result = stepper("MMM")(staged("MMM", [fight | healing]), orders(10, {9: FIRST}), keys(1))
    hp, energy = np.asarray(state.battle.hp[0]), np.asarray(state.battle.energy[0])
    np.testing.assert_allclose(hp[[0, 9, 17, 10, 19]], [100 - 19 + 4.5, 150, 125, 20 + 4.5, 150], atol=1e-4)
    np.testing.assert_allclose(energy[[9, 19]], 50 + 8 * 0.5625 / 16 - 1.5, atol=1e-4)
    assert float(result.reward[0]) == pytest.approx(4.5 * 20 / 1015, rel=1e-4)


def test_the_random_delay_of_weapons_is_uniform_from_minus_1_to_2_loops():
    """Independent for each unit: four stalkers that fire in the first of eight loops."""
    scene = {0: Put("stalker", 14, 14), 1: Put("stalker", 14, 18), 5: Put("stalker", 18, 14), 6: Put("stalker", 18, 18)}
    state = staged("2s3z", [scene] * COPIES)
    action = orders(5, *[{0: FIRST, 1: FIRST + 1}] * COPIES)
    found = [stepper("2s3z")(state, action, keys(seed))[0].battle.cooldown for seed in range(8)]
    late = np.concatenate(found)[:, [0, 1, 5, 6]] + 7 - 29.922
    assert late.min() == pytest.approx(-1, abs=0.1)
    assert late.max() == pytest.approx(2, abs=0.1)
    assert late.min() >= -1 - 1e-4
    assert late.max() <= 2 + 1e-4
    assert abs(late.mean() - 0.5) < 4 * np.sqrt(0.75 / late.size)
    assert (np.abs(np.corrcoef(late.T) - np.eye(4)) < 4 / np.sqrt(len(late))).all()


@pytest.mark.parametrize(
    ("options", "noisy"), [({}, True), ({"cooldown_noise": False}, False), ({"profile": "smaclite"}, False)]
)
def test_without_cooldown_noise_and_in_smaclite_there_is_no_delay(options, noisy):
    scenario = skirmish.scenario_of("3m", **options)
    recording = scenario._replace(fight=lambda unit, battle, delay: battle._replace(cooldown=delay))
    fresh = jax.tree.map(lambda v: v[0], begun("3m"))
    step = jax.jit(functools.partial(skirmish.step, recording), compiler_options=FAST_COMPILE)
    delay = np.asarray(step(fresh, jnp.full(3, STAND), jax.random.key(0))[0].battle.cooldown)
    assert bool(delay.any()) == noisy


@pytest.mark.parametrize("task", ["2s3z", "MMM"])
def test_a_team_that_stops_loses_without_reward(task):
    """All types of SMAC's maps are on one of these."""
    state, over = begun(task), np.zeros(COPIES, bool)
    action = np.full(state.last_action.shape, STAND)
    for t in range(90):
        state, result = stepper(task)(state, action, keys(t))
        assert not np.asarray(result.reward).any()
        assert not np.asarray(result.won).any()
        over = np.asarray(result.terminated)
        if over.all():
            break
    assert over.all(), "the enemies did not attack"


def test_a_played_win_returns_20_and_no_reward_is_negative():
    """2s3z against enemies whose shields do not regenerate, by allies that are restored after every step."""
    state = begun("2s3z")
    legal = np.asarray(state.last_action)[..., None] + np.zeros(11)  # no masks yet: go east
    hp, shield = np.asarray(state.battle.hp), np.asarray(state.battle.shield)
    paid, ended = np.zeros(COPIES), np.zeros(COPIES, bool)
    allies = np.arange(10) < 5
    for t in range(90):
        shoots = np.where(legal[..., FIRST:] > 0, np.arange(FIRST, 11), 99).min(-1)
        state, result = stepper("2s3z")(state, np.where(shoots < 99, shoots, EAST), keys(t))
        reward, won = np.asarray(result.reward), np.asarray(result.won)
        assert (reward >= 0).all()
        paid += np.where(ended, 0, reward)
        ended |= won
        if ended.all():
            break
        legal = np.asarray(result.observation.avail)
        battle = state.battle
        battle = battle._replace(
            hp=jnp.where(allies, hp, battle.hp),
            shield=jnp.where(allies, shield, battle.shield),
            calm=jnp.zeros_like(battle.calm),
        )
        state = state._replace(battle=battle)
    assert ended.all(), "not won"
    np.testing.assert_allclose(paid * 1020 / 20, 1020, rtol=1e-4)
