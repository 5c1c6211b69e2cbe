"""From a trajectory to the chunks and tiles that a PPO update walks over.

A chunk is `chunk` consecutive steps of one environment with all its agents; it starts from the memory stored in the
rollout. A tile is a group of chunks whose activations fit the processor's cache. Gradients are summed over tiles, which
is exact and several times faster than one large pass (docs/speed.md).

Over many devices, each device loops over tiles of its own environments. Minibatches mix environments: with several of
them every device receives all chunks once per iteration, and loops over its part of each minibatch.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.algos import returns
from grasp.nn import sharding
from grasp.nn.sharding import FIRST_AXIS, REPLICATED, SECOND_AXIS
from grasp.types import PyTree, Trajectory

TILE_ROWS = 192
"""Rows (chunks × agents) of a tile. 96 to 192 were fastest on one core, 384 a tenth slower, 768 half as fast."""


class Steps(NamedTuple):
    """One minibatch's samples: L steps of C chunks."""

    obs: Float[Array, "*K L C N i"]
    """The actors' inputs: observations, and what `algos.inputs` adds."""
    avail: Bool[Array, "*K L C N a"]
    alive: Float[Array, "*K L C N"]
    action: Int[Array, "*K L C N"]
    log_prob: Float[Array, "*K L C N"]
    advantage: Float[Array, "*K L C N"]
    first: Bool[Array, "*K L C"]
    state: Float[Array, "*K L C s"]
    """The team's, or with an axis N before the features; so with value and target."""
    value: Float[Array, "*K L C"]
    target: Float[Array, "*K L C"]


class Batch(NamedTuple):
    """Chunks, and the memory that each starts from."""

    steps: Steps
    start: PyTree
    """[C, ...]"""


