"""Skirmish's rewards, wins and ends, and the parts of the contract that only a whole step shows."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from test_skirmish_contract import (
    FACTS,
    FIXED,
    NUM_BATTLES,
    SIZES,
    battle_of,
    field_of,
    full_hp,
    legal_actions,
    names_of,
    observed,
    random_states,
    scene_of,
    state_vector,
)

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import reward, spawns
from grasp.envs.skirmish.unit_stats import NAMES

STAND, FAR = np.full((4, 3), 1), np.full((4, 3), 6)
"""Every agent of four copies: to stop, and to attack an enemy who is out of range at the start."""


@functools.cache
def payer(task: str):
    """(kind, before, after, won) -> reward, for many battles."""
    field = field_of(task)

    def pay(kind, before, after, won):
        return reward.earned(field.rules, skirmish.stats(field, kind), before, after, won)

    return jax.jit(jax.vmap(pay), compiler_options=FAST_COMPILE)


@pytest.mark.parametrize("task", FIXED)
def test_a_whole_win_is_worth_20_and_a_point_its_share(task):
    num_allies, num_enemies = SIZES[task][:2]
    kind = spawns.fixed(field_of(task).battlefield)[0]
    hp = np.array([FACTS[name].hp for name in names_of(kind)], np.float32)
    shield = np.array([FACTS[name].shield for name in names_of(kind)], np.float32)
    place = np.zeros((3, num_allies + num_enemies), np.float32)
    before = battle_of(place, place, place + hp, place + shield)
    after = np.array(before.hp)
    after[0, num_allies:] = 0
    after[1, num_allies] -= 1
    after[2, :num_allies] -= 1
    kinds, won = jnp.asarray(np.broadcast_to(kind, place.shape)), jnp.array([True, False, False])
    paid = payer(task)(kinds, before, before._replace(hp=jnp.asarray(after)), won)
    np.testing.assert_allclose(paid, [20.0, 20 / SIZES[task][-1], 0.0], rtol=1e-4)


def earned(names: list[str], num_allies: int, before, after, won: bool, drawn: bool) -> float:
    """The benchmark's shaped reward, enemy by enemy."""
    lost, deaths, most = 0.0, 0.0, 200.0
    for n in range(num_allies, len(names)):
        most += 10 + full_hp(names[n], True) + FACTS[names[n]].shield
        if before.hp[n] <= 0:
            continue
        strength = float(before.hp[n]) + float(before.shield[n])
        if after.hp[n] <= 0:
            lost, deaths = lost + strength, deaths + 10
        else:
            lost += strength - float(after.hp[n]) - float(after.shield[n])
    gained = max(lost + deaths, 0.0) if drawn else abs(lost + deaths)
    return (gained + 200 * won) * 20 / most


@pytest.mark.parametrize("task", ["3s5z_vs_3s6z", "MMM2", "protoss_5_vs_5", "zerg_5_vs_5"])
def test_rewards(task):
    """Damage, kills, regeneration and the win bonus; SMAC pays for net regeneration, SMACv2 does not."""
    rng, num_allies = np.random.default_rng(5), SIZES[task][0]
    states = random_states(task)
    before = jax.tree.map(np.asarray, states.battle)
    shape = before.hp.shape
    heals = rng.random((NUM_BATTLES, 1)) < 0.3
    factor = np.where(heals, rng.uniform(1, 1.2, shape), rng.uniform(0.5, 1.02, shape))
    dies = rng.random(shape) < np.where(heals, 0.0, 0.2)
    hp = (before.hp * factor * ~dies).astype(np.float32)
    shield = (before.shield * factor).astype(np.float32)
    won = rng.random(NUM_BATTLES) < 0.2
    after = before._replace(hp=hp, shield=shield)
    paid = payer(task)(states.kind, states.battle, jax.tree.map(jnp.asarray, after), jnp.asarray(won))
    regrown = 0
    for b in range(NUM_BATTLES):
        one_before, one_after = (jax.tree.map(lambda v, b=b: v[b], battle) for battle in (before, after))
        names = names_of(np.asarray(states.kind)[b])
        expected = earned(names, num_allies, one_before, one_after, bool(won[b]), "_5_vs_5" in task)
        assert float(paid[b]) == pytest.approx(expected, rel=1e-4, abs=1e-4), f"battle {b}"
        regrown += bool(heals[b, 0] and (one_after.hp > one_before.hp)[num_allies:].any())
    assert 10 < regrown < NUM_BATTLES


