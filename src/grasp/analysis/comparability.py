"""Whether the scores of runs on one environment are comparable.

Refused unless forced: different versions of the environment, whose dynamics may differ, and different numbers of
episodes per evaluation or at the end. Episodes set the noise of a score, and the absolute metric is the best of many
noisy evaluations: the noisier they are, the more it overestimates. Evaluations are always greedy, and one score is
chosen for all runs on an environment, so neither can differ.

A warning only: different commits and versions of grasp, versions of jax, steps, seeds, and spacing of evaluations.
Iterations of different algorithms differ in length, and comparing runs of different lengths is a legitimate question
("are 20k steps of QMIX enough?").
"""

import numpy as np

from grasp.analysis import statistics
from grasp.analysis.run_data import ABSOLUTE, LAST, SAMPLED_LAST, SAMPLED_WHOLE, SCORES, RunData, SeedData, span
from grasp.types import GraspError


def final_of(group: list[RunData], score: str | None = None) -> str:
    """The chosen score; by default the absolute metric if all runs on an environment have it, else the last tenth of
    evaluations."""
    has_absolute = all(seed.absolute for run in group for seed in run.seeds)
    if score is not None and score not in SCORES:
        raise GraspError(f"score must be one of {', '.join(SCORES)}, not '{score}'")
    if score == "absolute" and not has_absolute:
        raise GraspError(f"{group[0].env}: not every seed has its absolute metric yet; use --score last or whole")
    return SCORES[score] if score else ABSOLUTE if has_absolute else LAST


def check(group: list[RunData], force: bool) -> list[str]:
    """Refuse runs whose scores measure different things; if forced, return the differences as warnings."""
    found = _differing("environment versions", group, [run.env_version for run in group])
    found += _differing("evaluation protocols", group, [_episodes(run) for run in group])
    if found and not force:
        raise GraspError(
            f"{group[0].env}: {' and '.join(found)}, so the scores are not comparable; compare the runs separately, "
            f"or add --force to compare them with a warning"
        )
    return found


def warnings_of(group: list[RunData], metric: str, final: str) -> list[str]:
    """Differences and gaps of the runs on one environment that qualify their scores."""
    found = [w for run in group for w in _unfinished(run)]
    if not all("env_version" in run.versions for run in group):
        found.append("not every run has recorded the environment's version")
    reached = [span({seed.env_steps for seed in run.seeds}) for run in group]
    ragged = [(run, steps) for run, steps in zip(group, reached, strict=True) if "–" in steps and not _unfinished(run)]
    found += [f"the seeds of {run.label} reached {steps} env steps" for run, steps in ragged]
    for name, what in (("commit", "commits of grasp"), ("grasp", "versions of grasp"), ("jax", "versions of jax")):
        found += _differing(what, group, [str(run.versions.get(name, "unknown")) for run in group])
    found += _differing("env steps", group, reached)
    found += _differing("evaluation points", group, [_points(run) for run in group])
    found += _differing("seeds", group, [" ".join(str(seed.seed) for seed in run.seeds) for run in group])
    if final == final_of(group) == LAST and any(seed.absolute for run in group for seed in run.seeds):
        found.append("not every seed has an absolute metric, so the last tenth of evaluations is compared")
    if metric == "return" and any(run.has_wins for run in group):
        found.append("only some runs record wins, so returns are compared")
    for run in group:
        found += _without_interval(run, metric, final)
    return found


def _unfinished(run: RunData) -> list[str]:
    late = [seed for seed in run.seeds if not seed.is_finished]
    damaged, whole = [s for s in late if s.is_damaged], [s for s in late if not s.is_damaged]
    planned = "unknown" if run.total_steps is None else f"{run.total_steps:,}"
    reasons = []
    if whole:
        reasons.append(f"seed {_numbers(whole)} at {span({s.env_steps for s in whole})} of {planned} env steps")
    if damaged:
        reasons.append(f"the log of seed {_numbers(damaged)} has a damaged line")
    return [f"{run.label} is unfinished ({'; '.join(reasons)})"] if late else []


def _numbers(seeds: list[SeedData]) -> str:
    return ", ".join(str(seed.seed) for seed in seeds)


def _episodes(run: RunData) -> str:
    """The number of episodes behind a score. The final one is the configured number, so that an unfinished run has the
    same protocol."""
    each = span({e.episodes for s in run.seeds for e in s.evaluations}) or run.config.get("eval_episodes", "unknown")
    again = run.config.get("final_episodes") or span({s.absolute.episodes for s in run.seeds if s.absolute}) or "none"
    return f"{each} greedy episodes per evaluation, {again} at the end"


def _points(run: RunData) -> str:
    gaps = np.concatenate([np.diff(s.curve("return")[0]) for s in run.seeds])
    # Two digits: evaluations fall on whole iterations, whose lengths differ slightly between algorithms.
    return f"every {float(f'{np.median(gaps):.2g}'):,.0f} env steps" if len(gaps) else "once"


def _differing(what: str, group: list[RunData], values: list[str]) -> list[str]:
    if len(set(values)) == 1:
        return []
    labels = {value: [r.label for r, v in zip(group, values, strict=True) if v == value] for value in values}
    each = "; ".join(f"{', '.join(of)}: {value}" for value, of in labels.items())
    return [f"{what} differ between the runs ({each})"]


def _without_interval(run: RunData, metric: str, final: str) -> list[str]:
    """The reason why a run has no interval over seeds, if it has none."""
    scores = [seed.score(metric, final) for seed in run.seeds]
    if np.isnan(scores).any():
        return [f"{run.label} has a score of NaN"]
    if len(scores) > 1:
        same = f"all {len(scores)} seeds of {run.label} have the same score, so no interval over seeds"
        return [same] if len(set(scores)) == 1 else []
    text = f"{run.label} has one seed, so no interval over seeds"
    if final in (SAMPLED_LAST, SAMPLED_WHOLE):
        return [text]
    lines = run.seeds[0].scored(final)
    if metric == "return" or any(e.episodes is None for e in lines):
        return [text]
    episodes = sum(e.episodes or 0 for e in lines)
    low, high = statistics.wilson(round(sum((e.win_rate or 0.0) * (e.episodes or 0) for e in lines)), episodes) or (
        0.0,
        1.0,
    )
    return [f"{text}; over its {episodes:,} episodes: [{low:.3f}, {high:.3f}] (Wilson)"]
