"""What the user sees while runs train: on a terminal a bar per seed, or for several runs a table; elsewhere a line now
and then."""

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from grasp.config import Config
from grasp.runs import Run
from grasp.runs.metrics_log import is_finished
from grasp.types import Kind, Metric

SHOWN = {
    Metric.TRAIN_RETURN: "return {:.1f}",
    Metric.CONFLICT_RATE: "conflict {:.0%}",
    Metric.TRAIN_WIN_RATE: "wins {:.0%}",
    Metric.U_NORM: "‖u*‖ {:.2g}",
}
"""The most important first: a narrow terminal cuts the rest."""
TRENDS = (Metric.TRAIN_RETURN, Metric.CONFLICT_RATE)
"""Also drawn over time on a terminal."""
PLAIN_SECONDS = 15.0
"""Between two lines about a seed where there is no terminal."""
CELLS = 12
BAR, NARROW_BAR, NARROW = 20, 7, 110
"""Widths of a bar, and the terminal width below which it is the shorter one."""
BLOCKS = "▁▂▃▄▅▆▇█"
MOST_ROWS = 20
"""Runs in the table: it must fit a screen."""


class Trend:
    """A value over the whole run as a few characters: the mean of each part of the run, from lowest to highest."""

    def __init__(self) -> None:
        self.sums, self.counts = [0.0] * CELLS, [0] * CELLS

    def add(self, fraction: float, value: float | int | None) -> None:
        """A value of the iteration that ended at this fraction of the run."""
        if value is None or not math.isfinite(value):
            return
        cell = min(max(math.ceil(CELLS * fraction - 1e-9), 1), CELLS) - 1
        self.sums[cell] += value
        self.counts[cell] += 1

    def __str__(self) -> str:
        means = [total / count if count else None for total, count in zip(self.sums, self.counts, strict=True)]
        known = [mean for mean in means if mean is not None]
        if len(known) < 2:
            return ""
        low, spread = min(known), max(known) - min(known)
        steps = len(BLOCKS) - 1
        drawn = [" " if m is None else BLOCKS[round(steps * (m - low) / spread) if spread else 0] for m in means]
        return "".join(drawn).rstrip()


class SeedProgress:
    """One seed's progress, from the messages of `grasp.launch.base.TaskReporter`."""

    def __init__(self, config: Config):
        self.total = config.total_steps
        self.steps_per_iteration = config.steps_per_iteration
        self.latest: dict[str, Any] = {}
        self.trends: dict[str, Trend] = defaultdict(Trend)
        self.compiled = False
        """Whether an iteration has ended. Until then a time is mostly that of compiling."""
        self.rate: float | None = None
        """Environment steps per second of the last iteration."""

    def update(self, message: dict[str, Any]) -> None:
        self.latest |= message
        if message["kind"] == Kind.ITERATION:
            took = (message.get("wall") or {}).get("took")
            self.rate = self.steps_per_iteration / max(took, 1e-9) if self.compiled and took is not None else None
            self.compiled = True
            for name in TRENDS:
                self.trends[name].add(self.fraction, message.get(name))

    @property
    def steps(self) -> int:
        return self.latest.get("env_steps", 0)

    @property
    def fraction(self) -> float:
        return self.steps / self.total

    @property
    def is_finished(self) -> bool:
        return is_finished(self.latest, False, self.total)

    @property
    def greedy(self) -> str:
        """The newest greedy score; empty before the first evaluation."""
        score, wins = self.latest.get(Metric.RETURN_MEAN), self.latest.get(Metric.WIN_RATE)
        if score is None:
            return ""
        return f"{score:.1f}" if wins is None else f"{wins:.0%} wins"

    def describe(self, with_trends: bool = False) -> str:
        """The newest numbers, each preceded by its trend if asked for."""
        if not self.latest:
            return "waiting"
        kind = self.latest["kind"]
        words = ["compiling"] if kind in (Kind.BEGAN, Kind.EVALUATION) and not self.compiled else []
        for name, shape in SHOWN.items():
            if self.latest.get(name) is not None:
                label, _, value = shape.format(self.latest[name]).partition(" ")
                trend = str(self.trends[name]) if with_trends and name in TRENDS else ""
                words.append(" ".join(filter(None, (label, trend, value))))
        if kind == Kind.ITERATION and self.rate:
            words.append(f"{self.rate:,.0f} steps/s")
        if self.greedy:
            words.append(f"greedy {self.greedy}")
        return "  ".join(words)


