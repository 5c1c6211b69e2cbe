"""One run on several machines: `--on K/N@HEAD:PORT`, typed on each of them with its own number K.

Machine 0, the head, has the run directory and is the only one that writes it. The others are sent a copy of a seed's
files, train in a temporary folder exactly as the head does, and throw it away: so they need no storage in common, and
whatever reads or writes a run knows nothing of machines. A connection between the commands says what to train and
shows who is gone; what is learned goes between their workers, through jax.
"""

import contextlib
import platform
import queue
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import jax

from grasp import algos
from grasp import config as configs
from grasp.config import Config
from grasp.envs import base as envs
from grasp.launch import probe
from grasp.launch.links import Gone, Link, check_name, free_port, packed, unpacked
from grasp.launch.local import Pool, Worker, finish
from grasp.launch.tasks import ANY_CORE, Failure, Plan, Report, Task
from grasp.types import GraspError

MEET_SECONDS = 300.0
"""For all machines to come."""
HELLO_SECONDS = 10.0
"""For one who came to say who it is."""
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
    return probe.versions() | {"device": jax.default_backend()}


@contextlib.contextmanager
def leading(place: Place, say: Say) -> Iterator["Head"]:
    """The head of the machines. At the end it tells the others how it ended."""
    head = Head(place, say)
    words = "it was stopped"
    try:
        yield head
        words = ""
    except GraspError as mistake:
        words = str(mistake)
        raise
    finally:
        for link in head.links.values():
            with contextlib.suppress(Gone):
                link.send({"end": words})
            link.close()


class Head:
    """Machine 0, and those that have come to it."""

    def __init__(self, place: Place, say: Say):
        self.place, self.say = place, say
        self.links: dict[int, Link] = {}

    def check(self, plans: Sequence[Plan]) -> list[str]:
        """Wait until all machines have come and each has found that it can train this."""
        (plan,) = plans
        check_devices(plan.config, self.place.machines)
        end = time.monotonic() + MEET_SECONDS
        try:
            server = socket.create_server(("", self.place.port))
        except OSError as error:
            why = error.strerror or error
            raise GraspError(f"cannot wait for machines at port {self.place.port} ({why}); choose another") from None
        with server:
            self.say(f"waiting at {self.place.host}:{self.place.port} for {self.place.machines - 1} more")
            while self.missing():
                server.settimeout(max(end - time.monotonic(), 0.01))
                try:
                    ends, _ = server.accept()
                except TimeoutError:
                    raise GraspError(self.absence()) from None
                self.greet(ends, plan.config)
        return [f"{link.name} has come" for _, link in sorted(self.links.items())]

    def missing(self) -> list[int]:
        return [number for number in range(1, self.place.machines) if number not in self.links]

    def absence(self) -> str:
        _, machines, host, port = self.place
        numbers = self.missing()
        typed = " and ".join(f"--on {number}/{machines}@{host}:{port}" for number in numbers[:3])
        who = ", ".join(map(str, numbers))
        return (
            f"machine{'s' * (len(numbers) > 1)} {who} of {machines} did not come to {host}:{port} in "
            f"{MEET_SECONDS:.0f} s; type the same command there with {typed}"
        )

    def greet(self, ends: socket.socket, config: Config) -> None:
        """Take in who has come, unless it would train something else, or is nobody of ours."""
        link = Link(ends)
        try:
            hello = link.receive(HELLO_SECONDS)
            number, machines = int(hello["number"]), int(hello["machines"])
            link.name = f"machine {number} of {machines} ({hello['host']})"
            problem = self.objection(link, hello, config)
            link.send({"end": problem} if problem else {"config": configs.to_json(config)})
            problem = problem or link.receive(MEET_SECONDS)["problem"]
        except (Gone, KeyError, ValueError, TypeError):
            link.close()
            return
        if problem:
            link.close()
            raise GraspError(problem)
        if number in self.links:
            self.links[number].close()
        self.links[number] = link

    def objection(self, link: Link, hello: dict[str, Any], config: Config) -> str:
        """Why a machine cannot take part, in words; nothing where it can."""
        machines = self.place.machines
        if hello["machines"] != machines:
            return f"{link.name} is not one of {machines}; type the same number of machines on all of them"
        before = self.links.get(hello["number"])
        if before and not wait([before], 0):  # one that ended has been followed by another
            return f"{link.name} is there already, as {before.name}; give each machine a number of its own"
        for name, value in alike().items():
            if hello["alike"].get(name) != value:
                return f"{link.name} has {name} {hello['alike'].get(name)}, and the head {value}; make them the same"
        if hello["config"] is not None:
            here, there = flat(config), flat(configs.from_json(hello["config"], link.name))
            for name in here | there:
                if here.get(name) != there.get(name):
                    return (
                        f"{link.name} was given {name} {there.get(name)}, and the head {here.get(name)}; type the "
                        f"same options on all machines"
                    )
        try:
            check_name(link)
        except GraspError as mistake:
            return str(mistake)
        return ""

    def train(self, tasks: Sequence[Task], report: Report) -> list[Failure]:
        """One task after another, on all machines. The first that fails is the last: a machine is missing then."""
        for task in tasks:
            address = f"{self.place.host}:{free_port()}"
            words = {"seeds": task.seeds, "address": address, "path": str(task.run.path)}
            data = packed(task.run, task.seeds)
            try:
                for link in self.links.values():
                    link.send(words, data)
                complaint = work(task, self.place, address, list(self.links.values()), report)
            except Gone as who:
                complaint = f"{who} is gone"
            if complaint:
                return [Failure(task, complaint)]
        return []


