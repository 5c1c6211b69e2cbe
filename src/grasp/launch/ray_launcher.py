"""Trains tasks on a Ray cluster (extra `ray`) whose nodes share the storage that the runs are on.

Ray only chooses the node: its task starts the same worker as on this machine, which locks its seeds and resumes from
their last checkpoint. So a task may be lost with its node at any time and be started again on another. Their progress
is read from the files they write.
"""

import contextlib
import importlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grasp.launch import ray_group, ray_node, ray_probe
from grasp.launch.base import ANY_CORE, EVERY_CORE, Failure, Plan, Task, TaskFollower, TaskReporter, finish
from grasp.launch.memory_check import replay_of, size
from grasp.launch.ray_cluster import first_line, functions, join, module_paths, name_of, start_worker, usable_nodes
from grasp.types import GraspError, Host

RETRIES = 20
"""How often a task may be lost with its node."""
LOOK_SECONDS = 1.0
PROGRAM = 10**9
"""Bytes of a training besides its replay buffer, of which it briefly holds two copies."""


@contextlib.contextmanager
def connected(address: str) -> Iterator["RayLauncher"]:
    """A cluster to train on. Leaving it stops what still trains, and ends the cluster if it was started here."""
    try:
        ray = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise GraspError("--on ray needs ray; type: pip install 'grasp-marl[ray]'") from None
    was_connected = ray.is_initialized()
    started = "" if was_connected else join(ray, address)
    try:
        yield RayLauncher(ray, started)
    finally:
        if not was_connected:
            ray.shutdown()


class RayLauncher:
    """Trains tasks on the nodes of a Ray cluster."""

    def __init__(self, ray: Any, started: str = ""):
        self.ray, self.started = ray, started
        self.nodes = usable_nodes(ray)

    def check(self, plans: Sequence[Plan]) -> list[str]:
        """Check that every node sees the storage and can train; nodes that join later are not checked."""
        if not self.nodes:
            raise GraspError("the Ray cluster has no node with a CPU; add one with: ray start --address=HOST:PORT")
        most = max(plan.config.nodes for plan in plans)
        if most > len(self.nodes):
            raise GraspError(
                f"the Ray cluster has {len(self.nodes)} nodes with a CPU, and --nodes is {most}; add one with: "
                f"ray start --address=HOST:PORT, or give fewer --nodes"
            )
        for plan in plans:
            ray_group.check_layout(plan.config, self.nodes)
        lines = list(filter(None, [self.started, *(self.check_memory(plan) for plan in plans)]))
        folders = dict.fromkeys(existing(plan.path) for plan in plans)
        for folder in folders:
            self.check_nodes(folder, sorted({plan.config.env for plan in plans}))
        return lines

    def check_memory(self, plan: Plan) -> str:
        kept = replay_of(plan.config, plan.built)
        if kept is None:
            return ""
        largest = max(node["Resources"].get("memory", 0) for node in self.nodes)
        needed = memory_of(kept.num_bytes * (plan.config.seeds if plan.config.parallel == "vmap" else 1))
        if needed > largest:
            raise GraspError(
                f"the replay buffer does not fit: {kept}, which takes a node with {size(needed)}, and the largest one "
                f"offers {size(int(largest))}; give a smaller --buffer"
            )
        return f"replay buffer: {kept}"

    def check_nodes(self, folder: Path, envs: list[str]) -> None:
        content = uuid.uuid4().hex
        token = folder / f".grasp-{content}"
        there = module_paths() | {"token": str(token), "content": content, "envs": envs}
        there |= {"versions": ray_probe.versions()}
        try:
            token.write_text(content)
        except OSError as error:
            raise GraspError(f"cannot write to {folder} ({error.strerror}); choose another --out") from None
        try:
            asked = {self.on_node(node["NodeID"]).remote(there): node for node in self.nodes}
            self.ray.wait(list(asked), num_returns=len(asked), timeout=2 * ray_node.SECONDS)
            problems = {node["NodeID"]: (name_of(node), self.problem(result)) for result, node in asked.items()}
            self.nodes = usable_nodes(self.ray)  # without those that were lost meanwhile
            for name, problem in (problems[node["NodeID"]] for node in self.nodes if node["NodeID"] in problems):
                if problem:
                    raise GraspError(f"{name} {problem}")
        finally:
            token.unlink(missing_ok=True)

    def on_node(self, node: str) -> Any:
        """`examine` as a Ray task on one node, however busy it is."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        where = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        return self.ray.remote(functions()["examine"]).options(num_cpus=0, max_retries=0, scheduling_strategy=where)

    def problem(self, result: Any) -> str:
        """What `examine` found on a node; empty if nothing."""
        try:
            return self.ray.get(result, timeout=0)
        except self.ray.exceptions.GetTimeoutError:
            return "does not answer; see `ray status`"
        except self.ray.exceptions.RayError as error:
            return f"cannot be examined ({first_line(error)})"

    def train(self, tasks: Sequence[Task], report: TaskReporter) -> list[Failure]:
        grouped = [task for task in tasks if ray_group.is_needed(task.run.config, self.nodes)]
        single = [task for task in tasks if task not in grouped]
        failures = self.train_at_once([task for task in single if task.run.config.nodes == 1], report)
        for task in single:
            if task.run.config.nodes > 1:  # alone: two learners would wait for each other's nodes
                failures += self.train_at_once([task], report)
        for task in grouped:
            failures += ray_group.train(self.ray, task, report)
        return failures

    def train_at_once(self, tasks: Sequence[Task], report: TaskReporter) -> list[Failure]:
        followers = [TaskFollower(task) for task in tasks]
        running = {self.submit(follower.task): follower for follower in followers}
        failures = []
        while running:
            done, _ = self.ray.wait(list(running), num_returns=len(running), timeout=LOOK_SECONDS)
            for follower in running.values():
                follower.report(report)
            for result in done:
                failures += self.finish(running.pop(result).task, result)
        return failures

    def request(self, task: Task) -> tuple[str, dict[str, Any]]:
        """Which cores a task takes, and what it requests from Ray."""
        config, kept = task.run.config, replay_of(task.run.config, task.built)
        seeds = config.seeds if config.parallel == "vmap" else 1
        needs: dict[str, Any] = {"memory": memory_of(kept.num_bytes * seeds)} if kept else {}
        if config.parallel == "processes" and not isinstance(task.built.env, Host):
            return ANY_CORE, needs | {"num_cpus": config.devices}
        if config.parallel == "vmap" and self.ray.cluster_resources().get("GPU"):
            return EVERY_CORE, needs | {"num_cpus": 1, "num_gpus": 1}
        return EVERY_CORE, needs | {"num_cpus": int(min(node["Resources"]["CPU"] for node in self.nodes))}

    def submit(self, task: Task) -> Any:
        cores, needs = self.request(task)
        # a failure of the run itself is an exit code: only what happens to the node is tried again
        return start_worker(self.ray, task, task.arguments(cores), task.log, max_retries=RETRIES, **needs)

    def finish(self, task: Task, result: Any) -> list[Failure]:
        try:
            return finish(task, self.ray.get(result))
        except self.ray.exceptions.RayError as error:
            return [Failure(task, f"{task.name} could not be trained on the cluster ({first_line(error)})")]


def memory_of(num_bytes: int) -> int:
    """Bytes that a task with replay buffers of this size requests."""
    return PROGRAM + 2 * num_bytes


def existing(path: Path) -> Path:
    """The nearest folder above a path that is there already."""
    return next(folder for folder in path.absolute().parents if folder.is_dir())