class Screen(AbstractContextManager):
    """A console with something that is redrawn at its bottom while it is a terminal, and lines printed above it."""

    def __init__(self, console: Console, live: Live | Progress):
        self.console, self.live = console, live
        self.printed: dict[Any, float] = {}

    def __enter__(self):
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def print(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def print_progress(self, about: Any, title: str, seed: SeedProgress, is_due: bool) -> None:
        """A line about a seed: if it `is_due` or, without a terminal, none was printed `about` the same for a while."""
        age = time.monotonic() - self.printed.get(about, -math.inf)
        if is_due or (not self.console.is_terminal and age > PLAIN_SECONDS):
            self.printed[about] = time.monotonic()
            self.print(f"{title}  {seed.fraction:4.0%}  {seed.describe()}")


class Description(ProgressColumn):
    """A seed's numbers, cut where the terminal ends: rich would rather cut its name, its bar and its time."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["words"], no_wrap=True, overflow="ellipsis")


class Display(Screen):
    """The progress of one run, a bar per seed. Call it with the messages about its seeds."""

    def __init__(self, config: Config, console: Console):
        bar = BarColumn(BAR if console.width >= NARROW else NARROW_BAR)
        name, percentage = TextColumn("{task.description}"), TextColumn("{task.percentage:>3.0f}%")
        self.bars = Progress(name, bar, percentage, TimeRemainingColumn(compact=True), Description(), console=console)
        super().__init__(console, self.bars)
        self.config = config
        self.seeds: dict[int, SeedProgress] = {}
        self.tasks: dict[int, Any] = {}

    def expect(self, run: Run, seeds: list[int]) -> None:
        """Show the run directory and a bar per seed at once, since compiling takes a while."""
        self.print(f"{self.config.algo} on {self.config.env} in {run.path}")
        total = self.config.total_steps
        if total != self.config.steps:
            whole = f"{self.config.iterations} whole iterations of {self.config.steps_per_iteration:,}"
            self.print(f"training {total:,} steps ({whole}) instead of {self.config.steps:,}")
        if not self.console.is_terminal:
            self.print("compiling")
        for seed in seeds:
            self.add(seed)

    def add(self, seed: int) -> None:
        self.seeds[seed] = SeedProgress(self.config)
        self.tasks[seed] = self.bars.add_task(
            f"seed {seed}", total=self.seeds[seed].total, words=self.seeds[seed].describe()
        )

    def __call__(self, message: dict[str, Any]) -> None:
        number = message["seed"]
        if message["kind"] == Kind.NOTICE:
            self.print(f"seed {number}: {message['text']}")
            return
        if number not in self.seeds:  # a finished seed trains on with the others of its program
            self.add(number)
        seed = self.seeds[number]
        seed.update(message)
        if self.console.is_terminal:
            self.bars.update(self.tasks[number], completed=seed.steps, words=seed.describe(with_trends=True))
        elif message["kind"] != Kind.BEGAN:
            self.print_progress(number, f"seed {number}", seed, is_due=seed.is_finished)


@dataclass(eq=False)
class RunProgress:
    """A run of a suite and those of its seeds that have begun."""

    title: str
    config: Config
    before: int = 0
    """Seeds that were finished before this command."""
    seeds: dict[int, SeedProgress] = field(default_factory=dict)

    @property
    def finished(self) -> int:
        return self.before + sum(seed.is_finished for seed in list(self.seeds.values()))

    def cells(self) -> tuple[str, str, str, str]:
        """Its row in the table."""
        seeds = list(self.seeds.values())
        fraction = (self.before + sum(seed.fraction for seed in seeds)) / self.config.seeds
        training = [seed for seed in seeds if not seed.is_finished]
        rates = [seed.rate for seed in training if seed.rate]
        compiles = any(not seed.compiled for seed in training)
        speed = f"{sum(rates):,.0f} steps/s" if rates else "compiling" if compiles else ""
        scores = [seed.latest[Metric.RETURN_MEAN] for seed in seeds if seed.greedy]
        wins = [seed.latest[Metric.WIN_RATE] for seed in seeds if seed.latest.get(Metric.WIN_RATE) is not None]
        greedy = f"{fmean(wins):.0%} wins" if wins else f"{fmean(scores):.1f}" if scores else ""
        return f"{self.finished}/{self.config.seeds}", f"{fraction:.0%}", speed, greedy


class RunTable(Screen):
    """The progress of several runs, a row per run. Call it with a run's path and the messages about its seeds."""

    def __init__(self, runs: Mapping[Path, RunProgress], console: Console):
        self.runs = dict(runs)
        live = Live(console=console, get_renderable=self.table, refresh_per_second=2, transient=True)
        super().__init__(console, live)

    def __call__(self, path: Path, message: dict[str, Any]) -> None:
        run, number = self.runs[path], message["seed"]
        if message["kind"] == Kind.NOTICE:
            self.print(f"{run.title}, seed {number}: {message['text']}")
            return
        seed = run.seeds.setdefault(number, SeedProgress(run.config))
        seed.update(message)
        if message["kind"] != Kind.BEGAN:
            self.print_progress(path, f"{run.title}, seed {number}", seed, is_due=seed.is_finished)

    def table(self) -> Table:
        """The runs in training; of the others, how many there are."""
        runs = list(self.runs.values())
        finished = [run for run in runs if run.finished == run.config.seeds]
        training = [run for run in runs if run.seeds and run not in finished]
        waiting = len(runs) - len(finished) - len(training)
        more = f", {len(training) - MOST_ROWS} more in training" if len(training) > MOST_ROWS else ""
        caption = f"{len(finished)} of {len(runs)} runs finished, {waiting} not started{more}"
        table = Table("run", "seeds", "steps", "speed", "greedy", caption=caption, caption_justify="left")
        for run in training[:MOST_ROWS]:
            table.add_row(*(Text(cell) for cell in (run.title, *run.cells())))
        return table