def flat(config: Config) -> dict[str, Any]:
    """Every option by its name."""
    values = asdict(config)
    return values | values.pop("hyper")


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
            news = heard(links, 0, task)
            if news:
                return news
    finally:
        worker.process.kill()
        worker.process.wait()
    news = ""
    if worker.process.returncode == 0 or is_bystander(worker):
        news = heard(links, NEWS_SECONDS, task)
    failures = finish(worker)
    return (news or failures[0].words) if failures else ""


def heard(links: list[Link], seconds: float, task: Task) -> str:
    """The first bad news of other machines within so many seconds. Who ended well is not listened to any more."""
    end = time.monotonic() + seconds
    while links and (ready := wait(links, max(end - time.monotonic(), 0))):
        for link in ready:
            assert isinstance(link, Link)
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


def assist(place: Place, config: Config | None, say: Say) -> None:
    """Train for the head whatever it says: all of this machine's part of `grasp train` and `grasp resume`. A `config`
    must be the head's own."""
    with contextlib.closing(Link(knock(place))) as link:
        try:
            serve(link, place, config, say)
        except Gone:
            raise GraspError(
                f"the head at {place.host}:{place.port} is gone; nothing is lost there: type grasp resume RUN on it, "
                f"and here the same with --on {place.number}/{place.machines}@{place.host}:{place.port}"
            ) from None


def knock(place: Place) -> socket.socket:
    """A connection to the head, which may be a little late."""
    end = time.monotonic() + MEET_SECONDS
    while True:
        try:
            return socket.create_connection((place.host, place.port), max(end - time.monotonic(), 0.01))
        except OSError as error:
            why = error.strerror or error
        if time.monotonic() > end:
            raise GraspError(
                f"no head answers at {place.host}:{place.port} ({why}); type the same command there with "
                f"--on 0/{place.machines}@{place.host}:{place.port}"
            )
        time.sleep(LOOK_SECONDS)


def serve(link: Link, place: Place, config: Config | None, say: Say) -> None:
    own = None if config is None else configs.to_json(config)
    hello = {"number": place.number, "machines": place.machines, "host": platform.node()}
    link.send(hello | {"alike": alike(), "config": own})
    while True:
        said = link.receive()
        if said.get("end"):
            raise GraspError(said["end"])
        if "end" in said:
            return
        if "config" in said:
            problem = problem_here(said["config"], link)
            link.send({"problem": problem})
            if problem:
                raise GraspError(problem)
            say(f"machine {place.number} of {place.machines} trains for {place.host}; see there how it goes")
            continue
        with tempfile.TemporaryDirectory(prefix="grasp-") as folder:
            run = unpacked(link.receive_bytes(), Path(folder))
            task = Task(run, tuple(said["seeds"]))
            words = work(task, place, said["address"], [link], lambda *_: None)
            if words.startswith(f"{link.name}: "):
                raise GraspError(words)
            log = task.log.read_text(errors="replace")[-20_000:] if words and task.log.exists() else ""
        link.send({"end": words.replace(folder, said["path"]), "log": log})


def problem_here(text: str, link: Link) -> str:
    """What keeps this machine from training for the head, in words."""
    try:
        config = configs.from_json(text, "the head's configuration")
        algos.make(config, envs.make(config.env).spec)
        check_name(link)
    except GraspError as mistake:
        return f"{platform.node()} cannot take part: {mistake}"
    return ""
