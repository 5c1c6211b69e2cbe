"""`grasp reproduce`: train a suite's runs, as many at once as there are cores, and compare them with the paper.

A suite's directory has a run directory per environment and entry. Finished runs are kept, stopped ones are resumed, and
missing ones are created, so a suite may be interrupted at any time.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grasp import api, runs
from grasp.analysis.comparison import Comparison
from grasp.analysis.run_data import LAST, in_brackets, in_figures
from grasp.analysis.tables import mean_and_deviation
from grasp.config import Config, configure
from grasp.config.hyperparameters import ALGORITHMS, Qmix
from grasp.envs import base as envs
from grasp.launch.base import Plan, address_of, launcher_on, tasks_of
from grasp.launch.local import resolved
from grasp.launch.progress import RunProgress, RunTable
from grasp.reproduction.suites import BUDGETS, COUNTERPARTS, SUITES, Budget, Entry, Suite
from grasp.training.runner import make
from grasp.types import Env, GraspError, Host, suggest


class SuiteRun(NamedTuple):
    """One run of a suite."""

    label: str
    path: Path
    config: Config


class Scenarios(NamedTuple):
    """The environments of a suite on this machine."""

    playable: dict[str, str]
    """The environments to run, each with the suite's environment (itself, or the one it replaces)."""
    made: dict[str, Env | Host]
    missing: list[str]
    """A message per environment that is left out."""


def reproduce(
    suite: str,
    *,
    budget: str = "smoke",
    out: str | Path | None = None,
    counterparts: bool = False,
    on: str = "local",
    console: Console | None = None,
    **options: Any,
) -> Comparison:
    """Train a suite's runs and compare them; `options` (steps, seeds, …) replace those of the budget.

    `on` is "local", "ray" or "ray://HOST:PORT". `counterparts` replaces every environment whose simulator is not JAX by
    our JAX simulation of it, if there is one.
    """
    chosen, long = find(suite, SUITES, "suite"), find(budget, BUDGETS, "budget")
    address_of(on)
    console = console or Console()
    home = Path(out) if out else Path("reproduced") / f"{suite}-{budget}{'-jax' * counterparts}"
    playable, made, missing = scenarios(chosen, suite, budget, counterparts, console)
    items = [plan(home, env, entry, chosen, long, options) for env in playable for entry in chosen.entries]
    for item in items:
        check(item)
    lengths = sorted({item.config.steps for item in items})
    length = " to ".join(f"{steps:,}" for steps in dict.fromkeys((lengths[0], lengths[-1])))
    show(console, f"{suite}: {chosen.shows}. {len(items)} runs of {length} steps in {home}")
    failures = train(items, made, on, console)
    if failures:
        raise GraspError(f"{'; '.join(failures)}; type the same command to continue with the unfinished runs")
    result = api.compare(
        [item.path for item in items],
        out=home / "report",
        labels=[item.label for item in items],
        claims=paper_scores(chosen, playable),
        notes=[*missing, *filter(None, [chosen.note])],
    )
    console.print(beside_the_paper(chosen, result))
    for warning in result.warnings:
        show(console, warning)
    show(console, f"the report: {home / 'report' / 'report.html'}")
    return result


def find(name: str, known: dict[str, Any], what: str) -> Any:
    if name not in known:
        raise GraspError(f"unknown {what} '{name}'; {suggest(name, known)}")
    return known[name]


def show(console: Console, message: str) -> None:
    console.print(Text(message), soft_wrap=True)


def scenarios(suite: Suite, name: str, budget: str, counterparts: bool, console: Console) -> Scenarios:
    """The suite's environments, made; those that cannot run here are left out, and named."""
    playable, made, missing = {}, {}, []
    for env in suite.envs:
        chosen = COUNTERPARTS.get(env, env) if counterparts else env
        try:
            made[chosen] = envs.make(chosen)
            playable[chosen] = env
        except GraspError as reason:
            missing.append(f"{env} is left out: {reason}")
    for message in missing:
        show(console, message)
    offered = [COUNTERPARTS[env] for env in suite.envs if env in COUNTERPARTS]
    command = f"grasp reproduce {name} --budget {budget} --jax"
    if missing and offered:
        show(console, f"to run our JAX simulations instead ({', '.join(offered)}), type: {command}")
    if not playable:
        hint = f"type: {command}" if offered else "and none has a JAX counterpart; type: grasp doctor"
        raise GraspError(f"no environment of {name} can run here{';' if offered else ','} {hint}")
    return Scenarios(playable, made, missing)


