"""Which enemies Skirmish's agents see, with SMACv2's bookkeeping, against an oracle that lets agents look in turn."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE
from skirmish_cases import battle_of, scenario_of
from skirmish_oracle import DRAWN, NUM_BATTLES, View, observed, random_states, shown_of, views

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import smacv2_visibility
from grasp.envs.skirmish.unit_stats import NAMES


def holders_and_hidden(view: View, holder, order) -> tuple[tuple[int, ...], tuple[frozenset[int], ...]]:
    """SMACv2's holders after the agents observed in this order, and the enemies hidden from each."""
    holder, hidden = list(holder), [frozenset()] * view.num_allies
    for n in order:
        if not view.alive(n):
            continue
        hidden_rows = set()
        for e in range(len(holder)):
            if view.far(n, view.num_allies + e) < view.sight(n) and holder[e] == smacv2_visibility.UNKNOWN:
                holder[e] = n
            if holder[e] == smacv2_visibility.UNKNOWN:
                hidden_rows |= set(range(e))
        hidden[n] = frozenset(hidden_rows)
    return tuple(int(h) for h in holder), tuple(hidden)


@pytest.mark.parametrize("task", DRAWN)
def test_hidden_rows_follow_from_some_order_of_the_agents(task):
    """Holders and hidden rows are those of one of the possible orders, computed enemy by enemy."""
    after, shown = shown_of(task)
    before = np.asarray(random_states(task).holder)
    hidden_rows = 0
    for b, view in enumerate(views(task)):
        orders = itertools.permutations(range(view.num_allies))
        possible = {holders_and_hidden(view, before[b], order) for order in orders}
        fitting = [hidden for holder, hidden in possible if holder == tuple(after.holder[b])]
        seen = [[observed(view, n, hidden[n]) for n in range(view.num_allies)] for hidden in fitting]
        errors = [np.abs(shown.obs[b] - np.array(obs)).max() for obs in seen]
        assert errors, f"battle {b}: no order of the agents gives these holders"
        assert min(errors) <= 1e-6, f"battle {b}"
        hidden_rows += any(len(rows) > 0 for hidden in fitting for rows in hidden)
    assert 20 < hidden_rows < NUM_BATTLES


@functools.cache
def marines_shown(task: str):
    """(x, hp, holder) -> (holder, observation) of three marines against three on one line, after `forget`."""
    scenario = scenario_of(task, size=(3, 3))
    kind, zero = jnp.full(6, NAMES.index("marine")), jnp.zeros((), jnp.int32)

    def show(x, hp, holder):
        battle = battle_of(x, jnp.full(6, 16.0), hp)
        holder = smacv2_visibility.forget(scenario.rules, battle, holder)
        state = skirmish.State(battle, kind, jnp.full(3, -1), holder, zero)
        state, shown = skirmish.seen(scenario, skirmish.stats(scenario, kind), state, jax.random.key(0))
        return state.holder, shown

    return jax.jit(show, compiler_options=FAST_COMPILE)


def test_shooting_range_is_inclusive_and_sight_is_strict():
    x = jnp.array([9.0, 9.0, 9.0, 9.0 + 6.0, 9.0 + 9.0, 9.0 - 8.99])
    _, shown = marines_shown("3m")(x, jnp.full(6, 45.0), jnp.full(3, smacv2_visibility.UNKNOWN))
    assert np.asarray(shown.avail[0, 6:]).tolist() == [True, False, False]
    assert np.asarray(shown.obs[0, 4:19]).reshape(3, 5).any(1).tolist() == [True, False, True]


def test_enemies_before_an_unknown_one_are_hidden():
    """Enemies 0 and 1 are near. They are hidden while 2 is unknown, shown once it was seen, and hidden after it
    died."""
    show, hp = marines_shown("terran_5_vs_5"), jnp.full(6, 45.0)
    apart, met = jnp.array([4.0, 4.0, 4.0, 9.0, 10.0, 30.0]), jnp.array([4.0, 4.0, 4.0, 9.0, 10.0, 12.0])

    def rows(shown) -> list:
        return np.any(np.asarray(shown.obs[:, 4:28]).reshape(3, 3, 8), -1).tolist()

    holder, shown = show(apart, hp, jnp.full(3, smacv2_visibility.UNKNOWN))
    assert rows(shown) == [[False, False, False]] * 3
    holder, shown = show(met, hp, holder)
    assert rows(shown) == [[True, True, True]] * 3
    holder, shown = show(apart, hp, holder)
    assert rows(shown) == [[True, True, False]] * 3
    holder, shown = show(apart, hp.at[5].set(0.0), holder)
    assert rows(shown) == [[False, False, False]] * 3


def test_the_holder_is_uniform_and_forgotten_when_it_dies():
    scenario = scenario_of("terran_5_vs_5", size=(3, 3))
    kind, unknown = jnp.full(6, NAMES.index("marine")), jnp.full(3, smacv2_visibility.UNKNOWN)

    def look(key: jax.Array):
        unit = skirmish.stats(scenario, kind)
        battle = battle_of(jnp.full(6, 16.0), jnp.full(6, 16.0), unit.hp)
        return smacv2_visibility.look(scenario.rules, unit, battle, unknown, key)[0]

    holder = jax.jit(jax.vmap(look), compiler_options=FAST_COMPILE)(jax.random.split(jax.random.key(3), 600))
    assert (holder == holder[:, :1]).all()
    counts = np.bincount(np.asarray(holder[:, 0]), minlength=3)
    assert (np.abs(counts - 200) < 4 * np.sqrt(600 * 2 / 9)).all()
    holder, _ = marines_shown("terran_5_vs_5")(
        jnp.array([4.0, 4.0, 4.0, 30.0, 31.0, 32.0]), jnp.full(6, 45.0).at[1].set(0.0), jnp.array([0, 1, 1])
    )
    assert holder.tolist() == [0, smacv2_visibility.UNKNOWN, smacv2_visibility.UNKNOWN]
