"""Skirmish as an environment: its sizes, whole steps, time limit, and the version of its rules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from skirmish_cases import SIZES, battle_of
from skirmish_oracle import legal_actions, observed, state_vector, view_of

from grasp import runs
from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import scripted_policies
from grasp.envs.skirmish.state import MOVE, STOP
from grasp.envs.skirmish.unit_stats import NAMES
from grasp.types import GraspError


def test_sizes_of_all_maps_are_the_benchmarks():
    assert set(skirmish.names()) == set(SIZES)
    for task, (num_agents, num_enemies, obs_dim, state_dim, num_actions, limit, _) in SIZES.items():
        spec = skirmish.make(task).spec
        found = (spec.num_agents, spec.obs_dim, spec.state_dim, spec.num_actions, spec.horizon)
        assert found == (num_agents, obs_dim, state_dim, num_actions, limit), task
        assert (spec.name, spec.has_wins, num_actions) == (f"skirmish/{task}", True, num_enemies + 6)


def test_an_unknown_map_is_answered_with_the_nearest():
    with pytest.raises(GraspError, match="unknown map '3mm'; did you mean '3m'"):
        skirmish.make("3mm")


STAND, FAR = np.full((4, 3), 1), np.full((4, 3), 6)
"""Actions of all agents in four copies: stop, and attack an enemy that is out of range at the start."""


@pytest.fixture(scope="module")
def marines():
    """3m's reset and step for four copies."""
    env = skirmish.make("3m")
    reset, step = (jax.jit(jax.vmap(f), compiler_options=FAST_COMPILE) for f in (env.reset, env.step))
    return reset, step


def keys(seed: int) -> jax.Array:
    return jax.random.split(jax.random.key(seed), 4)


def check_shown(state: skirmish.State, shown, action) -> None:
    """Check that the observation of every copy equals the oracle's."""
    state, shown = jax.tree.map(np.asarray, (state, shown))
    for b in range(4):
        view = view_of("3m", jax.tree.map(lambda v, b=b: v[b], state))
        assert shown.avail[b].tolist() == [legal_actions(view, n) for n in range(3)]
        np.testing.assert_allclose(shown.obs[b], [observed(view, n) for n in range(3)], rtol=0, atol=1e-6)
        np.testing.assert_allclose(shown.state[b], state_vector(view, action[b]), rtol=0, atol=1e-6)


def test_observations_of_an_episode_equal_the_oracles(marines):
    """From the reset, without a last action, through a fight. The state keeps the last action of dead agents too."""
    reset, step = marines
    state, shown = reset(keys(0))
    check_shown(state, shown, -np.ones((4, 3)))
    assert (np.asarray(state.battle.hp) == 45).all()
    paid, rng = np.zeros(4), np.random.default_rng(0)
    for t in range(26):
        legal = np.asarray(shown.avail)
        # attack if possible, else go east, else anything
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
    assert (np.asarray(state.battle.hp)[:, :3] <= 0).any(), "no agent died, so no dead agent was tested"
    assert (paid > 1).all(), "no fight happened"
    assert state.time.tolist() == [26] * 4


def test_only_the_time_limit_truncates_and_termination_takes_precedence(marines):
    """After 59 steps: not ended; after 60: truncated; after 60 with one or both sides dead: terminated."""
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


def test_an_illegal_action_stops_and_a_key_repeats_a_step(marines):
    reset, step = marines
    state, _ = reset(keys(0))
    stood, _ = step(state, STAND, keys(1))
    tried, _ = step(state, FAR, keys(1))
    np.testing.assert_array_equal(stood.battle.x, tried.battle.x)
    again, _ = step(state, FAR, keys(1))
    jax.tree.map(np.testing.assert_array_equal, tried, again)


def test_a_legal_move_goes_two_cells_and_an_illegal_one_stops():
    """North, south, east and west, from the middle and from half a cell below the upper wall."""
    scenario = skirmish.scenario_of("3m")
    state, _ = skirmish.reset(scenario, jax.random.key(0))
    unit = skirmish.stats(scenario, state.kind)
    place = jnp.full(6, 16.0)
    inside, beside = battle_of(place, place, unit.hp), battle_of(place, place.at[0].set(23.5), unit.hp)
    for action, offset in zip((2, 3, 4, 5), ((0, 2), (0, -2), (2, 0), (-2, 0)), strict=True):
        found = skirmish.ordered(scenario.rules, unit, inside, jnp.full(3, action))
        assert found.order[:3].tolist() == [MOVE] * 3
        assert (float(found.goal_x[0]) - 16, float(found.goal_y[0]) - 16) == offset
    found = skirmish.ordered(scenario.rules, unit, beside, jnp.full(3, 2))
    assert found.order[:3].tolist() == [STOP, MOVE, MOVE]


def test_a_step_forgets_dead_enemies_and_those_held_by_dead_agents():
    """Enemy 4 is far away: in the four copies known, dead, held by an agent that is dead now, and known."""
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


STEPS = 12


PINNED_AT = "skirmish-1"


PINNED = {
    "2s3z": (143.3694, 160.1477, 790.0, 491.0),
    "MMM2": (327.5745, 352.9404, 1377.4375, 0.0),
    "zerg_5_vs_5": (170.4325, 149.9829, 230.3581, 0.0),
}
"""Sums over all units of x, y, hit points and shields under that version."""


def fought(task: str) -> list[float]:
    """These sums after some steps of a scripted policy under a fixed key."""
    scenario = skirmish.scenario_of(task)
    reset, step = (
        jax.jit(functools.partial(f, scenario), compiler_options=FAST_COMPILE) for f in (skirmish.reset, skirmish.step)
    )
    reset_key, step_key = jax.random.split(jax.random.key(0))
    state, shown = reset(reset_key)
    for t in range(STEPS):
        act_key, env_key = jax.random.split(jax.random.fold_in(step_key, t))
        unit = skirmish.stats(scenario, state.kind)
        action = scripted_policies.nearest(scenario.rules, unit, state.battle, shown.avail, act_key)
        state, result = step(state, action, env_key)
        shown = result.observation
    battle = state.battle
    return [float(v.sum()) for v in (battle.x, battle.y, battle.hp, battle.shield)]


@pytest.mark.parametrize("task", PINNED)
def test_a_change_of_the_dynamics_raises_the_version(task):
    """Compilers differ by a relative 1e-7; doubling ASIDE, the smallest constant, changes a sum by 5e-4."""
    found = fought(task)
    told = f"raise skirmish.VERSION and set PINNED for the new version: {task} has {found}"
    np.testing.assert_allclose(found, PINNED[task], rtol=2e-4, err_msg=f"the dynamics changed: {told}")
    assert skirmish.VERSION == PINNED_AT, f"a new version without values in PINNED: {task} has {found}"


def test_the_version_is_recorded_with_every_run():
    assert runs.versions(skirmish.make("3m").spec)["env_version"] == skirmish.VERSION
