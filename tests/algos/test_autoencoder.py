"""The masked autoencoder: its forward pass against numpy, what it may see, its masks, its loss, and that it learns."""

from collections import Counter
from functools import partial
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from trees import assert_close, distance

from grasp.algos.ma2e import autoencoder as ae
from grasp.nn import transformer
from grasp.types import GraspError

MODES = ["paper", "released"]
TINY = {"embed": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feedforward": 6}
TWO = {"encoder_layers": 2, "decoder_layers": 2}

# Compiled once per shape for the whole file: compiling is most of what these tests cost.
reconstruct = jax.jit(ae.reconstruct, static_argnames="mode")
loss_and_gradient = jax.jit(jax.value_and_grad(ae.reconstruction_loss, has_aux=True), static_argnames=("mode", "over"))


def tiny(input_dim=3, seed=0, **sizes):
    """Tiny parameters with every bias and scale away from zero and one."""
    params = ae.autoencoder_init(jax.random.key(seed), input_dim, **(TINY | sizes))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf + 0.4 * rng.normal(size=leaf.shape), leaf.dtype), params)


def windows(*shape, input_dim=3, seed=1):
    """Observations [*shape, i] and scaled actions [*shape]; the shape ends in T, N."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(*shape, input_dim))), jnp.asarray(rng.random(shape))


# The oracle: one window, one token at a time, in plain numpy. In mode "paper" masked tokens are left out of the
# encoder's list, not hidden by a mask.


def sinusoid(position, width):
    row = []
    for j in range(0, width, 2):
        row += [np.sin(position / 10000 ** (j / width)), np.cos(position / 10000 ** (j / width))]
    return np.array(row)


def place(mode, t, n, kind, num_steps, num_agents, embed):
    if mode == "paper":
        return np.concatenate([sinusoid(n + 1, embed // 2), sinusoid(t + 1, embed // 2)])
    index = t * num_agents * 2 + n * 2 + kind
    return sinusoid(t + 1 if index < num_steps * num_agents else n + 1, embed)


def norm(params, x):
    return (x - np.mean(x)) / np.sqrt(np.var(x) + 1e-5) * params["scale"] + params["bias"]


def attend(params, x, source):
    """One query against a list of tokens."""
    out = np.array(params["out"]["bias"])
    for h in range(params["query"]["weight"].shape[1]):
        q = x @ params["query"]["weight"][:, h] + params["query"]["bias"][h]
        k = [s @ params["key"]["weight"][:, h] + params["key"]["bias"][h] for s in source]
        v = [s @ params["value"]["weight"][:, h] + params["value"]["bias"][h] for s in source]
        weight = np.exp([q @ row / np.sqrt(len(q)) for row in k])
        weight /= weight.sum()
        out = out + sum(w * row for w, row in zip(weight, v, strict=True)) @ params["out"]["weight"][h]
    return out


def feed(params, x):
    hidden = np.maximum(x @ params["inward"]["weight"] + params["inward"]["bias"], 0)
    return params["outward"]["weight"] @ hidden + params["outward"]["bias"]


def stack(params, xs, encoded=None):
    """An encoder, or with `encoded` a decoder."""
    for i in range(len(params) - 1):
        layer = params[f"layer_{i}"]
        xs = [norm(layer["self_norm"], x + attend(layer["self"], x, xs)) for x in xs]
        if encoded is not None:
            xs = [norm(layer["cross_norm"], x + attend(layer["cross"], x, encoded)) for x in xs]
        xs = [norm(layer["feed_norm"], x + feed(layer["feed"], x)) for x in xs]
    return [norm(params["norm"], x) for x in xs]


def by_hand(params, obs, action, keep, mode):
    num_steps, num_agents, _ = obs.shape
    embed = params["obs_in"]["bias"].size
    order = [(t, n, kind) for t in range(num_steps) for n in range(num_agents) for kind in (0, 1)]
    tokens = []
    for t, n, kind in order:
        source = obs[t, n] if kind == 0 else action[t, n, None]
        linear = params["obs_in" if kind == 0 else "action_in"]
        content = source @ linear["weight"] + linear["bias"] if keep[n] else np.zeros(embed)
        tokens.append(content + place(mode, t, n, kind, num_steps, num_agents, embed))
    shown = [x for x, (_, n, _) in zip(tokens, order, strict=True) if keep[n] or mode == "released"]
    decoded = stack(params["decoder"], tokens, stack(params["encoder"], shown))
    obs_hat, action_hat = np.zeros(obs.shape), np.zeros(action.shape)
    for x, (t, n, kind) in zip(decoded, order, strict=True):
        if kind == 0:
            obs_hat[t, n] = x @ params["obs_out"]["weight"] + params["obs_out"]["bias"]
        else:
            action_hat[t, n] = (x @ params["action_out"]["weight"] + params["action_out"]["bias"])[0]
    return obs_hat, action_hat


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("mode", MODES)
def test_the_whole_forward_pass_equals_numpy_token_by_token(mode):
    params = tiny(**TWO)
    obs, action = windows(2, 3, 5)
    keep = jnp.array([[True, False, True, True, False], [False, True, False, False, False]])
    obs_hat, action_hat = reconstruct(params, obs, action, keep, mode)
    plain = jax.tree.map(np.asarray, params)
    for e in range(2):
        expected = by_hand(plain, np.asarray(obs[e]), np.asarray(action[e]), np.asarray(keep[e]), mode)
        np.testing.assert_allclose(obs_hat[e], expected[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(action_hat[e], expected[1], rtol=1e-9, atol=1e-9)
        assert np.std(expected[0]) > 0.1
        assert np.std(expected[1]) > 1e-3


@pytest.mark.parametrize("mode", MODES)
def test_encodings_are_the_table_written_out(mode):
    num_steps, num_agents, embed = 3, 5, 8
    table = ae.encodings(num_steps, num_agents, embed, mode)
    assert table.shape == (3, 5, 2, 8)
    for t, n, kind in np.ndindex(3, 5, 2):
        expected = place(mode, t, n, kind, num_steps, num_agents, embed)
        np.testing.assert_allclose(table[t, n, kind], expected, atol=1e-6)


def test_encodings_of_the_first_places_as_numbers():
    paper = ae.encodings(2, 2, 4, "paper")
    released = ae.encodings(2, 2, 4, "released")
    one, two = [np.sin(1), np.cos(1)], [np.sin(2), np.cos(2)]
    np.testing.assert_allclose(paper[0, 1, 0], two + one, atol=1e-6)  # agent 2, time 1
    np.testing.assert_allclose(paper[1, 0, 1], one + two, atol=1e-6)  # agent 1, time 2
    np.testing.assert_allclose(released[0, 1, 1], [*one, np.sin(0.01), np.cos(0.01)], atol=1e-6)  # time 1
    np.testing.assert_allclose(released[1, 1, 0], [*two, np.sin(0.02), np.cos(0.02)], atol=1e-6)  # agent 2
    np.testing.assert_allclose(released[1, 0, 0], [*one, np.sin(0.01), np.cos(0.01)], atol=1e-6)  # agent 1


def test_the_released_half_way_point_may_split_a_pair():
    table = ae.encodings(3, 5, 8, "released")
    assert np.allclose(table[1, 1, 0], table[1, 1, 1])
    assert not np.allclose(table[1, 2, 0], table[1, 2, 1])


# What may be seen


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("agent", range(4))
def test_the_one_kept_agent_decides_the_output_and_masked_agents_do_not_touch_it(mode, agent):
    params, (obs, action), keep = tiny(), windows(3, 4), ae.alone(4, agent)
    forward = partial(reconstruct, params, keep=keep, mode=mode)
    before = forward(obs, action)
    own = forward(obs.at[2, agent, 1].add(0.5), action), forward(obs, action.at[0, agent].add(0.2))
    for after in own:
        changed = jnp.abs(after[0] - before[0]).max((0, 2))
        assert (changed > 1e-4).all(), "every agent's reconstruction hangs on the one visible agent"
        assert (jnp.abs(after[1] - before[1]).max(0) > 1e-5).all()
    for other in set(range(4)) - {agent}:
        after = forward(obs.at[:, other].set(jnp.nan), action.at[:, other].set(jnp.nan))
        np.testing.assert_array_equal(after[0], before[0])
        np.testing.assert_array_equal(after[1], before[1])


@pytest.mark.parametrize("mode", MODES)
def test_gradients_with_respect_to_masked_inputs_are_exactly_zero(mode):
    params, (obs, action) = tiny(), windows(2, 3, 4)
    keep = jnp.array([[True, False, False, True], [False, False, True, False]])
    weight = jnp.asarray(np.random.default_rng(3).normal(size=obs.shape), obs.dtype)

    def score(obs, action):
        obs_hat, action_hat = reconstruct(params, obs, action, keep, mode)
        return (weight * obs_hat).sum() + (weight[..., 0] * action_hat).sum()

    d_obs, d_action = jax.jit(jax.grad(score, (0, 1)))(obs, action)
    reached = np.broadcast_to(np.asarray(keep)[:, None], action.shape)
    np.testing.assert_array_equal(np.abs(d_obs).max(-1) > 0, reached)
    np.testing.assert_array_equal(np.asarray(d_action) != 0, reached)


def test_a_masked_token_is_zero_before_its_place_is_added():
    """A huge input bias must not reach masked tokens: with nothing kept, the biases decide nothing."""
    params, (obs, action), no_agent = tiny(), windows(3, 4), jnp.zeros(4, bool)
    loud = params | {name: jax.tree.map(lambda leaf: 100 * leaf, params[name]) for name in ("obs_in", "action_in")}
    for mode in MODES:
        quiet_hat, loud_hat = (reconstruct(p, obs, action, no_agent, mode) for p in (params, loud))
        np.testing.assert_array_equal(quiet_hat[0], loud_hat[0])
        assert np.isfinite(loud_hat[0]).all()


@pytest.mark.parametrize("mode", MODES)
def test_leading_axes_are_independent_copies(mode):
    params, (obs, action) = tiny(), windows(2, 3, 3, 4)
    keep = jnp.asarray(np.random.default_rng(2).random((2, 3, 4)) < 0.5)
    obs_hat, action_hat = reconstruct(params, obs, action, keep, mode)
    for e, f in np.ndindex(2, 3):
        one_obs, one_action = reconstruct(params, obs[e, f], action[e, f], keep[e, f], mode)
        np.testing.assert_allclose(obs_hat[e, f], one_obs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(action_hat[e, f], one_action, rtol=1e-4, atol=1e-5)


# Permutations: attention is blind to order, so only the encodings tell agents and steps apart.


def swapped(array, axis):
    """The first two entries of an axis exchanged."""
    return jnp.take(array, jnp.array([1, 0, *range(2, array.shape[axis])]), axis)


def test_agents_without_an_agent_encoding_are_interchangeable():
    """T = 1, N = 4, "released": the first four tokens are agents 0 and 1, told apart by nothing but their data."""
    params, (obs, action), keep = tiny(), windows(1, 4), jnp.array([True, False, True, False])

    def gap(mode):
        after = reconstruct(params, swapped(obs, 1), swapped(action, 1), swapped(keep, 0), mode)
        before = reconstruct(params, obs, action, keep, mode)
        return distance(after, tuple(swapped(x, 1) for x in before))

    assert gap("released") < 1e-5
    assert gap("paper") > 1e-2


def test_masked_agents_of_the_released_first_half_are_one_and_the_same():
    params, (obs, action), keep = tiny(), windows(4, 3), ae.alone(3, 0)
    released, paper = (reconstruct(params, obs, action, keep, mode) for mode in ("released", "paper"))
    for hat in released:
        np.testing.assert_allclose(hat[:2, 1], hat[:2, 2], atol=1e-5)  # time alone: agents alike
        np.testing.assert_allclose(hat[2, 1], hat[3, 1], atol=1e-5)  # agent alone: steps alike
        assert np.abs(hat[2, 1] - hat[2, 2]).max() > 1e-4
    for hat in paper:
        assert np.abs(hat[:, 1] - hat[:, 2]).max(-1).min() > 1e-4
        assert np.abs(hat[0, 1] - hat[1, 1]).max() > 1e-4


# Masks


@pytest.mark.parametrize("num_agents", [2, 3, 27])
def test_single_agent_masks_keep_two_tokens_a_step_of_exactly_the_agent_asked_for(num_agents):
    num_steps = 5
    masks = jax.jit(jax.vmap(partial(ae.alone, num_agents)))(jnp.arange(num_agents))
    np.testing.assert_array_equal(masks, np.eye(num_agents, dtype=bool))
    tokens = np.broadcast_to(np.asarray(masks)[:, None, :, None], (num_agents, num_steps, num_agents, 2))
    np.testing.assert_array_equal(tokens.sum((1, 2, 3)), 2 * num_steps)
    np.testing.assert_array_equal(ae.alone(num_agents, 1), masks[1])


@pytest.mark.parametrize("num_agents", [3, 4, 6])
def test_random_group_masks_keep_k_plus_one_agents_with_every_k_and_every_agent_as_likely(num_agents):
    draws = 6000
    keys = jax.random.split(jax.random.key(0), draws)
    masks = np.asarray(jax.jit(jax.vmap(partial(ae.group, num_agents=num_agents)))(keys))
    assert masks.shape == (draws, num_agents)
    counts = Counter(masks.sum(1).tolist())
    assert set(counts) == set(range(2, num_agents))  # k + 1 for k = 1..N-2
    for count in counts.values():
        assert abs(count / draws - 1 / (num_agents - 2)) < 0.03
    np.testing.assert_allclose(masks.mean(0), masks.mean(), atol=0.03)
    pairs = Counter(map(tuple, masks[masks.sum(1) == 2].tolist()))
    assert len(pairs) == num_agents * (num_agents - 1) // 2


def test_two_agents_have_no_random_group_masks():
    with pytest.raises(GraspError, match="3 agents or more, one of them masked; with 2 use alone"):
        ae.group(jax.random.key(0), 2)


# Loss


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_is_the_two_mean_squares_over_counted_tokens(mode):
    params, (obs, action) = tiny(), windows(2, 4, 3)
    keep = jnp.array([[True, False, False], [False, True, True]])
    filled = jnp.array([[True] * 4, [True, True, False, False]])
    zeroed = jnp.where(filled[..., None, None], obs, 0.0), jnp.where(filled[..., None], action, 0.0)
    known = jnp.stack([filled, filled], -1) if mode == "paper" else None
    obs_hat, action_hat = (np.asarray(hat) for hat in reconstruct(params, *zeroed, keep, mode=mode, known=known))
    squares = {"all": ([], []), "masked": ([], [])}
    for e, t, n in np.ndindex(2, 4, 3):
        for over in ["all"] * bool(filled[e, t]) + ["masked"] * bool(filled[e, t] and not keep[e, n]):
            squares[over][0].extend((obs_hat[e, t, n] - np.asarray(obs[e, t, n])) ** 2)
            squares[over][1].append((action_hat[e, t, n] - float(action[e, t, n])) ** 2)
    assert (len(squares["all"][1]), len(squares["masked"][1])) == (18, 10)
    expected = {over: sum(np.mean(part) for part in parts) for over, parts in squares.items()}
    assert abs(expected["all"] - expected["masked"]) > 1e-2
    for over in ("all", "masked"):
        (loss, masked_error), _ = loss_and_gradient(params, obs, action, keep, filled, mode=mode, over=over)
        np.testing.assert_allclose(loss, expected[over], rtol=1e-5)
        np.testing.assert_allclose(masked_error, expected["masked"], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("over", ["all", "masked"])
def test_what_padding_holds_changes_neither_loss_nor_gradient(mode, over):
    params, (obs, action) = tiny(), windows(2, 4, 3)
    keep = jnp.array([[True, False, False], [False, True, True]])
    filled = jnp.array([[True] * 4, [True, True, False, False]])
    loss = partial(loss_and_gradient, mode=mode, over=over)
    clean = loss(params, obs, action, keep, filled)
    dirty = loss(params, obs.at[1, 2:].set(jnp.nan), action.at[1, 2:].set(jnp.nan), keep, filled)
    assert_close(dirty, clean)
    fuller = loss(params, obs, action, keep, jnp.ones_like(filled))
    assert abs(float(fuller[0][0] - clean[0][0])) > 1e-4


def test_over_masked_ignores_visible_tokens_and_padding_even_as_targets(monkeypatch):
    """With the reconstructions held at zero the targets alone decide, and each token's share can be seen."""
    monkeypatch.setattr(ae, "reconstruct", lambda _, obs, action, *rest: (jnp.zeros_like(obs), jnp.zeros_like(action)))
    (obs, action), keep, filled = windows(3, 4), jnp.array([True, False, True, False]), jnp.array([True, True, False])

    def shares(over):
        def loss(obs, action):
            return ae.reconstruction_loss({}, obs, action, keep, filled, "paper", over)[0]

        d_obs, d_action = jax.grad(loss, (0, 1))(obs, action)
        np.testing.assert_array_equal(np.abs(d_obs).min(-1) > 0, np.abs(d_action) > 0)
        return np.asarray(d_action) != 0

    real = np.broadcast_to(np.asarray(filled)[:, None], (3, 4))
    np.testing.assert_array_equal(shares("all"), real)
    np.testing.assert_array_equal(shares("masked"), real & ~np.asarray(keep))