def normalised(advantage: Float[Array, "*S"], weight: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Mean 0 and standard deviation 1 over the steps, each counted `weight` times."""
    mean, spread = returns.masked_moments(advantage, weight)
    return (advantage - mean) / (spread + 1e-5)


def cut(x: Array, length: int) -> Array:
    """[T, B, ...] -> [L, C, ...]: contiguous in time, one environment each, C = (T / L) · B."""
    num_steps, num_envs, *rest = x.shape
    chunks = x.reshape(num_steps // length, length, num_envs, *rest)
    return jax.lax.collapse(jnp.moveaxis(chunks, 1, 0), 1, 3)


def cuts(tree: PyTree, length: int, minibatches: int) -> PyTree:
    """`cut` of every leaf. Over many devices chunks stay on their device, in the order of the devices,
    unless minibatches mix them."""
    every = partial(jax.tree.map, partial(cut, length=length))
    if sharding.num_devices() == 1 or minibatches > 1:
        return every(sharding.replicate(tree))
    return sharding.per_device(every, SECOND_AXIS, SECOND_AXIS)(tree)


def chunked(
    trajectory: Trajectory,
    advantage: Float[Array, "T B N"],
    target: Float[Array, "T B *V"],
    length: int,
    minibatches: int = 1,
) -> Batch:
    """The whole trajectory as chunks. A dead agent's input is zero from here on (death masking)."""
    seen, record = trajectory.observation, trajectory.record
    alive = seen.alive.astype(jnp.float32)
    steps = Steps(
        obs=seen.obs * alive[..., None],
        avail=seen.avail,
        alive=alive,
        action=trajectory.action,
        log_prob=record.log_prob,
        advantage=advantage,
        first=trajectory.first,
        state=seen.state,
        value=record.value,
        target=target,
    )
    memory = jax.tree.map(lambda m: m[:-1], trajectory.memory)
    start = jax.tree.map(lambda m: m[0], cuts(memory, length, minibatches))
    return Batch(cuts(steps, length, minibatches), start)


def of_agent(batch: Batch, agent: Int[Array, ""]) -> Batch:
    """One agent's part of a batch: the agent axis stays, with one entry."""

    def one(x: Array, axis: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(x, agent, 1, axis % x.ndim)

    steps = batch.steps
    agent_last = {name: one(getattr(steps, name), -1) for name in ("alive", "action", "log_prob", "advantage")}
    features_last = {name: one(getattr(steps, name), -2) for name in ("obs", "avail")}
    start = batch.start._replace(actor=one(batch.start.actor, -2))
    return Batch(steps._replace(**agent_last, **features_last), start)


def tiled(batch: Batch, chunks: Int[Array, " C"]) -> Batch:
    """The named chunks as tiles: a leading tile axis on every leaf, spread over the devices."""
    if sharding.num_devices() == 1:
        return take(batch, chunks)
    return sharding.per_device(take, (REPLICATED, FIRST_AXIS), FIRST_AXIS)(batch, chunks)


def whole(batch: Batch) -> Batch:
    """All chunks as tiles, each device's of its own chunks."""

    def own(batch: Batch) -> Batch:
        return take(batch, jnp.arange(batch.steps.first.shape[1]))

    if sharding.num_devices() == 1:
        return own(batch)
    return sharding.per_device(own, (Batch._make([SECOND_AXIS, FIRST_AXIS]),), FIRST_AXIS)(batch)


def minibatch(batch: Batch, chunks: Int[Array, " C"], minibatches: int) -> Batch:
    """`tiled`; with one minibatch over many devices, each device takes all the chunks it has."""
    return whole(batch) if minibatches == 1 and sharding.num_devices() > 1 else tiled(batch, chunks)


def take(batch: Batch, chunks: Int[Array, " C"]) -> Batch:
    """The named chunks as tiles, on one device."""
    num_agents = batch.steps.alive.shape[-1]
    tile = chunks.reshape(-1, tile_size(chunks.shape[0], num_agents, TILE_ROWS))
    steps = jax.tree.map(lambda x: jnp.moveaxis(x[:, tile], 1, 0), batch.steps)
    return Batch(steps, jax.tree.map(lambda m: m[tile], batch.start))


def folded(batch: Batch, pieces: int, folds: int) -> Batch:
    """The whole batch as tiles of K folds: leaves [K, tiles, ...]. Each environment, cut into `pieces` chunks, is in
    one fold."""
    chunks = jnp.arange(batch.steps.first.shape[1]).reshape(pieces, -1)  # in the order of `cut`
    parts = [take(batch, chunks[:, fold::folds].reshape(-1)) for fold in range(folds)]
    return jax.tree.map(lambda *x: jnp.stack(x), *parts)


def tile_size(number: int, num_agents: int, rows: int) -> int:
    """Sequences per tile: the largest divisor of `number` that keeps a tile within `rows` rows."""
    limit = max(1, rows // num_agents)
    return max(d for d in range(1, min(limit, number) + 1) if number % d == 0)


def accumulate(function: Callable[[PyTree], PyTree], tiles: PyTree) -> PyTree:
    """The sum of a function over tiles, one tile at a time; over many devices also over devices, except for `Partial`
    results."""
    if sharding.num_devices() > 1:
        one = jax.eval_shape(function, jax.tree.map(lambda x: x[0], tiles))
        specs = jax.tree.map(
            lambda x: FIRST_AXIS if sharding.is_partial(x) else REPLICATED, one, is_leaf=sharding.is_partial
        )
        summed = sharding.per_device(lambda own: sharding.sum_over_devices(walk(function, own)), (FIRST_AXIS,), specs)
        return summed(tiles)
    return walk(function, tiles)


def walk(function: Callable[[PyTree], PyTree], tiles: PyTree) -> PyTree:
    """The sum of a function over one device's tiles."""
    one = jax.eval_shape(function, jax.tree.map(lambda x: x[0], tiles))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)

    def add(total, tile):
        return jax.tree.map(jnp.add, total, function(tile)), None

    return jax.lax.scan(add, zeros, tiles)[0]
