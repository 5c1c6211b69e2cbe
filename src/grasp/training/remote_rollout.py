"""One batch from several machines: each plays a share of the copies for one learner.

Copies are numbered over all machines, and what befalls one follows from its number alone: it does not matter who plays
a share. A share carries the version of the policy that played it, which is how many updates that had seen.
"""

from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt32

from grasp import algos
from grasp.config import LARGEST, Config
from grasp.envs import base as envs
from grasp.envs.host import SimulatorPool, cores
from grasp.training import host_rollout
from grasp.training.rollout import Outcome, finished
from grasp.types import Algorithm, Host, Key, Metrics, PyTree, Trajectory


class Order(NamedTuple):
    """What a learner asks the other machines to play."""

    iteration: int
    """Whose batch it is for."""
    version: int
    policy: dict[str, PyTree]
    """The fields of the algorithm's state that acting and judging need."""
    key: UInt32[np.ndarray, " _"]
    """Of the iteration's playing, as its bits: a key of JAX cannot be sent."""
    fresh: bool
    """Whether new episodes begin everywhere."""


class Share(NamedTuple):
    """What one machine has played."""

    version: int
    trajectory: Trajectory
    outcome: Outcome
    restarts: int


@runtime_checkable
class Others(Protocol):
    """The machines that play for a learner, beside its own."""

    def ask(self, order: Order) -> None:
        """Let all play that do not play already."""
        ...

    def take(self, due: int) -> list[Share]:
        """What was handed in, in the order of the machines' numbers. Whose order is for iteration `due`, or an earlier
        one, is waited for."""
        ...

    def missing(self) -> int:
        """How many of those that were planned do not play, or no longer."""
        ...

    def close(self) -> None: ...


class Player:
    """The simulators of one machine; the learner's own is number 0."""

    def __init__(self, config: Config, host: Host, algorithm: Algorithm, number: int = 0, log: Path | None = None):
        self.config, self.host, self.algorithm, self.number, self.log = config, host, algorithm, number, log
        self.stage: host_rollout.Stage | None = None

    def opened(self) -> host_rollout.Stage:
        if self.stage is None:
            config = self.config
            workers = config.workers or len(cores())
            pool = SimulatorPool(self.host, config.envs_per_node, workers, config.deadline, config.restarts, self.log)
            self.stage = host_rollout.Stage(pool, self.algorithm)
        return self.stage

    def play(self, version: int, state: PyTree, key: Key, fresh: bool) -> Share:
        """The share of one iteration, whose key is given to every machine."""
        stage, share = self.opened(), self.config.envs_per_node
        stage.pool.restarts = 0  # before the first reset: an evaluation's do not count against this iteration
        if fresh:
            stage.begin(host_rollout.episode_seeds(jax.random.fold_in(key, LARGEST), share, self.number * share))
        if self.number > 0:  # actions are drawn for many copies at once; the steps' numbers come from below
            key = jax.random.fold_in(key, LARGEST - self.number)
        return Share(version, *host_rollout.collect(stage, state, key, self.config.hyper.rollout))

    def close(self) -> None:
        if self.stage is not None:
            self.stage.pool.close()


class Guest:
    """A player on another machine, who knows the policy only from orders."""

    def __init__(self, config: Config, number: int, log: Path | None):
        host = envs.make(config.env)
        assert isinstance(host, Host)
        algorithm = algos.make(config, host.spec)
        self.player = Player(config, host, algorithm, number, log)
        shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
        self.state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)  # what acting needs comes with orders

    def play(self, order: Order) -> Share:
        state = self.state._replace(**order.policy)
        return self.player.play(order.version, state, jax.random.wrap_key_data(jnp.asarray(order.key)), order.fresh)

    def close(self) -> None:
        self.player.close()


def joined(shares: list[Share]) -> tuple[Trajectory, Outcome]:
    """All shares side by side: copies are the second axis of every array."""
    played = [(share.trajectory, share.outcome) for share in shares]
    return played[0] if len(played) == 1 else jax.tree.map(lambda *x: np.concatenate(x, 1), *played)


def described(shares: list[Share], outcome: Outcome, has_wins: bool) -> Metrics:
    """What the metrics say of any batch that simulators have played."""
    metrics = finished(jax.tree.map(jnp.asarray, outcome), has_wins)
    return metrics | {"restarts": jnp.asarray(sum(share.restarts for share in shares))}


def provenance(shares: list[Share], iteration: int, missing: int) -> Metrics:
    """And of one that several machines have."""
    counts = {
        "nodes": len(shares),
        "lost_nodes": missing,
        "staleness": max(iteration - share.version for share in shares),
        "played_steps": sum(share.trajectory.reward.size for share in shares),
    }
    return {name: jnp.asarray(count) for name, count in counts.items()}
