"""The arithmetic efficiency of an update."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from grasp.bench.measure import Line, interleaved, peak_mb, played, workload
from grasp.config.hyperparameters import Mappo
from grasp.envs import base
from grasp.types import EnvSpec

ROWS, CHAIN = 384, 64


def model_flops(h: Mappo, spec: EnvSpec) -> float:
    """Flops of one update: per epoch one forward pass and a backward pass of twice its cost; a multiply-add is 2."""
    width = h.hidden
    gates = 2 * width * 3 * width
    actor = spec.obs_dim * width + gates + width * spec.num_actions
    critic = spec.state_dim * width + (2 * width * width if h.critic == "mlp" else gates) + width
    samples = h.num_envs * h.rollout * h.epochs
    return 3 * 2.0 * samples * (spec.num_agents * actor + critic)


def run(smoke: bool) -> Iterator[Line]:
    """Model flops per second of an update, relative to a plain float32 matmul in the same process."""
    config = workload("mappo", "mpe/simple_spread", smoke)
    assert isinstance(config.hyper, Mappo)
    algorithm, state, trajectory = played(config)
    update = jax.jit(algorithm.update)
    width = config.hyper.hidden
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(ROWS, width)), jnp.float32)
    up, down = (jnp.asarray(rng.normal(size=s) / width, jnp.float32) for s in ((width, 3 * width), (3 * width, width)))
    chain = jax.jit(lambda x: jax.lax.fori_loop(0, CHAIN, lambda _, y: y @ up @ down, x))
    actions = {
        "matmul": lambda: chain(x),
        "update": lambda: update(state, trajectory, jax.random.key(1)),
    }
    taken = interleaved(actions, rounds=3 if smoke else 9)
    matmul = 2.0 * 2 * ROWS * width * 3 * width * CHAIN / taken["matmul"] / 1e9
    reached = model_flops(config.hyper, base.compiled(config.env).spec) / taken["update"] / 1e9
    shape = f"[{ROWS}, {width}] @ [{width}, {3 * width}]"
    yield Line(f"matmul {shape} and back", matmul, "Gflop/s", None, "", peak_mb())
    yield Line(f"update, {config.env}", reached, "Gflop/s", reached / matmul, "matmul", peak_mb())
