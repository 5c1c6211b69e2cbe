"""What is checked where a CPU is several devices, which a process must decide before jax starts: run by
`tests/training/devices` as `python device_cases.py CASE DEVICES`."""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from paths import REPOSITORY

from grasp import consensus
from grasp.config import configure
from grasp.consensus.sharded import consensus_of_parts, scatter
from grasp.nn import sharding
from grasp.training import runner
from grasp.types import GraspError

SIZES = {"num_envs": 8, "rollout": 10, "chunk": 5, "epochs": 2, "hidden": 8, "eval_episodes": 4, "steps": 10**6}
TRAINED = {
    "heads, one minibatch": ("grasp-mappo", {}),
    "both, two minibatches": ("grasp-mappo", {"scope": "both", "minibatches": 2, "critic": "gru"}),
    "happo": ("grasp-happo", {}),
    "weights of others": ("grasp-mappo", {"gram": "representation", "control": "permuted", "minibatches": 2}),
}
BYTES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1}


def over(number, function):
    """The function on every device's entry of its argument's first axis; all must answer the same."""
    own = jax.jit(
        sharding.per_device(
            lambda x: function(jax.tree.map(lambda y: y[0], x)), sharding.FIRST_AXIS, sharding.REPLICATED
        )
    )

    def call(parts):
        with jax.set_mesh(sharding.mesh(number)):
            return own(parts)

    return call


def together(number, operator="min_norm"):
    return over(number, lambda parts: consensus_of_parts(parts, operator, axis_name=sharding.AXIS))


def parts_of(key, number, num_agents):
    shapes = {"bias": (), "layer": (3, 4), "row": (6,)}  # 19 numbers: no multiple of 2 or 4
    keys = jax.random.split(key, len(shapes))
    return {n: jax.random.normal(k, (number, num_agents, *shapes[n])) for n, k in zip(shapes, keys, strict=True)}


def equal(number):
    """The same direction, weights and certificate as the plain consensus of the sums."""
    for num_agents, operator in ((1, "min_norm"), (5, "nash_normalised"), (27, "min_norm")):
        many = together(number, operator)
        one = jax.jit(lambda parts, o=operator: consensus.consensus(jax.tree.map(lambda x: x.sum(0), parts), o))
        for scale in (1.0, 1e-20):
            parts = jax.tree.map(lambda x, s=scale: x * s, parts_of(jax.random.key(num_agents), number, num_agents))
            (u, info), (expected, plain) = many(parts), one(parts)
            for name in u:
                np.testing.assert_allclose(u[name], expected[name], rtol=2e-3, atol=2e-5 * scale, err_msg=name)
            np.testing.assert_allclose(info.weights, plain.weights, atol=2e-5)
            np.testing.assert_allclose(info.gram, plain.gram, atol=1e-5)
            np.testing.assert_allclose(info.scale, plain.scale, rtol=1e-5)
            assert info.status == plain.status
    faults(number, many)


def faults(number, many):
    """A fault on one device is reported by all; gradients that cancel over devices are zero."""
    parts = parts_of(jax.random.key(0), number, 27)
    u, info = many(parts | {"row": parts["row"].at[-1, 1, 4].set(jnp.nan)})
    assert info.status == consensus.Status.NON_FINITE
    np.testing.assert_array_equal(u["layer"], 0)
    sign = jnp.where(jnp.arange(number) % 2 == 0, 1.0, -1.0)
    u, info = many(jax.tree.map(lambda x: x[:1] * sign.reshape(-1, *[1] * (x.ndim - 1)), parts))
    assert info.status == consensus.Status.STATIONARY
    np.testing.assert_array_equal(u["layer"], 0)
    # a slice is one device's share of every agent's sum
    gathered = over(number, lambda own: jax.lax.all_gather(scatter(own, sharding.AXIS), sharding.AXIS))(parts)
    rows = jnp.concatenate([leaf.sum(0).reshape(27, -1) for leaf in jax.tree.leaves(parts)], 1)
    np.testing.assert_allclose(np.concatenate(gathered, 1), np.pad(rows, ((0, 0), (0, -19 % number))), atol=1e-5)


MESSAGE = re.compile(r"= (.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(-start)?\(")


def messages(text):
    """(kind, bytes received) of every message in a compiled program."""
    found = []
    for hit in filter(None, map(MESSAGE.search, text.splitlines())):
        arrays = re.findall(r"(\w+)\[([\d,]*)\]", hit[1])
        sizes = [BYTES[kind] * int(np.prod([int(d) for d in dims.split(",") if d])) for kind, dims in arrays]
        found.append((hit[2], sum(sizes)))
    return found


def compiled(number, algo, **options):
    """A whole iteration as compiled, and the run that it takes."""
    config = configure(algo, "probe/mask_death", SIZES | options)
    programs_of_one = runner.build(config, 1)
    mesh = sharding.mesh(number)
    same = NamedSharding(mesh, sharding.REPLICATED)
    places = runner.RunState._make([same, NamedSharding(mesh, sharding.SECOND_AXIS), same, same])
    run = jax.device_put(programs_of_one.begin([0]), places)
    with jax.set_mesh(mesh):
        return programs_of_one.advance.lower(run).compile().as_text(), run


def traffic(number):
    """The consensus of the backbone sends slices of gradients and u, never whole ones; no device sends observations."""
    text, run = compiled(number, "grasp-mappo", scope="backbone", hidden=32)
    num_agents = 2
    gradient = 4 * sum(leaf[0].size for leaf in jax.tree.leaves(run.state.actor.backbone))
    padded = -(-gradient // 4 // number) * number * 4
    found = messages(text)
    assert [size for kind, size in found if kind == "all-gather"] == [padded]
    assert [size for kind, size in found if kind == "reduce-scatter"] == [num_agents * padded // number]
    update = 4 * sum(leaf.size for leaf in jax.tree.leaves((run.state.actor, run.state.critic)))
    largest = max(size for kind, size in found if kind == "all-reduce")
    assert update <= largest <= update + 64  # gradients of what is learned, and some metrics
    assert {kind for kind, _ in found} == {"all-gather", "reduce-scatter", "all-reduce"}


def train(number, algo, options):
    """Three iterations and a score, as numbers on the host."""
    made = runner.build(configure(algo, "probe/mask_death", SIZES | options | {"devices": number}), 1)
    run = made.begin([0])
    for _ in range(3):
        run, metrics = made.advance(run)
    stored = made.outline(run)._replace(key=())
    return jax.device_get((stored, metrics, made.score(run.state, jax.random.split(jax.random.key(1), 1))))


def trained(number, case):
    """The run is the same on one device, up to rounding."""
    algo, options = TRAINED[case]
    one, many = (dict(jax.tree_util.tree_leaves_with_path(train(n, algo, options))) for n in (1, number))
    assert one.keys() == many.keys()
    assert np.abs(one_value(one, "u_norm")) > 1e-3  # there was something to agree on
    for path in one:
        np.testing.assert_allclose(many[path], one[path], rtol=2e-3, atol=2e-5, err_msg=jax.tree_util.keystr(path))


def too_few(number):
    with pytest.raises(GraspError, match="requested 3 devices but found 2; give at most --devices 2"):
        sharding.mesh(number)


def one_value(found, name):
    return next(value for path, value in found.items() if f"'{name}'" in jax.tree_util.keystr(path))


if __name__ == "__main__":
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_compilation_cache_dir", str(REPOSITORY / ".pytest_cache" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    words = json.loads(sys.argv[1])
    globals()[words[0]](*words[1:])
    print("done")
