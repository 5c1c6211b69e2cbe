"""The recurrent actor, with one switch for the parameters that agents share.

The network is that of the paper's hyperparameter tables: Linear → GRU → ReLU → Linear. `Actor` holds it in two parts,
the backbone and the head. A part that is not shared has a leading agent axis:

=========  =============  =============
sharing    backbone       head
=========  =============  =============
shared     one            one
hybrid     one            one per agent
separate   one per agent  one per agent
=========  =============  =============

Per-agent parameters start as copies of one draw: the consensus compares coordinates of different agents, which is
meaningful only from a common start (docs/algorithms/mappo.md).
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grasp.nn import gru, layers
from grasp.types import EnvSpec, Key, PyTree

Sharing = Literal["shared", "hybrid", "separate"]


class Actor(NamedTuple):
    """The parameters of the whole team's policy."""

    backbone: PyTree
    head: PyTree


def owned(sharing: Sharing) -> Actor:
    """Which parts have an agent axis."""
    return Actor(backbone=sharing == "separate", head=sharing != "shared")


def copies(tree: PyTree, num_agents: int) -> PyTree:
    """The same parameters, repeated along a new leading agent axis."""
    return jax.tree.map(lambda x: jnp.repeat(x[None], num_agents, axis=0), tree)


def unshare(actor: Actor, sharing: Sharing, parts: tuple[str, ...], num_agents: int) -> tuple[Actor, Actor]:
    """The actor with one copy per agent of the named parts, and the sharing of each part after that.

    The gradient with respect to the copies is per agent, and sums over agents to the gradient of the shared part.
    """
    own = owned(sharing)._asdict()
    params = {
        name: part if own[name] or name not in parts else copies(part, num_agents)
        for name, part in actor._asdict().items()
    }
    sharings = {name: "separate" if name in parts else sharing for name in Actor._fields}
    return Actor(**params), Actor(**sharings)


def actor_init(
    key: Key,
    spec: EnvSpec,
    hidden: int,
    sharing: Sharing,
    inputs: int | None = None,
    front: Callable[[Key, int, int], PyTree] = gru.encoded_init,
) -> Actor:
    """Initial parameters for `inputs` features, by default the observation's.

    The head's gain of 0.01 makes the initial policy nearly uniform.
    """
    backbone_key, head_key = jax.random.split(key)
    one = Actor(
        backbone=front(backbone_key, inputs or spec.obs_dim, hidden),
        head=layers.dense_init(head_key, hidden, spec.num_actions, gain=0.01),
    )
    own = owned(sharing)
    return Actor(*(copies(part, spec.num_agents) if is_own else part for part, is_own in zip(one, own, strict=True)))


def features(
    backbone: PyTree,
    sharing: Sharing,
    memory: Float[Array, "*R N H"],
    obs: Float[Array, "L *R N o"],
    first: Bool[Array, "L *R"],
) -> Float[Array, "L *R N H"]:
    """The GRU's outputs over a sequence from a stored memory; where `first[t]` is true it is cleared before step t."""
    if owned(sharing).backbone:
        own = jax.vmap(gru.encoded_gru, in_axes=(0, -2, -2, None), out_axes=-2)
        return own(backbone, memory, obs, first)
    return gru.encoded_gru(backbone, memory, obs, jnp.repeat(first[..., None], obs.shape[-2], axis=-1))


def step(
    backbone: PyTree, sharing: Sharing, memory: Float[Array, "B N H"], obs: Float[Array, "B N o"]
) -> Float[Array, "B N H"]:
    """One step of the recurrence: the new memory."""
    if owned(sharing).backbone:
        return jax.vmap(gru.encoded_step, in_axes=(0, 1, 1), out_axes=1)(backbone, memory, obs)
    return gru.encoded_step(backbone, memory, obs)


def logits(head: PyTree, sharing: Sharing, memory: Float[Array, "*S N H"]) -> Float[Array, "*S N a"]:
    """Logits of every agent, unavailable actions not masked."""
    activated = jax.nn.relu(memory)
    if not owned(sharing).head:
        return layers.dense(head, activated)
    return jax.vmap(layers.dense, in_axes=(0, -2), out_axes=-2)(head, activated)
