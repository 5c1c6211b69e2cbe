"""MA2E's masked autoencoder: from the windows of a few visible agents to those of the whole team.

Every agent gives two tokens a step, its observation and its action. Whole agents are masked: the embedding of each of
their tokens is zero, to which the encoding of the token's place is added. A transformer (post-norm, ReLU, no causal
mask) encodes the sequence; its decoder starts from the same sequence, attends to the encoder's output, and two linear
heads read every token back. There is no mask token: a masked token holds its place and nothing else.

"paper" is what MA2E's figures draw, "released" what its published code does:

========  ============================================  ===================================================
mode      place of a token                              masked tokens
========  ============================================  ===================================================
paper     agent and time, half of the embedding each    neither encoded nor attended to in the encoder's output
released  time on the sequence's first half, agent on   attended to like all others
          its second
========  ============================================  ===================================================

The sequence is time-major, then agent, then (observation, action): `[T, N, 2]` reshaped to one axis of length 2 T N
between the embedding and the heads, and nowhere else.
"""

from math import sqrt
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp import nets
from grasp.types import GraspError, Key, PyTree

Mode = Literal["paper", "released"]
Over = Literal["all", "masked"]

DROPOUT = 0.1
TILE = 256
"""Tokens that pass a feed-forward layer together."""
HIDDEN_LOGIT = -1e10
"""The attention logit of a token that may not be seen: its weight is exactly zero in float32."""


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
        "obs_in": _linear_init(obs_in, input_dim, embed),
        "action_in": _linear_init(action_in, 1, embed),
        "encoder": _stack_init(encoder, encoder_layers, ("self",), embed, heads, feedforward),
        "decoder": _stack_init(decoder, decoder_layers, ("self", "cross"), embed, heads, feedforward),
        "obs_out": _linear_init(obs_out, embed, input_dim),
        "action_out": _linear_init(action_out, embed, 1),
    }


def reconstruct(
    params: PyTree,
    obs: Float[Array, "*E T N i"],
    action: Float[Array, "*E T N"],
    keep: Bool[Array, "*E N"],
    mode: Mode,
    dropout_key: Key | None = None,
) -> tuple[Float[Array, "*E T N i"], Float[Array, "*E T N"]]:
    """Every agent's window from the windows of the agents in `keep`; what masked agents hold is never read.

    `action` is index / num_actions. What attention holds grows as E (T N)²: tile E where that is large.
    """
    if mode == "paper" and dropout_key is not None:
        raise GraspError("mode 'paper' has no dropout: give no dropout_key, or choose mode 'released'")
    tokens = jnp.stack([nets.dense(params["obs_in"], obs), nets.dense(params["action_in"], action[..., None])], axis=-2)
    *envs, num_steps, num_agents, pair, embed = tokens.shape
    kept = jnp.broadcast_to(keep[..., None, :, None], tokens.shape[:-1])
    places = encodings(num_steps, num_agents, embed, mode)
    tokens = jnp.where(kept[..., None], tokens, 0.0) + jnp.broadcast_to(places, tokens.shape)

    # Attention knows no axes but one: here alone the agents are merged, with steps and kinds, and split again below.
    sequence = tokens.reshape(*envs, num_steps * num_agents * pair, embed)
    visible = kept.reshape(*envs, num_steps * num_agents * pair) if mode == "paper" else None
    encoder_key, decoder_key = _split(dropout_key, 2)
    encoded = _encode(params["encoder"], sequence, visible, encoder_key)
    decoded = _decode(params["decoder"], sequence, encoded, visible, decoder_key).reshape(tokens.shape)
    action_hat = nets.dense(params["action_out"], decoded[..., 1, :])
    return nets.dense(params["obs_out"], decoded[..., 0, :]), action_hat[..., 0]


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

    The loss is `over` all tokens (the released code) or the masked ones. Steps that are not `filled` are padding: they
    enter as zeros, whatever they hold, and are never counted. An error over no tokens at all is zero.
    """
    obs = jnp.where(filled[..., None, None], obs, 0.0)
    action = jnp.where(filled[..., None], action, 0.0)
    obs_hat, action_hat = reconstruct(params, obs, action, keep, mode, dropout_key)
    error = ((obs_hat - obs) ** 2).mean(-1) + (action_hat - action) ** 2
    real = jnp.broadcast_to(filled[..., None], error.shape)
    masked = real & ~keep[..., None, :]
    masked_error = _mean(error, masked)
    return (masked_error if over == "masked" else _mean(error, real)), masked_error


def alone(num_agents: int, agent: int | Int[Array, ""]) -> Bool[Array, " N"]:
    """Pass A: one agent is visible, as it is to itself when it acts."""
    return jnp.arange(num_agents) == agent


def group(key: Key, num_agents: int) -> Bool[Array, " N"]:
    """Pass B: k is uniform in 1..N-2, and k + 1 agents, every such set as likely as any other, are visible."""
    if num_agents < 3:
        raise GraspError(f"a group needs 3 agents or more, one of them masked; with {num_agents} use alone")
    count_key, order_key = jax.random.split(key)
    visible = 1 + jax.random.randint(count_key, (), 1, num_agents - 1)
    return jax.random.permutation(order_key, num_agents) < visible


def encodings(num_steps: int, num_agents: int, embed: int, mode: Mode) -> Float[Array, "T N 2 e"]:
    """The fixed encoding of every token's place; steps and agents count from 1, and the tokens of a pair share it.

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