def paper_scores(suite: Suite, playable: dict[str, str]) -> dict[tuple[str, str], str]:
    """The paper's scores, by environment and label; with the paper's environment where ours replaces it."""
    return {
        (env, label): score if env == original else f"{score} ({original})"
        for env, original in playable.items()
        for label, score in suite.paper_scores.get(original, {}).items()
    }


def plan(home: Path, env: str, entry: Entry, suite: Suite, budget: Budget, options: dict[str, Any]) -> SuiteRun:
    """The run of an entry in an environment, at the budget's length."""
    given = dict(budget.options) | {"steps": budget.steps, "seeds": budget.seeds, "preset": suite.preset}
    given |= dict(entry.options) | (dict(entry.size) if budget.sized else {}) | options
    if entry.decays:
        given.setdefault("decay", given["steps"])
    if isinstance(ALGORITHMS[entry.algo], Qmix):
        given.setdefault("anneal", min(Qmix.anneal, given["steps"] // 2))  # a short run must not only explore
    folder = re.sub("[^A-Za-z0-9_.=]", "-", env)
    return SuiteRun(
        entry.label, home / folder / entry.label, resolved(configure(entry.algo, env, given), envs.simulated(env))
    )


def check(item: SuiteRun) -> None:
    """Refuse a directory with a run of another configuration, before anything is trained. The options count, not the
    preset that they came from."""
    if not is_begun(item):
        return
    found = runs.find(item.path).config
    if replace(found, preset=item.config.preset) != item.config:
        raise GraspError(f"{item.path} has a run with another configuration; remove it, or choose another --out")


def is_begun(item: SuiteRun) -> bool:
    """Whether there is a run; a directory whose creation was interrupted is none."""
    return item.path.exists() and not runs.is_unbegun(item.path)


def train(items: list[SuiteRun], made: dict[str, Env | Host], on: str, console: Console) -> list[str]:
    """Train the unfinished runs; return the error messages of those that failed."""
    begun = {item: runs.find(item.path) for item in items if is_begun(item)}
    built = {item: make(item.config, made[item.config.env]) for item in items}
    left = {item: tasks_of(begun[item], built[item]) if item in begun else [] for item in items}
    titles = {item: f"[{index}/{len(items)}] {item.label} on {item.config.env}" for index, item in enumerate(items, 1)}
    waiting = [item for item in items if left[item] or item not in begun]
    if not waiting:
        for item in items:
            show(console, f"{titles[item]}: already finished")
        return []
    with launcher_on(on) as launcher:
        plans = [Plan(item.path, item.config, item.config.seeds, built[item]) for item in waiting]
        for message in dict.fromkeys(launcher.check(plans)):
            show(console, message)
        for item in items:
            is_new = item not in begun
            if is_new:
                begun[item] = runs.create(item.path, item.config, built[item].env.spec)
                left[item] = tasks_of(begun[item], built[item])
            is_touched = any(begun[item].metrics_log(seed).exists() for seed in item.config.seed_list)
            state = "" if is_new or not is_touched else ": resumed" if left[item] else ": already finished"
            show(console, f"{titles[item]}{state}")
        tasks = [task for item in waiting for task in left[item]]
        ended = {item: item.config.seeds - sum(len(task.seeds) for task in left[item]) for item in waiting}
        rows = {item.path: RunProgress(titles[item], item.config, ended[item]) for item in waiting}
        with RunTable(rows, console) as table:
            failures = launcher.train(tasks, lambda task, line: table(task.run.path, line))
    titled = {item.path: titles[item] for item in items}
    for failure in failures:
        show(console, f"{titled[failure.task.run.path]}: {failure.message}")
    return [failure.message for failure in failures]


def beside_the_paper(suite: Suite, result: Comparison) -> Table:
    """Our scores in the last tenth of evaluations beside the paper's: as mean ± deviation, like the paper's (which does
    not define its score), and as IQM."""
    title = f"{suite.shows}: the last tenth of evaluations"
    table = Table(title=Text(title, style="bold"), title_justify="left")
    for column in ("environment", "algorithm", "the paper's mean", "our mean", "our IQM", "95 % interval"):
        table.add_column(column, overflow="fold")
    for row in result.rows:
        of = row.by[LAST]
        iqm = in_figures(of.iqm, row.metric), in_brackets(of.interval, row.metric)
        table.add_row(
            *(Text(cell) for cell in (row.env, row.label, row.claim or "–", mean_and_deviation(row, of), *iqm))
        )
    return table
