"""What a seed is resumed or evaluated from: its newest checkpoint, its best snapshot, and whether it has finished."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from grasp.runs import Run, checkpoint, metrics_log
from grasp.runs.metrics_log import check_intact, read
from grasp.types import Algorithm, GraspError, Key, Kind, Metric, PyTree

Reporter = Callable[[dict[str, Any]], None]
"""Called with every record that is written to the metrics log, and with notices: `{"kind": Kind.NOTICE, "seed": …,
"text": …}`."""


Check = Callable[[int, PyTree], None]
"""(seed, tree): raises Damaged where a checkpoint is intact but a file it refers to is not."""


LOG_BYTES = "journal"
"""Key of a checkpoint's metadata: how many bytes of the metrics log were written before it. Stored under this name."""


class SeedKeys(NamedTuple):
    """The keys of a seed, one per purpose, so that no random numbers are shared."""

    init: Key
    arena: Key
    run: Key
    evaluation: Key


def seed_keys(seed: int) -> SeedKeys:
    return SeedKeys(*jax.random.split(jax.random.key(seed), 4))


def acting(algorithm: Algorithm, state: PyTree, judging: bool = False) -> dict[str, PyTree]:
    """The fields of a state that acting needs and, if `judging`, the value function too."""
    names = algorithm.acting + (algorithm.judging if judging else ())
    return {name: getattr(state, name) for name in names}


def log_bytes(metadata: dict[str, str]) -> int:
    return int(metadata[LOG_BYTES])


def newest_common(
    run: Run, seeds: list[int], like: PyTree, check: Check, report: Reporter
) -> list[tuple[PyTree, dict[str, str]]] | None:
    """The newest intact checkpoint that all seeds have, for each of them; None where training has not begun.

    Newer ones are removed: the metrics logs are about to be truncated to the chosen one. Nothing is removed where a log
    is damaged before that: the files may be all that remains of a finished run.
    """
    found = [intact_checkpoints(run, seed, like, check, report) for seed in seeds]
    common = set.intersection(*(set(f) for f in found))
    if not common and all(not f or set(f) == {0} for f in found):
        return None  # killed before every seed had written its first
    if not common:
        raise GraspError(
            f"the seeds of {run.path} have no checkpoint of the same iteration; restore one, or train anew"
        )
    chosen = max(common)
    check_intact({run.metrics_log(seed): log_bytes(f[chosen][1]) for seed, f in zip(seeds, found, strict=True)})
    for seed in seeds:
        for path in checkpoint.stored(run.checkpoints(seed)):
            if checkpoint.number_of(path) > chosen:
                path.unlink()
    return [f[chosen] for f in found]


def intact_checkpoints(
    run: Run, seed: int, like: PyTree, check: Check, report: Reporter
) -> dict[int, tuple[PyTree, dict[str, str]]]:
    """A seed's intact checkpoints by iteration. Damaged ones are reported; if all are, nothing is touched."""
    intact, damages = {}, []
    for path in checkpoint.stored(run.checkpoints(seed)):
        try:
            tree, metadata = checkpoint.load(path, like)
            check(seed, tree)
            intact[checkpoint.number_of(path)] = (tree, metadata)
        except checkpoint.Damaged as damage:
            damages.append(str(damage))
        except checkpoint.Misfit as misfit:
            raise GraspError(f"{misfit}; was config.json edited, or grasp upgraded?") from None
    if damages and not intact:
        raise GraspError(f"{damages[-1]}, and no other checkpoint is left; restore one, or train anew")
    for damage in damages:
        report({"kind": Kind.NOTICE, "seed": seed, "text": f"{damage}; using the one before it"})
    return intact


def best_snapshot(run: Run, seed: int, like: PyTree, report: Reporter) -> tuple[PyTree, dict[str, Any]]:
    """The policy of the best evaluation whose snapshot is intact, and the record of that evaluation."""
    lines = [line for line in read(run.metrics_log(seed)).records if line["kind"] == Kind.EVALUATION]
    for line in sorted(lines, key=rank, reverse=True):
        path = run.snapshots(seed) / checkpoint.name_of(line["env_steps"])
        try:
            return checkpoint.load(path, like)[0], line
        except (checkpoint.Damaged, checkpoint.Misfit) as damage:
            report({"kind": Kind.NOTICE, "seed": seed, "text": f"{damage}; using the next best"})
    raise GraspError(f"{run.snapshots(seed)} has no snapshot that can be read; restore one, or train anew")


def rank(line: dict[str, Any]) -> tuple[float, float]:
    """The order of evaluations: by win rate where there is one, then by return; NaN is the worst."""
    score = line[Metric.RETURN_MEAN]
    return line.get(Metric.WIN_RATE) or 0.0, float("-inf") if score is None else score


def is_finished(run: Run, seed: int) -> bool:
    """Whether a seed has trained for the configured steps and its absolute metric is known."""
    log = read(run.metrics_log(seed))
    return metrics_log.is_finished(log.last, bool(log.damaged), run.config.total_steps)


def best_steps(run: Run, seed: int) -> int | None:
    """The environment steps of the best evaluation, whose policy is stored; None before the end of training."""
    last = read(run.metrics_log(seed)).last
    return last.get(Metric.BEST_ENV_STEPS) if last and last["kind"] == Kind.ABSOLUTE else None


def stored_policy(run: Run, seed: int, like: PyTree, env_steps: int | None = None) -> PyTree:
    """The policy to act with: the best one of a finished seed, else the newest intact snapshot; or the snapshot of the
    evaluation at `env_steps`."""
    paths = checkpoint.stored(run.snapshots(seed))[::-1]
    if env_steps is not None:
        known = [checkpoint.number_of(path) for path in paths]
        if env_steps not in known:
            raise GraspError(
                f"{run.folder(seed)} has no snapshot at {env_steps} steps; it has {_nearest(known, env_steps)}"
            )
        paths = [paths[known.index(env_steps)]]
    elif is_finished(run, seed):
        paths.insert(0, run.policy(seed))
    if not paths:
        raise GraspError(f"{run.folder(seed)} has no policy yet; train it with: grasp resume {run.path}")
    for path in paths:
        try:
            return checkpoint.load(path, like)[0]
        except checkpoint.Damaged:
            continue
        except checkpoint.Misfit as misfit:
            raise GraspError(f"{misfit}; was config.json edited, or grasp upgraded?") from None
    raise GraspError(f"no policy of {run.folder(seed)} can be read: every file is damaged")


def _nearest(known: list[int], wanted: int) -> str:
    close = sorted(sorted(known, key=lambda number: abs(number - wanted))[:3])
    return ", ".join(map(str, close)) or "none"
