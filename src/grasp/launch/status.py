"""What a person sees while many runs go on: on a terminal a table of them, elsewhere a line now and then."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from grasp.config import Config
from grasp.launch.progress import PLAIN_SECONDS, describe
from grasp.runs.metrics_log import is_final
from grasp.types import Kind, Metric

MOST_ROWS = 20
"""Runs in the table: it must fit a screen."""


@dataclass(eq=False)
class Row:
    """A run and the newest line of each of its seeds that has begun."""

    title: str
    config: Config
    before: int = 0
    """Seeds that were finished before."""
    latest: dict[int, dict[str, Any]] = field(default_factory=dict)
    spoken: float = 0.0

    @property
    def total(self) -> int:
        return self.config.total_steps

    @property
    def done(self) -> int:
        """Seeds with their last word."""
        return self.before + sum(is_final(line, self.total) for line in list(self.latest.values()))

    def cells(self) -> tuple[str, str, str, str]:
        seeds = list(self.latest.values())
        steps = self.before * self.total + sum(line["env_steps"] for line in seeds)
        share = steps / (self.total * self.config.seeds)
        rates = [self.config.steps_per_iteration / max(line["took"], 1e-9) for line in seeds if line["took"]]
        scores = [line[Metric.RETURN_MEAN] for line in seeds if line.get(Metric.RETURN_MEAN) is not None]
        wins = [line[Metric.WIN_RATE] for line in seeds if line.get(Metric.WIN_RATE) is not None]
        compiles = any(line["kind"] == Kind.BEGAN for line in seeds)
        speed = f"{sum(rates):,.0f} steps/s" if rates else "compiling" if compiles else ""
        greedy = f"{fmean(wins):.0%} wins" if wins else f"{fmean(scores):.1f}" if scores else ""
        return f"{self.done}/{self.config.seeds}", f"{share:.0%}", speed, greedy


class Status(AbstractContextManager):
    """The progress of several runs. Call it with a run's path and the messages of `grasp.train`."""

    def __init__(self, rows: Mapping[Path, Row], console: Console):
        self.rows, self.console = dict(rows), console
        self.live = Live(console=console, get_renderable=self.table, refresh_per_second=2, transient=True)

    def __enter__(self) -> "Status":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def say(self, words: str) -> None:
        self.console.print(Text(words), soft_wrap=True)

    def __call__(self, run: Path, message: dict[str, Any]) -> None:
        row, seed = self.rows[run], message["seed"]
        if message["kind"] == Kind.NOTICE:
            self.say(f"{row.title}, seed {seed}: {message['text']}")
            return
        if message["kind"] == Kind.BEGAN:
            row.latest[seed] = {"kind": Kind.BEGAN, "env_steps": 0, "took": None}
            return
        latest = row.latest.setdefault(seed, {"took": None})
        latest |= message
        if message["kind"] == Kind.ITERATION:
            latest["took"] = (message.get("wall") or {}).get("took")
        ended = is_final(message, row.total)
        if ended:
            latest["took"] = None
        if ended or (not self.console.is_terminal and time.monotonic() - row.spoken > PLAIN_SECONDS):
            row.spoken = time.monotonic()
            words = describe(latest, row.config.steps_per_iteration)
            self.say(f"{row.title}, seed {seed}  {message['env_steps'] / row.total:4.0%}  {words}")

    def table(self) -> Table:
        """The runs of which some seed trains; of the others, how many there are."""
        rows = list(self.rows.values())
        finished = [row for row in rows if row.done == row.config.seeds]
        shown = [row for row in rows if row.latest and row not in finished]
        waiting = len(rows) - len(finished) - len(shown)
        more = f", {len(shown) - MOST_ROWS} more train" if len(shown) > MOST_ROWS else ""
        caption = f"{len(finished)} of {len(rows)} runs finished, {waiting} not begun{more}"
        table = Table("run", "seeds", "steps", "speed", "greedy", caption=caption, caption_justify="left")
        for row in shown[:MOST_ROWS]:
            table.add_row(*(Text(cell) for cell in (row.title, *row.cells())))
        return table
