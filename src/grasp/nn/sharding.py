"""One run over many devices: environments are sharded over them, parameters are replicated.

The devices are those of the mesh in JAX's context, which `grasp.training.runner` sets by `jax.set_mesh`. Without a mesh
these functions change nothing. Under `jit`, XLA inserts the communication that sums over environments need; where the
order of operations matters it is written out (`grasp.algos.minibatches`, `grasp.consensus.sharded`).
"""

import pickle
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from grasp.types import GraspError, PyTree

AXIS = "devices"
FIRST_AXIS, SECOND_AXIS, REPLICATED = PartitionSpec(AXIS), PartitionSpec(None, AXIS), PartitionSpec()
"""Shardings of an array: its first axis over the devices, its second axis over the devices, or replicated."""


T = TypeVar("T")


class Partial(NamedTuple):
    """One device's term of a sum over devices that is not formed yet. With many devices, leaves have a device axis."""

    sum: PyTree


def mesh(number: int) -> Mesh:
    """A mesh of `number` devices, equally many from every process."""
    processes = range(jax.process_count())
    own = number // len(processes)
    found = [jax.local_devices(process) for process in processes]
    fewest = min(map(len, found)) * len(processes)
    if fewest < number:
        raise GraspError(f"requested {number} devices but found {fewest}; give at most --devices {fewest}")
    chosen = [device for devices in found for device in devices[:own]]
    return jax.make_mesh((number,), (AXIS,), (AxisType.Auto,), devices=chosen)


def put(tree: PyTree, shardings: PyTree) -> PyTree:
    """Every leaf with its sharding; leaves that have it already are not copied.

    With several processes, an array that one process holds whole must be equal in all of them; each keeps its part.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, shardings)

    def one(x: jax.Array, sharding: NamedSharding) -> jax.Array:
        if not x.is_fully_addressable:  # the result of a program, which has its sharding already
            return x
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(one(jax.random.key_data(x), sharding))
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])

    return jax.tree.map(lambda sharding, part: jax.tree.map(lambda x: one(x, sharding), part), shardings, tree)


def handshake(number: int) -> None:
    """Exchange a first message between all processes, and return when all have sent it.

    gloo fails if a process is 30 seconds late for its first message, but waits for later ones. So this is called before
    anything that may take longer in one process than in another, such as compiling.
    """
    if jax.process_count() > 1:
        ones = put(jnp.ones(number), NamedSharding(mesh(number), FIRST_AXIS))
        jax.block_until_ready((jax.jit(jnp.sum)(ones), agreed(True)))


def is_first() -> bool:
    """Whether this is the only process of a program, or process 0 of several: the one that reads and writes files."""
    return jax.process_index() == 0


def agreed(condition: bool) -> bool:
    """The first process's condition, on all processes: clocks differ."""
    return condition if jax.process_count() == 1 else bool(multihost_utils.broadcast_one_to_all(np.asarray(condition)))


def from_first(function: Callable[[], T]) -> T:
    """The result of `function` on the first process, on all processes; the others do not call it."""
    if jax.process_count() == 1:
        return function()
    data = np.frombuffer(pickle.dumps(function()), np.uint8) if is_first() else np.zeros(0, np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.asarray(data.size, np.int32)))
    data = data if is_first() else np.zeros(size, np.uint8)
    return pickle.loads(multihost_utils.broadcast_one_to_all(data).tobytes())


def num_devices() -> int:
    """The number of devices in the context's mesh; 1 without a mesh."""
    context = jax.sharding.get_abstract_mesh()
    return 1 if context.empty else context.size


def shard(tree: PyTree) -> PyTree:
    """Every leaf [B, ...] with its environments sharded over the devices, if they divide evenly."""
    if num_devices() == 1:
        return tree

    def one(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, FIRST_AXIS) if x.shape[0] % num_devices() == 0 else x

    return jax.tree.map(one, tree)


def replicate(tree: PyTree) -> PyTree:
    """Every leaf replicated on every device."""
    return tree if num_devices() == 1 else jax.lax.with_sharding_constraint(tree, REPLICATED)


def per_device(function: Callable, in_specs: PyTree, out_specs: PyTree) -> Callable:
    """The function applied by every device to its own part."""
    return jax.shard_map(function, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def sum_over_devices(tree: PyTree) -> PyTree:
    """The sum over devices, inside `per_device`, by one reduction for all leaves. A `Partial` is not summed."""
    leaves, shape = jax.tree.flatten(tree, is_leaf=is_partial)
    flat, restore = ravel_pytree([leaf for leaf in leaves if not is_partial(leaf)])
    summed = iter(restore(jax.lax.psum(flat, AXIS)))
    kept = [jax.tree.map(lambda x: x[None], leaf) if is_partial(leaf) else next(summed) for leaf in leaves]
    return jax.tree.unflatten(shape, kept)


def is_partial(node: PyTree) -> bool:
    return isinstance(node, Partial)
