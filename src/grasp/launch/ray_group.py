"""One run over several nodes of a Ray cluster: `--on ray --devices N`, with N above one node's devices.

A placement group reserves the same number of devices on each of its nodes. On each, a Ray task starts one worker, and
the workers join through `jax.distributed`. Process 0 reads and writes the run directory. When a node is lost, the other
workers end, and the run continues from its last checkpoint on the nodes that are left, if need be on fewer devices.
"""

import contextlib
import importlib
import math
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from grasp import runs
from grasp.config import Config, validate
from grasp.launch import ray_node
from grasp.launch.base import ANY_CORE, EVERY_CORE, Failure, Task, TaskFollower, TaskReporter, finish
from grasp.launch.ray_cluster import first_line, functions, name_of, start_worker, usable_nodes
from grasp.types import GraspError, Kind

RETRIES = 20
"""How often a run may lose a node."""
LOOK_SECONDS = 1.0
END_SECONDS = 60.0
"""For the other workers to end, and for Ray to report a lost node, after one worker has failed."""
BYSTANDER = re.compile("gloo|coordination|distributed service", re.IGNORECASE)
"""In the log of a worker that failed because another one did."""
Node = dict[str, Any]


class Layout(NamedTuple):
    """Nodes of a group, and devices of each."""

    nodes: int
    devices: int


class Lost(Exception):
    """A node of the group, or Ray's process on it, is lost."""


def unit(nodes: list[Node]) -> str:
    """Ray's name of the resource that counts as a device."""
    return "GPU" if any(node["Resources"].get("GPU") for node in nodes) else "CPU"


def layout(devices: int, nodes: list[Node]) -> Layout | None:
    """The layout with the fewest nodes and equally many devices on each; None if there is none."""
    sizes = [int(node["Resources"].get(unit(nodes), 0)) for node in nodes]
    for number in range(1, len(nodes) + 1):
        own = devices // number
        if devices % number == 0 and sum(size >= own for size in sizes) >= number:
            return Layout(number, own)
    return None


def is_needed(config: Config, nodes: list[Node]) -> bool:
    """Whether a run exceeds one node, or takes several GPUs."""
    found = layout(config.devices, nodes)
    return config.devices > 1 and (found is None or found.nodes > 1 or unit(nodes) == "GPU")


def feasible(config: Config, nodes: list[Node]) -> Layout | None:
    """The layout with the most devices, up to the configured number, that the nodes and the algorithm allow."""
    for devices in range(config.devices, 0, -1):
        with contextlib.suppress(GraspError):
            validate(runs.spread(config, devices))
            if found := layout(devices, nodes):
                return found
    return None


def check_layout(config: Config, nodes: list[Node]) -> None:
    if config.devices == 1 or layout(config.devices, nodes):
        return
    sizes = ", ".join(str(int(node["Resources"].get(unit(nodes), 0))) for node in nodes)
    found = feasible(config, nodes)
    most = found.nodes * found.devices if found else 1
    raise GraspError(
        f"--devices {config.devices} cannot be divided evenly among the nodes of the Ray cluster, which have {sizes} "
        f"{unit(nodes)}s; give at most --devices {most}"
    )


def train(ray: Any, task: Task, report: TaskReporter) -> list[Failure]:
    """Train one task over several nodes, again from its last checkpoint whenever a node is lost."""
    follower, seed = TaskFollower(task), task.seeds[0]
    for _ in range(RETRIES + 1):
        try:
            with reserved(ray, task) as group:
                number = group.layout.nodes * group.layout.devices
                if number < task.run.config.devices:
                    text = f"the remaining nodes have {number} of {task.run.config.devices} devices; training on these"
                    report(task, {"kind": Kind.NOTICE, "seed": seed, "text": text})
                return group.train(follower, report)
        except Lost as loss:
            text = f"{loss}; training continues from the last checkpoint"
            report(task, {"kind": Kind.NOTICE, "seed": seed, "text": text})
        except GraspError as mistake:
            return [Failure(task, str(mistake))]
    return [Failure(task, f"{task.name} lost a node {RETRIES + 1} times")]


@contextlib.contextmanager
def reserved(ray: Any, task: Task) -> Iterator["Group"]:
    """A group of nodes with as many devices as there are for a run, once Ray has reserved them."""
    util = importlib.import_module("ray.util")
    while True:
        nodes = usable_nodes(ray)
        found = feasible(task.run.config, nodes)
        if found is None:
            raise GraspError("no node of the Ray cluster is left to train on")
        bundle = {"GPU": found.devices, "CPU": 1} if unit(nodes) == "GPU" else {"CPU": found.devices}
        placement = util.placement_group([bundle] * found.nodes, strategy="STRICT_SPREAD")
        try:
            is_ready = False
            while not is_ready and names(usable_nodes(ray)) == names(nodes):  # until a node is lost or joins
                is_ready = placement.wait(LOOK_SECONDS)
            if is_ready:
                yield Group(ray, task, placement, found, bundle)
                return
        finally:
            util.remove_placement_group(placement)  # ends what still runs there


