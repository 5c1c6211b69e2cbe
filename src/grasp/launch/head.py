"""Machine 0 of several: waits for the others, has each of them look whether it can train the run, and leads."""

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from grasp import config as configs
from grasp.config import Config
from grasp.launch.base import Failure, Plan, Report, Task
from grasp.launch.links import Gone, Hello, Link, check_name, free_port, hello_on, packed, ready
from grasp.launch.machines import MEET_SECONDS, NEWS_SECONDS, Place, Say, alike, check_devices, heard, work
from grasp.types import GraspError

HELLO_SECONDS = 10.0
"""For one who came to say who it is."""


@contextlib.contextmanager
def leading(place: Place, say: Say) -> Iterator["Head"]:
    """The head of the machines. At the end it tells the others how it ended."""
    head = Head(place, say)
    words = "its command was stopped"
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
            hello = hello_on(link, HELLO_SECONDS)
            link.name = f"machine {hello.number} of {hello.machines} ({hello.host})"
            problem = self.objection(link, hello, config)
            link.send({"end": problem} if problem else {"config": configs.to_json(config)})
            problem = problem or link.receive(MEET_SECONDS).get("problem", "")
        except Gone:
            link.close()
            return
        if problem:
            link.close()
            raise GraspError(problem)
        if hello.number in self.links:
            self.links[hello.number].close()
        self.links[hello.number] = link

    def objection(self, link: Link, hello: Hello, config: Config) -> str:
        """Why a machine cannot take part, in words; nothing where it can."""
        machines = self.place.machines
        if hello.machines != machines:
            return f"{link.name} is not one of {machines}; type the same number of machines on all of them"
        before = self.links.get(hello.number)
        if before and not ready([before], 0.0):  # one that ended has been followed by another
            return f"{link.name} is there already, as {before.name}; give each machine a number of its own"
        for name, value in alike().items():
            if hello.alike.get(name) != value:
                return f"{link.name} has {name} {hello.alike.get(name)}, and the head {value}; make them the same"
        if hello.config is not None:
            here, there = flat(config), flat(configs.from_json(hello.config, link.name))
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
            data, links = packed(task.run, task.seeds), list(self.links.values())
            try:
                for link in links:
                    link.send(words, data)
                complaint = work(task, self.place, address, links, report)
            except Gone as who:
                complaint = f"{who} is gone"
            if complaint:
                return [Failure(task, complaint)]
            heard(links, NEWS_SECONDS, task)  # all is written here: they only have to be free for the next
        return []


def flat(config: Config) -> dict[str, Any]:
    """Every option by its name."""
    values = asdict(config)
    return values | values.pop("hyper")
