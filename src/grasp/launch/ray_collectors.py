"""A learner's view of the nodes that play for it: one actor of Ray on each, which owns a pool of simulators.

A node that is lost, or whose simulators fail for good, is gone without: its share is missing from then on.
"""

import contextlib
import importlib
import logging
import runpy
import time
from dataclasses import dataclass
from typing import Any

from grasp.envs.host import START_SECONDS
from grasp.envs.workers.serve import GRACE
from grasp.launch import guest
from grasp.launch.ray_launcher import first_line, name_of, playing, surroundings
from grasp.runs import Run
from grasp.runs.restore import Reporter
from grasp.training.remote_rollout import Order, Share
from grasp.types import Kind

SLOWNESS = 10
"""How much longer than the learner with its own share a node may take, beside the time for starting simulators."""


@dataclass
class Member:
    """A node that plays."""

    name: str
    actor: Any
    answer: Any = None
    """What it owes, if anything; and for which iteration, and since when."""
    iteration: int = 0
    asked: float = 0.0


class Collectors:
    """The other nodes of a run (`grasp.training.remote_rollout.Others`). They are called when the first order comes."""

    def __init__(self, run: Run, seed: int, address: str, here: str, report: Reporter):
        self.run, self.seed, self.address, self.here, self.report = run, seed, address, here, report
        self.planned = run.config.nodes - 1
        self.members: list[Member] | None = None

    def called(self) -> list[Member]:
        if self.members is None:
            self.ray = importlib.import_module("ray")
            self.ray.init(address=self.address, log_to_driver=False, logging_level=logging.CRITICAL)
            others = [node for node in playing(self.ray) if node["NodeID"] != self.here]
            chosen = sorted(others, key=lambda node: node["NodeID"])[: self.planned]
            self.members = [self.call(number, node) for number, node in enumerate(chosen, 1)]
            if self.missing():
                self.say(
                    f"the cluster has {len(others)} of the {self.planned} nodes that are to play for the learner's"
                )
        return self.members

    def call(self, number: int, node: dict[str, Any]) -> Member:
        """An actor on a node, whose CPUs it takes for its simulators."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        where = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        there = surroundings() | {"run": str(self.run.path), "seed": self.seed, "number": number}
        collector = self.ray.remote(runpy.run_path(guest.__file__)["Collector"])  # sent whole, as cluster.py does
        options = {"num_cpus": int(node["Resources"]["CPU"]), "scheduling_strategy": where}
        return Member(name_of(node), collector.options(**options).remote(there))

    def ask(self, order: Order) -> None:
        idle = [member for member in self.called() if member.answer is None]
        sent = self.ray.put(order)
        for member in idle:
            member.answer, member.iteration, member.asked = member.actor.play.remote(sent), order.iteration, now()

    def take(self, due: int) -> list[Share]:
        owing = [member for member in self.called() if member.answer is not None]
        awaited = [member for member in owing if member.iteration <= due]
        if awaited:
            limit = START_SECONDS + SLOWNESS * max(now() - member.asked for member in awaited)
            self.ray.wait([member.answer for member in awaited], num_returns=len(awaited), timeout=limit)
        return [share for member in owing if (share := self.received(member, member in awaited)) is not None]

    def received(self, member: Member, is_due: bool) -> Share | None:
        """What a node has played by now; one that fails, or has not although it had to, is given up."""
        try:
            share = self.ray.get(member.answer, timeout=0)
        except self.ray.exceptions.GetTimeoutError:
            if is_due:
                self.lose(member, f"did not play within {now() - member.asked:.0f} s")
            return None
        except self.ray.exceptions.RayError as error:
            return self.lose(member, first_line(error))
        member.answer = None
        return share

    def lose(self, member: Member, reason: str) -> None:
        assert self.members is not None
        self.members.remove(member)
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.kill(member.actor)
        self.say(f"{member.name} no longer plays ({reason})")

    def say(self, words: str) -> None:
        left = f"training goes on with {self.planned + 1 - self.missing()} of {self.planned + 1} nodes"
        self.report({"kind": Kind.NOTICE, "seed": self.seed, "text": f"{words}; {left}"})

    def missing(self) -> int:
        return self.planned - len(self.members or [])

    def close(self) -> None:
        if self.members is None:
            return
        ended = [member.actor.close.remote() for member in self.members]
        if ended:
            self.ray.wait(ended, num_returns=len(ended), timeout=2 * GRACE)
        self.ray.shutdown()  # ends the actors, and their simulators with them


def now() -> float:
    return time.monotonic()
