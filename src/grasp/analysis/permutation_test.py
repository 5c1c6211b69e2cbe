"""The permutation test: how often a random relabelling of the runs gives a difference this large.

It supposes nothing about how scores are distributed, so it holds with few seeds, and says so when there are too few to
tell: three against three have only 20 relabellings, and no p below 0.1.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from grasp.analysis.statistics import Scores, Task, strata

EXACT = 20_000
"""Relabellings of one task up to which all of them are counted; beyond, as many are drawn, in all tasks."""
HALF = 1_000_000
"""Of several tasks: relabellings of either half of them, all of which are counted together with all of the other's."""
ROUNDING = 1e-12
"""Differences that are equal but for the order in which they were summed count as equal."""


def permutation_p(a: Scores | Sequence[Scores], b: Scores | Sequence[Scores], seed: int = 0) -> float:
    """How often the two sides, their runs relabelled at random, would differ in mean at least as much.

    Of several tasks, runs are relabelled within each, and the mean of the differences counts. Exact wherever all
    relabellings can be counted (8 seeds a side on two tasks, 5 on four); else from `EXACT` drawn ones, to some 0.1 % at
    p = 2 %. NaN if a score is.
    """
    sides = list(zip(strata(a), strata(b), strict=True))
    if any(np.isnan(scores).any() for side in sides for scores in side):
        return float("nan")
    own = [shares(first, second) for first, second in sides]
    gap = sum(share[: len(first)].sum() for share, (first, _) in zip(own, sides, strict=True))
    far = abs(gap) * (1 - ROUNDING) - ROUNDING * sum(np.abs(share).sum() for share in own)
    if far <= 0:
        return 1.0
    ways = [math.comb(len(first) + len(second), len(first)) for first, second in sides]
    halves = split(ways)
    if max(ways) > EXACT or max(math.prod(ways[i] for i in half) for half in halves) > HALF:
        rng = np.random.default_rng(seed)
        drawn = sum(relabelled(share, len(first), rng) for share, (first, _) in zip(own, sides, strict=True))
        return float((1 + (np.abs(drawn) >= far).sum()) / (1 + EXACT))
    one, other = (every([relabelled(own[i], len(sides[i][0])) for i in half]) for half in halves)
    other = np.sort(other)
    above = len(other) - np.searchsorted(other, far - one, side="left")
    below = np.searchsorted(other, -far - one, side="right")
    return float((above + below).sum() / (len(one) * len(other)))


def split(ways: Sequence[int]) -> tuple[list[int], list[int]]:
    """The tasks in two halves with about equally many relabellings each, largest first; the second may be empty.

    A sum over all tasks reaches `far` with as many relabellings of one half as a sorted list of the other's tells, so
    that their product need not be listed.
    """
    halves: tuple[list[int], list[int]] = [], []
    for task in sorted(range(len(ways)), key=lambda i: -ways[i]):
        min(halves, key=lambda half: math.prod(ways[i] for i in half)).append(task)
    return halves


def shares(first: Task, second: Task) -> Float[np.ndarray, "_"]:
    """What each score adds to the difference of the means when it is labelled as the first side's."""
    pool = np.concatenate([first, second])
    return (pool - pool.mean()) * (1 / len(first) + 1 / len(second))


def relabelled(own: Float[np.ndarray, "_"], n: int, rng: np.random.Generator | None = None) -> Float[np.ndarray, "_"]:
    """The difference of the means where any `n` are the first side's, by what each score adds: under every relabelling,
    or under those that are drawn."""
    if rng is None:
        ways = np.array(list(itertools.combinations(range(len(own)), n)))
    else:
        ways = rng.random((EXACT, len(own))).argsort(axis=1)[:, :n]
    return own[ways].sum(axis=1)


def every(tasks: Sequence[Float[np.ndarray, "_"]]) -> Float[np.ndarray, "_"]:
    """The sums of one relabelling of each task, of all there are; a single 0 of no task."""
    total = np.zeros(1)
    for gaps in tasks:
        total = (total[:, None] + gaps[None, :]).ravel()
    return total
