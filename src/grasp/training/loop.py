"""The training loop: advance, write metrics, evaluate, save.

`RunState` is everything that a seed's further training depends on, so resuming from a checkpoint of it is exact. All
arrays have a leading seed axis here, also for one seed. Nothing inside `advance` prints, reads the clock or writes.
"""

import contextlib
import errno
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from grasp.envs.host import SimulatorFault
from grasp.nn import sharding
from grasp.runs import Run, checkpoint, replay_store, restore, writing
from grasp.runs.lock import Lock
from grasp.runs.metrics_log import MetricsWriter, plain, read
from grasp.runs.restore import Reporter, acting, seed_keys
from grasp.training.evaluation import Evaluation, Scores
from grasp.training.remote_rollout import RemoteRollouts
from grasp.training.runner import Built, Runner, RunState, begin_seed, build, gather, outline, stack
from grasp.types import Algorithm, GraspError, Kind, Metric

CHECKPOINT_SECONDS = 60.0
"""Seconds between checkpoints, besides those at every evaluation: a killed run repeats about a minute."""


def restored(run: Run, seed: int, algorithm: Algorithm, outlined: RunState) -> RunState:
    """The complete state from a checkpoint, with its replay buffer from the segments."""
    if not algorithm.replays:
        return outlined
    replay = replay_store.restore(run.checkpoints(seed), outlined.state.replay, algorithm.replays)
    return outlined._replace(state=outlined.state._replace(replay=replay))


def check(run: Run, seed: int, algorithm: Algorithm, outlined: RunState) -> None:
    """Damaged where the replay buffer of a checkpoint cannot be restored."""
    if algorithm.replays:
        replay_store.verify(run.checkpoints(seed), int(outlined.state.replay.finished), algorithm.replays)


def evaluation_keys(seeds: list[int], iteration: int) -> Shaped[Array, " S"]:
    """Keys of an evaluation: they depend on seed and iteration only, so that it can be repeated from a snapshot."""
    return jnp.stack([jax.random.fold_in(seed_keys(seed).evaluation, iteration) for seed in seeds])


def train(
    run: Run,
    seeds: list[int],
    report: Reporter,
    patience: float = 0.0,
    remote: RemoteRollouts | None = None,
    built: Built | None = None,
) -> None:
    """Train these seeds as one program, from their newest checkpoint to the end.

    `patience` is how many seconds to wait for a lock whose holder may have failed; `remote` are the simulators of other
    nodes; `built` is the environment and the algorithm if they exist already. Of several processes that train together,
    the first reads and writes the run directory and sends the others what it reads.
    """
    with write_errors(run), contextlib.ExitStack() as held:
        written = seeds if sharding.is_first() else []
        locks = [held.enter_context(writing(run, seed, patience)) for seed in written]
        if sharding.from_first(lambda: all(restore.is_finished(run, seed) for seed in seeds)):
            return  # the previous holder of the locks has finished them
        runner = build(run.config, len(seeds), run.folder(seeds[0]) / "simulators.log", remote, built)
        held.callback(runner.close)
        algorithm = runner.algorithm
        like = jax.eval_shape(lambda: outline(algorithm, begin_seed(run.config, runner.env, algorithm, 0)))
        found = sharding.from_first(
            lambda: restore.newest_common(
                run, seeds, like, lambda seed, tree: check(run, seed, algorithm, tree), report
            )
        )
        if found is None:
            for seed in seeds:
                replay_store.discard(run.checkpoints(seed), 0)
            state = runner.begin(seeds)
        else:
            outlines = zip(seeds, found, strict=True)
            state = gather([restored(run, seed, algorithm, tree) for seed, (tree, _) in outlines], algorithm)
        kept = [0] * len(seeds) if found is None else [restore.log_bytes(metadata) for _, metadata in found]
        logs = [MetricsWriter(run.metrics_log(seed), kept[index]) for index, seed in enumerate(written)]
        for log in logs:
            held.callback(log.close)
        Session(run, seeds, runner, logs, locks, report).train(state)


