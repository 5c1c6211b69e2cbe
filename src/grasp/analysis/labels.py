"""What runs are called: by their algorithm and, where that is not enough, by what sets them apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MOST = 3
"""Settings in a label; where more differ, the directory says it better."""


class Named(NamedTuple):
    """What a run's name is made of."""

    algo: str
    env: str
    settings: dict[str, Any]
    """Under dotted names."""
    usual: dict[str, Any]
    """The settings that the algorithm has where nobody chooses others, as far as they are known."""
    path: Path


def labels(runs: Sequence[Named]) -> list[str]:
    """A name for each run that no other on its environment has. The same settings name all runs of an algorithm, also
    where it ran alone, so that equal configurations are called the same on every environment."""
    own = {run.algo: [r for r in runs if r.algo == run.algo] for run in runs}
    additions = {algo: iter(_additions(of)) for algo, of in own.items()}
    words = [next(additions[run.algo]) for run in runs]
    return [f"{run.algo} ({more})" if more else run.algo for run, more in zip(runs, words, strict=True)]


def _additions(runs: list[Named]) -> list[str]:
    """What follows the name of an algorithm: nothing, a few settings that differ and are not its usual ones, else its
    directory, else its path."""
    names = [run.path.resolve().name for run in runs]
    offers = [[""] * len(runs), names, [str(run.path) for run in runs]]
    twins = [[r for r in runs if r.env == env] for env in dict.fromkeys(run.env for run in runs)]
    fields = list(dict.fromkeys(field for group in twins for field in _differing(group)))
    if len(fields) <= MOST:
        offers.insert(1, [_chosen(run, fields) for run in runs])
    envs = [run.env for run in runs]
    return next(offer for offer in offers if len(set(zip(envs, offer, strict=True))) == len(runs))


def _differing(twins: list[Named]) -> list[str]:
    """The settings that all of them have, and not all the same; `out` always differs and says less than the directory's
    name."""
    first = twins[0].settings
    known = [field for field in first if field != "out" and all(field in run.settings for run in twins)]
    return [field for field in known if any(run.settings[field] != first[field] for run in twins)]


def _chosen(run: Named, fields: list[str]) -> str:
    own = [f for f in fields if f in run.settings and (f not in run.usual or run.settings[f] != run.usual[f])]
    return ", ".join(f"{f.removeprefix('hyper.')}={run.settings[f]}" for f in own)
