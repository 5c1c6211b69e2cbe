"""The cost of one gradient per agent in a shared actor, the paper's reason not to share the whole actor."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from grasp.algos import ablations, grasp, ppo
from grasp.algos import minibatches as batches
from grasp.algos.minibatches import Batch
from grasp.bench.measure import Line, interleaved, peak_mb, played, workload
from grasp.config.hyperparameters import Mappo
from grasp.nn.actor import Actor
from grasp.types import PyTree

ENVS = ("mpe/simple_spread", "smax/5m_vs_6m")
SUM = "the sum of all agents' gradients"


def run(smoke: bool) -> Iterator[Line]:
    """Time of all per-agent gradients relative to their sum, over one batch in one shared actor."""
    for env in ENVS[:1] if smoke else ENVS:
        config = workload("grasp-mappo", env, smoke, sharing="shared")
        assert isinstance(config.hyper, Mappo)
        _, state, trajectory = played(config)
        tiles = batches.whole(ppo.prepare(config.hyper, state, trajectory))
        taken = interleaved(programs(config.hyper, state.actor, tiles), rounds=2 if smoke else 9)
        for name in [name for name in taken if name != SUM]:
            yield Line(f"{env}, {name}", taken[name], "s", taken[name] / taken[SUM], SUM, peak_mb())


def programs(hyper: Mappo, actor: Actor, tiles: Batch) -> dict[str, Callable[[], PyTree]]:
    """Four ways to differentiate the same batch."""
    weight = ppo.step_weights(hyper, tiles.steps.alive)

    def summed(actor: Actor, tiles: Batch) -> PyTree:
        return ppo.policy_gradient(hyper, actor, tiles)[0]

    def of_inputs(weight: Any, actor: Actor, tiles: Batch) -> PyTree:
        return ablations.input_gradients(hyper, actor, tiles, weight)

    def one_by_one(actor: Actor, tiles: Batch) -> PyTree:
        return [of_inputs(alone, actor, tiles) for alone in jnp.diag(weight)]

    ways = {
        SUM: summed,
        "agents' gradients, vmap(grad)": lambda a, t: grasp.surrogate_gradients(hyper, a, ("backbone", "head"), t),
        "agents' input gradients, one pass": partial(of_inputs, weight),
        "agents' input gradients, one pass per agent (Listing 1)": one_by_one,
    }
    return {name: partial(jax.jit(way), actor, tiles) for name, way in ways.items()}