@pytest.mark.parametrize("mode", MODES)
def test_an_error_over_no_tokens_is_zero_with_zero_gradient(mode):
    params, (obs, action), everyone = tiny(), windows(2, 4, 3), jnp.ones((2, 3), bool)
    filled = jnp.ones((2, 4), bool)
    (value, masked_error), gradient = loss_and_gradient(params, obs, action, everyone, filled, mode=mode, over="masked")
    assert value == masked_error == 0
    assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(gradient))


# Dropout, of the released code alone


def test_dropout_falls_on_attention_hidden_units_and_residuals_each_with_its_own_key(monkeypatch):
    calls = []

    def record(x, key):
        calls.append((x.shape, key))
        return x

    monkeypatch.setattr(transformer, "_dropout", record)
    params, (obs, action) = tiny(**TWO), windows(3, 3)
    ae.reconstruct(params, obs, action, ae.alone(3, 0), "released", jax.random.key(0))
    attention, residual, hidden = (2, 18, 18), (18, 8), (6,)
    encoder = [attention, residual, hidden, residual]
    decoder = [attention, residual, attention, residual, hidden, residual]
    assert [shape for shape, _ in calls] == 2 * encoder + 2 * decoder
    outside = [tuple(jax.random.key_data(key).tolist()) for shape, key in calls if shape != hidden]
    assert len(set(outside)) == len(outside) == 16