class Session:
    """Trains a group of seeds in one process: the only place that writes files and reads the clock."""

    def __init__(
        self,
        run: Run,
        seeds: list[int],
        runner: Runner,
        logs: list[MetricsWriter],
        locks: list[Lock],
        report: Reporter,
    ):
        self.run, self.config, self.seeds = run, run.config, seeds
        self.runner, self.logs, self.locks, self.report = runner, logs, locks, report
        self.written = list(enumerate(seeds if sharding.is_first() else []))
        """Index and number of the seeds whose files this process writes."""
        self.start = self.saved = time.monotonic()
        self.finished: dict[int, int] = {}  # finished episodes in each seed's replay buffer at its last checkpoint

    def train(self, state: RunState) -> None:
        iteration = int(state.iteration[0])
        if not self.is_evaluated(iteration):
            self.evaluate(state, iteration)
            self.save(state, iteration)
        while iteration < self.config.iterations:  # Alg. 1 l. 4
            began = time.monotonic()
            with self.saved_on_failure(state, iteration):
                state, metrics = self.runner.advance(state)
            iteration += 1
            self.write(Kind.ITERATION, iteration, jax.device_get(metrics), time.monotonic() - began)
            is_evaluation = self.config.is_evaluation(iteration)
            if is_evaluation:
                self.evaluate(state, iteration)
            if is_evaluation or sharding.agreed(time.monotonic() - self.saved > CHECKPOINT_SECONDS):
                self.save(state, iteration)
        self.conclude(state)

    def is_evaluated(self, iteration: int) -> bool:
        """Whether the metrics log has the evaluation that is due after this iteration, if one is. It is missing before
        training, and where simulators failed during it."""
        last = sharding.from_first(lambda: read(self.run.metrics_log(self.seeds[0])).last)
        return last is not None and not (last["kind"] == Kind.ITERATION and self.config.is_evaluation(iteration))

    @contextlib.contextmanager
    def saved_on_failure(self, state: RunState, iteration: int):
        """Where simulators fail too often, save a checkpoint before the error."""
        try:
            yield
        except SimulatorFault as fault:
            self.save(state, iteration)
            raise GraspError(f"{fault}; continue with: grasp resume {self.run.path}") from None

    def write(self, kind: str, iteration: int, values: dict[str, Any], seconds: float) -> None:
        """Write and report one record per seed."""
        env_steps = iteration * self.config.steps_per_iteration
        wall = {"seconds": round(time.monotonic() - self.start, 3), "took": round(seconds, 4)}
        for index, seed in self.written:
            line = {"kind": kind, "env_steps": env_steps, "seed": seed}
            line |= plain({name: value[index] for name, value in values.items()}) | {"wall": wall}
            self.locks[index].check()
            self.logs[index].write(line)
            self.report(line)

    def evaluate(self, state: RunState, iteration: int) -> None:
        """Evaluate the current policy and store it as a snapshot."""
        began = time.monotonic()
        with self.saved_on_failure(state, iteration):
            scores = jax.device_get(self.runner.score(state.state, evaluation_keys(self.seeds, iteration)))
        for index, seed in self.written:
            stored = acting(self.runner.algorithm, state.state, judging=True)
            policy = jax.tree.map(lambda x, i=index: x[i], stored)
            name = checkpoint.name_of(iteration * self.config.steps_per_iteration)
            self.locks[index].check()
            checkpoint.save(self.run.snapshots(seed) / name, policy, {"algo": self.config.algo, "env": self.config.env})
        self.write(Kind.EVALUATION, iteration, self.metrics(scores), time.monotonic() - began)

    def metrics(self, scores: Evaluation) -> dict[str, Any]:
        """The metrics of an evaluation; every entry has a leading seed axis."""
        greedy, sampled = scores
        values = {
            Metric.EPISODES: np.full(len(self.seeds), greedy.returned.shape[1]),
            Metric.RETURN_MEAN: greedy.returned.mean(1),
            "length_mean": greedy.length.mean(1),
            Metric.TIMEOUT_RATE: greedy.timed_out.mean(1),
            Metric.DISTINCT: distinct(greedy),
            Metric.RETURNS: greedy.returned,
            Metric.SAMPLED_RETURN_MEAN: sampled.returned.mean(1),
            Metric.SAMPLED_TIMEOUT_RATE: sampled.timed_out.mean(1),
            Metric.SAMPLED_DISTINCT: distinct(sampled),
            Metric.SAMPLED_RETURNS: sampled.returned,
        }
        if self.runner.env.spec.has_wins:
            values |= {Metric.WIN_RATE: greedy.won.mean(1), Metric.WINS: greedy.won.astype(int)}
            values |= {Metric.SAMPLED_WIN_RATE: sampled.won.mean(1), Metric.SAMPLED_WINS: sampled.won.astype(int)}
        return values | self.runner.host_metrics()

    def save(self, state: RunState, iteration: int) -> None:
        """A checkpoint of every seed, which records how many bytes of the metrics log precede it."""
        outlined = self.runner.outline(state)
        host = jax.device_get(jax.tree.map(lambda x: jax.random.key_data(x) if checkpoint.is_key(x) else x, outlined))
        for index, seed in self.written:
            folder = self.run.checkpoints(seed)
            one = jax.tree.map(lambda x, i=index: x[i], host)
            self.locks[index].check()
            if self.runner.algorithm.replays:
                replay_store.append(folder, state.state.replay, index, int(one.state.replay.finished))
            metadata = {restore.LOG_BYTES: str(self.logs[index].commit())}
            checkpoint.save(folder / checkpoint.name_of(iteration), one, metadata)
            checkpoint.prune(folder)
            if self.runner.algorithm.replays:  # the checkpoint before this one is also kept
                replay_store.prune(folder, self.finished.get(seed, 0) - self.runner.algorithm.replays)
                self.finished[seed] = int(one.state.replay.finished)
        self.saved = time.monotonic()

    def conclude(self, state: RunState) -> None:
        """The absolute metric: evaluate the best snapshot of each seed on many episodes, and store it as the policy."""
        began = time.monotonic()
        like = jax.tree.map(lambda x: x[0], acting(self.runner.algorithm, state.state))
        found = sharding.from_first(
            lambda: [restore.best_snapshot(self.run, seed, like, self.report) for seed in self.seeds]
        )
        policies, best = [policy for policy, _ in found], [line for _, line in found]
        keys = evaluation_keys(self.seeds, self.config.iterations + 1)
        with self.saved_on_failure(state, self.config.iterations):
            scores = self.runner.score_best(state.state._replace(**stack(policies)), keys)
        metrics = self.metrics(jax.device_get(scores)) | {Metric.BEST_ENV_STEPS: [b["env_steps"] for b in best]}
        for index, seed in self.written:
            metadata = {"algo": self.config.algo, "env": self.config.env, "env_steps": str(best[index]["env_steps"])}
            self.locks[index].check()
            checkpoint.save(self.run.policy(seed), policies[index], metadata)
        self.write(Kind.ABSOLUTE, self.config.iterations, metrics, time.monotonic() - began)
        for log in self.logs:
            log.commit()


def distinct(scores: Scores) -> np.ndarray:
    """For each seed, how many different sequences of joint actions were played."""
    return np.array([len(np.unique(hashes)) for hashes in scores.played])


@contextlib.contextmanager
def write_errors(run: Run):
    """A full disk or a read-only directory as one sentence."""
    try:
        yield
    except OSError as error:
        reasons = {errno.ENOSPC: "the disk is full", errno.EROFS: "the directory is read-only"}
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise GraspError(
            f"cannot write to {run.path} ({reason}); no data lost; fix the cause, then run: grasp resume {run.path}"
        ) from None