def _encode(params: PyTree, x: Array, visible: Array | None, key: Key | None) -> Array:
    for i, layer_key in enumerate(_split(key, len(params) - 1)):
        x = _encoder_layer(params[f"layer_{i}"], x, visible, layer_key)
    return _norm(params["norm"], x)


def _decode(params: PyTree, x: Array, encoded: Array, visible: Array | None, key: Key | None) -> Array:
    for i, layer_key in enumerate(_split(key, len(params) - 1)):
        x = _decoder_layer(params[f"layer_{i}"], x, encoded, visible, layer_key)
    return _norm(params["norm"], x)


def _encoder_layer(params: PyTree, x: Array, visible: Array | None, key: Key | None) -> Array:
    self_key, self_residual, feed_key, feed_residual = _split(key, 4)
    x = _add(params["self_norm"], x, _attend(params["self"], x, x, visible, self_key), self_residual)
    return _add(params["feed_norm"], x, _feed(params["feed"], x, feed_key), feed_residual)


def _decoder_layer(params: PyTree, x: Array, encoded: Array, visible: Array | None, key: Key | None) -> Array:
    """Self-attention sees every place, masked ones too; cross-attention only what the encoder was shown."""
    self_key, self_residual, cross_key, cross_residual, feed_key, feed_residual = _split(key, 6)
    x = _add(params["self_norm"], x, _attend(params["self"], x, x, None, self_key), self_residual)
    x = _add(params["cross_norm"], x, _attend(params["cross"], x, encoded, visible, cross_key), cross_residual)
    return _add(params["feed_norm"], x, _feed(params["feed"], x, feed_key), feed_residual)


def _attend(params: PyTree, x: Array, source: Array, visible: Array | None, key: Key | None) -> Array:
    """softmax(q kᵀ / √d) v in each head, heads joined by a linear map; hidden tokens of the source have no weight."""
    query, keys, value = (_heads(params[name], t) for name, t in (("query", x), ("key", source), ("value", source)))
    logits = query @ keys.swapaxes(-1, -2) / sqrt(query.shape[-1])
    if visible is not None:
        logits = jnp.where(visible[..., None, None, :], logits, HIDDEN_LOGIT)
    seen = _dropout(jax.nn.softmax(logits), key) @ value
    joined = jnp.einsum("...hld,hde->...le", seen, params["out"]["weight"])
    return joined + jnp.broadcast_to(params["out"]["bias"], joined.shape)


def _heads(params: nets.Params, x: Array) -> Float[Array, "*E h L d"]:
    projected = jnp.einsum("...le,ehd->...hld", x, params["weight"])
    return projected + jnp.broadcast_to(params["bias"][:, None], projected.shape)


def _feed(params: nets.Nested, x: Array, key: Key | None) -> Array:
    """Two layers on every token. Their width is most of the work, so tokens pass in tiles that stay in cache, and the
    gradient makes the hidden layer again instead of keeping it (1,600 and 6,400 tokens, CPU, jax 0.10.2: the gradient
    took a third of the time; forward the same and a quarter)."""
    rows = x.reshape(-1, x.shape[-1])
    inward, outward = params["inward"], params["outward"]

    def one(token: tuple[Array, Key | None]) -> Array:
        row, row_key = token
        return outward["weight"] @ _dropout(jax.nn.relu(nets.dense(inward, row)), row_key) + outward["bias"]

    row_keys = None if key is None else jax.random.split(key, len(rows))
    return jax.lax.map(jax.checkpoint(one), (rows, row_keys), batch_size=TILE).reshape(x.shape)


