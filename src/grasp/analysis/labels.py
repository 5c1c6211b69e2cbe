"""Labels of runs: the algorithm and, if several runs share it, the settings or the directory that differ."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MOST = 3
"""Settings in a label; if more differ, the label has the directory instead."""


class RunIdentity(NamedTuple):
    """The parts of a run's label."""

    algo: str
    env: str
    settings: dict[str, Any]
    """Under dotted names."""
    defaults: dict[str, Any]
    """The algorithm's default settings, as far as known."""
    path: Path


def labels(runs: Sequence[RunIdentity]) -> list[str]:
    """A label per run, unique on its environment. All runs of an algorithm are labelled by the same settings, so that
    equal configurations have the same label on every environment."""
    own = {run.algo: [r for r in runs if r.algo == run.algo] for run in runs}
    additions = {algo: iter(_additions(of)) for algo, of in own.items()}
    added = [next(additions[run.algo]) for run in runs]
    return [f"{run.algo} ({more})" if more else run.algo for run, more in zip(runs, added, strict=True)]


def _additions(runs: list[RunIdentity]) -> list[str]:
    """What follows the algorithm's name: nothing, a few settings that differ from each other and from the defaults, the
    directory's name, or its path: the first that is unique."""
    names = [run.path.resolve().name for run in runs]
    offers = [[""] * len(runs), names, [str(run.path) for run in runs]]
    twins = [[r for r in runs if r.env == env] for env in dict.fromkeys(run.env for run in runs)]
    fields = list(dict.fromkeys(field for group in twins for field in _differing(group)))
    if len(fields) <= MOST:
        offers.insert(1, [_chosen(run, fields) for run in runs])
    envs = [run.env for run in runs]
    return next(offer for offer in offers if len(set(zip(envs, offer, strict=True))) == len(runs))


def _differing(twins: list[RunIdentity]) -> list[str]:
    """The settings that all runs have and that differ between them; `out` always differs and is worth less than the
    directory's name."""
    first = twins[0].settings
    known = [field for field in first if field != "out" and all(field in run.settings for run in twins)]
    return [field for field in known if any(run.settings[field] != first[field] for run in twins)]


def _chosen(run: RunIdentity, fields: list[str]) -> str:
    own = [f for f in fields if f in run.settings and (f not in run.defaults or run.settings[f] != run.defaults[f])]
    return ", ".join(f"{f.removeprefix('hyper.')}={run.settings[f]}" for f in own)