def test_a_dropout_key_decides_the_released_output_and_none_turns_it_off():
    """Two equal windows in a batch: without dropout they are read back alike, with it each drops its own units."""
    params, (obs, action) = tiny(), (window[None].repeat(2, 0) for window in windows(2, 3))
    keep = jnp.broadcast_to(ae.alone(3, 0), (2, 3))
    forward = partial(reconstruct, params, obs, action, keep, mode="released")
    off, first, again, second = (forward(dropout_key=k)[0] for k in (None, *map(jax.random.key, (1, 1, 2))))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(off[0], off[1], atol=1e-6)
    for one, other in [(first, off), (first, second), (first[0], first[1])]:
        assert np.abs(one - other).max() > 1e-2


def test_mode_paper_refuses_a_dropout_key():
    obs, action = windows(2, 2)
    with pytest.raises(GraspError, match="mode 'paper' has no dropout"):
        reconstruct(tiny(), obs, action, ae.alone(2, 0), "paper", jax.random.key(0))


# Parameters


def test_defaults_have_the_references_number_of_parameters():
    params = ae.autoencoder_init(jax.random.key(0), 30)
    size = {name: sum(leaf.size for leaf in jax.tree.leaves(part)) for name, part in params.items()}
    attention, feed_forward, norm_size = 4 * 24 * 24 + 4 * 24, 2 * 24 * 2048 + 2048 + 24, 2 * 24
    assert size["encoder"] == 3 * (attention + feed_forward + 2 * norm_size) + norm_size
    assert size["decoder"] == 2 * (2 * attention + feed_forward + 3 * norm_size) + norm_size
    assert size["encoder"] + size["decoder"] == 519_352
    assert size["obs_in"] + size["action_in"] + size["obs_out"] + size["action_out"] == 31 * 24 + 48 + 25 * 30 + 25


