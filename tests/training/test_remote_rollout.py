"""Parts of a batch from several nodes: independent of the node, joined in order, and within the staleness."""

import contextlib
import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paths import TOY
from trees import assert_close

import grasp
from grasp import algos
from grasp.config import LARGEST, configure
from grasp.envs.host import SimulatorPool, from_adapter
from grasp.training import host_rollout, remote_rollout, runner
from grasp.training.remote_rollout import HostPlayer, RolloutPart, RolloutWorker
from grasp.training.rollout import Outcome
from grasp.types import GraspError, Observation, Trajectory

SIZES = {"num_envs": 4, "nodes": 2, "rollout": 12, "chunk": 6, "epochs": 1, "hidden": 8, "workers": 1, "steps": 48 * 9}
KEY = jax.random.key(7)


def seeded_toy():
    """A toy environment whose episodes differ by their seeds."""
    return from_adapter("host/toy", sys.executable, TOY, "toy", {"seeded": True})


@pytest.fixture
def host():
    return seeded_toy()


@pytest.fixture
def opened():
    """Closes what it is given when the test ends."""
    resources = []
    yield lambda resource: resources.append(resource) or resource
    for resource in resources:
        resource.close()


def config_of(**options):
    return configure("mappo", "host/toy", SIZES | options)


def made(host, greedy=False, **options):
    """A configuration, its algorithm, and a state of it."""
    config = config_of(**options)
    algorithm = algos.make(config, host.spec)
    if greedy:  # so that actions do not depend on keys
        act = algorithm.act
        algorithm = algorithm._replace(act=lambda state, memory, seen, key, _: act(state, memory, seen, key, True))
    return config, algorithm, algorithm.init(jax.random.key(3))


def test_two_nodes_give_the_columns_of_one(host, opened):
    config, algorithm, state = made(host, greedy=True)
    stage = host_rollout.HostEnvs(opened(SimulatorPool(host, 4, 1, 20.0, 0)), algorithm)
    stage.begin(host_rollout.episode_seeds(jax.random.fold_in(KEY, LARGEST), 4))
    players = [opened(HostPlayer(config, host, algorithm, number)) for number in (0, 1)]
    for fresh in (True, False):  # the second begins in mid-episode
        trajectory, outcome, _ = host_rollout.collect(stage, state, KEY, 12)
        assert np.ptp(trajectory.observation.obs[0, :, :, 2:], axis=0).any(), "copies have different seeds"
        found = remote_rollout.joined([player.play(0, state, KEY, fresh) for player in players])
        assert_close(found, (trajectory, outcome), 1e-6)  # matrix products of other shapes round differently


def test_restarts_during_an_evaluation_do_not_count_for_the_next_iteration(host, opened):
    config, algorithm, state = made(host, restarts=1)
    player = opened(HostPlayer(config, host, algorithm))
    pool = player.opened().pool
    pool.restarts = pool.unreported = 1  # in an evaluation
    assert pool.take_unreported() == 1
    os.kill(pool.workers[0].process.pid, signal.SIGKILL)
    assert player.play(0, state, KEY, True).restarts == 1
    os.kill(pool.workers[0].process.pid, signal.SIGKILL)
    assert player.play(1, state, KEY, False).restarts == 1


def test_actions_depend_only_on_the_number_of_the_node(host, opened):
    plain = from_adapter("host/toy", sys.executable, TOY, "toy", {})  # all episodes begin in the same state
    config, algorithm, state = made(plain)
    played = [
        opened(HostPlayer(config, plain, algorithm, number)).play(3, state, KEY, True).trajectory
        for number in (0, 1, 1)
    ]
    assert_close(played[1], played[2])
    assert (played[0].action != played[1].action).any()
    assert (played[1].action[:, 0] != played[1].action[:, 1]).any()


