"""The loop: advance, write, evaluate, save.

`RunState` is everything a seed's future depends on, so a checkpoint of it makes resuming exact. All arrays carry a
leading seed axis here, also for one seed; nothing inside `advance` prints, times or writes.
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
from grasp.training.evaluation import Scores
from grasp.training.remote_rollout import Others
from grasp.training.runner import Built, Programs, RunState, begin_seed, build, gather, outline, stack
from grasp.types import Algorithm, GraspError, Kind, Metric

CHECKPOINT_SECONDS = 60.0
"""Beside those at every evaluation: a killed run loses about a minute."""


def restored(run: Run, seed: int, algorithm: Algorithm, outlined: RunState) -> RunState:
    """The whole state from a checkpoint's outline."""
    if not algorithm.replays:
        return outlined
    replay = replay_store.restore(run.checkpoints(seed), outlined.state.replay, algorithm.replays)
    return outlined._replace(state=outlined.state._replace(replay=replay))


def check(run: Run, seed: int, algorithm: Algorithm, outlined: RunState) -> None:
    """Damaged where a checkpoint's replay could not be restored."""
    if algorithm.replays:
        replay_store.verify(run.checkpoints(seed), int(outlined.state.replay.finished), algorithm.replays)


def evaluation_keys(seeds: list[int], iteration: int) -> Shaped[Array, " S"]:
    """Keys of an evaluation: by seed and iteration only, so that it can be repeated from a snapshot."""
    return jnp.stack([jax.random.fold_in(seed_keys(seed).evaluation, iteration) for seed in seeds])


def train(
    run: Run,
    seeds: list[int],
    report: Reporter,
    patience: float = 0.0,
    others: Others | None = None,
    built: Built | None = None,
) -> None:
    """Train these seeds together from where they stand to the end. They stop and resume as one.

    `patience` is how many seconds to wait for another who claims them and may be lost; `others` are machines whose
    simulators play for them; `built` is the environment and the algorithm if they exist already. Of several processes
    that train together, the first reads and writes the run directory, and the others get from it what it has read.
    """
    with plain_faults(run), contextlib.ExitStack() as held:
        written = seeds if sharding.is_first() else []
        locks = [held.enter_context(writing(run, seed, patience)) for seed in written]
        if sharding.from_first(lambda: all(restore.is_finished(run, seed) for seed in seeds)):
            return  # by the one who was waited for
        programs = build(run.config, len(seeds), run.folder(seeds[0]) / "simulators.log", others, built)
        held.callback(programs.close)
        algorithm = programs.algorithm
        like = jax.eval_shape(lambda: outline(algorithm, begin_seed(run.config, programs.env, algorithm, 0)))
        found = sharding.from_first(
            lambda: restore.newest_common(
                run, seeds, like, lambda seed, tree: check(run, seed, algorithm, tree), report
            )
        )
        if found is None:
            for seed in seeds:
                replay_store.discard(run.checkpoints(seed), 0)
            state = programs.begin(seeds)
        else:
            outlines = zip(seeds, found, strict=True)
            state = gather([restored(run, seed, algorithm, tree) for seed, (tree, _) in outlines], algorithm)
        kept = [0] * len(seeds) if found is None else [restore.log_bytes(metadata) for _, metadata in found]
        logs = [MetricsWriter(run.metrics_log(seed), kept[place]) for place, seed in enumerate(written)]
        for log in logs:
            held.callback(log.close)
        Session(run, seeds, programs, logs, locks, report).train(state)


