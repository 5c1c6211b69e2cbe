"""The input of MA2E's agent networks: each agent's own input, and its reconstruction of the other agents' inputs.

A window is the last T steps including the current one. The current action is not chosen yet, so the newest action in
the window is the previous one. The result has a row for the agent itself and one for each other agent, concatenated on
the last axis.

========  =======================================  =======================================================
mode      input of the autoencoder                 actions
========  =======================================  =======================================================
paper     the agent's window at its own index      beside their observations; the current one is masked
released  the agent's window at agent 0's index,   one step late; at an episode's first step the learner,
          which is masked for all but agent 0:     unlike the actor, receives the action about to be taken
          the others reconstruct a constant
========  =======================================  =======================================================
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from grasp.algos.ma2e import autoencoder
from grasp.algos.ma2e.autoencoder import Mode
from grasp.types import Key, PyTree

TOKENS = 32_768
"""Tokens reconstructed at once, where one agent has no more: with 27 agents their attention takes some 100 MB."""


class Window(NamedTuple):
    """T steps, the newest last; zeros before the episode's start."""

    seen: Float[Array, "*E T N i"]
    """The inputs of the agents' networks, up to the current step."""
    done: Float[Array, "*E T N"]
    """Actions as index / num_actions, up to the previous step."""
    age: Int[Array, "*E"]
    """Steps of the episode before the current one."""


def present(window: Window, seen: Float[Array, "*E N i"]) -> Window:
    """The window with the inputs of a new step."""
    return window._replace(seen=_newest(window.seen, seen, -3))


def passed(window: Window, action: Float[Array, "*E N"]) -> Window:
    """The window after the step, with the actions taken in it."""
    return window._replace(done=_newest(window.done, action, -2), age=window.age + 1)


def perceive(params: PyTree, mode: Mode, window: Window, dropout_key: Key | None = None) -> Float[Array, "*E N r"]:
    """Every agent's rows: its true input, then its reconstruction of each other agent's."""
    num_agents = window.seen.shape[-2]
    fit = max(1, TOKENS // (window.done.size * 2))  # agents whose windows are reconstructed at once
    at_once = max(d for d in range(1, min(fit, num_agents) + 1) if num_agents % d == 0)
    each = jax.lax.map(
        lambda agent: imagine(params, mode, window, agent, dropout_key), jnp.arange(num_agents), batch_size=at_once
    )
    imagined = jnp.moveaxis(each, 0, -3)
    others = np.array([[m for m in range(num_agents) if m != n] for n in range(num_agents)], np.int32)
    rest = imagined[..., np.arange(num_agents)[:, None], others, :]
    rows = jnp.concatenate([window.seen[..., -1, :, None, :], rest], -2)
    return jax.lax.stop_gradient(rows.reshape(*rows.shape[:-2], -1))


def imagine(
    params: PyTree, mode: Mode, window: Window, agent: Int[Array, ""], dropout_key: Key | None
) -> Float[Array, "*E N i"]:
    """The whole team's current inputs as one agent reconstructs them."""
    num_agents = window.seen.shape[-2]
    seen, done = window.seen[..., agent, :], window.done[..., agent]
    if mode == "paper":
        action = jnp.concatenate([done[..., 1:], jnp.zeros_like(done[..., :1])], -1)
        known = jnp.stack([filled(window), filled(window).at[..., -1].set(False)], -1)
        return autoencoder.imagine(params, seen, action, known, agent, num_agents)
    shown = jnp.zeros_like(window.seen).at[..., 0, :].set(seen), jnp.zeros_like(window.done).at[..., 0].set(done)
    keep = jnp.broadcast_to(autoencoder.alone(num_agents, agent), (*window.age.shape, num_agents))
    return autoencoder.reconstruct(params, *shown, keep, mode, dropout_key)[0][..., -1, :, :]


def filled(window: Window) -> Bool[Array, "*E T"]:
    """Mask of the window's steps that belong to this episode."""
    ago = jnp.arange(window.seen.shape[-3] - 1, -1, -1)
    return jnp.broadcast_to(ago, (*window.age.shape, len(ago))) <= window.age[..., None]


def along(
    params: PyTree,
    mode: Mode,
    length: int,
    seen: Float[Array, "H1 E N i"],
    done: Float[Array, "H E N"],
    steps: Int[Array, ""],
    dropout_key: Key | None = None,
) -> Float[Array, "H1 E N r"]:
    """`perceive` at the first `steps` of whole episodes, zeros after them.

    One step at a time: the memory of attention grows as E N (T N)², and most episodes end long before the time limit.
    """
    early = [jnp.zeros((length, *x.shape[1:])) for x in (seen, done)]
    before, done = jnp.concatenate([early[0][1:], seen]), jnp.concatenate([early[1], done])

    def at(time: Int[Array, ""], rows: Array) -> Array:
        recent = [jnp.moveaxis(jax.lax.dynamic_slice_in_dim(x, time, length), 0, 1) for x in (before, done)]
        window = Window(recent[0], recent[1], jnp.broadcast_to(time, seen.shape[1:2]))
        if mode == "released":
            window = window._replace(done=window.done.at[:, -1].add(jnp.where(time == 0, done[length], 0.0)))
        key = None if dropout_key is None else jax.random.fold_in(dropout_key, time)
        return jax.lax.dynamic_update_index_in_dim(rows, perceive(params, mode, window, key), time, 0)

    num_agents, width = seen.shape[-2:]
    return jax.lax.fori_loop(0, steps, at, jnp.zeros((*seen.shape[:-1], num_agents * width)))


def _newest(window: Array, newest: Array, axis: int) -> Array:
    """The window moved on by one step."""
    axis %= window.ndim
    return jnp.concatenate([jax.lax.slice_in_dim(window, 1, None, axis=axis), jnp.expand_dims(newest, axis)], axis)
