"""Tasks on a Ray cluster (extra `ray`) whose nodes share the storage that the runs lie on.

Ray only chooses the node: its task starts the same worker as on this machine, which claims its seeds and goes on from
their last checkpoint. So a task may be lost with its node at any moment and be started again on another. What the
workers do is seen from here in the files they write.
"""

import contextlib
import hashlib
import importlib
import logging
import os
import re
import runpy
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grasp.config import Config
from grasp.envs import base as envs
from grasp.launch import ray_node, ray_probe
from grasp.launch.base import ANY_CORE, EVERY_CORE, Failure, Followers, Plan, Report, Task, complaint
from grasp.launch.memory_check import replay_of, size
from grasp.runs.lock import STALE
from grasp.types import GraspError

KNOCK_SECONDS = 5.0
JOIN_SECONDS = 45.0
"""For joining a cluster, ray's import included."""
RETRIES = 20
"""How often a task may be lost with its node."""
PATIENCE = 3 * STALE
"""Seconds to wait for the claim of a lost node."""
LOOK_SECONDS = 1.0
PROGRAM = 10**9
"""Bytes of a training besides its replay, which for a moment is held twice."""
JOIN = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='critical'); ray.shutdown()"


@contextlib.contextmanager
def joined(address: str) -> Iterator["Cluster"]:
    """A cluster to train on, left at the end; what was not finished then is stopped, and can be resumed."""
    try:
        ray = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise GraspError("--on ray needs ray; type: pip install 'grasp-marl[ray]'") from None
    is_guest = ray.is_initialized()  # whoever joined before us also leaves
    if not is_guest:
        knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    try:
        yield Cluster(ray)
    finally:
        if not is_guest:
            ray.shutdown()


def knock(address: str) -> None:
    """Join from another process first: where nobody answers, ray may wait for long or end the process."""
    advice = "see `ray status` there, run this on one of the cluster's machines, or start one with: ray start --head"
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
        except OSError as error:
            raise GraspError(f"no Ray cluster answers at {address} ({error.strerror or error}); {advice}") from None
    command = [sys.executable, "-c", JOIN, address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=JOIN_SECONDS)
    except subprocess.TimeoutExpired:
        raise GraspError(f"the Ray cluster at {address} did not answer in {JOIN_SECONDS:.0f} s; {advice}") from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise GraspError(f"cannot join the Ray cluster at {address} ({why}); {advice}")


