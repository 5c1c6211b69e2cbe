"""The input of an agent's network: its observation, and, as the options say, its last action and its index."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from grasp.config.hyperparameters import Mappo, Qmix
from grasp.types import EnvSpec


def of_agents(
    hyper: Mappo | Qmix, obs: Float[Array, "*S N o"], last_action: Float[Array, "*S N a"] | tuple[()]
) -> Float[Array, "*S N i"]:
    """Observation, last action (one-hot; zeros at an episode's start), agent index (one-hot)."""
    parts = [obs]
    if hyper.last_action:
        assert not isinstance(last_action, tuple)
        parts.append(last_action)
    if hyper.agent_id:
        num_agents = obs.shape[-2]
        parts.append(jnp.broadcast_to(jnp.eye(num_agents), (*obs.shape[:-1], num_agents)))
    return jnp.concatenate(parts, -1) if len(parts) > 1 else obs


def observed(hyper: Mappo | Qmix, seen: Float[Array, "*S N i"], num_actions: int) -> Float[Array, "*S N o"]:
    """The observation in an input, or what belongs to it in a gradient with respect to an input."""
    added = hyper.last_action * num_actions + hyper.agent_id * seen.shape[-2]
    return seen[..., : seen.shape[-1] - added]


def width(hyper: Mappo | Qmix, spec: EnvSpec) -> int:
    return spec.obs_dim + hyper.last_action * spec.num_actions + hyper.agent_id * spec.num_agents
