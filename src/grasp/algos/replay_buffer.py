"""A replay buffer of the newest `capacity` episodes, written step by step while they are played.

A copy begins its next episode at once, so a rollout holds pieces of episodes. Every copy has a slot of its own into
which its running episode is written; when that ends, the slot joins the ring of finished episodes and the copy takes
over the slot of the oldest. A finished episode is never moved.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from grasp.types import EnvSpec, Key, PyTree, Trajectory


class Episodes(NamedTuple):
    """E episodes of up to H steps. Observations have one entry more than actions: the one after the last step."""

    obs: Float[Array, "E H1 N o"]
    """Zeros for a dead agent."""
    state: Float[Array, "E H1 s"]
    avail: Bool[Array, "E H1 N a"]
    action: Int[Array, "E H N"]
    reward: Float[Array, "E H"]
    length: Int[Array, " E"]
    terminated: Bool[Array, " E"]
    """False where the time limit truncated it: its last step then bootstraps."""


SEEN, DONE = ("obs", "state", "avail"), ("action", "reward")
"""The fields with one entry per step; those in `SEEN` have one more, for the observation after the last step."""


def played(length: Int[Array | np.ndarray, " E"], horizon: int) -> dict[str, Any]:
    """Masks of the entries of those fields that lie within the episodes."""
    time = np.arange(horizon + 1)[None]
    return dict.fromkeys(SEEN, time <= length[:, None]) | dict.fromkeys(DONE, time[:, :-1] < length[:, None])


class Replay(NamedTuple):
    """The finished episodes and the running ones."""

    slots: Episodes
    """capacity + B of them. Beyond an episode's length a slot holds stale data."""
    ring: Int[Array, " C"]
    """The slot of episode n is `ring[n % C]`."""
    running: Int[Array, " B"]
    """The slot that each environment writes to."""
    finished: Int[Array, ""]
    """Episodes finished so far."""


def empty(spec: EnvSpec, capacity: int, num_envs: int) -> Replay:
    """A buffer without episodes."""
    slots = nothing(spec, capacity + num_envs)
    return Replay(slots, jnp.arange(capacity), capacity + jnp.arange(num_envs), jnp.zeros((), jnp.int32))


def nothing(spec: EnvSpec, number: int) -> Episodes:
    """Zeroed slots for this many episodes."""
    steps, agents = spec.horizon, spec.num_agents
    return Episodes(
        obs=jnp.zeros((number, steps + 1, agents, spec.obs_dim)),
        state=jnp.zeros((number, steps + 1, spec.state_dim)),
        avail=jnp.zeros((number, steps + 1, agents, spec.num_actions), bool),
        action=jnp.zeros((number, steps, agents), jnp.int32),
        reward=jnp.zeros((number, steps)),
        length=jnp.zeros(number, jnp.int32),
        terminated=jnp.zeros(number, bool),
    )


def episode_bytes(spec: EnvSpec) -> int:
    """Memory of one episode."""
    shapes = jax.eval_shape(lambda: nothing(spec, 1))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def append(replay: Replay, trajectory: Trajectory) -> Replay:
    """Write a rollout of at most as many steps as the ring has slots, so that no slot is used twice."""
    ended = trajectory.terminated | trajectory.truncated
    lengths = replay.slots.length[replay.running]
    capacity = replay.ring.shape[0]

    def walk(carry: tuple, now: tuple[Array, Array]) -> tuple[tuple, tuple]:
        """The slot and time of each environment's step, and the exchange of slots when an episode ends."""
        ring, running, time, finished = carry
        first, ended = now
        time = jnp.where(first, 0, time)  # an episode that a simulator lost is overwritten
        written = (running, time)
        position = (finished + jnp.cumsum(ended) - 1) % capacity
        taken = jnp.where(ended, ring[position], running)
        ring = ring.at[jnp.where(ended, position, capacity)].set(running, mode="drop")
        return (ring, taken, jnp.where(ended, 0, time + 1), finished + ended.sum()), written

    carry, (slot, time) = jax.lax.scan(
        walk, (replay.ring, replay.running, lengths, replay.finished), (trajectory.first, ended)
    )
    ring, running, lengths, finished = carry
    slots = _write(replay.slots, trajectory, slot, time, ended)
    slots = slots._replace(length=slots.length.at[running].set(lengths))
    return Replay(slots, ring, running, finished)