def test_a_worker_plays_a_request_as_the_learner_would(host, opened):
    config, algorithm, _ = made(host)
    other, player = (opened(HostPlayer(config, host, algorithm, 1)) for _ in range(2))
    worker = RolloutWorker(other)
    learner = runner.HostRunner(config, host, algorithm)
    for iteration, fresh in ((5, True), (6, False)):
        state = algorithm.init(jax.random.key(iteration))  # updated in between
        run = runner.RunState(*runner.one((state, ())), KEY[None], jnp.array([5]))
        request = learner.request(run, iteration, fresh)
        assert (request.iteration, request.version, request.fresh) == (iteration, 5, fresh)
        key = jax.random.split(jax.random.fold_in(KEY, iteration))[0]
        assert_close(worker.play(request), player.play(5, state, key, fresh))


def part_of(version, ended, returned, restarts=0):
    """A part with a given outcome."""
    ended, returned = np.array(ended), np.array(returned, np.float32)
    rows = np.zeros(ended.shape)
    seen = Observation(rows, rows, rows, rows)
    trajectory = Trajectory(seen, np.zeros((len(rows) + 1, *rows.shape[1:])), *[rows] * 6, seen)
    return RolloutPart(version, trajectory, Outcome(ended, returned, np.full(ended.shape, 4), returned > 5), restarts)


def test_metrics_are_means_over_the_episodes_of_all_parts():
    parts = [
        part_of(8, [[True, False], [True, True]], [[1, 99], [2, 6]], restarts=1),
        part_of(6, [[False, False, False], [False, True, False]], [[99, 99, 99], [99, 11, 99]], restarts=2),
    ]
    trajectory, outcome = remote_rollout.joined(parts)
    assert trajectory.reward.shape == (2, 5)
    assert trajectory.memory.shape == (3, 5)
    metrics = remote_rollout.simulator_metrics(parts, outcome, True) | remote_rollout.node_metrics(parts, 8, 1)
    assert {name: float(value) for name, value in metrics.items()} == {
        "episodes": 4, "train_return": 5.0, "train_length": 4.0, "train_win_rate": 0.5, "restarts": 3, "nodes": 2,
        "lost_nodes": 1, "staleness": 2, "played_steps": 10,
    }  # fmt: skip
    none = [part_of(0, [[False]], [[99]])] * 2
    assert np.isnan(remote_rollout.simulator_metrics(none, remote_rollout.joined(none)[1], False)["train_return"])


class LocalRollouts:
    """Workers in this process, of which the last may be late or fail."""

    def __init__(self, workers, lateness=0, fails_at=99):
        self.workers, self.lateness, self.fails_at = workers, lateness, fails_at
        self.pending, self.requests, self.waits = {}, [], []

    def request(self, request):
        self.requests.append((request.iteration, request.version, request.fresh))
        for worker in self.workers:
            self.pending.setdefault(worker, (request, len(self.waits)))

    def receive(self, due):
        self.waits.append(due)
        if len(self.waits) > self.fails_at and len(self.workers) > 1:
            self.pending.pop(self.workers.pop())
        found = []
        for worker in self.workers:
            request, since = self.pending.get(worker, (None, 0))
            late = worker is self.workers[-1] and len(self.waits) - since <= self.lateness
            if request is not None and (request.iteration <= due or not late):
                found.append(worker.play(request))
                del self.pending[worker]
        return found

    def missing(self):
        return 2 - len(self.workers)

    def close(self):
        for worker in self.workers:
            worker.close()


def trained(host, opened, staleness, iterations=7, **fake):
    """Some iterations with two other nodes: their metrics, and the requests."""
    config = config_of(num_envs=6, nodes=3, staleness=staleness, steps=72 * 9, eval_interval=72 * 5)
    algorithm = algos.make(config, host.spec)
    players = [opened(HostPlayer(config, host, algorithm, number)) for number in (1, 2)]
    remote = LocalRollouts([RolloutWorker(player) for player in players], **fake)
    learner = opened(runner.HostRunner(config, host, algorithm, None, remote))
    run = runner.RunState(*runner.one((algorithm.init(jax.random.key(3)), ())), KEY[None], jnp.array([0]))
    lines = []
    for iteration in range(iterations):
        run, metrics = learner.advance(run)
        lines.append({name: np.asarray(value)[0].item() for name, value in metrics.items()})
        if config.is_evaluation(iteration + 1):
            learner.training = False
    return lines, remote


