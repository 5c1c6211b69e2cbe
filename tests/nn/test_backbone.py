"""Every backbone against its equations in NumPy, step by step; and what it starts from."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.nn import backbone

HIDDEN, LENGTH, ROWS = 4, 6, (3, 2)


def normals(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def noised(params, seed=1):
    """Parameters without a zero bias and without a scale of 1."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x) + 0.3 * rng.normal(size=x.shape)), params)


def relu(x):
    return np.maximum(x, 0)


def normed(params, x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * params["scale"] + params["bias"]


def dense(params, x):
    return x @ params["weight"] + params["bias"]


def gru_cell(params, memory, x):
    """PyTorch's documented GRUCell."""
    fed, recalled = (np.split(dense(params[way], y), 3, -1) for way, y in (("input", x), ("memory", memory)))
    reset, update = (1 / (1 + np.exp(-(fed[k] + recalled[k]))) for k in (0, 1))
    return (1 - update) * np.tanh(fed[2] + reset * recalled[2]) + update * memory


def blocks(params, x):
    x = normed(params["norm"], x)
    for name in sorted(params.keys() - {"norm"}):
        x = normed(params[name]["norm"], relu(dense(params[name], x)))
    return x


def by_hand(params, memory, x, first):
    """Features and memories along a sequence."""
    features, memories = [], []
    for now, begins in zip(x, first, strict=True):
        memory = np.where(begins[..., None], 0.0, memory)
        if "encoder" in params:
            memory = gru_cell(params["gru"], memory, dense(params["encoder"], now))
            out = relu(memory)
        elif "rectified" in params:
            out = memory = gru_cell(params["gru"], memory, relu(dense(params["rectified"], now)))
        elif "attention" in params:
            attended = backbone.attend(jax.tree.map(jnp.asarray, params["attention"]), jnp.asarray(now))
            memory = gru_cell(params["gru"], memory, np.asarray(attended))
            out = relu(memory)
        elif "gru" in params:
            memory = gru_cell(params["gru"], memory, blocks(params["blocks"], now))
            out = normed(params["norm"], memory)
        else:
            out = blocks(params["blocks"], now)
        features.append(out)
        memories.append(memory)
    return np.stack(features), np.stack(memories)


FRONTS = {
    "encoded": (backbone.encoded_init, 9),
    "encoded, composed": (backbone.encoded_init, 3),
    "blocks": (partial(backbone.blocks_init, number=2, recurrence="gru"), 5),
    "three blocks without a GRU": (partial(backbone.blocks_init, number=3, recurrence="mlp"), 5),
    "rectified": (backbone.rectified_init, 5),
    "attended": (backbone.attended_init, 5),
}


@pytest.mark.parametrize("kind", FRONTS)
@pytest.mark.usefixtures("x64")
def test_a_sequence_and_single_steps_are_the_equations(kind):
    init, width = FRONTS[kind]
    params = noised(init(jax.random.key(0), width, HIDDEN))
    x = normals(2, LENGTH, *ROWS, width * (3 if kind == "attended" else 1))
    memory = normals(3, *ROWS, backbone.memory_width(params))
    first = np.random.default_rng(4).random((LENGTH, *ROWS)) < 0.3
    features, memories = by_hand(jax.tree.map(np.asarray, params), memory, x, first)
    found = backbone.sequence(params, jnp.asarray(memory), jnp.asarray(x), jnp.asarray(first))
    np.testing.assert_allclose(found, features, rtol=1e-9, atol=1e-12)
    before = np.where(first[0][..., None], 0.0, memory)
    after, out = backbone.step(params, jnp.asarray(before), jnp.asarray(x[0]))
    np.testing.assert_allclose(out, features[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(after, memories[0], rtol=1e-9, atol=1e-12)


def test_the_reference_s_blocks_are_orthogonal_with_the_gain_of_a_relu_and_norms_that_change_nothing():
    params = backbone.blocks_init(jax.random.key(0), 9, HIDDEN, 2, "gru")
    assert {name: x["weight"].shape for name, x in params["blocks"].items() if name != "norm"} == {
        "block_0": (9, HIDDEN),
        "block_1": (HIDDEN, HIDDEN),
    }
    for name in ("block_0", "block_1"):
        weight = np.asarray(params["blocks"][name]["weight"])
        np.testing.assert_allclose(weight.T @ weight, 2 * np.eye(HIDDEN), atol=1e-5)
    norms = [params["blocks"]["norm"], params["norm"], *(params["blocks"][f"block_{i}"]["norm"] for i in (0, 1))]
    assert all((norm["scale"] == 1).all() and (norm["bias"] == 0).all() for norm in norms)
    assert (params["blocks"]["block_0"]["bias"] == 0).all()
    weights = [np.asarray(params["blocks"][f"block_{i}"]["weight"])[:HIDDEN] for i in (0, 1)]
    assert np.abs(weights[0] - weights[1]).max() > 0.1


def test_pymarl2_s_network_starts_from_pytorch_s_uniform_distributions():
    params = backbone.rectified_init(jax.random.key(0), 25, 100)
    for layer, inputs in ((params["rectified"], 25), (params["gru"]["input"], 100), (params["gru"]["memory"], 100)):
        for values in layer.values():
            assert np.abs(values).max() <= inputs**-0.5
            assert np.std(values) == pytest.approx(inputs**-0.5 / 3**0.5, rel=0.2)


def attention_case(rows=4, width=3, hidden=6, lead=(5, 2)):
    """Parameters with nonzero biases, and rows to attend to."""
    rng = np.random.default_rng(2)

    def layer(outputs):
        return {"weight": jnp.asarray(rng.normal(size=(width, outputs))), "bias": jnp.asarray(rng.normal(size=outputs))}

    params = {"query": layer(width), "key": layer(width), "value": layer(width)}
    params |= {"team": layer(hidden // 2), "own": layer(hidden // 2)}
    params["key"].pop("bias")
    return params, rng.normal(size=(*lead, rows, width))


def flat(rows):
    return jnp.asarray(rows.reshape(*rows.shape[:-2], -1))


@pytest.mark.usefixtures("x64")
def test_attend_is_one_head_of_attention_with_keys_and_values_written_out():
    params, rows = attention_case()
    p = jax.tree.map(np.asarray, params)
    found = backbone.attend(params, flat(rows))
    assert found.shape == (5, 2, 6)
    for at in np.ndindex(5, 2):
        team = rows[at]
        queries = [r @ p["query"]["weight"] + p["query"]["bias"] for r in team]
        keys = [r @ p["key"]["weight"] for r in team]
        values = [r @ p["value"]["weight"] + p["value"]["bias"] for r in team]
        attended = []
        for q in queries:
            weight = np.exp([q @ k / np.sqrt(3) for k in keys])
            attended.append(sum(w * v for w, v in zip(weight / weight.sum(), values, strict=True)))
        team_features = attended[0] @ p["team"]["weight"] + p["team"]["bias"]
        own = team[0] @ p["own"]["weight"] + p["own"]["bias"]
        np.testing.assert_allclose(found[at], np.maximum(np.concatenate([team_features, own]), 0), rtol=1e-9)
    assert ((found == 0).mean((0, 1)) < 1).all()
    assert (found == 0).any()


@pytest.mark.usefixtures("x64")
def test_attend_ignores_the_order_of_all_rows_but_the_first():
    params, rows = attention_case()
    before = backbone.attend(params, flat(rows))
    shuffled = backbone.attend(params, flat(rows[..., [0, 3, 1, 2], :]))
    np.testing.assert_allclose(shuffled, before, rtol=1e-12, atol=1e-12)
    assert np.abs(backbone.attend(params, flat(rows[..., [1, 0, 2, 3], :])) - before).max() > 0.1
    moved = rows.copy()
    moved[..., 1:, :] += 1
    after = backbone.attend(params, flat(moved))
    np.testing.assert_array_equal(after[..., 3:], before[..., 3:])
    assert np.abs(after - before)[..., :3].max() > 0.1


def test_attended_init_has_orthogonal_maps_no_key_bias_and_gives_half_of_the_width_to_each():
    params = backbone.attended_init(jax.random.key(0), 7, 10)
    attention = params["attention"]
    assert {name: layer["weight"].shape for name, layer in attention.items()} == {
        "query": (7, 7),
        "key": (7, 7),
        "value": (7, 7),
        "team": (7, 5),
        "own": (7, 5),
    }
    assert [name for name, layer in attention.items() if "bias" not in layer] == ["key"]
    for layer in attention.values():
        gram = np.asarray(layer["weight"].T @ layer["weight"])
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)
        assert (layer.get("bias", jnp.zeros(1)) == 0).all()
    drawn = [layer["weight"][:, :5] for layer in attention.values()]
    assert len({np.asarray(w).tobytes() for w in drawn}) == 5
    assert params["gru"]["input"]["weight"].shape == params["gru"]["memory"]["weight"].shape == (10, 30)
