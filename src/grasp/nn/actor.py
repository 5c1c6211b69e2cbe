"""The actor, with one switch for the parameters that agents share.

`Actor` holds a network in two parts: the backbone (`grasp.nn.backbone`), which ends in features, and the head, a linear
layer. The paper's network is Linear → GRU → ReLU → Linear. A part that is not shared has a leading agent axis:

=========  =============  =============
sharing    backbone       head
=========  =============  =============
shared     one            one
hybrid     one            one per agent
separate   one per agent  one per agent
=========  =============  =============

Per-agent parameters start as copies of one draw, unless `init` is `separate`: the consensus compares coordinates of
different agents, which is meaningful only from a common start (docs/algorithms/mappo.md).
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from grasp.nn import backbone as backbones
from grasp.nn import layers
from grasp.nn.backbone import Front
from grasp.types import EnvSpec, Key, PyTree

Sharing = Literal["shared", "hybrid", "separate"]
Init = Literal["common", "separate"]


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
    inputs: int,
    front: Front = backbones.encoded_init,
    head: Front | None = None,
    init: Init = "common",
) -> Actor:
    """Initial parameters for this many input features. The default head is a policy's: its small gain makes the initial
    policy nearly uniform."""
    head = head or policy_head()
    backbone_key, head_key = jax.random.split(key)

    def part(initial: Front, key: Key, in_dim: int, out_dim: int, is_own: bool) -> PyTree:
        if not is_own:
            return initial(key, in_dim, out_dim)
        if init == "common":
            return copies(initial(key, in_dim, out_dim), spec.num_agents)
        each = [initial(agent_key, in_dim, out_dim) for agent_key in jax.random.split(key, spec.num_agents)]
        return jax.tree.map(lambda *x: jnp.stack(x), *each)

    own = owned(sharing)
    return Actor(
        part(front, backbone_key, inputs, hidden, own.backbone),
        part(head, head_key, hidden, spec.num_actions, own.head),
    )


def policy_head(gain: float = 0.01) -> Front:
    """The initial head of a policy."""
    return lambda key, hidden, num_actions: layers.dense_init(key, hidden, num_actions, gain)


def features(
    backbone: PyTree,
    sharing: Sharing,
    memory: Float[Array, "*R N M"],
    seen: Float[Array, "L *R N i"],
    first: Bool[Array, "L *R"],
) -> Float[Array, "L *R N H"]:
    """The head's input over a sequence from a stored memory; where `first[t]` is true it is cleared before step t."""
    if owned(sharing).backbone:
        own = jax.vmap(backbones.sequence, in_axes=(0, -2, -2, None), out_axes=-2)
        return own(backbone, memory, seen, first)
    return backbones.sequence(backbone, memory, seen, jnp.repeat(first[..., None], seen.shape[-2], axis=-1))


def step(
    backbone: PyTree, sharing: Sharing, memory: Float[Array, "B N M"], seen: Float[Array, "B N i"]
) -> tuple[Float[Array, "B N M"], Float[Array, "B N H"]]:
    """One step of the backbone: the new memory, and the head's input."""
    if owned(sharing).backbone:
        return jax.vmap(backbones.step, in_axes=(0, 1, 1), out_axes=1)(backbone, memory, seen)
    return backbones.step(backbone, memory, seen)


def logits(head: PyTree, sharing: Sharing, features: Float[Array, "*S N H"]) -> Float[Array, "*S N a"]:
    """Logits of every agent, unavailable actions not masked."""
    if not owned(sharing).head:
        return layers.dense(head, features)
    return jax.vmap(layers.dense, in_axes=(0, -2), out_axes=-2)(head, features)
