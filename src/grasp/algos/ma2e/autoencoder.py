"""MA2E's masked autoencoder: from the windows of a few visible agents to those of the whole team.

Every agent gives two tokens a step, its observation and its action. Whole agents are masked: the embedding of each of
their tokens is zero, to which the positional encoding is added. A transformer (post-norm, ReLU, no causal
mask) encodes the sequence; its decoder starts from the same sequence, attends to the encoder's output, and two linear
heads read every token back. There is no mask token: a masked token holds only its position.

"paper" is what MA2E's figures show, "released" what its published code does:

========  ============================================  ===================================================
mode      position of a token                           masked tokens
========  ============================================  ===================================================
paper     agent and time, half of the embedding each    neither encoded nor attended to in the encoder's output
released  time on the sequence's first half, agent on   attended to like all others
          its second
========  ============================================  ===================================================

The sequence is time-major, then agent, then (observation, action): `[T, N, 2]` reshaped to one axis of length 2 T N
between the embedding and the heads, and nowhere else.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.nn import layers, transformer
from grasp.types import GraspError, Key, PyTree

Mode = Literal["paper", "released"]
Over = Literal["all", "masked"]


def autoencoder_init(
    key: Key,
    input_dim: int,
    *,
    embed: int = 24,
    heads: int = 4,
    encoder_layers: int = 3,
    decoder_layers: int = 2,
    feedforward: int = 2048,
) -> PyTree:
    """Fresh parameters, drawn as PyTorch draws `nn.Transformer` and, around it, `nn.Linear`.

    The sizes are read back from the arrays' shapes. Nothing depends on the number of agents or the window's length.
    """
    if embed % 4 or embed % heads:
        raise GraspError(
            f"embed {embed} must be a multiple of 4 (sines and cosines of agent and time) and of heads {heads}"
        )
    obs_in, action_in, obs_out, action_out, encoder, decoder = jax.random.split(key, 6)
    return {
        "obs_in": layers.uniform_init(obs_in, input_dim, embed),
        "action_in": layers.uniform_init(action_in, 1, embed),
        "encoder": transformer.stack_init(encoder, encoder_layers, ("self",), embed, heads, feedforward),
        "decoder": transformer.stack_init(decoder, decoder_layers, ("self", "cross"), embed, heads, feedforward),
        "obs_out": layers.uniform_init(obs_out, embed, input_dim),
        "action_out": layers.uniform_init(action_out, embed, 1),
    }


def reconstruct(
    params: PyTree,
    obs: Float[Array, "*E T N i"],
    action: Float[Array, "*E T N"],
    keep: Bool[Array, "*E N"],
    mode: Mode,
    dropout_key: Key | None = None,
    known: Bool[Array, "*E T 2"] | None = None,
) -> tuple[Float[Array, "*E T N i"], Float[Array, "*E T N"]]:
    """Every agent's window from the windows of the agents in `keep`; what masked agents hold is never read.

    `action` is index / num_actions. `known` marks the steps that have an observation, and those that have an action;
    other tokens are masked too. The memory of attention grows as E (T N)²: tile E where that is large.
    """
    if mode == "paper" and dropout_key is not None:
        raise GraspError("mode 'paper' has no dropout: give no dropout_key, or choose mode 'released'")
    tokens = _tokens(params, obs, action)
    *envs, num_steps, num_agents, pair, embed = tokens.shape
    kept = jnp.broadcast_to(keep[..., None, :, None], tokens.shape[:-1])
    if known is not None:
        kept &= jnp.broadcast_to(known[..., :, None, :], kept.shape)
    positions = encodings(num_steps, num_agents, embed, mode)
    tokens = jnp.where(kept[..., None], tokens, 0.0) + jnp.broadcast_to(positions, tokens.shape)

    # Attention has one token axis: only here are agents merged, with steps and kinds; they are split again below.
    sequence = tokens.reshape(*envs, num_steps * num_agents * pair, embed)
    visible = kept.reshape(*envs, num_steps * num_agents * pair) if mode == "paper" else None
    encoder_key, decoder_key = transformer.split(dropout_key, 2)
    encoded = transformer.encode(params["encoder"], sequence, visible, encoder_key)
    decoded = transformer.decode(params["decoder"], sequence, encoded, visible, decoder_key).reshape(tokens.shape)
    action_hat = layers.dense(params["action_out"], decoded[..., 1, :])
    return layers.dense(params["obs_out"], decoded[..., 0, :]), action_hat[..., 0]


def imagine(
    params: PyTree,
    obs: Float[Array, "*E T i"],
    action: Float[Array, "*E T"],
    known: Bool[Array, "*E T 2"],
    agent: Int[Array, ""],
    num_agents: int,
) -> Float[Array, "*E N i"]:
    """The newest observations that `reconstruct` (mode "paper") returns for one agent's window alone, at less cost.

    Masked tokens, which the encoder does not use, are left out of it; the two tokens of a masked agent's step, equal
    for the decoder, are one there; and the last layer computes only the newest observations.
    """
    tokens = _tokens(params, obs, action)
    *envs, num_steps, _, embed = tokens.shape
    positions = encodings(num_steps, num_agents, embed, "paper")
    mine = jnp.where(known[..., None], tokens, 0.0) + jnp.broadcast_to(positions[:, agent], tokens.shape)
    visible = known.reshape(*envs, -1)
    encoded = transformer.encode(params["encoder"], mine.reshape(*envs, -1, embed), visible, None)
    empty = jnp.broadcast_to(positions[..., 0, :], (*envs, num_steps, num_agents, embed))
    single = empty.at[..., agent, :].set(mine[..., 0, :])
    sequence = jnp.concatenate([single.reshape(*envs, -1, embed), mine[..., 1, :]], -2)
    pairs = jnp.full((num_steps, num_agents), 2.0).at[:, agent].set(1.0)
    copies = jnp.concatenate([pairs.reshape(-1), jnp.ones(num_steps)])
    newest = (num_steps - 1) * num_agents + jnp.arange(num_agents)
    decoded = transformer.decode(params["decoder"], sequence, encoded, visible, None, newest, copies)
    return layers.dense(params["obs_out"], decoded)


def reconstruction_loss(
    params: PyTree,
    obs: Float[Array, "*E T N i"],
    action: Float[Array, "*E T N"],
    keep: Bool[Array, "*E N"],
    filled: Bool[Array, "*E T"],
    mode: Mode,
    over: Over,
    dropout_key: Key | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean squared error of observations plus that of actions, and the same over masked tokens alone.

    The loss is `over` all tokens (the released code) or the masked ones. Steps that are not `filled` are padding,
    whatever they hold: in mode "paper" they are masked, in "released" they enter as zeros; they are never counted. An
    error over no tokens at all is zero.
    """
    obs = jnp.where(filled[..., None, None], obs, 0.0)
    action = jnp.where(filled[..., None], action, 0.0)
    known = jnp.stack([filled, filled], axis=-1) if mode == "paper" else None
    obs_hat, action_hat = reconstruct(params, obs, action, keep, mode, dropout_key, known)
    error = ((obs_hat - obs) ** 2).mean(-1) + (action_hat - action) ** 2
    real = jnp.broadcast_to(filled[..., None], error.shape)
    masked = real & ~keep[..., None, :]
    masked_error = _mean(error, masked)
    return (masked_error if over == "masked" else _mean(error, real)), masked_error