def test_parameters_are_drawn_as_pytorch_draws_them():
    params = ae.autoencoder_init(jax.random.key(0), 400, feedforward=300)
    layer = params["decoder"]["layer_1"]
    bounds = [
        (params["obs_in"]["weight"], 1 / sqrt(400)),
        (params["obs_out"]["weight"], 1 / sqrt(24)),
        (params["obs_out"]["bias"], 1 / sqrt(24)),
        (layer["cross"]["query"]["weight"], sqrt(6 / 96)),
        (layer["self"]["value"]["weight"], sqrt(6 / 96)),
        (layer["self"]["out"]["weight"], sqrt(6 / 48)),
        (layer["feed"]["inward"]["weight"], sqrt(6 / 324)),
        (layer["feed"]["outward"]["weight"], sqrt(6 / 324)),
        (layer["feed"]["inward"]["bias"], 1 / sqrt(24)),
    ]
    for leaf, bound in bounds:
        assert 0.98 * bound < np.abs(leaf).max() <= bound
        assert abs(np.std(leaf) / bound - 1 / sqrt(3)) < 0.06
    assert 0.8 / sqrt(300) < np.abs(layer["feed"]["outward"]["bias"]).max() <= 1 / sqrt(300)
    assert np.all(np.asarray(layer["self"]["out"]["bias"]) == 0)
    assert np.all(np.asarray(layer["cross_norm"]["scale"]) == 1)


