"""Simulators in worker processes: the same trajectory as on a device, and nothing lost when a worker fails."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paths import TOY

from grasp import algos
from grasp.bench.envs import at_random
from grasp.config import configure
from grasp.envs import host
from grasp.envs.host import SimulatorFault, SimulatorPool, ask
from grasp.envs.workers import serve
from grasp.training import host_rollout, rollout
from grasp.types import Bodies, Env, EnvSpec, GraspError, Observation, Step


def toy(**options):
    return ask("host/toy", sys.executable, TOY, "toy", options)


@pytest.fixture
def opened():
    """Pools that are closed when the test ends."""
    pools = []

    def make(num_envs=4, workers=2, deadline=20.0, restarts=3, **options):
        pools.append(SimulatorPool(toy(**options), num_envs, workers, deadline, restarts))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


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


def learner(algo="mappo", **options):
    """An algorithm for the toy that acts greedily, so that keys do not matter, and a state of it."""
    settings = {"num_envs": 4, "rollout": 12, "chunk": 6, "steps": 1000} | options
    made = algos.make(configure(algo, "matrix/climbing", settings), twin().spec)
    made = made._replace(act=lambda state, memory, seen, key, greedy, act=made.act: act(state, memory, seen, key, True))
    return made, made.init(jax.random.key(3))


def assert_same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("groups", [1, 2])
def test_both_collectors_give_the_same_trajectory(opened, groups):
    algorithm, state = learner()
    env, key = twin(), jax.random.key(0)
    stage = host_rollout.Stage(opened(), algorithm, groups)
    stage.begin(lambda copy: 0)
    arena = rollout.open_arena(env, algorithm, 4, key)
    for _ in range(2):  # the second begins in mid-episode
        arena, expected, _ = rollout.collect(env, algorithm, state, arena, key, 12)
        found, outcome, restarts = host_rollout.collect(stage, state, key, 12)
        assert int(expected.truncated.sum()) + int(expected.terminated.sum()) > 4
        for name in expected._fields:
            a, b = getattr(found, name), getattr(expected, name)
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6), a, b)
        assert int(outcome.ended.sum()) == int((expected.terminated | expected.truncated).sum())
        assert restarts == 0


def test_every_step_of_every_group_draws_anew(opened):
    """Agent 0 of the toy may always do anything."""
    stage = host_rollout.Stage(opened(), at_random())
    stage.begin(lambda copy: 0)
    action = host_rollout.collect(stage, (), jax.random.key(0), 12)[0].action[..., 0]
    assert (np.ptp(action, axis=0) > 0).all(), "one key for all steps"
    assert (action[:, stage.groups[0]] != action[:, stage.groups[1]]).any(), "one key for all groups"
    tick = 1 + np.flatnonzero((action[1:, stage.groups[0]] != action[:-1, stage.groups[1]]).any(1))
    assert len(tick) > 3, "a group's next step has the key of the other's last"


@pytest.mark.parametrize("fault", ["crash", "hang", "raise", "nan", "shape", "mask", "reward", "both"])
def test_a_failed_worker_is_replaced_and_its_episodes_are_never_in_the_batch(opened, tmp_path, fault):
    algorithm, state = learner()
    deadline = 5.0 if fault == "hang" else 20.0
    pool = opened(fault=fault, at=8, once=str(tmp_path / "once"), deadline=deadline)
    stage = host_rollout.Stage(pool, algorithm)
    stage.begin(lambda copy: 0)
    found, _, restarts = host_rollout.collect(stage, state, jax.random.key(0), 12)
    assert (tmp_path / "once").exists()
    assert restarts == 1
    expected = host_rollout.Stage(opened(), algorithm)
    expected.begin(lambda copy: 0)
    # every episode of the toy is the same under a greedy policy, so a batch without broken episodes is known
    assert_same(forgotten(found), forgotten(host_rollout.collect(expected, state, jax.random.key(0), 12)[0]))


def forgotten(trajectory):
    """The trajectory without what was remembered before an episode began: nobody reads it."""
    gone = np.concatenate([trajectory.first, np.zeros((1, 4), bool)])
    memory = jax.tree.map(np.copy, trajectory.memory)
    for leaf in jax.tree.leaves(memory):
        leaf[gone] = 0
    return trajectory._replace(memory=memory)


def test_a_copy_whose_column_is_full_still_loses_its_running_episode(opened):
    algorithm, _ = learner()
    pool = opened(workers=1)
    stage = host_rollout.Stage(pool, algorithm, 2)
    stage.begin(lambda copy: 0)
    columns = host_rollout.Columns(stage, 12)
    columns.time[:] = 12
    columns.since[:] = [12, 11, 3, 0]
    columns.rewind(np.array([1, 2, 3]))
    assert columns.time.tolist() == [12, 11, 3, 0]
    assert not columns.full()
    columns.time[:] = 12
    assert columns.full()
    pool.lost[2] = True  # noticed while another group was waited for
    assert not columns.full()


def test_every_worker_has_copies_in_each_group(opened):
    stage = host_rollout.Stage(opened(num_envs=6, workers=2), learner()[0])
    assert [group.tolist() for group in stage.groups] == [[0, 2, 4], [1, 3, 5]]
    assert all(set(stage.pool.owner[group]) == {0, 1} for group in stage.groups)


def test_too_many_failures_end_in_one_sentence(opened):
    algorithm, state = learner()
    pool = opened(fault="crash", at=3, restarts=2)
    stage = host_rollout.Stage(pool, algorithm)
    stage.begin(lambda copy: 0)
    with pytest.raises(SimulatorFault, match="ended with exit code 3, and 2 had been replaced"):
        host_rollout.collect(stage, state, jax.random.key(0), 12)


def test_evaluation_plays_every_episode_once_whatever_fails(opened, tmp_path):
    algorithm, state = learner()
    scores = [
        host_rollout.evaluate(
            host_rollout.Stage(opened(num_envs=3, seeded=True, **options), algorithm), state, jax.random.key(5), 10
        )
        for options in ({}, {"fault": "crash", "at": 7, "once": str(tmp_path / "once")})
    ]
    assert (tmp_path / "once").exists()
    assert_same(*scores)
    assert len(set(scores[0].returned.tolist())) > 1  # seeds tell episodes apart
    assert ((scores[0].length >= 1) & (scores[0].length <= 5)).all()


def test_evaluation_equals_the_devices(opened):
    from grasp.training.evaluation import evaluate

    algorithm, state = learner()
    found = host_rollout.evaluate(host_rollout.Stage(opened(), algorithm), state, jax.random.key(0), 6)
    assert_same(found, evaluate(twin(), algorithm, state, jax.random.key(0), 6))


def dot(state):
    return Bodies(state[None, :2], np.ones(1, np.float32), np.zeros(1, int), np.ones(1, bool))


def test_a_film_shows_every_moment_of_its_episodes_and_none_of_a_lost_one(opened, tmp_path):
    algorithm, state = learner()
    crash = {"fault": "crash", "at": 7, "once": str(tmp_path / "once")}
    films = []
    for options in ({}, crash):
        pool = opened(num_envs=1, workers=1, seeded=True, **options)
        pool.host = pool.host._replace(scene=dot)
        films.append(host_rollout.record(host_rollout.Stage(pool, algorithm), state, jax.random.key(5), 4))
    assert (tmp_path / "once").exists()
    assert_same([e._replace(scenes=[s.position for s in e.scenes]) for e in films[0]],
                [e._replace(scenes=[s.position for s in e.scenes]) for e in films[1]])  # fmt: skip
    scores = host_rollout.evaluate(
        host_rollout.Stage(opened(num_envs=1, workers=1, seeded=True), algorithm), state, jax.random.key(5), 4
    )
    for episode, returned, length, won in zip(films[0], *scores, strict=True):
        assert float(episode.reward.sum()) == returned
        assert len(episode.reward) == length == len(episode.scenes) - 1
        assert episode.won == won != episode.truncated
        assert [float(scene.position[0, 0]) for scene in episode.scenes] == list(range(length + 1)), "time as it was"
    assert len({len(episode.scenes) for episode in films[0]}) > 1


def test_a_simulator_that_does_not_say_how_to_draw_it_is_not_filmed(opened):
    algorithm, state = learner()
    with pytest.raises(GraspError, match="host/toy cannot be drawn"):
        host_rollout.record(host_rollout.Stage(opened(num_envs=1, workers=1), algorithm), state, jax.random.key(5), 1)


def test_seeds_of_a_copy_depend_on_nothing_but_the_key_and_its_number():
    one, other = host_rollout.episode_seeds(jax.random.key(1), 3), host_rollout.episode_seeds(jax.random.key(1), 3)
    first = [one(copy) for copy in (0, 0, 1, 2)]
    assert [other(copy) for copy in (2, 1, 0, 0)] == [first[3], first[2], first[0], first[1]]
    assert len(set(first)) == 4
    assert host_rollout.episode_seeds(jax.random.key(2), 3)(0) != first[0]


def test_no_worker_outlives_the_pool_or_its_owner(opened):
    pool = opened()
    pids = [worker.process.pid for worker in pool.workers]
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


ORPHANS = """
import sys, time
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_host import toy
from grasp.envs.host import SimulatorPool
pool = SimulatorPool(toy(fault="hang", at=1), 1, 1, 60.0, 0)
one = np.zeros(1, int)
pool.send("reset", one)
pool.wait(one)
pool.send("step", one)
print(pool.workers[0].process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_hanging_simulator_does_not_outlive_a_learner_that_was_killed():
    words = [sys.executable, "-c", ORPHANS, str(Path(__file__).parent)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as learner:
        pid = int(learner.stdout.readline())
        assert is_running(pid)
        learner.kill()
    end = time.monotonic() + serve.GRACE + 20
    while is_running(pid):
        assert time.monotonic() < end, "the simulator is still there"
        time.sleep(0.1)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_worker_is_noticed_without_waiting_for_the_deadline(opened):
    pool = opened(deadline=60.0)
    everyone = np.arange(4)
    pool.send("reset", everyone)
    pool.wait(everyone)
    os.kill(pool.workers[0].process.pid, signal.SIGKILL)
    began = time.monotonic()
    pool.send("step", everyone)
    assert pool.wait(everyone).tolist() == [True, True, False, False]
    assert time.monotonic() - began < 30
    assert pool.restarts == 1


def answer(pool, word, copies):
    pool.send(word, np.array(copies))
    return pool.wait(np.array(copies)).tolist()


def test_every_copy_may_take_its_time_when_it_is_first_reset(opened, monkeypatch):
    monkeypatch.setattr(host, "START_SECONDS", 5.0)
    pool = opened(workers=1, deadline=0.5, slow=1.0)
    monkeypatch.setattr(host, "START_SECONDS", 1.8)
    assert answer(pool, "reset", [0]) == [False]
    assert answer(pool, "reset", [0, 1]) == [False, False]
    assert answer(pool, "reset", [0, 2, 3]) == [False, False, False]  # 1.0 s each, one after the other
    assert pool.restarts == 0
    pool.workers[0].owed.append(("reset", np.array([0, 2])))
    assert pool.workers[0].allowed(0.5) == 0.5
    pool.workers[0].owed.clear()


def test_a_new_worker_starts_its_simulators_anew(opened, monkeypatch):
    monkeypatch.setattr(host, "START_SECONDS", 5.0)
    pool = opened(num_envs=1, workers=1, deadline=0.5, slow=1.0)
    assert answer(pool, "reset", [0]) == [False]
    os.kill(pool.workers[0].process.pid, signal.SIGKILL)
    assert answer(pool, "step", [0]) == [True]
    assert answer(pool, "reset", [0]) == [False]


@pytest.mark.parametrize(("fault", "words"), [("exit", "said: SystemExit: 4"), ("mute", "closed its answers")])
def test_a_worker_that_lives_on_without_answering_is_not_waited_for(opened, fault, words):
    pool = opened(num_envs=1, workers=1, restarts=0, fault=fault, at=1)
    answer(pool, "reset", [0])
    pid = pool.workers[0].process.pid
    with pytest.raises(SimulatorFault, match=words):
        answer(pool, "step", [0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_full_shared_memory_is_noticed_before_it_is_touched(monkeypatch, tmp_path):
    asked, take = [], os.posix_fallocate

    def full(file, start, size):
        asked.append(os.path.dirname(os.readlink(f"/proc/self/fd/{file}")))
        if asked[-1] == str(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")
        take(file, start, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(host, "SHARED", str(tmp_path))
    with host.shared_file(5000) as file:
        assert os.fstat(file.fileno()).st_size == 5000
        assert os.fstat(file.fileno()).st_blocks > 0
    assert asked == [str(tmp_path), tempfile.gettempdir()]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(GraspError, match="has room for the 5000 bytes"):
        host.shared_file(5000)


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        ("tey", {}, "environment 'host/x': there is no task 'tey'; did you mean 'toy'?"),
        ("toy", {"colour": 1}, "colour"),
    ],
)
def test_a_simulator_that_cannot_be_made_says_why(task, options, sentence):
    with pytest.raises(GraspError, match=sentence.replace("?", r"\?")):
        ask("host/x", sys.executable, TOY, task, options)


def test_an_interpreter_that_is_not_there():
    with pytest.raises(GraspError, match="there is no interpreter /no/python"):
        ask("host/x", "/no/python", TOY, "toy", {})