class Session:
    """One process's work on a group of seeds: the only place that writes and looks at the clock."""

    def __init__(
        self,
        run: Run,
        seeds: list[int],
        programs: Programs,
        logs: list[MetricsWriter],
        locks: list[Lock],
        report: Reporter,
    ):
        self.run, self.config, self.seeds = run, run.config, seeds
        self.programs, self.logs, self.locks, self.report = programs, logs, locks, report
        self.written = list(enumerate(seeds if sharding.is_first() else []))
        self.start = self.saved = time.monotonic()
        self.finished: dict[int, int] = {}  # episodes in each seed's replay at its last checkpoint

    def train(self, state: RunState) -> None:
        iteration = int(state.iteration[0])
        if not self.is_evaluated(iteration):
            self.evaluate(state, iteration)
            self.save(state, iteration)
        while iteration < self.config.iterations:  # Alg. 1 l. 4
            began = time.monotonic()
            with self.kept(state, iteration):
                state, metrics = self.programs.advance(state)
            iteration += 1
            self.write(Kind.ITERATION, iteration, jax.device_get(metrics), time.monotonic() - began)
            is_evaluation = self.config.is_evaluation(iteration)
            if is_evaluation:
                self.evaluate(state, iteration)
            if is_evaluation or sharding.agreed(time.monotonic() - self.saved > CHECKPOINT_SECONDS):
                self.save(state, iteration)
        self.conclude(state)

    def is_evaluated(self, iteration: int) -> bool:
        """Whether the metrics log has the evaluation that is due after this iteration, if one is: it has not before the
        first, nor where simulators failed during it."""
        last = sharding.from_first(lambda: read(self.run.metrics_log(self.seeds[0])).last)
        return last is not None and not (last["kind"] == Kind.ITERATION and self.config.is_evaluation(iteration))

    @contextlib.contextmanager
    def kept(self, state: RunState, iteration: int):
        """Simulators that fail too often end in a checkpoint and a sentence."""
        try:
            yield
        except SimulatorFault as fault:
            self.save(state, iteration)
            raise GraspError(f"{fault}; continue with: grasp resume {self.run.path}") from None

    def write(self, kind: str, iteration: int, values: dict[str, Any], seconds: float) -> None:
        """One line for every seed, and word to whoever shows progress."""
        env_steps = iteration * self.config.steps_per_iteration
        wall = {"seconds": round(time.monotonic() - self.start, 3), "took": round(seconds, 4)}
        for place, seed in self.written:
            line = {"kind": kind, "env_steps": env_steps, "seed": seed}
            line |= plain({name: value[place] for name, value in values.items()}) | {"wall": wall}
            self.locks[place].check()
            self.logs[place].write(line)
            self.report(line)

    def evaluate(self, state: RunState, iteration: int) -> None:
        """Score the newest policy and keep it as a snapshot."""
        began = time.monotonic()
        with self.kept(state, iteration):
            scores = jax.device_get(self.programs.score(state.state, evaluation_keys(self.seeds, iteration)))
        for place, seed in self.written:
            kept = acting(self.programs.algorithm, state.state, judging=True)
            policy = jax.tree.map(lambda x, p=place: x[p], kept)
            name = checkpoint.name_of(iteration * self.config.steps_per_iteration)
            self.locks[place].check()
            checkpoint.save(self.run.snapshots(seed) / name, policy, {"algo": self.config.algo, "env": self.config.env})
        self.write(Kind.EVALUATION, iteration, self.described(scores), time.monotonic() - began)

    def described(self, scores: Scores) -> dict[str, Any]:
        """The metrics of an evaluation; every entry has a leading seed axis."""
        values = {
            Metric.EPISODES: np.full(len(self.seeds), scores.returned.shape[1]),
            Metric.RETURN_MEAN: scores.returned.mean(1),
            "length_mean": scores.length.mean(1),
            Metric.RETURNS: scores.returned,
        }
        if self.programs.env.spec.has_wins:
            values |= {Metric.WIN_RATE: scores.won.mean(1), Metric.WINS: scores.won.astype(int)}
        return values | self.programs.replaced()

    def save(self, state: RunState, iteration: int) -> None:
        """A checkpoint of every seed, which records how many bytes of the metrics log precede it."""
        outlined = self.programs.outline(state)
        host = jax.device_get(jax.tree.map(lambda x: jax.random.key_data(x) if checkpoint.is_key(x) else x, outlined))
        for place, seed in self.written:
            folder = self.run.checkpoints(seed)
            one = jax.tree.map(lambda x, p=place: x[p], host)
            self.locks[place].check()
            if self.programs.algorithm.replays:
                replay_store.append(folder, state.state.replay, place, int(one.state.replay.finished))
            metadata = {restore.LOG_BYTES: str(self.logs[place].commit())}
            checkpoint.save(folder / checkpoint.name_of(iteration), one, metadata)
            checkpoint.prune(folder)
            if self.programs.algorithm.replays:  # the checkpoint before this one is also kept
                replay_store.prune(folder, self.finished.get(seed, 0) - self.programs.algorithm.replays)
                self.finished[seed] = int(one.state.replay.finished)
        self.saved = time.monotonic()

    def conclude(self, state: RunState) -> None:
        """The absolute metric: the best snapshot of each seed, scored on many episodes, and kept as the policy."""
        began = time.monotonic()
        like = jax.tree.map(lambda x: x[0], acting(self.programs.algorithm, state.state))
        found = sharding.from_first(
            lambda: [restore.best_snapshot(self.run, seed, like, self.report) for seed in self.seeds]
        )
        policies, best = [policy for policy, _ in found], [line for _, line in found]
        keys = evaluation_keys(self.seeds, self.config.iterations + 1)
        with self.kept(state, self.config.iterations):
            scores = self.programs.score_best(state.state._replace(**stack(policies)), keys)
        described = self.described(jax.device_get(scores)) | {Metric.BEST_ENV_STEPS: [b["env_steps"] for b in best]}
        for place, seed in self.written:
            words = {"algo": self.config.algo, "env": self.config.env, "env_steps": str(best[place]["env_steps"])}
            self.locks[place].check()
            checkpoint.save(self.run.policy(seed), policies[place], words)
        self.write(Kind.ABSOLUTE, self.config.iterations, described, time.monotonic() - began)
        for log in self.logs:
            log.commit()


@contextlib.contextmanager
def plain_faults(run: Run):
    """A full disk or a read-only directory as one sentence; what was written before stays as it was."""
    try:
        yield
    except OSError as error:
        reasons = {errno.ENOSPC: "the disk is full", errno.EROFS: "the directory is read-only"}
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise GraspError(
            f"cannot write to {run.path} ({reason}); nothing written before is lost: mend it, then type: "
            f"grasp resume {run.path}"
        ) from None