def test_no_two_weights_are_drawn_alike():
    params = ae.autoencoder_init(jax.random.key(0), 24, feedforward=24)
    drawn = [leaf for leaf in jax.tree.leaves(params) if np.std(leaf) > 0]
    assert len({np.asarray(leaf).ravel()[:3].tobytes() for leaf in drawn}) == len(drawn) > 40


@pytest.mark.parametrize("sizes", [{"embed": 10, "heads": 2}, {"embed": 8, "heads": 3}])
def test_an_embedding_that_cannot_be_split_is_refused(sizes):
    with pytest.raises(GraspError, match="must be a multiple of 4 .* and of heads"):
        ae.autoencoder_init(jax.random.key(0), 3, **sizes)


# Sizes of use, and learning


@pytest.mark.parametrize(("num_agents", "mode"), [(2, "paper"), (2, "released"), (27, "paper"), (27, "released")])
def test_gradients_are_finite_and_reach_every_parameter_at_sizes_of_use(num_agents, mode):
    """At N = 27 the 540 tokens are two tiles of the feed-forward and a remainder."""
    params = ae.autoencoder_init(jax.random.key(0), 7, feedforward=64)
    obs, action = windows(2, 5, num_agents, input_dim=7)
    keep = jnp.stack([ae.alone(num_agents, 0), ae.alone(num_agents, 1)])
    (value, masked_error), gradient = loss_and_gradient(
        params, obs, action, keep, jnp.ones((2, 5), bool), mode=mode, over="all"
    )
    assert 0.5 < value < 20
    assert 0.5 < masked_error < 20
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), path
        # A constant added to all keys shifts a query's logits alike, which the softmax does not see.
        assert np.abs(leaf).max() > 1e-7 or "'key'" in jax.tree_util.keystr(path), path


