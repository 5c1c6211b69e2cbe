"""One run on several machines: `--on K/N@HEAD:PORT`, typed on each of them with its own number K.

Machine 0, the head, has the run directory and is the only one that writes it. The others are sent a copy of a seed's
files, train in a temporary folder exactly as the head does, and throw it away: so they need no storage in common, and
whatever reads or writes a run knows nothing of machines. A connection between the commands says what to train and
shows who is gone; what is learned goes between their workers, through jax.
"""

import contextlib
import queue
import re
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

import jax

from grasp.config import Config
from grasp.launch import ray_probe
from grasp.launch.base import ANY_CORE, Report, Task
from grasp.launch.links import Gone, Link, ready
from grasp.launch.local import Pool, Worker, finish
from grasp.types import GraspError

MEET_SECONDS = 300.0
"""For all machines to come."""
LOOK_SECONDS = 0.2
NEWS_SECONDS = 10.0
"""For word of another machine, where a worker ended because of it."""
BYSTANDER = re.compile("gloo|coordination|distributed service", re.IGNORECASE)
"""In the last words of a worker that another one left alone."""

Say = Callable[[str], None]


class Place(NamedTuple):
    """A machine's number among those of a run, and where they meet."""

    number: int
    machines: int
    host: str
    port: int


def place_of(on: str) -> Place | None:
    """The machine that `--on` names; None where it names none."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})@([^:/@\s]+):(\d{1,5})", on)
    if found is None:
        return None
    place = Place(int(found[1]), int(found[2]), found[3], int(found[4]))
    if place.machines < 2 or place.number >= place.machines or not 0 < place.port < 65536:
        most = max(place.machines, 2)
        raise GraspError(
            f"--on {on} names no machine: of {most} machines the first is 0/{most}@HEAD:PORT and the last "
            f"{most - 1}/{most}@HEAD:PORT"
        )
    return place


def is_assistant(on: str) -> bool:
    """Whether `--on` names a machine that trains for the head."""
    place = place_of(on)
    return place is not None and place.number > 0


def check_devices(config: Config, machines: int) -> None:
    if config.devices % machines:
        nearest = max(round(config.devices / machines), 1) * machines
        raise GraspError(
            f"{config.devices} device{'s' * (config.devices > 1)} cannot be shared out to {machines} machines; give "
            f"--devices {nearest}, or another multiple of {machines}"
        )


def alike() -> dict[str, str]:
    """What must be the same on all machines, since they run one program."""
    return ray_probe.versions() | {"device": jax.default_backend()}


def work(task: Task, place: Place, address: str, links: list[Link], report: Report) -> str:
    """Train a task here while the others do; what went wrong, here or there, in words."""
    pool = Pool()
    worker = pool.start(task, ANY_CORE, "0", address, f"{place.number}/{place.machines}")
    try:
        while True:
            with contextlib.suppress(queue.Empty):
                _, message = pool.messages.get(timeout=LOOK_SECONDS)
                if message is None:
                    break
                report(task, message)
            news = heard(links, 0.0, task)
            if news:
                return news
    finally:
        worker.process.kill()
        worker.process.wait()
    if is_bystander(worker):
        words = f"{task.words} cannot reach the other machines, or not any more (its last words: {task.log})"
        return heard(links, NEWS_SECONDS, task) or words
    return "".join(failure.words for failure in finish(worker))


def heard(links: list[Link], seconds: float, task: Task) -> str:
    """The first bad news of other machines within so many seconds. Who ended well is not listened to any more."""
    end = time.monotonic() + seconds
    while links and (speaking := ready(links, max(end - time.monotonic(), 0.0))):
        for link in speaking:
            links.remove(link)
            try:
                said = link.receive()
            except Gone:
                return f"{link.name} is gone"
            if said.get("log"):
                with contextlib.suppress(OSError), task.log.open("a") as log:
                    log.write(f"\n{link.name}:\n{said['log']}")
            if said.get("end"):
                return f"{link.name}: {said['end']}"
    return ""


def is_bystander(worker: Worker) -> bool:
    """Whether a worker failed because another one did: jax then raises an error, or ends the process."""
    if worker.process.returncode not in (1, -signal.SIGABRT):
        return False
    return BYSTANDER.search(worker.task.log.read_text(errors="replace")[-4000:]) is not None
