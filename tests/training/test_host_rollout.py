"""Rollouts with simulators: the same trajectory as on a device, and no broken episode in a batch."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_pools import pools, toy
from trees import assert_close

from grasp import algos
from grasp.bench.envs import at_random
from grasp.config import configure
from grasp.envs.host import SimulatorFault, SimulatorPool
from grasp.training import host_rollout, rollout
from grasp.types import Bodies, Decision, Env, EnvSpec, GraspError, Observation, Step


@pytest.fixture
def opened():
    yield from pools()


def twin() -> Env:
    """The toy as a device environment."""

    def seen(state):
        time, total = state
        row = jnp.stack([time, total % 7, total % 3]).astype(jnp.float32)
        obs = jnp.concatenate([jnp.arange(2.0)[:, None], jnp.tile(row, (2, 1))], 1)
        avail = jnp.ones((2, 3), bool).at[1, 2].set(time % 2 == 0)
        return Observation(obs, row.at[2].set(1.0), avail, jnp.stack([jnp.array(True), time < 4]))

    def reset(key):
        state = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        return state, seen(state)

    def step(state, action, key):
        time, total = state[0] + 1, state[1] + action[0] + 2 * action[1]
        won = total % 7 == 6
        state = time, total
        return state, Step(seen(state), (total % 5).astype(jnp.float32), won, ~won & (time == 5), won)

    sizes = {"num_agents": 2, "obs_dim": 4, "state_dim": 3, "num_actions": 3, "horizon": 5, "has_wins": True}
    return Env(EnvSpec(name="twin", **sizes), reset, step)


@cache
def learner():
    """A greedy algorithm for the toy, whose actions do not depend on keys, and its initial state."""
    settings = {"num_envs": 4, "rollout": 12, "chunk": 6, "steps": 1000}
    made = algos.make(configure("mappo", "matrix/climbing", settings), twin().spec)
    made = made._replace(act=lambda state, memory, seen, key, greedy, act=made.act: act(state, memory, seen, key, True))
    return made, made.init(jax.random.key(3))


@pytest.mark.parametrize("groups", [1, 2])
def test_both_collectors_give_the_same_trajectory(opened, groups):
    algorithm, state = learner()
    env, key = twin(), jax.random.key(0)
    stage = host_rollout.HostEnvs(opened(), algorithm, groups)
    stage.begin(lambda copy: 0)
    arena = rollout.open_arena(env, algorithm, 4, key)
    for _ in range(2):  # the second starts in the middle of an episode
        arena, expected, _ = rollout.collect(env, algorithm, state, arena, key, 12)
        found, outcome, restarts = host_rollout.collect(stage, state, key, 12)
        assert int(expected.truncated.sum()) + int(expected.terminated.sum()) > 4
        assert_close(found, expected, atol=1e-6, rtol=1e-6)
        assert int(outcome.ended.sum()) == int((expected.terminated | expected.truncated).sum())
        assert restarts == 0


def test_every_step_of_every_group_has_its_own_key(opened):
    """All actions of agent 0 of the toy are legal at every step."""
    stage = host_rollout.HostEnvs(opened(), at_random())
    stage.begin(lambda copy: 0)
    action = host_rollout.collect(stage, (), jax.random.key(0), 12)[0].action[..., 0]
    assert (np.ptp(action, axis=0) > 0).all(), "all steps have the same key"
    assert (action[:, stage.groups[0]] != action[:, stage.groups[1]]).any(), "all groups have the same key"
    tick = 1 + np.flatnonzero((action[1:, stage.groups[0]] != action[:-1, stage.groups[1]]).any(1))
    assert len(tick) > 3, "a group's next step has the key of the other group's last step"


@pytest.mark.parametrize("fault", ["crash", "hang", "raise", "nan", "shape", "mask", "reward", "both"])
def test_a_failed_worker_is_replaced_and_its_running_episodes_are_not_in_the_batch(opened, unbroken, tmp_path, fault):
    algorithm, state = learner()
    deadline = 5.0 if fault == "hang" else 20.0
    pool = opened(fault=fault, at=8, once=str(tmp_path / "once"), deadline=deadline)
    stage = host_rollout.HostEnvs(pool, algorithm)
    stage.begin(lambda copy: 0)
    found, _, restarts = host_rollout.collect(stage, state, jax.random.key(0), 12)
    assert (tmp_path / "once").exists()
    assert restarts == 1
    # under a greedy policy all episodes of the toy are equal, so the batch without broken episodes is known
    assert_close(without_unread_memory(found), without_unread_memory(unbroken))


@pytest.fixture(scope="module")
def unbroken():
    """The batch of simulators that do not fail."""
    algorithm, state = learner()
    pool = SimulatorPool(toy(), 4, 2, 20.0, 3)
    stage = host_rollout.HostEnvs(pool, algorithm)
    stage.begin(lambda copy: 0)
    found, _, _ = host_rollout.collect(stage, state, jax.random.key(0), 12)
    pool.close()
    return found


def without_unread_memory(trajectory):
    """The trajectory with the memory before each episode's first step set to zero: no algorithm reads it."""
    unread = np.concatenate([trajectory.first, np.zeros((1, 4), bool)])
    memory = jax.tree.map(np.copy, trajectory.memory)
    for leaf in jax.tree.leaves(memory):
        leaf[unread] = 0
    return trajectory._replace(memory=memory)