def _write(
    slots: Episodes, trajectory: Trajectory, slot: Int[Array, "T B"], time: Int[Array, "T B"], ended: Bool[Array, "T B"]
) -> Episodes:
    at, last = (slot, time), (jnp.where(ended, slot, slots.length.shape[0]), time + 1)
    end = last[0]
    for where, seen in ((at, trajectory.observation), (last, trajectory.next_observation)):
        slots = slots._replace(
            obs=slots.obs.at[where].set(seen.obs * seen.alive[..., None], mode="drop"),
            state=slots.state.at[where].set(seen.state, mode="drop"),
            avail=slots.avail.at[where].set(seen.avail, mode="drop"),
        )
    return slots._replace(
        action=slots.action.at[at].set(trajectory.action),
        reward=slots.reward.at[at].set(trajectory.reward),
        length=slots.length.at[end].set(time + 1, mode="drop"),
        terminated=slots.terminated.at[end].set(trajectory.terminated, mode="drop"),
    )


def sample(replay: Replay, key: Key, number: int) -> Episodes:
    """Finished episodes, uniformly and without repetition; there must be at least `number` of them.

    They are zero beyond their ends: a mask alone would not remove stale non-finite values.
    """
    capacity = replay.ring.shape[0]
    lottery = jnp.where(jnp.arange(capacity) < replay.finished, jax.random.uniform(key, (capacity,)), -1.0)
    chosen = replay.ring[jax.lax.top_k(lottery, number)[1]]
    return ended(jax.tree.map(lambda x: x[chosen], replay.slots))


def ended(episodes: Episodes) -> Episodes:
    """The episodes, zero beyond their ends."""

    def keep(real: Array | np.ndarray, x: Array) -> Array:
        return jnp.where(real.reshape(*real.shape, *[1] * (x.ndim - 2)), x, jnp.zeros((), x.dtype))

    real = played(episodes.length, episodes.reward.shape[1])
    return episodes._replace(**{name: keep(mask, getattr(episodes, name)) for name, mask in real.items()})


def time_first(batch: Episodes) -> Episodes:
    """The per-step fields as [H, E, ...]."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0) if x.ndim > 1 else x, batch)


def at_its_length(
    function: Callable[[Episodes, Array], PyTree], tile: Episodes, fed: Float[Array, "H1 E N i"]
) -> PyTree:
    """Call the function on episodes cut to an eighth, a quarter or a half of the horizon, if none is longer.

    Most episodes are much shorter than the time limit, and what is computed beyond their ends is masked.
    """
    horizon = tile.reward.shape[1]
    widths = sorted({-(-horizon // part) for part in (8, 4, 2, 1)})

    def narrow(width: int, tile: Episodes, fed: Array) -> PyTree:
        seen = {name: getattr(tile, name)[:, : width + 1] for name in SEEN}
        done = {name: getattr(tile, name)[:, :width] for name in DONE}
        return function(tile._replace(**seen, **done), fed[: width + 1])

    enough = jnp.searchsorted(jnp.array(widths), tile.length.max())
    return jax.lax.switch(enough, [partial(narrow, width) for width in widths], tile, fed)


class Checkpointed(NamedTuple):
    """The part of a replay buffer in a checkpoint: the running episodes. Finished ones are stored apart, once each."""

    running: Episodes
    finished: Int[Array, ""]


def checkpointed(replay: Replay) -> Checkpointed:
    return Checkpointed(jax.tree.map(lambda x: x[replay.running], replay.slots), replay.finished)


def numbered(replay: Replay, numbers: Int[Array, " K"]) -> Episodes:
    """Finished episodes by number; the buffer holds the newest `capacity`."""
    slots = replay.ring[numbers % replay.ring.shape[0]]
    return jax.tree.map(lambda x: x[slots], replay.slots)
