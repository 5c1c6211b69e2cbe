"""Gradients [N, 24] in float64 for JAX and PyTorch, and their conversion to each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from grasp.consensus import consensus as jax_consensus

CUT = 18


def _table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    g = rng.normal(size=(4, 24))
    thin = rng.normal(size=(4, 2))
    wide = rng.normal(size=(27, 24)) + 0.5
    zero, duplicate = g.copy(), g.copy()
    zero[2], duplicate[3] = 0.0, g[1]
    return {
        "near_orthogonal": np.eye(4, 24) + 0.05 * g,
        "conflicting": g - 0.9 * g.mean(0),
        "zero_in_hull": (thin - thin.mean(0)) @ rng.normal(size=(2, 24)),
        "deficient": (thin + 3.0) @ rng.normal(size=(2, 24)),
        "duplicate": duplicate,
        "one_zero": zero,
        "scaled": g * np.array([1e-6, 1e-3, 1.0, 1e3])[:, None],
        "all_zero": np.zeros((4, 24)),
        "one_agent": g[:1],
        "many": wide,
    }


CASES = _table()


@functools.cache
def _program(operator: str):
    return jax.jit(lambda grads: jax_consensus(grads, operator))


def by_jax(g: np.ndarray, operator: str):
    """u [24] and Info from JAX, in the precision of g."""
    grads = {"a": jnp.asarray(g[:, :CUT].reshape(-1, 3, 6)), "b": jnp.asarray(g[:, CUT:])}
    u, info = _program(operator)(grads)
    return np.concatenate([np.asarray(u["a"]).reshape(-1), np.asarray(u["b"])]), info


def agent_lists(g: np.ndarray):
    """N lists of two tensors."""
    import torch

    return [[torch.tensor(row[:CUT].reshape(3, 6)), torch.tensor(row[CUT:])] for row in g]


def flat(u) -> np.ndarray:
    return np.concatenate([leaf.double().numpy().reshape(-1) for leaf in u])
