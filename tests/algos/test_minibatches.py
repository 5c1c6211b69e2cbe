"""Chunks are contiguous in time, of one environment, and start from the right memory; tiles lose nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.algos import minibatches as batches
from grasp.algos.ppo import Memory, Record
from grasp.types import Observation, Trajectory

T, B, N, LENGTH = 20, 3, 2, 5


@pytest.fixture
def trajectory():
    """Every number says which step, environment and agent it came from: 10000 t + 100 b + n."""
    name = 10000 * jnp.arange(T)[:, None, None] + 100 * jnp.arange(B)[None, :, None] + jnp.arange(N)[None, None, :]
    name = name.astype(jnp.float32)
    team = name[..., 0]
    alive = (jnp.arange(T * B * N).reshape(T, B, N) % 7) > 0
    memory = Memory(jnp.concatenate([name, name[-1:] + 10000])[..., None], jnp.zeros((T + 1, B, 0)))
    no = jnp.zeros((T, B), bool)
    return Trajectory(
        observation=Observation(name[..., None], team[..., None], jnp.ones((T, B, N, 4), bool), alive),
        memory=memory,
        first=no.at[7].set(True),
        action=jnp.zeros((T, B, N), int),
        record=Record(name, team),
        reward=jnp.asarray(np.random.default_rng(0).normal(size=(T, B)), jnp.float32),
        terminated=no,
        truncated=no,
        next_observation=Observation(name[..., None], team[..., None], jnp.ones((T, B, N, 4), bool), alive),
    )


def chunks(trajectory):
    team = trajectory.record.value
    return batches.chunked(trajectory, trajectory.record.log_prob, team, LENGTH)


def test_a_chunk_is_contiguous_and_of_one_environment(trajectory):
    steps = chunks(trajectory).steps
    time, env, agent = steps.log_prob // 10000, steps.log_prob % 10000 // 100, steps.log_prob % 100
    assert steps.log_prob.shape == (LENGTH, T // LENGTH * B, N)
    np.testing.assert_array_equal(np.diff(time, axis=0), 1)
    assert (time[0] % LENGTH == 0).all()
    np.testing.assert_array_equal(env, np.broadcast_to(env[0, :, :1], env.shape))
    np.testing.assert_array_equal(agent, np.broadcast_to(np.arange(N), agent.shape))
    assert len(set(map(tuple, np.stack([time[0, :, 0], env[0, :, 0]], -1)))) == T // LENGTH * B


def test_a_chunk_starts_from_the_memory_its_first_step_found(trajectory):
    batch = chunks(trajectory)
    np.testing.assert_array_equal(batch.start.actor[..., 0], batch.steps.log_prob[0])


def test_resets_stay_where_they_happened(trajectory):
    steps = chunks(trajectory).steps
    time = steps.log_prob[..., 0] // 10000
    np.testing.assert_array_equal(steps.first, time == 7)


def test_a_dead_agent_sees_zeros(trajectory):
    steps = chunks(trajectory).steps
    np.testing.assert_array_equal(steps.obs[..., 0], np.where(steps.alive > 0, steps.log_prob, 0.0))


def test_tiles_hold_every_chunk_once(trajectory, monkeypatch):
    monkeypatch.setattr(batches, "TILE_ROWS", 8)
    batch = chunks(trajectory)
    tiles = batches.tiled(batch, jnp.arange(batch.start.actor.shape[0]))
    assert tiles.steps.log_prob.shape == (3, LENGTH, 4, N)
    np.testing.assert_array_equal(np.sort(tiles.steps.log_prob, None), np.sort(batch.steps.log_prob, None))
    np.testing.assert_array_equal(tiles.start.actor[..., 0], tiles.steps.log_prob[:, 0])
    total = batches.accumulate(lambda tile: tile.steps.obs.sum(), tiles)
    assert total == pytest.approx(float(batch.steps.obs.sum()))


@pytest.mark.parametrize(
    ("num_chunks", "num_agents", "expected"), [(768, 3, 64), (7, 3, 7), (11, 500, 1), (320, 27, 5)]
)
def test_a_tile_is_the_largest_divisor_that_fits(num_chunks, num_agents, expected):
    assert batches.tile_size(num_chunks, num_agents, batches.TILE_ROWS) == expected


def test_advantages_are_normalised_over_live_steps_only(trajectory):
    alive = trajectory.observation.alive
    found = batches.normalised(trajectory.reward, alive.sum(-1).astype(jnp.float32))
    every = np.repeat(np.asarray(trajectory.reward)[..., None], N, -1)[np.asarray(alive)]
    np.testing.assert_allclose(found, (trajectory.reward - every.mean()) / (every.std() + 1e-5), rtol=1e-4, atol=1e-5)
    assert jax.numpy.abs(every.mean()) > 1e-3


def test_one_agent_s_part_keeps_the_agent_axis_and_the_team_s_columns(trajectory):
    batch = chunks(trajectory)
    mine = batches.of_agent(batch, jnp.asarray(1))
    for name in ("alive", "action", "log_prob", "advantage"):
        np.testing.assert_array_equal(getattr(mine.steps, name), getattr(batch.steps, name)[..., 1:2])
    for name in ("obs", "avail"):
        np.testing.assert_array_equal(getattr(mine.steps, name), getattr(batch.steps, name)[..., 1:2, :])
    for name in ("first", "state", "value", "target"):
        np.testing.assert_array_equal(getattr(mine.steps, name), getattr(batch.steps, name))
    np.testing.assert_array_equal(mine.start.actor, batch.start.actor[:, 1:2])