def test_a_lost_episode_is_removed_from_a_full_column(opened):
    algorithm, _ = learner()
    pool = opened(workers=1)
    stage = host_rollout.HostEnvs(pool, algorithm, 2)
    stage.begin(lambda copy: 0)
    columns = host_rollout.RolloutBuffer(stage, 12)
    columns.time[:] = 12
    columns.since[:] = [12, 11, 3, 0]
    columns.rewind(np.array([1, 2, 3]))
    assert columns.time.tolist() == [12, 11, 3, 0]
    assert not columns.full()
    columns.time[:] = 12
    assert columns.full()
    pool.lost[2] = True  # noticed while the pool waited for another group
    assert not columns.full()


def test_every_worker_has_copies_in_each_group(opened):
    stage = host_rollout.HostEnvs(opened(num_envs=6, workers=2), learner()[0])
    assert [group.tolist() for group in stage.groups] == [[0, 2, 4], [1, 3, 5]]
    assert all(set(stage.pool.owner[group]) == {0, 1} for group in stage.groups)


def test_too_many_failures_raise_one_sentence(opened):
    algorithm, state = learner()
    pool = opened(fault="crash", at=3, restarts=2)
    stage = host_rollout.HostEnvs(pool, algorithm)
    stage.begin(lambda copy: 0)
    with pytest.raises(SimulatorFault, match="exited with code 3, and 2 had been replaced before"):
        host_rollout.collect(stage, state, jax.random.key(0), 12)


def test_evaluation_plays_every_episode_once_when_workers_fail(opened, tmp_path):
    algorithm, state = learner()
    scores = [
        host_rollout.evaluate(
            host_rollout.HostEnvs(opened(num_envs=3, seeded=True, **options), algorithm), state, jax.random.key(5), 10
        )
        for options in ({}, {"fault": "crash", "at": 7, "once": str(tmp_path / "once")})
    ]
    assert (tmp_path / "once").exists()
    assert_close(*scores)
    for kind in scores[0]:
        assert len(set(kind.returned.tolist())) > 1  # episodes differ by their seeds
        assert ((kind.length >= 1) & (kind.length <= 5)).all()


def test_evaluation_equals_that_of_a_device_environment(opened):
    from grasp.training.evaluation import evaluate

    algorithm, state = learner()
    found = host_rollout.evaluate(host_rollout.HostEnvs(opened(), algorithm), state, jax.random.key(0), 6)
    assert_close(found, evaluate(twin(), algorithm, state, jax.random.key(0), 6))


def dot(state):
    return Bodies(state[None, :2], np.ones(1, np.float32), np.zeros(1, int), np.ones(1, bool))


def test_training_samples_films_are_greedy_and_an_evaluation_is_both(opened):
    """The algorithm's action is whether it is asked to be greedy; the toy pays nothing until an action is 1."""

    def act(state, memory, observation, key, greedy):
        return Decision(jnp.full(observation.alive.shape, int(greedy)), memory, ())

    algorithm, key = at_random()._replace(act=act), jax.random.key(0)
    stage = host_rollout.HostEnvs(opened(), algorithm)
    stage.begin(lambda copy: 0)
    assert (host_rollout.collect(stage, (), key, 12)[0].action == 0).all()
    greedy, sampled = host_rollout.evaluate(stage, (), key, 6)
    assert (greedy.returned > 0).all()
    assert (sampled.returned == 0).all()
    pool = opened(num_envs=1, workers=1)
    pool.host = pool.host._replace(scene=dot)
    for episode in host_rollout.record(host_rollout.HostEnvs(pool, algorithm), (), key, 2):
        assert episode.reward.sum() > 0


def test_a_film_shows_every_step_of_its_episodes_and_no_lost_episode(opened, tmp_path):
    algorithm, state = learner()
    crash = {"fault": "crash", "at": 7, "once": str(tmp_path / "once")}
    films = []
    for options in ({}, crash):
        pool = opened(num_envs=1, workers=1, seeded=True, **options)
        pool.host = pool.host._replace(scene=dot)
        films.append(host_rollout.record(host_rollout.HostEnvs(pool, algorithm), state, jax.random.key(5), 4))
    assert (tmp_path / "once").exists()
    assert_close([e._replace(scenes=[s.position for s in e.scenes]) for e in films[0]],
                [e._replace(scenes=[s.position for s in e.scenes]) for e in films[1]])  # fmt: skip
    scores = host_rollout.evaluate(
        host_rollout.HostEnvs(opened(num_envs=1, workers=1, seeded=True), algorithm), state, jax.random.key(5), 4
    )
    for episode, returned, length, won in zip(films[0], *scores.greedy[:3], strict=True):
        assert float(episode.reward.sum()) == returned
        assert len(episode.reward) == length == len(episode.scenes) - 1
        assert episode.won == won != episode.truncated
        assert [float(scene.position[0, 0]) for scene in episode.scenes] == list(range(length + 1)), (
            "a scene per time step"
        )
    assert len({len(episode.scenes) for episode in films[0]}) > 1


def test_a_simulator_without_a_scene_cannot_be_filmed(opened):
    algorithm, state = learner()
    with pytest.raises(GraspError, match="host/toy cannot be drawn"):
        host_rollout.record(
            host_rollout.HostEnvs(opened(num_envs=1, workers=1), algorithm), state, jax.random.key(5), 1
        )


def test_seeds_of_a_copy_depend_only_on_the_key_and_its_index():
    one, other = host_rollout.episode_seeds(jax.random.key(1), 3), host_rollout.episode_seeds(jax.random.key(1), 3)
    first = [one(copy) for copy in (0, 0, 1, 2)]
    assert [other(copy) for copy in (2, 1, 0, 0)] == [first[3], first[2], first[0], first[1]]
    assert len(set(first)) == 4
    assert host_rollout.episode_seeds(jax.random.key(2), 3)(0) != first[0]