@pytest.fixture(scope="module")
def without_staleness():
    """The metrics and requests of a run without staleness."""
    host = seeded_toy()
    with contextlib.ExitStack() as resources:
        return trained(host, lambda resource: resources.enter_context(contextlib.closing(resource)), 0)


def test_without_staleness_all_nodes_play_with_the_newest_policy(host, opened, without_staleness):
    lines, remote = without_staleness
    assert remote.requests == [(i, i, i in (0, 5)) for i in range(7)]
    assert [line["staleness"] for line in lines] == [0] * 7
    assert [line["played_steps"] for line in lines] == [72] * 7
    again, _ = trained(host, opened, 0)
    assert again == lines


def test_with_a_staleness_of_one_other_nodes_are_one_update_behind_except_after_an_evaluation(host, opened):
    lines, remote = trained(host, opened, 1, lateness=9)
    ahead = [request for request in remote.requests if request[0] != request[1]]
    assert ahead == [(i + 1, i, False) for i in (0, 1, 2, 3, 5, 6)]
    assert [line["staleness"] for line in lines] == [0, 1, 1, 1, 1, 0, 1]
    assert [line["nodes"] for line in lines] == [3] * 7
    assert trained(host, opened, 1)[0] == lines, "late nodes are waited for"


def test_a_late_part_is_waited_for_before_it_is_too_stale_and_before_an_evaluation(host, opened):
    lines, _ = trained(host, opened, 3, lateness=9)
    assert [line["nodes"] for line in lines] == [2, 2, 3, 2, 3, 2, 2]
    assert [line["staleness"] for line in lines] == [0, 1, 2, 1, 2, 0, 1]


def test_a_failed_node_only_shrinks_the_batch(host, opened, without_staleness):
    whole, _ = without_staleness
    lines, _ = trained(host, opened, 0, 4, fails_at=2)
    assert lines[:2] == whole[:2]
    assert [(line["nodes"], line["lost_nodes"], line["played_steps"]) for line in lines[2:]] == [(2, 1, 48)] * 2
    assert all(np.isfinite(line["value_loss"]) for line in lines)


@pytest.mark.parametrize(
    ("algo", "options", "sentence"),
    [
        ("mappo", {"nodes": 3}, "nodes 3 does not divide num_envs 4"),
        ("mappo", {"minibatches": 8}, "minibatches 8 does not divide the 4 chunks of a node"),
        ("mappo", {"nodes": 1, "staleness": 1}, "staleness 1 has no effect on one node; give"),
        ("grasp-mappo", {"gram": "crossfit"}, "folds 4 does not divide the 2 environments of a node"),
        ("qmix", {"chunk": None, "epochs": None}, "nodes 2 needs an on-policy algorithm such as"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_over_nodes_is_refused(algo, options, sentence):
    with pytest.raises(GraspError, match=sentence):
        configure(algo, "host/toy", {k: v for k, v in (SIZES | options).items() if v is not None})


def test_without_ray_and_for_environments_in_jax_nodes_are_refused(tmp_path):
    where = {"out": tmp_path / "run", "steps": 48 * 9, **SIZES}
    with pytest.raises(GraspError, match="'matrix/climbing' runs in JAX, on one machine; leave"):
        grasp.train("mappo", "matrix/climbing", **where)
    pytest.importorskip("mpe2", reason="mpe2 is not installed: pip install 'grasp-marl[pettingzoo]'")
    with pytest.raises(GraspError, match="--nodes 2 needs a Ray cluster; add --on ray"):
        grasp.train("mappo", "pettingzoo/mpe2.simple_spread_v3", **where)
    assert not (tmp_path / "run").exists()
