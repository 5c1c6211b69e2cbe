"""Verdicts: which algorithm is better, by how much, and how certain that is, in one sentence.

"is better" needs both: the interval of the difference of IQMs excludes zero, and the permutation test, which cannot
reach significance with three seeds per side, has p of at most 0.05. With only the first, one "scored higher, but n
seeds cannot settle it": so do a fifth of pairs of equal algorithms with three seeds. Else there is "no clear
difference", which does not mean that the algorithms are equal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grasp.analysis.comparison import OVERALL, Comparison, Improvement, Row, pair
from grasp.analysis.run_data import (
    ABSOLUTE,
    LAST,
    SAMPLED_LAST,
    SAMPLED_WHOLE,
    WHOLE,
    in_brackets,
    in_figures,
    in_p,
    short,
)
from grasp.analysis.statistics import Estimate

Sure = Literal["clear", "likely", "open"]
SAMPLED_COUNTERPART = {ABSOLUTE: SAMPLED_LAST, LAST: SAMPLED_LAST, WHOLE: SAMPLED_WHOLE}
"""The score with sampled actions that stands beside one of greedy actions."""
SIGNIFICANCE = 0.05
FEW = 3
"""Up to this many algorithms are named in a sentence; more are counted."""


@dataclass(frozen=True)
class Verdict:
    """A headline, and a sentence with the numbers behind it."""

    env: str
    title: str
    detail: str
    sure: Sure


def sure(found: Improvement) -> Sure:
    """How certain it is that the two differ, in the direction of their IQMs."""
    gap, interval = found.difference
    # Without an interval, because all seeds of each side agree, the permutation test decides alone.
    apart = interval is None or not interval[0] <= 0 <= interval[1]
    same_way = (found.probability - 0.5) * gap > 0
    if found.fewest < 2 or not apart or not same_way:
        return "open"
    return "clear" if found.p <= SIGNIFICANCE else "likely"


def seen_from(found: Improvement, first: str) -> Improvement:
    """The same pair with `first` as its first side."""
    if found.first == first:
        return found
    paired, gap = found.paired, found.difference
    return replace(
        found,
        first=found.second,
        second=found.first,
        probability=1 - found.probability,
        interval=_mirrored(found.interval, 1.0),
        difference=Estimate(-gap.value, _mirrored(gap.interval, 0.0)),
        paired=paired and paired._replace(mean=-paired.mean, interval=_mirrored(paired.interval, 0.0)),
    )


def _mirrored(interval: tuple[float, float] | None, total: float) -> tuple[float, float] | None:
    return None if interval is None else (total - interval[1], total - interval[0])


def verdicts(comparison: Comparison) -> list[Verdict]:
    """One verdict over all environments, if there are several, then one per environment."""
    found = []
    if len(comparison.aggregates) > 1:
        scores = {a.label: a.iqm.value for a in comparison.aggregates}
        made = _verdict(OVERALL, scores, comparison.improvements, "win rate", "normalised score", {})
        found.append(_forced(made) if comparison.mixed else made)
    for env in dict.fromkeys(row.env for row in comparison.rows):
        rows = [row for row in comparison.rows if row.env == env]
        scores, metric = {row.label: row.iqm for row in rows}, rows[0].metric
        what = f"{metric} over the whole run" if rows[0].final in (WHOLE, SAMPLED_WHOLE) else metric
        what = f"{what}, sampled actions" if rows[0].final in SAMPLED_COUNTERPART.values() else what
        steps = {row.label: row.env_steps[1] for row in rows}
        made = _checked_at_the_end(_verdict(env, scores, comparison.improvements, metric, what, steps), rows)
        made = _checked_with_sampled_actions(made, rows)
        found.append(_forced(made) if env in comparison.mixed else made)
    return found


def _known(x: float) -> float:
    return -math.inf if math.isnan(x) else x


def _forced(made: Verdict) -> Verdict:
    """The verdict on runs that were compared with `force`."""
    why = "Versions of the environment or evaluation protocols differ, and the comparison was forced."
    title = f"The runs differ in more than the algorithm: {made.title}"
    return replace(made, title=title, detail=f"{why} {made.detail}", sure="open")


def _verdict(
    env: str,
    scores: dict[str, float],
    pairs: Sequence[Improvement],
    metric: str,
    what: str,
    steps: dict[str, int],
) -> Verdict:
    """The title compares the best algorithm with all others, the detail with the next best. Algorithms that trained for
    fewer `steps` than the best are marked with both numbers."""
    best, *others = sorted(scores, key=lambda label: _known(scores[label]), reverse=True)
    if not others:
        return Verdict(env, f"{best} on {env}", "There is no other algorithm to compare with.", "open")
    seen = {other: seen_from(_find(pairs, env, best, other), best) for other in others}
    rank: dict[str, Sure] = {other: sure(found) for other, found in seen.items()}
    title, degree = _title(env, best, rank, seen[others[0]].fewest)
    detail = _numbers(seen[others[0]], metric, what)
    if len(others) > 1 and degree == "open":
        known = [x for x in scores.values() if not math.isnan(x)] or [math.nan]
        extent = f"from {in_figures(min(known), metric)} to {in_figures(max(known), metric)}"
        detail = f"The IQMs ({what}) of {len(scores)} algorithms range {extent}; at least {_seeds(seen)} each."
    behind = [other for other in others if rank[other] == "clear"]
    if len(others) > 1 and behind:
        names = ", ".join(f"{other}{_shorter(steps, other, best)}" for other in behind)
        detail += f" Clearly behind {best} in pairwise comparisons: {names}."
        detail += f" Not corrected for {len(others)} comparisons." if len(others) > FEW else ""
    return Verdict(env, title, detail, degree)


def _shorter(steps: dict[str, int], other: str, best: str) -> str:
    """The steps of an algorithm that trained for fewer than `best`, by more than part of an iteration; else nothing."""
    if steps.get(other, 0) >= 0.95 * steps.get(best, 0):
        return ""
    return f" ({short(steps[other])} steps against {short(steps[best])})"


def _seeds(seen: dict[str, Improvement]) -> str:
    fewest = min(found.fewest for found in seen.values())
    return f"{fewest} seed{'s' * (fewest > 1)}"


def _title(env: str, best: str, rank: dict[str, Sure], fewest: int) -> tuple[str, Sure]:
    others = list(rank)
    unsettled = [other for other in others if rank[other] != "clear"]
    where = f"over {env}" if env == OVERALL else f"on {env}"
    if len(others) > 1:
        names = ", ".join(unsettled) if len(unsettled) <= FEW else f"{len(unsettled)} others"
        if not unsettled:
            return f"{best} is best {where}", "clear"
        if len(unsettled) == len(others) and "likely" not in rank.values():
            return f"No clear winner {where}", "open"
        return f"{best} leads {where}, but is not clearly ahead of {names}", "likely"
    other, degree = others[0], rank[others[0]]
    if degree == "clear":
        return f"{best} is better than {other} {where}", degree
    if degree == "likely":
        return f"{best} scored higher than {other} {where}, but {fewest} seeds cannot settle it", degree
    if fewest < 2:
        return f"One seed is too few to compare {best} and {other} {where}", degree
    return f"No clear difference between {best} and {other} {where}", degree


def _find(pairs: Sequence[Improvement], env: str, a: str, b: str) -> Improvement:
    return next(p for p in pairs if p.env == env and {p.first, p.second} == {a, b})


def _numbers(found: Improvement, metric: str, what: str) -> str:
    gap, interval = found.difference
    if math.isnan(gap):
        return f"A score of {found.first} or {found.second} is NaN."
    text = f"The IQMs of {found.first} and {found.second} ({what}) are equal"
    if gap:
        text = f"The IQM of {found.first} ({what}) is {in_figures(gap, metric)} above that of {found.second}"
    text += f", 95 % interval of the difference {in_brackets(interval, metric)}" if interval else ""
    text += f"; a seed of {found.first} scores higher with probability {found.probability:.2f}"
    text += f" {in_brackets(found.interval, 'win rate')}" if found.interval else ""
    text += f"; permutation p {in_p(found.p)}"
    return f"{text}; {found.fewest} seed{'s' * (found.fewest > 1)} per side."


def _checked_at_the_end(made: Verdict, rows: list[Row]) -> Verdict:
    """The verdict, unless it is by the absolute metric and the last evaluations clearly contradict it: the best
    policy may be a lucky early one."""
    if rows[0].final != ABSOLUTE:
        return made
    # Ties in one score are broken by the other.
    best = max(rows, key=lambda row: (_known(row.iqm), _known(row.by[LAST].iqm)))
    then = max(rows, key=lambda row: (_known(row.by[LAST].iqm), _known(row.iqm)))
    if sure(pair(best.env, then.label, best.label, then.by[LAST], best.by[LAST])) != "clear":
        return made
    ends = [f"{row.label} has {in_figures(row.by[LAST].iqm, row.metric)}" for row in (then, best)]
    first = "no clear winner by the best policy" if made.sure == "open" else f"{best.label} has the best policy"
    title = f"Two scores disagree on {best.env}: {first}, but {then.label} ends higher than {best.label}"
    return Verdict(made.env, title, f"{made.detail} In the last tenth of evaluations {' and '.join(ends)}.", "open")


def _checked_with_sampled_actions(made: Verdict, rows: list[Row]) -> Verdict:
    """The verdict with what the two best algorithms score with sampled actions: in a task that hardly varies, greedy
    actions repeat one episode, and a difference in that episode need not be one of the policies."""
    final = SAMPLED_COUNTERPART.get(rows[0].final)
    if final is None or len(rows) < 2 or any(final not in row.by for row in rows):
        return made
    best, second = sorted(rows, key=lambda row: _known(row.iqm), reverse=True)[:2]
    found = pair(best.env, best.label, second.label, best.by[final], second.by[final])
    gap, interval = found.difference
    if math.isnan(gap) or math.isnan(best.iqm) or math.isnan(second.iqm):
        return made
    sign = "+" if gap >= 0 else "−"
    number = f"{sign}{in_figures(abs(gap), best.metric)}"
    number += f" {in_brackets(interval, best.metric)}" if interval else ""
    detail = f"{made.detail} With sampled actions ({final.removeprefix('sampled, ')}): {number}."
    degree = sure(found)
    if made.sure == "open":
        if degree != "clear":
            return replace(made, detail=detail)
        ahead = best.label if gap > 0 else second.label
        return replace(made, title=f"{made.title}; with sampled actions {ahead} is better", detail=detail)
    if degree == "open" or gap <= 0:
        title = f"{made.title}; with sampled actions it is not"
        return replace(made, title=title, detail=detail, sure="likely" if made.sure == "clear" else "open")
    return replace(made, detail=detail)