def correlated(key, mixing, num_envs=32, num_steps=2):
    """Each step has a hidden pair of numbers; every agent sees its own mixture, and acts on the first's sign."""
    hidden = jax.random.normal(key, (num_envs, num_steps, 2))
    obs = jnp.einsum("etz,nzi->etni", hidden, mixing)
    return obs, jnp.broadcast_to(0.5 * (hidden[..., :1] > 0), obs.shape[:-1])


def test_masked_agents_are_learned_far_below_predicting_the_mean():
    """Agents' mixtures differ, so a masked agent is predictable only from a visible one and its own place."""
    mixing = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 2)), jnp.float32)
    loss = partial(ae.reconstruction_loss, filled=jnp.ones((32, 2), bool), mode="paper", over="all")
    params = ae.autoencoder_init(jax.random.key(0), 2, embed=16, encoder_layers=1, decoder_layers=1, feedforward=32)
    optimiser = optax.adam(1e-2)

    def step(carry, key):
        params, moments = carry
        data_key, agent_key = jax.random.split(key)
        obs, action = correlated(data_key, mixing)
        keep = jax.vmap(partial(ae.alone, 3))(jax.random.randint(agent_key, (32,), 0, 3))
        gradient, _ = jax.grad(loss, has_aux=True)(params, obs, action, keep)
        update, moments = optimiser.update(gradient, moments)
        return (optax.apply_updates(params, update), moments), None

    keys = jax.random.split(jax.random.key(1), 300)
    (trained, _), _ = jax.jit(partial(jax.lax.scan, step))((params, optimiser.init(params)), keys)
    obs, action = correlated(jax.random.key(2), mixing)
    mean = jnp.broadcast_to(obs.mean((0, 1), keepdims=True), obs.shape)
    for agent in range(3):
        keep = jnp.broadcast_to(ae.alone(3, agent), (32, 3))
        _, masked_error = loss(trained, obs, action, keep)
        others = jnp.array([n for n in range(3) if n != agent])
        of_the_mean = ((obs - mean) ** 2)[:, :, others].mean() + action.var()
        assert masked_error < 0.3 * of_the_mean, (agent, masked_error, of_the_mean)


