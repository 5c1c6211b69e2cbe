"""The finished episodes of a replay buffer on disk, each written once.

A replay buffer may have gigabytes, of which little changes between two checkpoints. So finished episodes are stored
beside the checkpoints in segments, files that do not change: `episodes-A-B.safetensors` has episodes A to B − 1 without
padding.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from grasp.algos.replay_buffer import Checkpointed, Episodes, Replay, numbered, played
from grasp.runs import checkpoint
from grasp.types import PyTree

BLOCK = 32
"""Episodes fetched from the device at a time."""


def path_of(folder: Path, first: int, end: int) -> Path:
    return folder / f"episodes-{first:012d}-{end:012d}.safetensors"


def span_of(path: Path) -> tuple[int, int]:
    _, first, end = path.stem.split("-")
    return int(first), int(end)


def stored(folder: Path) -> list[Path]:
    """The segments of a folder, oldest first."""
    return sorted(folder.glob("episodes-*.safetensors"))


@jax.jit
def _fetch(replay: Replay, index: jax.Array, numbers: jax.Array) -> Episodes:
    one = Replay(*(jax.tree.map(lambda x: x[index], part) for part in replay))
    return numbered(one, numbers)


def append(folder: Path, replay: Replay, index: int, finished: int) -> None:
    """Write the episodes finished since the last segment. `index` is the seed's on the leading axis of `replay`."""
    written = max((span_of(path)[1] for path in stored(folder)), default=0)
    first = max(written, finished - replay.ring.shape[-1])
    if first >= finished:
        return
    blocks = []
    for start in range(first, finished, BLOCK):
        numbers = jnp.asarray(np.minimum(start + np.arange(BLOCK), finished - 1))
        block = jax.device_get(_fetch(replay, jnp.asarray(index), numbers))
        blocks.append(packed(jax.tree.map(lambda x, n=finished - start: x[:n], block)))
    episodes = jax.tree.map(lambda *x: np.concatenate(x), *blocks)
    checkpoint.save(path_of(folder, first, finished), episodes, {})


def packed(episodes: Episodes) -> Episodes:
    """Episodes without padding, concatenated in time."""
    real = played(np.asarray(episodes.length), episodes.reward.shape[1])
    return episodes._replace(**{name: getattr(episodes, name)[mask] for name, mask in real.items()})


def needed(folder: Path, finished: int, capacity: int) -> list[Path]:
    """The segments with the finished episodes of a replay buffer; Damaged where some are missing."""
    oldest = max(0, finished - capacity)
    paths = [path for path in stored(folder) if span_of(path)[0] < finished and span_of(path)[1] > oldest]
    reached = oldest
    for first, end in map(span_of, paths):
        if first > reached:
            break
        reached = end
    if reached != finished:
        raise checkpoint.Damaged(f"{folder} lacks some of the episodes {oldest} to {finished - 1}")
    return paths


def verify(folder: Path, finished: int, capacity: int) -> None:
    """Damaged where an episode of the replay buffer cannot be read."""
    for path in needed(folder, finished, capacity):
        checkpoint.read(path)


def restore(folder: Path, part: Checkpointed, capacity: int) -> Replay:
    """The replay buffer of a checkpoint, from its part there and the segments; later segments are removed.

    Episodes may get other slots than before, on which nothing depends. Segments are unpacked one at a time, straight
    into their slots: a replay buffer may fill the memory.
    """
    finished = int(part.finished)
    discard(folder, finished)
    num_envs = len(part.running.length)

    def room(running: PyTree) -> np.ndarray:
        slots = np.zeros((capacity + num_envs, *running.shape[1:]), running.dtype)
        slots[capacity:] = running
        return slots

    slots = jax.tree.map(room, part.running)
    for path in needed(folder, finished, capacity):
        numbers = np.arange(*span_of(path))
        held = numbers >= finished - capacity
        unpack(checkpoint.read(path)[0], slots, numbers[held] % capacity, held)
    ring, running = jnp.arange(capacity), capacity + jnp.arange(num_envs)
    return Replay(jax.tree.map(jnp.asarray, slots), ring, running, jnp.asarray(part.finished))


def unpack(arrays: dict[str, np.ndarray], slots: PyTree, rows: np.ndarray, held: np.ndarray) -> None:
    """Write the episodes of a segment that the buffer still holds into their rows."""
    real = played(arrays[".length"], slots.reward.shape[1])
    for name in Episodes._fields:
        target, values = getattr(slots, name), arrays[f".{name}"]
        if name in real:
            whole = np.zeros((*real[name].shape, *target.shape[2:]), target.dtype)
            whole[real[name]] = values
            values = whole
        target[rows] = values[held]


def discard(folder: Path, finished: int) -> None:
    """Remove the segments from episode `finished` on: the resumed run plays those episodes again."""
    for path in stored(folder):
        if span_of(path)[0] >= finished:
            path.unlink()


def prune(folder: Path, oldest: int) -> None:
    """Remove the segments that have only episodes before `oldest`."""
    for path in stored(folder):
        if span_of(path)[1] <= oldest:
            path.unlink(missing_ok=True)