def _tokens(params: PyTree, obs: Float[Array, "*R i"], action: Float[Array, "*R"]) -> Float[Array, "*R 2 e"]:
    return jnp.stack(
        [layers.dense(params["obs_in"], obs), layers.dense(params["action_in"], action[..., None])], axis=-2
    )


def alone(num_agents: int, agent: int | Int[Array, ""]) -> Bool[Array, " N"]:
    """Only one agent is visible, as when it acts."""
    return jnp.arange(num_agents) == agent


def group(key: Key, num_agents: int) -> Bool[Array, " N"]:
    """k + 1 visible agents, with k uniform in 1..N-2 and every set of that size equally likely."""
    if num_agents < 3:
        raise GraspError(f"a group needs 3 agents or more, one of them masked; with {num_agents} use alone")
    count_key, order_key = jax.random.split(key)
    visible = 1 + jax.random.randint(count_key, (), 1, num_agents - 1)
    return jax.random.permutation(order_key, num_agents) < visible


def encodings(num_steps: int, num_agents: int, embed: int, mode: Mode) -> Float[Array, "T N 2 e"]:
    """The fixed positional encoding of every token; steps and agents count from 1, and the tokens of a pair share it.

    So a masked agent's two tokens of a step are the same to the decoder, and only the heads tell them apart. In mode
    "released" masked agents of the first half are all alike, and where T N is odd its end splits a pair.
    """
    shape = (num_steps, num_agents, 2)
    width = embed // 2 if mode == "paper" else embed
    time = jnp.broadcast_to(_sinusoids(num_steps, width)[:, None, None], (*shape, width))
    agent = jnp.broadcast_to(_sinusoids(num_agents, width)[None, :, None], (*shape, width))
    if mode == "paper":
        return jnp.concatenate([agent, time], axis=-1)
    token = jnp.arange(num_steps * num_agents * 2).reshape(*shape, 1)
    return jnp.where(token < num_steps * num_agents, time, agent)


def _sinusoids(count: int, width: int) -> Float[Array, "count width"]:
    """Row p - 1 holds sin(p / 10000^(2j/width)) at 2j and its cosine at 2j + 1, for p = 1..count."""
    angle = jnp.outer(jnp.arange(1, count + 1), 10000.0 ** (-jnp.arange(0, width, 2) / width))
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(count, width)


def _mean(error: Array, counted: Array) -> Array:
    return jnp.where(counted, error, 0.0).sum() / jnp.maximum(counted.sum(), 1)