# One agent's window alone, some of it unknown

imagine = jax.jit(ae.imagine, static_argnames="num_agents")
PARTLY = (
    jnp.array([[[0, 0], [0, 0], [1, 0]], [[0, 0], [1, 1], [1, 0]], [[1, 1], [1, 1], [1, 0]], [[0, 1], [1, 0], [0, 1]]])
    > 0
)
"""Steps of which the observation, the action is known: an episode's start, its second step, a full window, and gaps."""


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("agent", range(4))
def test_what_an_agent_reconstructs_from_its_window_is_the_newest_of_the_whole_reconstruction(agent):
    params, (obs, action) = tiny(**TWO), windows(4, 3, 4)
    keep = jnp.broadcast_to(ae.alone(4, agent), (4, 4))
    whole, _ = reconstruct(params, obs, action, keep, "paper", known=PARTLY)
    mine = imagine(params, obs[:, :, agent], action[:, :, agent], PARTLY, jnp.array(agent), num_agents=4)
    assert mine.shape == (4, 4, 3)
    np.testing.assert_allclose(mine, whole[:, -1], rtol=1e-9, atol=1e-9)
    assert np.ptp(mine, axis=(0, 1)).min() > 1e-2


def test_unknown_tokens_never_matter_and_every_known_one_does():
    params, (obs, action), agent = tiny(), windows(4, 3, 4), 2
    keep = jnp.broadcast_to(ae.alone(4, agent), (4, 4))

    def both(obs, action):
        whole = reconstruct(params, obs, action, keep, "paper", known=PARTLY)
        return *whole, imagine(params, obs[:, :, agent], action[:, :, agent], PARTLY, jnp.array(agent), num_agents=4)

    before = both(obs, action)
    unknown = both(
        jnp.where(PARTLY[..., 0, None, None], obs, jnp.nan), jnp.where(PARTLY[..., 1, None], action, jnp.nan)
    )
    for clean, dirty in zip(before, unknown, strict=True):
        np.testing.assert_array_equal(dirty, clean)
    for step in range(3):
        for kind, after in enumerate((both(obs.at[:, step].add(0.5), action), both(obs, action.at[:, step].add(0.5)))):
            moved = np.stack([np.abs(after[0] - before[0]).max((1, 2, 3)), np.abs(after[2] - before[2]).max((1, 2))])
            np.testing.assert_array_equal(moved > 1e-5, np.broadcast_to(PARTLY[:, step, kind], (2, 4)))