def _add(params: nets.Params, x: Array, update: Array, key: Key | None) -> Array:
    """Post-norm: the sum is normalised, not the sublayer's input."""
    return _norm(params, x + _dropout(update, key))


def _norm(params: nets.Params, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    unit = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return unit * jnp.broadcast_to(params["scale"], x.shape) + jnp.broadcast_to(params["bias"], x.shape)


def _dropout(x: Array, key: Key | None) -> Array:
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - DROPOUT, x.shape), x / (1 - DROPOUT), 0.0)


def _split(key: Key | None, count: int) -> list[Key] | list[None]:
    """Keys for `count` uses, or as many times no key where nothing is dropped."""
    return [None] * count if key is None else list(jax.random.split(key, count))


def _mean(error: Array, counted: Array) -> Array:
    return jnp.where(counted, error, 0.0).sum() / jnp.maximum(counted.sum(), 1)


def _stack_init(
    key: Key, layers: int, attentions: tuple[str, ...], embed: int, heads: int, feedforward: int
) -> dict[str, PyTree]:
    """The layers and, as `nn.Transformer` has it, one more norm at the end of the stack."""
    stack: dict[str, PyTree] = {"norm": _norm_init(embed)}
    for i, layer_key in enumerate(jax.random.split(key, layers)):
        feed_key, *attention_keys = jax.random.split(layer_key, 1 + len(attentions))
        layer = {"feed": _feed_init(feed_key, embed, feedforward), "feed_norm": _norm_init(embed)}
        for name, attention_key in zip(attentions, attention_keys, strict=True):
            layer |= {name: _attention_init(attention_key, embed, heads), f"{name}_norm": _norm_init(embed)}
        stack[f"layer_{i}"] = layer
    return stack


def _attention_init(key: Key, embed: int, heads: int) -> nets.Nested:
    """Glorot's uniform bound; PyTorch draws query, key and value as one map embed -> 3 embed, hence a smaller one."""
    query_key, key_key, value_key, out_key = jax.random.split(key, 4)
    inward, outward = (embed, heads, embed // heads), (heads, embed // heads, embed)
    keys = {"query": query_key, "key": key_key, "value": value_key}
    drawn: nets.Nested = {
        name: {"weight": _uniform(k, inward, _glorot(embed, 3 * embed)), "bias": jnp.zeros(inward[1:])}
        for name, k in keys.items()
    }
    return drawn | {"out": {"weight": _uniform(out_key, outward, _glorot(embed, embed)), "bias": jnp.zeros(embed)}}


def _feed_init(key: Key, embed: int, feedforward: int) -> nets.Nested:
    """Weights within Glorot's bound, but not the biases: `nn.Transformer` redraws only what has two axes.

    The outward weight is stored `[out, in]`: its gradient is then a product that runs several times as fast (CPU).
    """
    inward_key, outward_key = jax.random.split(key)
    inward = _linear_init(inward_key, embed, feedforward, _glorot(embed, feedforward))
    outward = _linear_init(outward_key, feedforward, embed, _glorot(embed, feedforward))
    return {"inward": inward, "outward": outward | {"weight": outward["weight"].T}}


def _linear_init(key: Key, inputs: int, outputs: int, bound: float | None = None) -> nets.Params:
    """Uniform within 1/√inputs, the weight within `bound` where one is given."""
    weight_key, bias_key = jax.random.split(key)
    plain = 1 / sqrt(inputs)
    weight = _uniform(weight_key, (inputs, outputs), plain if bound is None else bound)
    return {"weight": weight, "bias": _uniform(bias_key, (outputs,), plain)}


def _norm_init(embed: int) -> nets.Params:
    return {"scale": jnp.ones(embed), "bias": jnp.zeros(embed)}


def _glorot(inputs: int, outputs: int) -> float:
    return sqrt(6 / (inputs + outputs))


def _uniform(key: Key, shape: tuple[int, ...], bound: float) -> Array:
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
