"""From a trajectory to the chunks and tiles that a PPO update walks over.

A chunk is `chunk` consecutive steps of one environment with all its agents, and starts from the memory stored during
the rollout. A tile is a group of chunks small enough for its activations to stay in the processor's cache: gradients
are summed over tiles, which costs nothing in accuracy and is several times faster than one large pass (docs/speed.md).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp import returns
from grasp.types import PyTree, Trajectory

TILE_ROWS = 192
"""Rows (chunks × agents) of a tile. 96 to 192 were fastest on one core, 384 a tenth slower, 768 half as fast."""


class Steps(NamedTuple):
    """One minibatch's samples: L steps of C chunks."""

    obs: Float[Array, "*K L C N o"]
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
    """Chunks and the memory each one starts from."""

    steps: Steps
    start: PyTree
    """[C, ...]"""


def normalised(advantage: Float[Array, "*S"], weight: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Mean 0 and spread 1 over the steps, each counted `weight` times."""
    mean, spread = returns.masked_moments(advantage, weight)
    return (advantage - mean) / (spread + 1e-5)


def cut(x: Array, length: int) -> Array:
    """[T, B, ...] -> [L, C, ...]: contiguous in time, one environment each, C = (T / L) · B."""
    num_steps, num_envs, *rest = x.shape
    chunks = x.reshape(num_steps // length, length, num_envs, *rest)
    return jax.lax.collapse(jnp.moveaxis(chunks, 1, 0), 1, 3)


def chunked(
    trajectory: Trajectory, advantage: Float[Array, "T B N"], target: Float[Array, "T B *V"], length: int
) -> Batch:
    """The whole trajectory as chunks. A dead agent's observation is zero from here on (death masking)."""
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
    start = jax.tree.map(lambda m: cut(m[:-1], length)[0], trajectory.memory)
    return Batch(jax.tree.map(lambda x: cut(x, length), steps), start)


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
    """The named chunks as tiles: a leading tile axis on every leaf."""
    num_agents = batch.steps.alive.shape[-1]
    tile = chunks.reshape(-1, tile_size(chunks.shape[0], num_agents, TILE_ROWS))
    steps = jax.tree.map(lambda x: jnp.moveaxis(x[:, tile], 1, 0), batch.steps)
    return Batch(steps, jax.tree.map(lambda m: m[tile], batch.start))


def folded(batch: Batch, pieces: int, folds: int) -> Batch:
    """The whole batch as tiles of K folds, every environment, cut into so many pieces, in one of them: two leading axes
    on every leaf."""
    chunks = jnp.arange(batch.steps.first.shape[1]).reshape(pieces, -1)  # in the order of `cut`
    parts = [tiled(batch, chunks[:, fold::folds].reshape(-1)) for fold in range(folds)]
    return jax.tree.map(lambda *x: jnp.stack(x), *parts)


def tile_size(number: int, num_agents: int, rows: int) -> int:
    """How many of `number` sequences a tile takes: the largest divisor that keeps it within `rows`."""
    limit = max(1, rows // num_agents)
    return max(d for d in range(1, min(limit, number) + 1) if number % d == 0)


def accumulate(function: Callable[[PyTree], PyTree], tiles: PyTree) -> PyTree:
    """The sum of a function over tiles, one tile at a time."""
    one = jax.eval_shape(function, jax.tree.map(lambda x: x[0], tiles))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), one)

    def add(total, tile):
        return jax.tree.map(jnp.add, total, function(tile)), None

    return jax.lax.scan(add, zeros, tiles)[0]
