"""The other nodes of a run whose simulators collect for one learner: one Ray actor per node, with a pool of simulators.

When a node is lost, or its simulators fail too often, its part of the batch is missing from then on.
"""

import contextlib
import importlib
import logging
import os
import runpy
import sys
import time
from dataclasses import dataclass
from typing import Any

from grasp.envs.host import START_SECONDS
from grasp.envs.workers.serve import GRACE
from grasp.launch.ray_cluster import first_line, module_paths, name_of, usable_nodes
from grasp.runs import Run
from grasp.runs.restore import Reporter
from grasp.training.remote_rollout import RolloutPart, RolloutRequest
from grasp.types import Kind

SLOWNESS = 10
"""A node may take this many times as long as the learner, plus the time for starting simulators."""


@dataclass
class Member:
    """A node that collects, and the request that it has not finished."""

    name: str
    actor: Any
    result: Any = None
    """Ray's reference to its part; None if it has no request."""
    iteration: int = 0
    requested: float = 0.0
    """When it received the request."""


class Collectors:
    """The other nodes of a run (`grasp.training.remote_rollout.RemoteRollouts`). They start with the first request."""

    def __init__(self, run: Run, seed: int, address: str, here: str, report: Reporter):
        self.run, self.seed, self.address, self.here, self.report = run, seed, address, here, report
        self.planned = run.config.nodes - 1
        self.members: list[Member] | None = None

    def started(self) -> list[Member]:
        if self.members is None:
            self.ray = importlib.import_module("ray")
            self.ray.init(address=self.address, log_to_driver=False, logging_level=logging.CRITICAL)
            others = [node for node in usable_nodes(self.ray) if node["NodeID"] != self.here]
            chosen = sorted(others, key=lambda node: node["NodeID"])[: self.planned]
            self.members = [self.start(number, node) for number, node in enumerate(chosen, 1)]
            if self.missing():
                self.notify(f"the cluster has {len(others)} of the {self.planned} other nodes that the run asks for")
        return self.members

    def start(self, number: int, node: dict[str, Any]) -> Member:
        """An actor on a node, which reserves all CPUs of the node for its simulators."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        where = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        there = module_paths() | {"run": str(self.run.path), "seed": self.seed, "number": number}
        collector = self.ray.remote(runpy.run_path(__file__)["Collector"])  # by value
        options = {"num_cpus": int(node["Resources"]["CPU"]), "scheduling_strategy": where}
        return Member(name_of(node), collector.options(**options).remote(there))

    def request(self, request: RolloutRequest) -> None:
        idle = [member for member in self.started() if member.result is None]
        sent = self.ray.put(request)
        for member in idle:
            member.result, member.iteration, member.requested = member.actor.play.remote(sent), request.iteration, now()

    def receive(self, due: int) -> list[RolloutPart]:
        busy = [member for member in self.started() if member.result is not None]
        awaited = [member for member in busy if member.iteration <= due]
        if awaited:
            limit = START_SECONDS + SLOWNESS * max(now() - member.requested for member in awaited)
            self.ray.wait([member.result for member in awaited], num_returns=len(awaited), timeout=limit)
        return [part for member in busy if (part := self.received(member, member in awaited)) is not None]

    def received(self, member: Member, is_due: bool) -> RolloutPart | None:
        """A node's part; None if it is not finished. A node that fails, or whose part is due and late, is dropped."""
        try:
            part = self.ray.get(member.result, timeout=0)
        except self.ray.exceptions.GetTimeoutError:
            if is_due:
                self.drop(member, f"did not collect within {now() - member.requested:.0f} s")
            return None
        except self.ray.exceptions.RayError as error:
            return self.drop(member, first_line(error))
        member.result = None
        return part

    def drop(self, member: Member, reason: str) -> None:
        assert self.members is not None
        self.members.remove(member)
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.kill(member.actor)
        self.notify(f"{member.name} no longer collects ({reason})")

    def notify(self, text: str) -> None:
        left = f"training continues with {self.planned + 1 - self.missing()} of {self.planned + 1} nodes"
        self.report({"kind": Kind.NOTICE, "seed": self.seed, "text": f"{text}; {left}"})

    def missing(self) -> int:
        return self.planned - len(self.members or [])

    def close(self) -> None:
        if self.members is None:
            return
        ended = [member.actor.close.remote() for member in self.members]
        if ended:
            self.ray.wait(ended, num_returns=len(ended), timeout=2 * GRACE)
        self.ray.shutdown()  # ends the actors, and their simulators with them


class Collector:
    """The Ray actor of a node that collects (`grasp.training.remote_rollout.RolloutWorker`).

    Ray sends the class by value, and it imports GRASP only where it runs.
    """

    def __init__(self, there: dict[str, Any]):
        self.there = there
        self.worker: Any = None

    def play(self, request: Any) -> Any:
        if self.worker is None:
            self.worker = self.make()
        return self.worker.play(request)

    def make(self) -> Any:
        """Threads are limited before jax is imported: the cores are for the simulators, and acting takes one."""
        sys.path += [path for path in self.there["paths"] if path not in sys.path]
        if os.path.isdir(self.there["folder"]):
            os.chdir(self.there["folder"])  # the user's own environment may be there
        single = "--xla_cpu_multi_thread_eigen=false"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {single}".strip()
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.environ["JAX_PLATFORMS"] = "cpu"
        from grasp import runs
        from grasp.training import compilation_cache, runner
        from grasp.training.remote_rollout import HostPlayer, RolloutWorker
        from grasp.types import Host

        compilation_cache.enable()
        run, number = runs.find(self.there["run"]), self.there["number"]
        host, algorithm = runner.make(run.config)
        assert isinstance(host, Host)
        log = run.folder(self.there["seed"]) / f"simulators-{number}.log"
        return RolloutWorker(HostPlayer(run.config, host, algorithm, number, log))

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()


def now() -> float:
    return time.monotonic()
