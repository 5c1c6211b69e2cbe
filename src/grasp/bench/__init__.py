"""`grasp bench`: ratios measured side by side in one run.

Absolute times depend on the machine and its load; the ratio of two interleaved measurements much less. So every line
names what it is compared with, and the peak memory of its process. Open `measure` first, then the benchmark of
interest; `speed` compares with `plain_mappo`. Imports every room below api.
"""

import json
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table

from grasp.bench import battles, cost, devices, envs, gradients, hosts, launch, learners, qp, speed, update
from grasp.bench.measure import Line
from grasp.types import GraspError, suggest

BENCHMARKS: dict[str, Callable[[bool], Iterator[Line]]] = {
    "cost": cost.run,
    "gradients": gradients.run,
    "qp": qp.run,
    "update": update.run,
    "envs": envs.run,
    "battles": battles.run,
    "hosts": hosts.run,
    "speed": speed.run,
    "learners": learners.run,
    "launch": launch.run,
    "devices": devices.run,
}


def run(name: str | None, as_json: bool, smoke: bool) -> None:
    """Run one benchmark or all of them, printing each line as soon as it is measured."""
    if name is not None and name not in BENCHMARKS:
        raise GraspError(f"unknown benchmark '{name}'; {suggest(name, BENCHMARKS)}")
    console = Console()
    for word in [name] if name else list(BENCHMARKS):
        if as_json:
            for line in BENCHMARKS[word](smoke):
                print(json.dumps({"benchmark": word, **line._asdict()}), flush=True)
            continue
        doc = (BENCHMARKS[word].__doc__ or "").strip().splitlines()[0]
        console.print(f"[bold]{word}[/bold]  {doc}", highlight=False)
        lines: list[Line] = []
        with Live(table(lines), console=console) as shown:  # updates a terminal line by line, writes a file at once
            for line in BENCHMARKS[word](smoke):
                lines.append(line)
                shown.update(table(lines), refresh=True)


def table(lines: list[Line]) -> Table:
    """The lines of one benchmark."""
    shown = Table("case", "measured", "ratio", "against", "peak MB")
    for line in lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.3g}"
        shown.add_row(line.case, f"{line.value:,.4g} {line.unit}", ratio, line.against, f"{line.peak_mb:,.0f}")
    return shown
