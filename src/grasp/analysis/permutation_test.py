"""The permutation test: how often a random relabelling of the seeds gives a difference this large.

It assumes nothing about the distribution of scores, so it is valid for few seeds: three against three have only 20
relabellings, hence no p below 0.1.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from grasp.analysis.statistics import Scores, Task, strata

EXACT = 20_000
"""If a task has more relabellings than this, this many are drawn at random, in all tasks; else all are counted."""
HALF = 1_000_000
"""The most relabellings of either half of several tasks for which all combinations are counted."""
ROUNDING = 1e-12
"""Differences that agree to this relative tolerance are equal: they only differ in the order of summation."""


def permutation_p(a: Scores | Sequence[Scores], b: Scores | Sequence[Scores], seed: int = 0) -> float:
    """The fraction of relabellings of the two sides' seeds whose means differ at least as much.

    With several tasks, seeds are relabelled within each, and the statistic is the mean of the differences. Exact where
    all relabellings can be counted (8 seeds per side on two tasks, 5 on four); else estimated from `EXACT` random ones,
    to about 0.1 % at p = 2 %. NaN if a score is NaN.
    """
    sides = list(zip(strata(a), strata(b), strict=True))
    if any(np.isnan(scores).any() for side in sides for scores in side):
        return float("nan")
    own = [contributions(first, second) for first, second in sides]
    gap = sum(terms[: len(first)].sum() for terms, (first, _) in zip(own, sides, strict=True))
    far = abs(gap) * (1 - ROUNDING) - ROUNDING * sum(np.abs(terms).sum() for terms in own)
    if far <= 0:
        return 1.0
    ways = [math.comb(len(first) + len(second), len(first)) for first, second in sides]
    halves = split(ways)
    if max(ways) > EXACT or max(math.prod(ways[i] for i in half) for half in halves) > HALF:
        rng = np.random.default_rng(seed)
        drawn = sum(relabelled(terms, len(first), rng) for terms, (first, _) in zip(own, sides, strict=True))
        return float((1 + (np.abs(drawn) >= far).sum()) / (1 + EXACT))
    one, other = (every([relabelled(own[i], len(sides[i][0])) for i in half]) for half in halves)
    other = np.sort(other)
    above = len(other) - np.searchsorted(other, far - one, side="left")
    below = np.searchsorted(other, -far - one, side="right")
    return float((above + below).sum() / (len(one) * len(other)))


def split(ways: Sequence[int]) -> tuple[list[int], list[int]]:
    """The tasks in two halves with about equally many relabellings each, largest first; the second may be empty.

    For each relabelling of one half, a binary search in the sorted sums of the other half counts the combinations that
    reach `far`, so that the combinations need not be enumerated.
    """
    halves: tuple[list[int], list[int]] = [], []
    for task in sorted(range(len(ways)), key=lambda i: -ways[i]):
        min(halves, key=lambda half: math.prod(ways[i] for i in half)).append(task)
    return halves


def contributions(first: Task, second: Task) -> Float[np.ndarray, "_"]:
    """What each score adds to the difference of the means if it belongs to the first side."""
    pool = np.concatenate([first, second])
    return (pool - pool.mean()) * (1 / len(first) + 1 / len(second))


def relabelled(own: Float[np.ndarray, "_"], n: int, rng: np.random.Generator | None = None) -> Float[np.ndarray, "_"]:
    """The differences of the means if `n` of the scores belong to the first side, from each score's contribution: for
    every choice of them, or for random ones."""
    if rng is None:
        ways = np.array(list(itertools.combinations(range(len(own)), n)))
    else:
        ways = rng.random((EXACT, len(own))).argsort(axis=1)[:, :n]
    return own[ways].sum(axis=1)


def every(tasks: Sequence[Float[np.ndarray, "_"]]) -> Float[np.ndarray, "_"]:
    """The sums over tasks for every combination of their relabellings; a single 0 for no task."""
    total = np.zeros(1)
    for gaps in tasks:
        total = (total[:, None] + gaps[None, :]).ravel()
    return total
