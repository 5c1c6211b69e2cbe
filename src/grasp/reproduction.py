"""`grasp reproduce`: a suite's runs one after another, then what they show beside the paper's numbers.

A suite's directory has a run directory for every environment and entry. What is finished there is left alone, what was
stopped is resumed, and the rest is begun: a suite may be interrupted as often as one likes.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grasp import api, runs
from grasp.comparison import Comparison, in_brackets, in_figures
from grasp.config import Config, configure, did_you_mean
from grasp.envs import base as envs
from grasp.hyper import ALGORITHMS, Qmix
from grasp.launch.local import resolved
from grasp.recovery import is_finished
from grasp.suites import BUDGETS, COUNTERPARTS, SUITES, Budget, Entry, Suite
from grasp.types import GraspError


class Job(NamedTuple):
    """One run of a suite."""

    label: str
    path: Path
    config: Config


def reproduce(
    suite: str,
    *,
    budget: str = "smoke",
    out: str | Path | None = None,
    counterparts: bool = False,
    console: Console | None = None,
    **options: Any,
) -> Comparison:
    """Train what a suite names and compare it; `options` (steps, seeds, …) overrule the budget's.

    `counterparts` takes, for every environment whose simulator is not JAX, the one of ours that stands in for it.
    """
    chosen, long = find(suite, SUITES, "suite"), find(budget, BUDGETS, "budget")
    console = console or Console()
    home = Path(out) if out else Path("reproduced") / f"{suite}-{budget}{'-jax' * counterparts}"
    playable = scenarios(chosen, suite, budget, counterparts, console)
    jobs = [plan(home, env, entry, chosen, long, options) for env in playable for entry in chosen.entries]
    for job in jobs:
        check(job)
    say(console, f"{suite}: {chosen.shows}. {len(jobs)} runs of {jobs[0].config.steps:,} steps in {home}")
    failures = [failure for place, job in enumerate(jobs, 1) if (failure := carry_out(job, place, len(jobs), console))]
    if failures:
        raise GraspError(f"{'; '.join(failures)}; the same command goes on with what is left")
    result = api.compare([job.path for job in jobs], out=home / "report", labels=[job.label for job in jobs])
    console.print(beside_the_paper(chosen, playable, result))
    say(console, chosen.note)
    say(console, f"the report: {home / 'report' / 'report.html'}")
    return result


def find(name: str, known: dict[str, Any], what: str) -> Any:
    if name not in known:
        raise GraspError(f"unknown {what} '{name}'; {did_you_mean(name, known)}")
    return known[name]


def say(console: Console, words: str) -> None:
    if words:
        console.print(Text(words), soft_wrap=True)


def scenarios(suite: Suite, name: str, budget: str, counterparts: bool, console: Console) -> dict[str, str]:
    """The environments that can be played here, and which of the suite's each is. Says what is left out, and why."""
    playable, missing = {}, []
    for env in suite.envs:
        stand_in = COUNTERPARTS.get(env)
        if counterparts and stand_in:
            playable[stand_in] = env
            continue
        try:
            envs.make(env)
            playable[env] = env
        except GraspError as reason:
            missing.append(f"{env} is left out: {reason}")
    for words in missing:
        say(console, words)
    offered = [COUNTERPARTS[env] for env in suite.envs if env in COUNTERPARTS]
    command = f"grasp reproduce {name} --budget {budget} --jax"
    if missing and offered:
        say(console, f"to run our own simulation of them ({', '.join(offered)}), type: {command}")
    if not playable:
        raise GraspError(f"nothing of {name} can be played here; type: {command if offered else 'grasp doctor'}")
    return playable


def plan(home: Path, env: str, entry: Entry, suite: Suite, budget: Budget, options: dict[str, Any]) -> Job:
    """The run of an entry in an environment, as its budget has it."""
    given = dict(budget.options) | {"steps": budget.steps, "seeds": budget.seeds, "preset": suite.preset}
    given |= dict(entry.options) | options
    if isinstance(ALGORITHMS[entry.algo], Qmix):
        given.setdefault("anneal", min(Qmix.anneal, given["steps"] // 2))  # or a short run would only explore
    folder = re.sub("[^A-Za-z0-9_.=]", "-", env)
    return Job(entry.label, home / folder / entry.label, resolved(configure(entry.algo, env, given)))


def check(job: Job) -> None:
    """Refuse to go on with a run that is another one, before any is trained."""
    if not job.path.exists():
        return
    found = runs.find(job.path).config
    if found != job.config:
        raise GraspError(f"{job.path} was begun with another configuration; remove it, or choose another --out")


def carry_out(job: Job, place: int, total: int, console: Console) -> str:
    """Train what is left of a run; its complaint, if it has one."""
    words = f"[{place}/{total}] {job.label} on {job.config.env}"
    begun = job.path.exists()
    try:
        if begun and all(is_finished(runs.find(job.path), seed) for seed in job.config.seed_list):
            say(console, f"{words}: finished before")
        elif begun:
            say(console, f"{words}: goes on")
            api.resume(job.path, console=console)
        else:
            say(console, words)
            api.begin(job.config, job.path, console=console)
    except GraspError as failure:
        say(console, f"{words}: {failure}")
        return str(failure)
    return ""


def beside_the_paper(suite: Suite, playable: dict[str, str], result: Comparison) -> Table:
    """Our scores, and the paper's where it gives one."""
    table = Table(title=Text(suite.shows, style="bold"), title_justify="left")
    for column in ("environment", "algorithm", "ours (IQM)", "95 % interval", "the paper's"):
        table.add_column(column, overflow="fold")
    for row in result.rows:
        claim = suite.claims.get(playable[row.env], {}).get(row.label, "–")
        where = "" if playable[row.env] == row.env else f" ({playable[row.env]})"
        ours = in_figures(row.iqm, row.metric), in_brackets(row.interval, row.metric)
        table.add_row(*(Text(cell) for cell in (row.env, row.label, *ours, claim if claim == "–" else claim + where)))
    return table
