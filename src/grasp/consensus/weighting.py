"""Operators by name: a `Weighting` maps a Gram matrix and a key to weights, `(G[N,N], key) -> w[N]`.

`CONDITIONS` records which of the paper's three conditions each operator meets: pareto (u·g_i ≥ 0 for every agent),
continuous (u is a continuous function of the gradients alone, so the key must not matter) and hull (u lies in the
convex hull of the gradients). A test searches every "yes" for violations and keeps a counterexample for every "no".
"""

import difflib
import importlib
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from grasp.consensus import operators
from grasp.consensus.min_norm import cosines, solve

Weighting = Callable[[Float[Array, "N N"], PRNGKeyArray], Float[Array, " N"]]
Verdict = Literal["yes", "no", "off_stationary"]


class Conditions(NamedTuple):
    """The paper's three conditions. "off_stationary": only where 0 is not in the hull."""

    pareto: Verdict
    continuous: Verdict
    hull: Verdict


def min_norm(G: Float[Array, "N N"], key: PRNGKeyArray) -> Float[Array, " N"]:
    """The shortest vector of the hull, argmin wᵀGw over the simplex (Désidéri 2012; the paper's operator), exactly."""
    del key
    return solve(G).weights


def min_norm_unit(G: Float[Array, "N N"], key: PRNGKeyArray) -> Float[Array, " N"]:
    """Min-norm over the unit gradients, brought back to the hull: w_i ∝ c_i/‖g_i‖ (normalised MGDA, Désidéri 2012).

    The smallest gradient no longer decides the direction. A zero gradient has no direction: it takes all weight.
    """
    del key
    H, norms, zero = cosines(G)
    w = jnp.where(jnp.any(zero), zero, solve(H).weights / jnp.where(zero, 1, norms))
    total = jnp.sum(w)
    return w / jnp.where(total > 0, total, 1)


def mean(G: Float[Array, "N N"], key: PRNGKeyArray) -> Float[Array, " N"]:
    """w = 1/N: the ordinary averaged gradient."""
    del key
    return jnp.full(len(G), 1 / len(G), G.dtype)


def random(G: Float[Array, "N N"], key: PRNGKeyArray) -> Float[Array, " N"]:
    """w uniform on the simplex, Dirichlet(1) (random loss weighting, Lin et al. 2022): a control for clever choices."""
    return jax.random.dirichlet(key, jnp.ones(len(G), G.dtype))


OPERATORS: dict[str, Weighting] = {
    "min_norm": min_norm,
    "min_norm_unit": min_norm_unit,
    "frank_wolfe": operators.frank_wolfe,
    "mean": mean,
    "pcgrad": operators.pcgrad,
    "cagrad": operators.cagrad,
    "nash": operators.nash,
    "nash_normalised": operators.nash_normalised,
    "upgrad": operators.upgrad,
    "dualproj": operators.dualproj,
    "imtl_g": operators.imtl_g,
    "aligned_mtl": operators.aligned_mtl,
    "random": random,
}

CONDITIONS: dict[str, Conditions] = {
    "min_norm": Conditions("yes", "yes", "yes"),
    "min_norm_unit": Conditions("yes", "off_stationary", "yes"),
    "frank_wolfe": Conditions("no", "no", "yes"),
    "mean": Conditions("no", "yes", "yes"),
    "pcgrad": Conditions("no", "no", "no"),
    "cagrad": Conditions("no", "off_stationary", "no"),
    "nash": Conditions("yes", "off_stationary", "no"),
    "nash_normalised": Conditions("yes", "yes", "yes"),
    "upgrad": Conditions("yes", "off_stationary", "no"),
    "dualproj": Conditions("yes", "off_stationary", "no"),
    "imtl_g": Conditions("no", "no", "no"),
    "aligned_mtl": Conditions("no", "no", "no"),
    "random": Conditions("no", "no", "yes"),
}


def weighting(name: str) -> Weighting:
    """The operator of that name, or the user's own as `package.module:function`."""
    if name in OPERATORS:
        return OPERATORS[name]
    if ":" in name:
        return _load(name)
    near = difflib.get_close_matches(name, OPERATORS, n=1, cutoff=0)
    raise ValueError(f"unknown operator {name!r}; did you mean {near[0]!r}?")


def _load(name: str) -> Weighting:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"can't load operator {name!r} ({error}); write it as 'package.module:function'") from error
    if not callable(found):
        raise ValueError(f"operator {name!r} is no function; it must map (G, key) to weights")
    return cast(Weighting, found)
