"""Two agents with independent softmax choices and one payoff: exact values, gradients and training."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from grasp.consensus import solve

CLIMBING = np.array([[11.0, -30, 0], [-30, 7, 6], [0, 0, 5]])
PENALTY = np.array([[10.0, 0, -10], [0, 2, 0], [-10, 0, 10]])
ONE_CELL = np.array([[0.0, 0], [1, 0]])


def value(payoff, theta):
    p, q = jax.nn.softmax(theta, axis=-1)
    return p @ payoff @ q


def gradients(payoff, theta):
    """The closed form g_i = p_i ∘ (Q_i − p_i·Q_i)."""
    p, q = jax.nn.softmax(theta, axis=-1)
    rows, columns = payoff @ q, payoff.T @ p
    return jnp.stack([p * (rows - p @ rows), q * (columns - q @ columns)])


def direction(rule: str, g):
    if rule == "plain":
        return g
    u = (solve(g @ g.T).weights if rule != "mean" else jnp.full(2, 0.5)) @ g
    moved = g + u[None]
    if rule != "factor":
        return moved
    total = jnp.sum(g**2, axis=1) + u @ u
    factor = (u @ u + g @ u) / jnp.where(total > 0, total, 1)
    return factor[:, None] * moved


@functools.partial(jax.jit, static_argnames=("rule", "unit", "steps"))
def final_values(payoff, starts, rate, rule: str, unit: bool = False, steps: int = 2000):
    """J after training from every start; with `unit`, every step has length `rate`."""

    def step(theta, _):
        v = direction(rule, gradients(payoff, theta))
        length = jnp.sqrt(jnp.sum(v**2))
        return theta + rate * (v / jnp.where(length > 1e-12, length, 1) if unit else v), None

    def train(theta):
        return value(payoff, jax.lax.scan(step, theta, None, length=steps)[0])

    return jax.vmap(train)(starts)
