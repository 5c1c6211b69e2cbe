"""jumanji's tasks compared with jumanji: observations, team reward, ends and wins."""

import jax
import jax.numpy as jnp
import jumanji
import numpy as np
import pytest

from grasp.envs import jumanji as family
from grasp.envs import make

KEY = jax.random.key(4)


def side_by_side(task, policy, steps, key=KEY):
    """The adapter's steps and jumanji's over one episode."""
    env, theirs = make(f"jumanji/{task}"), jumanji.make(task)
    step, their_step = jax.jit(env.step), jax.jit(theirs.step)
    state, seen = jax.jit(env.reset)(key)
    with jax.numpy_rank_promotion("allow"):
        inner, _ = jax.jit(theirs.reset)(jax.random.key_data(key))
    for number in range(steps):
        action = policy(seen, number)
        state, after = step(state, action, key)
        with jax.numpy_rank_promotion("allow"):
            inner, timestep = their_step(inner, action)
        yield env.spec, after, inner, timestep
        seen = after.observation
        if bool(timestep.last()):
            return


def legal(seen, number):
    lottery = jax.random.uniform(jax.random.fold_in(KEY, number), seen.avail.shape)
    return jnp.where(seen.avail, lottery, -1.0).argmax(-1)


@pytest.mark.parametrize("task", family.names())
def test_rewards_masks_and_views_equal_jumanjis(task):
    paid = 0.0
    for _, ours, _, theirs in side_by_side(task, legal, 60):
        assert float(ours.reward) == pytest.approx(float(np.sum(theirs.reward)), abs=1e-6)
        np.testing.assert_array_equal(ours.observation.avail, theirs.observation.action_mask)
        if task != "Connector-v3":
            np.testing.assert_array_equal(ours.observation.obs, theirs.observation.agents_view)
            np.testing.assert_array_equal(ours.observation.state, np.ravel(theirs.observation.agents_view))
        paid += abs(float(ours.reward))
    assert paid > 0 or task != "Connector-v3"


def test_connectors_planes_by_hand():
    _, ours, inner, theirs = next(side_by_side("Connector-v3", legal, 1))
    grid, size = np.asarray(theirs.observation.grid), 10
    planes = np.asarray(ours.observation.obs).reshape(10, 5, size, size)
    for agent in range(10):
        for kind in range(3):
            np.testing.assert_array_equal(planes[agent, kind], grid == 3 * agent + kind + 1)
        others = (grid > 0) & ((grid - 1) // 3 != agent)
        np.testing.assert_array_equal(planes[agent, 3], others & ((grid - 1) % 3 < 2))
        np.testing.assert_array_equal(planes[agent, 4], others & ((grid - 1) % 3 == 2))
    state = np.asarray(ours.observation.state)
    heads = np.concatenate([inner.agents.position, inner.agents.target], 1) / size
    np.testing.assert_allclose(state[:40], heads.ravel(), rtol=1e-6)
    np.testing.assert_array_equal(state[40:], (grid > 0).ravel())


def test_a_collision_terminates_the_warehouse():
    for number in range(8):
        steps = list(side_by_side("RobotWarehouse-v0", legal, 100, jax.random.key(number)))
        if len(steps) < 100:
            break
    assert len(steps) < 100, "no collision"
    _, ours, _, theirs = steps[-1]
    assert bool(theirs.last())
    assert bool(ours.terminated)
    assert not bool(ours.truncated)


def test_the_time_limit_truncates_the_warehouse():
    *_, (spec, ours, _, theirs) = side_by_side("RobotWarehouse-v0", lambda *_: jnp.zeros(4, jnp.int32), 500)
    assert spec.horizon == 500
    assert bool(theirs.last())
    assert bool(ours.truncated)
    assert not bool(ours.terminated)


def about_to_end(task, env_state):
    """The state, changed so that the next step without movement ends the task."""
    inner = env_state.inner
    if task == "LevelBasedForaging-v0":
        food = inner.food_items
        inner = inner.replace(food_items=food.replace(eaten=jnp.ones_like(food.eaten)))
    elif task == "Connector-v3":
        inner = inner.replace(agents=inner.agents.replace(position=inner.agents.target))
    else:
        same = jax.tree.map(lambda x: x.at[0].set(x[1]), inner.agents.position)
        inner = inner.replace(agents=inner.agents._replace(position=same))
    return env_state._replace(inner=inner)


@pytest.mark.parametrize("task", family.names())
def test_a_task_that_ends_on_the_step_of_the_time_limit_is_terminated_not_truncated(task):
    env = make(f"jumanji/{task}")
    env_state, _ = jax.jit(env.reset)(KEY)
    step, still = jax.jit(env.step), jnp.zeros(env.spec.num_agents, jnp.int32)
    last = jnp.full_like(env_state.clock, env.spec.horizon - 1)
    env_state = env_state._replace(inner=env_state.inner.replace(step_count=last), clock=last)
    _, timed_out = step(env_state, still, KEY)
    assert (bool(timed_out.terminated), bool(timed_out.truncated)) == (False, True)
    _, ended = step(about_to_end(task, env_state), still, KEY)
    assert (bool(ended.terminated), bool(ended.truncated)) == (True, False)
    assert bool(ended.won) == env.spec.has_wins


def test_a_board_of_connected_wires_is_won():
    task = family.TASKS["Connector-v3"]
    _, _, inner, _ = next(side_by_side("Connector-v3", legal, 1))
    assert task.won is not None
    assert not bool(task.won(inner))
    assert bool(task.won(inner.replace(agents=inner.agents.replace(position=inner.agents.target))))


def test_only_all_food_eaten_is_a_win():
    task = family.TASKS["LevelBasedForaging-v0"]
    _, _, inner, _ = next(side_by_side("LevelBasedForaging-v0", legal, 1))
    assert task.won is not None
    assert not bool(task.won(inner))
    eaten = inner.food_items.replace(eaten=jnp.ones_like(inner.food_items.eaten))
    assert bool(task.won(inner.replace(food_items=eaten)))