@pytest.mark.parametrize(
    ("task", "mean"), [("terran_5_vs_5", 91.5), ("protoss_10_vs_11", 174.5), ("zerg_20_vs_20", 59.25)]
)
def test_a_fixed_norm_is_the_average_worth_of_the_map_s_enemies(task, mean):
    num_enemies = SIZES[task][1]
    fixed, own = (skirmish.field_of(task, reward_norm=norm).rules for norm in ("fixed", "episode"))
    assert fixed.most == pytest.approx(num_enemies * (10 + mean) + 200)
    unit = skirmish.stats(
        skirmish.field_of(task), spawns.drawn(skirmish.field_of(task).battlefield, jax.random.key(3))[0]
    )
    place = np.zeros(unit.hp.shape, np.float32)
    before = battle_of(place, place, np.array(unit.hp), np.array(unit.shield))
    after = before._replace(hp=before.hp.at[SIZES[task][0] :].set(0.0))
    paid = [float(reward.earned(rules, unit, before, after, jnp.asarray(True))) for rules in (fixed, own)]
    worth = float((unit.hp + unit.shield)[SIZES[task][0] :].sum()) + 10 * num_enemies + 200
    np.testing.assert_allclose(paid, [20 * worth / fixed.most, 20.0], rtol=1e-5)


def ended(names: list[str], num_allies: int, alive) -> tuple[bool, bool]:
    """(over, won) by the benchmark's rules, in their order."""
    allies, enemies = ([(n, alive[k]) for k, n in side] for side in split(names, num_allies))
    fighters = [any(lives and name != "medivac" for name, lives in side) for side in (allies, enemies)]
    ally, enemy = (any(lives for _, lives in side) for side in (allies, enemies))
    has_healers = "medivac" in names
    if (not ally and enemy) or (has_healers and not fighters[0]):
        return True, False
    if (ally and not enemy) or (has_healers and not fighters[1]):
        return True, True
    return (not ally and not enemy), False


def split(names: list[str], num_allies: int):
    units = list(enumerate(names))
    return units[:num_allies], units[num_allies:]


@pytest.mark.parametrize(
    ("task", "names"),
    [("terran_5_vs_5", ["marine", "medivac"] * 2), ("zerg_5_vs_5", ["zergling", "baneling"] * 2)],
    ids=["with healers", "without"],
)
def test_who_has_won(task, names):
    """Every way to be alive, medivac-only sides and mutual extinction among them."""
    field = field_of(task, size=(2, 2))
    kind = jnp.array([NAMES.index(name) for name in names])
    ways = list(itertools.product([True, False], repeat=4))

    def end(hp):
        unit = skirmish.stats(field, kind)
        return reward.outcome(field.rules, unit, battle_of(hp, hp, hp))

    over, won = jax.jit(jax.vmap(end), compiler_options=FAST_COMPILE)(jnp.array(ways, jnp.float32) * 30)
    expected = [ended(names, 2, way) for way in ways]
    assert list(zip(over.tolist(), won.tolist(), strict=True)) == expected


def test_smaclite_pays_for_what_is_healed_again_and_its_healers_hold_the_field():
    """MMM: an enemy loses 9 and is healed 6 of them for 2 energy; then the enemy's medivac is left alone."""
    for profile, points, ends in (("sc2", 3.0, (True, True)), ("smaclite", 9.0, (False, False))):
        field = skirmish.field_of("MMM", profile=profile)
        kind, _ = spawns.fixed(field.battlefield)
        unit = skirmish.stats(field, jnp.asarray(kind))
        place, heals = np.zeros(unit.hp.shape), np.array(unit.heals) > 0
        before = battle_of(place, place, np.array(unit.hp), energy=50.0 * heals)
        enemy = np.arange(len(kind)) >= field.rules.num_allies
        energy = (50.0 + 8 * 0.5625 / 16 - 2.0 * enemy) * heals
        after = before._replace(hp=before.hp.at[field.rules.num_allies].add(-3.0), energy=jnp.asarray(energy))
        paid = float(reward.earned(field.rules, unit, before, after, jnp.asarray(False)))
        assert paid == pytest.approx(20 * points / 1015, rel=1e-4)
        alone = before._replace(hp=jnp.where(enemy & ~heals, 0.0, before.hp))
        assert tuple(bool(v) for v in reward.outcome(field.rules, unit, alone)) == ends


@pytest.fixture(scope="module")
def marines():
    """3m's reset and step for four copies."""
    env = skirmish.make("3m")
    reset, step = (jax.jit(jax.vmap(f), compiler_options=FAST_COMPILE) for f in (env.reset, env.step))
    return reset, step


def keys(seed: int) -> jax.Array:
    return jax.random.split(jax.random.key(seed), 4)


