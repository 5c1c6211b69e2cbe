"""Pytrees in files: written atomically and verified when read.

A file is a plain safetensors file with one tensor per leaf, named by its path in the tree. Its metadata has a digest of
all tensors, so that a truncated or altered file is detected and not loaded.
"""

import hashlib
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialise

from grasp.types import PyTree

KEEP = 2
"""Checkpoints kept: the newest, and the one before it in case the newest is damaged."""


class Damaged(Exception):
    """A file that is corrupt or incomplete; the message names it and the reason."""


class Misfit(Exception):
    """An intact file that does not match the run's configuration or version; older files would not match either."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file: after a crash it has all of the old content or all of the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def is_key(leaf: PyTree) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Every leaf as a numpy array under its path; random keys as their bits."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        jax.tree_util.keystr(path): np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for path, leaf in leaves
    }


def digest(arrays: dict[str, np.ndarray]) -> str:
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(f"{name}{arrays[name].dtype}{arrays[name].shape}".encode())
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


def save(path: Path, tree: PyTree, metadata: dict[str, str]) -> None:
    """Write a tree and its metadata."""
    arrays = to_arrays(tree)
    write_atomically(path, serialise(arrays, metadata | {"digest": digest(arrays)}))


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """A file's arrays by their paths, and its metadata; Damaged where the digest does not match."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise Damaged(f"{path} cannot be read ({error})") from None
    if metadata.get("digest") != digest(arrays):
        raise Damaged(f"{path} is damaged: its content does not match its digest")
    return arrays, metadata


def load(path: Path, like: PyTree) -> tuple[PyTree, dict[str, str]]:
    """Read a tree of the same structure as `like` (arrays or their shapes)."""
    arrays, metadata = read(path)

    def restore(where: tuple, leaf: PyTree) -> jax.Array:
        name = jax.tree_util.keystr(where)
        shape = jax.eval_shape(jax.random.key_data, leaf).shape if is_key(leaf) else leaf.shape
        if name not in arrays or arrays[name].shape != shape:
            raise Misfit(f"{path} does not fit its run's configuration: {name} is missing or has another shape")
        bits = jnp.asarray(arrays[name])
        return jax.random.wrap_key_data(bits) if is_key(leaf) else bits

    return jax.tree_util.tree_map_with_path(restore, like), metadata


def name_of(number: int) -> str:
    return f"step-{number:012d}.safetensors"


def number_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def stored(folder: Path) -> list[Path]:
    """The numbered files of a folder, oldest first."""
    return sorted(folder.glob("step-*.safetensors"))


def prune(folder: Path) -> None:
    for path in stored(folder)[:-KEEP]:
        path.unlink(missing_ok=True)