class Cluster:
    """The nodes of a Ray cluster."""

    def __init__(self, ray: Any):
        self.ray = ray
        # run as a script, whose functions ray sends whole: a node without grasp must be able to say so
        self.functions = runpy.run_path(ray_node.__file__)
        self.nodes = playing(ray)

    def check(self, plans: Sequence[Plan]) -> list[str]:
        """Whether every node that is there now sees the storage and can play; those that come later are trusted."""
        if not self.nodes:
            raise GraspError("the Ray cluster has no node with a CPU; add one with: ray start --address=HOST:PORT")
        most = max(plan.config.nodes for plan in plans)
        if most > len(self.nodes):
            raise GraspError(
                f"the Ray cluster has {len(self.nodes)} nodes with a CPU, and --nodes is {most}; add one with: "
                f"ray start --address=HOST:PORT, or give fewer --nodes"
            )
        words = list(filter(None, (self.check_memory(plan) for plan in plans)))
        folders = dict.fromkeys(existing(plan.path) for plan in plans)
        for folder in folders:
            self.check_nodes(folder, sorted({plan.config.env for plan in plans}))
        return words

    def check_memory(self, plan: Plan) -> str:
        kept = replay_of(plan.config)
        if kept is None:
            return ""
        text = f"{kept.capacity:,} episodes of {size(kept.episode_bytes)}, {size(kept.num_bytes)} a seed"
        largest = max(node["Resources"].get("memory", 0) for node in self.nodes)
        needed = memory_of(kept.num_bytes * (plan.config.seeds if plan.config.parallel == "vmap" else 1))
        if needed > largest:
            raise GraspError(
                f"the replay does not fit: {text}, which takes a node with {size(needed)}, and the largest one offers "
                f"{size(int(largest))}; give a smaller --buffer"
            )
        return f"replay: {text}"

    def check_nodes(self, folder: Path, envs: list[str]) -> None:
        said = uuid.uuid4().hex
        token = folder / f".grasp-{said}"
        there = surroundings() | {"token": str(token), "said": said, "envs": envs, "versions": ray_probe.versions()}
        try:
            token.write_text(said)
        except OSError as error:
            raise GraspError(f"cannot write to {folder} ({error.strerror}); choose another --out") from None
        try:
            asked = {self.on_node(node["NodeID"]).remote(there): node for node in self.nodes}
            self.ray.wait(list(asked), num_returns=len(asked), timeout=2 * ray_node.SECONDS)
            problems = {node["NodeID"]: (name_of(node), self.answer_of(answer)) for answer, node in asked.items()}
            self.nodes = playing(self.ray)  # without those that were lost meanwhile
            for name, problem in (problems[node["NodeID"]] for node in self.nodes if node["NodeID"] in problems):
                if problem:
                    raise GraspError(f"{name} {problem}")
        finally:
            token.unlink(missing_ok=True)

    def on_node(self, node: str) -> Any:
        """`examine` on one node, whatever else it does."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        where = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        return self.ray.remote(self.functions["examine"]).options(num_cpus=0, max_retries=0, scheduling_strategy=where)

    def answer_of(self, answer: Any) -> str:
        try:
            return self.ray.get(answer, timeout=0)
        except self.ray.exceptions.GetTimeoutError:
            return "does not answer; see `ray status`"
        except self.ray.exceptions.RayError as error:
            return f"cannot be asked ({first_line(error)})"

    def train(self, tasks: Sequence[Task], report: Report) -> list[Failure]:
        failures = self.train_at_once([task for task in tasks if task.run.config.nodes == 1], report)
        for task in tasks:
            if task.run.config.nodes > 1:  # alone: two learners would wait for each other's nodes
                failures += self.train_at_once([task], report)
        return failures

    def train_at_once(self, tasks: Sequence[Task], report: Report) -> list[Failure]:
        followers, failures = Followers(list(tasks)), []
        asked = {config: self.request(config) for config in {task.run.config for task in tasks}}
        waiting = {self.begin(task, *asked[task.run.config]): task for task in tasks}
        while waiting:
            done, _ = self.ray.wait(list(waiting), num_returns=len(waiting), timeout=LOOK_SECONDS)
            followers.tell(report)
            for one in done:
                failures += self.finish(waiting.pop(one), one, report)
        return failures

    def request(self, config: Config) -> tuple[str, dict[str, Any]]:
        """Which cores a task of a run takes, and what it asks Ray for."""
        kept = replay_of(config)
        seeds = config.seeds if config.parallel == "vmap" else 1
        needs: dict[str, Any] = {"memory": memory_of(kept.num_bytes * seeds)} if kept else {}
        if config.parallel == "processes" and not envs.simulated(config.env):
            return ANY_CORE, needs | {"num_cpus": config.devices}
        if config.parallel == "vmap" and self.ray.cluster_resources().get("GPU"):
            return EVERY_CORE, needs | {"num_cpus": 1, "num_gpus": 1}
        return EVERY_CORE, needs | {"num_cpus": int(min(node["Resources"]["CPU"] for node in self.nodes))}

    def begin(self, task: Task, place: str, needs: dict[str, Any]) -> Any:
        path = task.run.path.absolute()
        there = surroundings() | {
            "path": str(path),
            "digest": hashlib.sha256((path / "config.json").read_bytes()).hexdigest(),
            "log": str(task.log.absolute()),
            "words": [*task.words_at(place), str(PATIENCE)],
        }
        # a failure of the run itself comes back as a value: only what befalls the node is tried again
        options = {"name": f"{path.name} {task.words}", "max_retries": RETRIES, "retry_exceptions": False}
        return self.ray.remote(self.functions["work"]).options(**options, **needs).remote(there)

    def finish(self, task: Task, answer: Any, report: Report) -> list[Failure]:
        try:
            said = self.ray.get(answer)
        except self.ray.exceptions.RayError as error:
            return [Failure(task, f"{task.words} could not be trained on the cluster ({first_line(error)})")]
        for notice in said["notices"]:
            report(task, notice)
        return [Failure(task, complaint(task, said["code"], said["last"]))] if said["code"] else []


def playing(ray: Any) -> list[dict[str, Any]]:
    """The nodes that can train or play something."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def name_of(node: dict[str, Any]) -> str:
    return f"node {node['NodeManagerHostname']} ({node['NodeID'][:8]})"


def memory_of(num_bytes: int) -> int:
    """What a task with such replays is declared to need."""
    return PROGRAM + 2 * num_bytes


def surroundings() -> dict[str, Any]:
    """Where this process finds its modules: on shared storage a node finds them there too."""
    return {"paths": [path for path in sys.path if path], "folder": os.getcwd()}


def existing(path: Path) -> Path:
    """The nearest folder above a path that is there already."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())


def first_line(error: Exception) -> str:
    """What an exception of ray's, which may be pages, is about; of one that a node raised, what that was."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    return re.sub(r"\x1b\[[0-9;]*m", "", lines[0]).rstrip(".")
