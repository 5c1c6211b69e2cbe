"""Finished episodes on disk, each written once.

A replay may be gigabytes, of which a checkpoint adds little. So episodes are kept beside the checkpoints in segments,
files that never change: `episodes-A-B.safetensors` holds episodes A to B − 1 with the steps that were played.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from grasp import checkpoint
from grasp.replay import Episodes, Replay, Tail, numbered, rebuild
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
def _fetch(replay: Replay, place: jax.Array, numbers: jax.Array) -> Episodes:
    one = Replay(*(jax.tree.map(lambda x: x[place], part) for part in replay))
    return numbered(one, numbers)


def append(folder: Path, replay: Replay, place: int, finished: int) -> None:
    """Write what has finished since the last segment. `replay` has a leading seed axis, of which this is `place`."""
    written = max((span_of(path)[1] for path in stored(folder)), default=0)
    first = max(written, finished - replay.ring.shape[-1])
    if first >= finished:
        return
    blocks = []
    for start in range(first, finished, BLOCK):
        numbers = jnp.asarray(np.minimum(start + np.arange(BLOCK), finished - 1))
        block = jax.device_get(_fetch(replay, jnp.asarray(place), numbers))
        blocks.append(jax.tree.map(lambda x, n=finished - start: x[:n], block))
    episodes = jax.tree.map(lambda *x: np.concatenate(x), *blocks)
    checkpoint.save(path_of(folder, first, finished), packed(episodes), {})


def masks(length: np.ndarray, horizon: int) -> dict[str, np.ndarray]:
    """Which entries of an episode's arrays are real: what is seen has one more than what is done."""
    time = np.arange(horizon + 1)[None]
    seen, done = time <= length[:, None], time[:, :-1] < length[:, None]
    return {"obs": seen, "state": seen, "avail": seen, "action": done, "reward": done}


def packed(episodes: Episodes) -> Episodes:
    """Only the steps that were played, one after the other."""
    real = masks(np.asarray(episodes.length), episodes.reward.shape[1])
    return episodes._replace(**{name: getattr(episodes, name)[mask] for name, mask in real.items()})


def unpacked(steps: Episodes, like: Episodes) -> Episodes:
    """Episodes of the full length again, with zeros where nothing was played."""
    found = {}
    for name, mask in masks(np.asarray(steps.length), like.reward.shape[1]).items():
        found[name] = np.zeros((*mask.shape, *getattr(like, name).shape[2:]), getattr(like, name).dtype)
        found[name][mask] = getattr(steps, name)
    return steps._replace(**found)


def restore(folder: Path, tail: Tail, capacity: int) -> Replay:
    """The replay of a checkpoint, from its tail and the segments; later segments are removed.

    Damaged where an episode that is still in the replay cannot be read.
    """
    finished = int(tail.finished)
    needed = max(0, finished - capacity)
    parts = []
    for path in stored(folder):
        first, end = span_of(path)
        if first >= finished:
            path.unlink()
        elif end > needed:
            parts.append((first, end, load(path, tail.running)))
    spans = [(first, end) for first, end, _ in parts]
    if finished and not _covers(spans, needed, finished):
        raise checkpoint.Damaged(f"{folder} lacks some of the episodes {needed} to {finished - 1}")
    nothing = jax.tree.map(lambda x: np.asarray(x)[:0], tail.running)
    episodes = jax.tree.map(lambda *x: np.concatenate(x), nothing, *(part for _, _, part in parts))
    newest = jax.tree.map(lambda x: x[len(x) - (finished - needed) :], episodes)
    return rebuild(tail, newest, capacity)


def _covers(spans: list[tuple[int, int]], needed: int, finished: int) -> bool:
    """Whether the spans follow each other from `needed`, or before it, to `finished`."""
    starts = [needed, *(end for _, end in spans)]
    joined = all(first == start for (first, _), start in zip(spans[1:], starts[1:], strict=False))
    return bool(spans) and spans[0][0] <= needed and joined and spans[-1][1] == finished


def load(path: Path, like: Episodes) -> Episodes:
    """One segment's episodes; Damaged where it cannot be trusted."""
    arrays: dict[str, PyTree] = checkpoint.read(path)[0]
    return unpacked(Episodes(*(arrays[f".{name}"] for name in Episodes._fields)), like)


def prune(folder: Path, oldest: int) -> None:
    """Remove the segments that hold only episodes before `oldest`."""
    for path in stored(folder):
        if span_of(path)[1] <= oldest:
            path.unlink(missing_ok=True)