def check_shown(state: skirmish.State, shown, action) -> None:
    """Every copy's observation is the oracle's."""
    state, shown = jax.tree.map(np.asarray, (state, shown))
    for b in range(4):
        scene = scene_of("3m", jax.tree.map(lambda v, b=b: v[b], state))
        assert shown.avail[b].tolist() == [legal_actions(scene, n) for n in range(3)]
        np.testing.assert_allclose(shown.obs[b], [observed(scene, n) for n in range(3)], rtol=0, atol=1e-6)
        np.testing.assert_allclose(shown.state[b], state_vector(scene, action[b]), rtol=0, atol=1e-6)


def test_an_episode_shows_what_the_oracle_sees(marines):
    """From the reset, with no last action, through a fight; the submitted action is remembered also of the dead."""
    reset, step = marines
    state, shown = reset(keys(0))
    check_shown(state, shown, -np.ones((4, 3)))
    assert (np.asarray(state.battle.hp) == 45).all()
    paid, rng = np.zeros(4), np.random.default_rng(0)
    for t in range(26):
        legal = np.asarray(shown.avail)
        # shoot whom one can, else go east or anywhere else
        wish = rng.random(legal.shape) + np.where(np.arange(9) >= 6, 2.0, np.where(np.arange(9) == 4, 1.0, 0.0))
        action = np.where(legal, wish, -1).argmax(-1)
        last, (state, result) = state, step(state, action, keys(t + 1))
        shown = result.observation
        check_shown(state, shown, action)
        lost = (np.asarray(last.battle.hp) - np.asarray(state.battle.hp))[:, 3:]
        died = ((np.asarray(last.battle.hp) > 0) & (np.asarray(state.battle.hp) <= 0))[:, 3:]
        expected = (lost.sum(1) + 10 * died.sum(1) + 200 * np.asarray(result.won)) * 20 / 365
        np.testing.assert_allclose(result.reward, expected, rtol=1e-4, atol=1e-5)
        paid += np.asarray(result.reward)
    assert (np.asarray(state.battle.hp)[:, :3] <= 0).any(), "nobody died, so no dead agent was seen"
    assert (paid > 1).all(), "nobody fought"
    assert state.time.tolist() == [26] * 4


def test_only_the_limit_truncates_and_an_end_comes_first(marines):
    """58 + 1 steps: on; 59 + 1: truncated; 59 + 1 with one side, or both, extinct: terminated."""
    reset, step = marines
    state, _ = reset(keys(0))
    hp = np.array(state.battle.hp)
    hp[2, 3:], hp[3, :] = 0, 0
    state = state._replace(time=jnp.array([58, 59, 59, 59]), battle=state.battle._replace(hp=jnp.asarray(hp)))
    _, result = step(state, STAND, keys(1))
    assert result.truncated.tolist() == [False, True, False, False]
    assert result.terminated.tolist() == [False, False, True, True]
    assert result.won.tolist() == [False, False, True, False]
    np.testing.assert_allclose(result.reward, [0, 0, 200 * 20 / 365, 0], rtol=1e-4)


def test_an_illegal_action_is_to_stop_and_a_seed_decides_all(marines):
    reset, step = marines
    state, _ = reset(keys(0))
    stood, _ = step(state, STAND, keys(1))
    tried, _ = step(state, FAR, keys(1))
    np.testing.assert_array_equal(stood.battle.x, tried.battle.x)
    again, _ = step(state, FAR, keys(1))
    jax.tree.map(np.testing.assert_array_equal, tried, again)


def test_a_step_forgets_who_died_and_whom_the_dead_had_seen():
    """SMACv2's book within a step. Enemy 4 is far away, alive, dead, or seen only by an agent who is dead now."""
    env = skirmish.make("terran_5_vs_5")
    state, _ = jax.jit(jax.vmap(env.reset), compiler_options=FAST_COMPILE)(keys(0))
    x = np.array([4.0, 4, 4, 4, 4, 9, 9, 9, 9, 31], np.float32)
    y = np.array([12.0, 14, 16, 18, 20, 12, 14, 16, 18, 16], np.float32)
    hp = np.full((4, 10), 45, np.float32)
    hp[1, 9], hp[2, 4] = 0, 0
    holder = np.tile([0, 1, 2, 3, 4], (4, 1))
    battle = battle_of(np.tile(x, (4, 1)), np.tile(y, (4, 1)), hp)
    kind = jnp.full((4, 10), NAMES.index("marine"), jnp.int32)
    state = state._replace(battle=battle, kind=kind, holder=jnp.asarray(holder, jnp.int32))
    after, result = jax.jit(jax.vmap(env.step), compiler_options=FAST_COMPILE)(state, np.full((4, 5), 1), keys(1))
    assert after.holder[:, 4].tolist() == [4, -1, -1, 4]
    rows = np.asarray(result.observation.obs[:, 0, 4:44]).reshape(4, 5, 8)
    assert np.any(rows, -1).tolist() == [[shown] * 4 + [False] for shown in (True, False, False, True)]
