"""What a person sees while a run goes on: a bar a seed on a terminal, a line now and then elsewhere."""

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from grasp.config import Config
from grasp.runs import Run
from grasp.types import Kind, Metric

SHOWN = {
    Metric.TRAIN_RETURN: "return {:.1f}",
    Metric.CONFLICT_RATE: "conflict {:.0%}",
    Metric.TRAIN_WIN_RATE: "wins {:.0%}",
    Metric.U_NORM: "‖u*‖ {:.2g}",
}
"""What matters most stands first: a narrow terminal cuts the rest."""
TRENDS = (Metric.TRAIN_RETURN, Metric.CONFLICT_RATE)
"""What is also drawn over time on a terminal."""
NOTHING: Mapping[str, str] = MappingProxyType({})
PLAIN_SECONDS = 15.0
CELLS = 12
BAR, NARROW_BAR, NARROW = 20, 7, 110
"""Widths of a bar, and the terminal's below which it is the shorter one."""
BLOCKS = "▁▂▃▄▅▆▇█"


class Trend:
    """A value over the whole run in a few characters: of each part of it the mean, lowest to highest."""

    def __init__(self) -> None:
        self.sums, self.counts = [0.0] * CELLS, [0] * CELLS

    def add(self, share: float, value: float | int | None) -> None:
        """A value of what ended at this share of the run."""
        if value is None or not math.isfinite(value):
            return
        cell = min(max(math.ceil(CELLS * share - 1e-9), 1), CELLS) - 1
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


class Words(ProgressColumn):
    """What a seed has to say, cut where the terminal ends: rich would rather cut its name, its bar and its time."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["words"], no_wrap=True, overflow="ellipsis")


class Display(AbstractContextManager):
    """The progress of several seeds. Call it with the messages of `grasp.train`."""

    def __init__(self, config: Config, console: Console):
        self.config, self.console = config, console
        self.total = config.total_steps
        bar = BarColumn(BAR if console.width >= NARROW else NARROW_BAR)
        columns = ("{task.description}", bar, "{task.percentage:>3.0f}%", TimeRemainingColumn(compact=True))
        self.bars = Progress(*map(_column, columns), Words(), console=console)
        self.tasks: dict[int, Any] = {}
        self.latest: dict[int, dict[str, Any]] = {}
        self.spoken: dict[int, float] = {}
        self.trends: dict[tuple[int, str], Trend] = defaultdict(Trend)
        self.compiled: set[int] = set()
        """Seeds whose program has gone through an iteration."""

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bars.stop()

    def expect(self, run: Run, seeds: list[int]) -> None:
        """Show where the run is and its seeds at once: compiling takes a while, and silence would be ambiguous."""
        self.say(f"{self.config.algo} on {self.config.env} in {run.path}")
        if self.total != self.config.steps:
            whole = f"{self.config.iterations} whole iterations of {self.config.steps_per_iteration:,}"
            self.say(f"{self.config.steps:,} steps are {whole}: training {self.total:,} steps")
        if not self.console.is_terminal:
            self.say("compiling")
        for seed in seeds:
            self.add(seed)

    def add(self, seed: int) -> None:
        self.tasks[seed] = self.bars.add_task(f"seed {seed}", total=self.total, words="waiting")
        self.latest[seed] = {}

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def __call__(self, message: dict[str, Any]) -> None:
        seed = message["seed"]
        if message["kind"] == Kind.NOTICE:
            self.say(f"seed {seed}: {message['text']}")
            return
        if seed not in self.tasks:  # a finished seed goes on with the others of its program
            self.add(seed)
        if message["kind"] == Kind.BEGAN:
            self.bars.update(self.tasks[seed], words="compiling")
            return
        self.latest[seed] |= message
        words = describe(self.latest[seed], self.config.steps_per_iteration, compiled=seed in self.compiled)
        if self.console.is_terminal:
            self.draw(seed, message)
        if message["kind"] == Kind.ITERATION:
            self.compiled.add(seed)
        ended = message["kind"] == Kind.ABSOLUTE
        if not self.console.is_terminal and (ended or time.monotonic() - self.spoken.get(seed, 0) > PLAIN_SECONDS):
            self.spoken[seed] = time.monotonic()
            self.say(f"seed {seed}  {message['env_steps'] / self.total:4.0%}  {words}")

    def draw(self, seed: int, message: dict[str, Any]) -> None:
        """Move a seed's bar on, and its trends."""
        if message["kind"] == Kind.ITERATION:
            for name in TRENDS:
                self.trends[seed, name].add(message["env_steps"] / self.total, message.get(name))
        trends = {name: str(self.trends[seed, name]) for name in TRENDS}
        words = describe(self.latest[seed], self.config.steps_per_iteration, trends, seed in self.compiled)
        self.bars.update(self.tasks[seed], completed=message["env_steps"], words=words)


def _column(column: Any) -> Any:
    return TextColumn(column) if isinstance(column, str) else column


def describe(
    latest: dict[str, Any], steps_per_iteration: int, trends: Mapping[str, str] = NOTHING, compiled: bool = True
) -> str:
    """The newest numbers in a few words, behind how they came about where that is known.

    Until a program is `compiled`, an evaluation is followed by a compile, and an iteration's time is mostly that.
    """
    words = []
    if latest["kind"] == Kind.EVALUATION and not compiled:
        words.append("compiling")
    for name, shape in SHOWN.items():
        if latest.get(name) is not None:
            label, _, value = shape.format(latest[name]).partition(" ")
            words.append(" ".join(filter(None, (label, trends.get(name), value))))
    took = (latest.get("wall") or {}).get("took")
    if latest["kind"] == Kind.ITERATION and compiled and took is not None:
        words.append(f"{steps_per_iteration / max(took, 1e-9):,.0f} steps/s")
    score, wins = latest.get(Metric.RETURN_MEAN), latest.get(Metric.WIN_RATE)
    if score is not None:
        words.append(f"greedy {score:.1f}" if wins is None else f"greedy {wins:.0%} wins")
    return "  ".join(words)
