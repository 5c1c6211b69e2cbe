"""Skirmish's masks, observations and states, against an oracle with loops over units."""

import jax.numpy as jnp
import numpy as np
import pytest
from skirmish_cases import DEFAULT, scenario_of
from skirmish_oracle import (
    CLEAN,
    DRAWN,
    MAPS,
    View,
    legal_actions,
    observed,
    random_states,
    shown_of,
    state_vector,
    views,
)

from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import observation


@pytest.mark.parametrize("task", MAPS)
def test_legal_actions_and_living_agents_are_those_of_the_loops(task):
    _, shown = shown_of(task)
    for b, view in enumerate(views(task)):
        expected = [legal_actions(view, n) for n in range(view.num_allies)]
        np.testing.assert_array_equal(shown.avail[b], expected, err_msg=f"battle {b}")
        assert shown.alive[b].tolist() == [view.alive(n) for n in range(view.num_allies)]


WITHOUT_HIDDEN_ROWS = [(task, CLEAN) for task in MAPS] + [(task, DEFAULT) for task in MAPS if task not in DRAWN]


@pytest.mark.parametrize(("task", "options"), WITHOUT_HIDDEN_ROWS)
def test_observations_without_hidden_rows(task, options):
    _, shown = shown_of(task, options)
    for b, view in enumerate(views(task)):
        expected = [observed(view, n, exact_quirks=options.exact_quirks) for n in range(view.num_allies)]
        np.testing.assert_allclose(shown.obs[b], expected, rtol=0, atol=1e-6, err_msg=f"battle {b}")


@pytest.mark.parametrize("task", MAPS)
def test_the_state_is_that_of_the_loops(task):
    _, shown = shown_of(task)
    action = np.asarray(random_states(task).last_action)
    for b, view in enumerate(views(task)):
        expected = state_vector(view, action[b])
        np.testing.assert_allclose(shown.state[b], expected, rtol=0, atol=1e-6, err_msg=f"battle {b}")


def agent_state(view: View, n: int, action) -> np.ndarray:
    """Agent n's state: the global state, its one-hot, its moves, and its relation to every unit."""
    legal, sees = legal_actions(view, n), view.sight(n)
    parts: list = [state_vector(view, action), [float(m == n) for m in range(view.num_allies)], legal[2:6]]
    for m in range(len(view.names)):
        aimed = m if view.names[n] == "medivac" else m - view.num_allies
        may = 0 <= aimed < len(legal) - 6 and legal[6 + aimed] and (m < view.num_allies) == (view.names[n] == "medivac")
        dx, dy = view.battle.x[m] - view.battle.x[n], view.battle.y[m] - view.battle.y[n]
        row = [float(may), view.far(n, m) / sees, dx / sees, dy / sees]
        parts.append(row if view.alive(n) and view.alive(m) else [0.0] * 4)
    return np.concatenate(parts)


@pytest.mark.parametrize("task", ["3m", "MMM2", "terran_5_vs_5", "protoss_5_vs_5"])
def test_an_agent_s_state_is_the_team_s_and_its_own_relation_to_every_unit(task):
    _, shown = shown_of(task, skirmish.Options(state="agent"))
    spec = skirmish.make(task, state="agent").spec
    assert spec.agent_states
    assert shown.state.shape[1:] == (spec.num_agents, spec.state_dim)
    action = np.asarray(random_states(task).last_action)
    for b, view in enumerate(views(task)):
        expected = [agent_state(view, n, action[b]) for n in range(view.num_allies)]
        np.testing.assert_allclose(shown.state[b], expected, rtol=0, atol=1e-6, err_msg=f"battle {b}")


def test_moves_at_the_edges_as_measured():
    """Truncation towards zero makes moves below the lower edges of the map legal, but not below the walls."""
    flat, band = scenario_of("terran_5_vs_5"), scenario_of("3m")
    places = np.array([[0.4, 0.4], [31.2, 31.2], [0.0, 31.0], [31.0, 0.0], [16.0, 16.0]])
    legal = observation.walkable(flat.rules, jnp.asarray(places[:, 0]), jnp.asarray(places[:, 1]))
    north, south, east, west = np.asarray(legal).T.tolist()
    assert north == [True, False, False, True, True]
    assert south == [True, True, True, False, True]
    assert east == [True, False, True, False, True]
    assert west == [True, True, False, True, True]
    y = jnp.array([8.5, 8.99, 9.0, 22.99, 23.0, 23.5])
    north, south, _, _ = np.asarray(observation.walkable(band.rules, jnp.full(6, 16.0), y)).T.tolist()
    assert north == [True, True, True, True, False, False]
    assert south == [False, False, True, True, True, True]
