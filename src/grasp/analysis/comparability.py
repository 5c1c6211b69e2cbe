"""What runs on one environment must share before their scores may stand side by side, and what a reader is told.

Refused unless forced: other versions of the environment (another game under the same name), and other numbers of
episodes in an evaluation or at the end: they set the noise of a score and, since the absolute metric takes the best of
many noisy evaluations, how far that choice flatters it. All evaluations of grasp are greedy, and which score is
compared is one decision for all runs on an environment, so neither can differ.

Only told: commits and versions of grasp, versions of jax, steps, seeds and the spacing of evaluations. Algorithms have
iterations of different lengths, and runs of different lengths are a question one may ask ("is 20k steps of QMIX
enough?"); curves show both.
"""

import numpy as np

from grasp.analysis import statistics
from grasp.analysis.run_data import ABSOLUTE, LAST, SCORES, RunData, span
from grasp.types import GraspError


def final_of(group: list[RunData], score: str | None = None) -> str:
    """The score that was asked for, or else the one that all runs on an environment have: the absolute metric, or the
    last tenth of evaluations."""
    finished = all(seed.absolute for run in group for seed in run.seeds)
    if score is not None and score not in SCORES:
        raise GraspError(f"score must be one of {', '.join(SCORES)}, not '{score}'")
    if score == "absolute" and not finished:
        raise GraspError(f"{group[0].env}: not every seed has its absolute metric yet; use --score last or whole")
    return SCORES[score] if score else ABSOLUTE if finished else LAST


def check(group: list[RunData], force: bool) -> list[str]:
    """Refuse runs whose scores measure different things; if forced, the differences as warnings."""
    found = _differing("environment versions", group, [run.env_version for run in group])
    found += _differing("evaluation protocols", group, [_episodes(run) for run in group])
    if found and not force:
        raise GraspError(
            f"{group[0].env}: {' and '.join(found)}, so these scores measure different things; compare the runs apart, "
            f"or add --force to mix them with a warning"
        )
    return found


def distrust(group: list[RunData], metric: str, final: str) -> list[str]:
    """Everything else about the runs on one environment that a reader of their numbers must know."""
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
        found += _narrow(run, metric, final)
    return found


def _unfinished(run: RunData) -> list[str]:
    planned, final = run.config.get("steps"), run.config.get("final_episodes")
    planned = planned if isinstance(planned, int) else 0
    late = [s for s in run.seeds if not s.is_finished and (s.env_steps < planned or final)]
    seeds, reached = ", ".join(str(s.seed) for s in late), span({s.env_steps for s in late})
    return [f"{run.label} is unfinished (seed {seeds} at {reached} of {planned:,} env steps)"] if late else []


def _episodes(run: RunData) -> str:
    """How many episodes a score stands on, by plan, so that an unfinished run has the same protocol."""
    each = span({e.episodes for s in run.seeds for e in s.evaluations}) or run.config.get("eval_episodes", "unknown")
    again = run.config.get("final_episodes") or span({s.absolute.episodes for s in run.seeds if s.absolute}) or "none"
    return f"{each} greedy episodes an evaluation, {again} at the end"


def _points(run: RunData) -> str:
    gaps = np.concatenate([np.diff(s.curve("return")[0]) for s in run.seeds])
    # Two digits: evaluations fall on whole iterations, whose length may differ a little between algorithms.
    return f"every {float(f'{np.median(gaps):.2g}'):,.0f} env steps" if len(gaps) else "once"


def _differing(what: str, group: list[RunData], values: list[str]) -> list[str]:
    if len(set(values)) == 1:
        return []
    labels = {value: [r.label for r, v in zip(group, values, strict=True) if v == value] for value in values}
    each = "; ".join(f"{', '.join(of)}: {value}" for value, of in labels.items())
    return [f"{what} differ between the runs ({each})"]


def _narrow(run: RunData, metric: str, final: str) -> list[str]:
    """Why a run has no interval over seeds."""
    scores = [seed.score(metric, final) for seed in run.seeds]
    if np.isnan(scores).any():
        return [f"{run.label} has a score that is not a number"]
    if len(scores) > 1:
        same = f"all {len(scores)} seeds of {run.label} score the same, so no interval over seeds"
        return [same] if len(set(scores)) == 1 else []
    lines = run.seeds[0].scored(final)
    text = f"{run.label} has one seed, so no interval over seeds"
    if metric == "return" or any(e.episodes is None for e in lines):
        return [text]
    episodes = sum(e.episodes or 0 for e in lines)
    low, high = statistics.wilson(round(sum((e.win_rate or 0.0) * (e.episodes or 0) for e in lines)), episodes) or (
        0.0,
        1.0,
    )
    return [f"{text}; over its {episodes:,} episodes alone: [{low:.3f}, {high:.3f}] (Wilson)"]
