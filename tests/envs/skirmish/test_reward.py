"""Skirmish's rewards, and when a battle is over and won."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from skirmish_cases import FACTS, FIXED, SIZES, battle_of, full_hp, names_of, scenario_of
from skirmish_oracle import NUM_BATTLES, random_states

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import reward, spawns
from grasp.envs.skirmish.unit_stats import NAMES


@functools.cache
def payer(task: str):
    """(kind, before, after, won) -> reward, for many battles."""
    scenario = scenario_of(task)

    def pay(kind, before, after, won):
        return reward.earned(scenario.rules, skirmish.stats(scenario, kind), before, after, won)

    return jax.jit(jax.vmap(pay), compiler_options=FAST_COMPILE)


@pytest.mark.parametrize("task", FIXED)
def test_a_win_returns_20_and_a_hit_point_its_fraction(task):
    num_allies, num_enemies = SIZES[task][:2]
    kind = spawns.fixed(scenario_of(task).battlefield)[0]
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


def earned(names: list[str], num_allies: int, before, after, won: bool, generated: bool) -> float:
    """The benchmark's shaped reward, computed enemy by enemy."""
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
    gained = max(lost + deaths, 0.0) if generated else abs(lost + deaths)
    return (gained + 200 * won) * 20 / most


@pytest.mark.parametrize("task", ["3s5z_vs_3s6z", "MMM2", "protoss_5_vs_5", "zerg_5_vs_5"])
def test_the_reward_is_what_smac_pays_for_damage_kills_and_wins(task):
    """Damage, kills, regeneration and the bonus for a win. SMAC rewards net regeneration, SMACv2 does not."""
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
def test_the_fixed_norm_is_the_average_worth_of_the_enemies_on_a_map(task, mean):
    num_enemies = SIZES[task][1]
    fixed, own = (skirmish.scenario_of(task, reward_norm=norm).rules for norm in ("fixed", "episode"))
    assert fixed.win_worth == pytest.approx(num_enemies * (10 + mean) + 200)
    unit = skirmish.stats(
        skirmish.scenario_of(task), spawns.generated(skirmish.scenario_of(task).battlefield, jax.random.key(3))[0]
    )
    place = np.zeros(unit.hp.shape, np.float32)
    before = battle_of(place, place, np.array(unit.hp), np.array(unit.shield))
    after = before._replace(hp=before.hp.at[SIZES[task][0] :].set(0.0))
    paid = [float(reward.earned(rules, unit, before, after, jnp.asarray(True))) for rules in (fixed, own)]
    worth = float((unit.hp + unit.shield)[SIZES[task][0] :].sum()) + 10 * num_enemies + 200
    np.testing.assert_allclose(paid, [20 * worth / fixed.win_worth, 20.0], rtol=1e-5)


def ended(names: list[str], num_allies: int, alive) -> tuple[bool, bool]:
    """(terminated, won) by the benchmark's rules, in their order."""
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
def test_termination_and_wins(task, names):
    """All combinations of living units, with only medivacs left and with both sides dead among them."""
    scenario = scenario_of(task, size=(2, 2))
    kind = jnp.array([NAMES.index(name) for name in names])
    ways = list(itertools.product([True, False], repeat=4))

    def end(hp):
        unit = skirmish.stats(scenario, kind)
        return reward.outcome(scenario.rules, unit, battle_of(hp, hp, hp))

    over, won = jax.jit(jax.vmap(end), compiler_options=FAST_COMPILE)(jnp.array(ways, jnp.float32) * 30)
    expected = [ended(names, 2, way) for way in ways]
    assert list(zip(over.tolist(), won.tolist(), strict=True)) == expected


def test_smaclite_rewards_damage_that_is_healed_and_continues_while_healers_live():
    """MMM: an enemy takes 9 damage, of which 6 are healed for 2 energy; then only the enemy's medivac is alive."""
    for profile, points, ends in (("sc2", 3.0, (True, True)), ("smaclite", 9.0, (False, False))):
        scenario = skirmish.scenario_of("MMM", profile=profile)
        kind, _ = spawns.fixed(scenario.battlefield)
        unit = skirmish.stats(scenario, jnp.asarray(kind))
        place, heals = np.zeros(unit.hp.shape), np.array(unit.heals) > 0
        before = battle_of(place, place, np.array(unit.hp), energy=50.0 * heals)
        enemy = np.arange(len(kind)) >= scenario.rules.num_allies
        energy = (50.0 + 8 * 0.5625 / 16 - 2.0 * enemy) * heals
        after = before._replace(hp=before.hp.at[scenario.rules.num_allies].add(-3.0), energy=jnp.asarray(energy))
        paid = float(reward.earned(scenario.rules, unit, before, after, jnp.asarray(False)))
        assert paid == pytest.approx(20 * points / 1015, rel=1e-4)
        alone = before._replace(hp=jnp.where(enemy & ~heals, 0.0, before.hp))
        assert tuple(bool(v) for v in reward.outcome(scenario.rules, unit, alone)) == ends
