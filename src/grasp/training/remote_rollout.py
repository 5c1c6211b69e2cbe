"""One batch from several nodes: the simulators of each step a part of the copies, for one learner.

Copies are numbered over all nodes, and their random numbers depend on the number alone: it does not matter which node
has a part. A part records the version of the policy that acted in it: the number of updates before it.
"""

from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt32

from grasp.config import LARGEST, Config
from grasp.envs.host import SimulatorPool, cores
from grasp.training import host_rollout
from grasp.training.rollout import Outcome, finished
from grasp.types import Algorithm, Host, Key, Metrics, PyTree, Trajectory


class RolloutRequest(NamedTuple):
    """What a learner asks the other nodes to collect."""

    iteration: int
    """The iteration whose batch it is for."""
    version: int
    policy: dict[str, PyTree]
    """The fields of the algorithm's state that acting and the value function need."""
    key: UInt32[np.ndarray, " _"]
    """The iteration's collection key, as its bits: JAX's keys cannot be sent."""
    fresh: bool
    """Whether every copy begins a new episode."""


class RolloutPart(NamedTuple):
    """The rollout of one node."""

    version: int
    trajectory: Trajectory
    outcome: Outcome
    restarts: int


@runtime_checkable
class RemoteRollouts(Protocol):
    """The other nodes whose simulators collect for a learner."""

    def request(self, request: RolloutRequest) -> None:
        """Send a request to every idle node."""
        ...

    def receive(self, due: int) -> list[RolloutPart]:
        """The finished parts, in the order of the nodes' numbers. Waits for those requested for iteration `due` or
        earlier."""
        ...

    def missing(self) -> int:
        """How many of the planned nodes do not collect."""
        ...

    def close(self) -> None: ...


class HostPlayer:
    """The simulators of one node, started when first needed; the learner's node is number 0."""

    def __init__(self, config: Config, host: Host, algorithm: Algorithm, number: int = 0, log: Path | None = None):
        self.config, self.host, self.algorithm, self.number, self.log = config, host, algorithm, number, log
        self.simulators: host_rollout.HostEnvs | None = None

    def opened(self) -> host_rollout.HostEnvs:
        if self.simulators is None:
            config = self.config
            workers = config.workers or len(cores())
            pool = SimulatorPool(self.host, config.envs_per_node, workers, config.deadline, config.restarts, self.log)
            self.simulators = host_rollout.HostEnvs(pool, self.algorithm)
        return self.simulators

    def play(self, version: int, state: PyTree, key: Key, fresh: bool) -> RolloutPart:
        """The node's part of one iteration; every node gets the same key."""
        simulators, copies = self.opened(), self.config.envs_per_node
        # before the first reset: restarts during an evaluation do not count for this iteration
        simulators.pool.restarts = 0
        if fresh:
            reset_key = jax.random.fold_in(key, LARGEST)
            simulators.begin(host_rollout.episode_seeds(reset_key, copies, first=self.number * copies))
        if self.number > 0:  # LARGEST - number, because small numbers are folded in per step
            key = jax.random.fold_in(key, LARGEST - self.number)
        return RolloutPart(version, *host_rollout.collect(simulators, state, key, self.config.hyper.rollout))

    def close(self) -> None:
        if self.simulators is not None:
            self.simulators.pool.close()


class RolloutWorker:
    """A node without a learner: its policy comes with the requests."""

    def __init__(self, player: HostPlayer):
        self.player = player
        shapes = jax.eval_shape(player.algorithm.init, jax.random.key(0))
        self.state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)

    def play(self, request: RolloutRequest) -> RolloutPart:
        state = self.state._replace(**request.policy)
        key = jax.random.wrap_key_data(jnp.asarray(request.key))
        return self.player.play(request.version, state, key, request.fresh)

    def close(self) -> None:
        self.player.close()


def joined(parts: list[RolloutPart]) -> tuple[Trajectory, Outcome]:
    """All parts as one batch: copies are the second axis of every array."""
    played = [(part.trajectory, part.outcome) for part in parts]
    return played[0] if len(played) == 1 else jax.tree.map(lambda *x: np.concatenate(x, 1), *played)


def simulator_metrics(parts: list[RolloutPart], outcome: Outcome, has_wins: bool) -> Metrics:
    """The metrics of a batch from simulators, on one node or several."""
    metrics = finished(jax.tree.map(jnp.asarray, outcome), has_wins)
    return metrics | {"restarts": jnp.asarray(sum(part.restarts for part in parts))}


def node_metrics(parts: list[RolloutPart], iteration: int, missing: int) -> Metrics:
    """Further metrics of a batch from several nodes."""
    counts = {
        "nodes": len(parts),
        "lost_nodes": missing,
        "staleness": max(iteration - part.version for part in parts),
        "played_steps": sum(part.trajectory.reward.size for part in parts),
    }
    return {name: jnp.asarray(count) for name, count in counts.items()}