def names(nodes: list[Node]) -> dict[str, str]:
    return {node["NodeID"]: name_of(node) for node in nodes}


class Group:
    """Reserved nodes, and the workers of a task on them."""

    def __init__(self, ray: Any, task: Task, placement: Any, layout: Layout, bundle: dict[str, int]):
        self.ray, self.task, self.placement, self.layout, self.bundle = ray, task, placement, layout, bundle
        self.names: list[str] = []

    def train(self, follower: TaskFollower, report: TaskReporter) -> list[Failure]:
        address = self.coordinator_address()
        running = {self.start(number, address): number for number in range(self.layout.nodes)}
        codes: dict[int, int] = {}
        end = math.inf
        while running and 2 not in codes.values() and time.monotonic() < end:
            done, _ = self.ray.wait(list(running), num_returns=len(running), timeout=LOOK_SECONDS)
            follower.report(report)
            for result in done:
                number = running.pop(result)
                codes[number] = self.result(result, number)
            if any(codes.values()):
                end = min(end, time.monotonic() + END_SECONDS)
        failed = [number for number, code in codes.items() if code]
        if failed:  # prefer a worker that reported an error, then one that did not fail because of another
            failed = [min(failed, key=lambda number: (codes[number] != 2, self.is_bystander(number, codes[number])))]
            return finish(self.task, codes[failed[0]], self.log(failed[0]))
        for log in self.task.log.parent.glob("worker-*.log"):  # of this group, and of one that lost a node
            log.unlink(missing_ok=True)
        return finish(self.task, 0)

    def options(self, number: int) -> dict[str, Any]:
        """What places a Ray task on a node of the group."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        strategy = strategies.PlacementGroupSchedulingStrategy(self.placement, placement_group_bundle_index=number)
        return {"scheduling_strategy": strategy, "max_retries": 0}

    def coordinator_address(self) -> str:
        """Address and port, on its node, at which process 0 will wait for the others."""
        locate = self.ray.remote(functions()["locate"])
        asked = [locate.options(num_cpus=0, **self.options(number)).remote() for number in range(self.layout.nodes)]
        located = [self.result(result, number, ray_node.SECONDS) for number, result in enumerate(asked)]
        known = names(self.ray.nodes())
        self.names = [known[node["node"]] for node in located]
        if len({node["address"] for node in located}) > 1:
            for name, node in zip(self.names, located, strict=True):
                if node["own"].startswith("127."):  # gloo gives the other workers the address of its host's name
                    raise GraspError(
                        f"the host name of {name} resolves to {node['own']}, where other nodes do not reach it; write "
                        f"its network address into its /etc/hosts"
                    )
        return f"{located[0]['address']}:{located[0]['port']}"

    def start(self, number: int, address: str) -> Any:
        run, total = self.task.run, self.layout.nodes * self.layout.devices
        seeds, cores = ",".join(map(str, self.task.seeds)), EVERY_CORE if "GPU" in self.bundle else ANY_CORE
        arguments = [str(run.path.absolute()), seeds, cores, str(total)]
        arguments += ["--join", f"{number}/{self.layout.nodes}@{address}"] if self.layout.nodes > 1 else []
        if number:
            self.log(number).unlink(missing_ok=True)
        needs = {f"num_{name.lower()}s": count for name, count in self.bundle.items()}
        return start_worker(self.ray, self.task, arguments, self.log(number), **needs, **self.options(number))

    def log(self, number: int) -> Path:
        return self.task.log if number == 0 else self.task.log.with_name(f"worker-{number}.log")

    def result(self, result: Any, number: int, timeout: float | None = None) -> Any:
        """The result of a Ray task on a node of the group."""
        try:
            return self.ray.get(result, timeout=timeout)
        except self.ray.exceptions.RayTaskError as error:
            raise GraspError(f"{self.task.name} could not be trained on the cluster ({first_line(error)})") from None
        except self.ray.exceptions.RayError as error:
            name = self.names[number] if self.names else "a node"
            raise Lost(f"{name} was lost ({first_line(error)})") from None

    def is_bystander(self, number: int, code: int) -> bool:
        """Whether a worker failed because another one did: jax then raises an error or aborts the process."""
        text = self.log(number).read_text(errors="replace") if self.log(number).exists() else ""
        return code in (1, -signal.SIGABRT) and BYSTANDER.search(text[-4000:]) is not None
