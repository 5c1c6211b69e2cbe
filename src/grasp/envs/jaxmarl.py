"""Shared by the adapters of jaxmarl environments: dictionaries become arrays, and the time limit is counted here.

jaxmarl's `step` resets automatically and computes that reset at every step, and its `done` falls one step after the
papers' limits. The adapters therefore call `step_env`, the registered families ignore `done`, and `Timed` has a clock.
"""

import importlib
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.types import Bodies, Env, EnvSpec, Key, Observation, PyTree, Step

NEVER = 2**30
"""A `max_steps` that jaxmarl's own clock never reaches."""


class Timed(NamedTuple):
    """A simulator's state and the steps taken since reset."""

    inner: PyTree
    clock: Int[Array, ""]


class Judgement(NamedTuple):
    """The team reward of a step, and whether it terminated or won the episode."""

    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    won: Bool[Array, ""]


def load(module: str, name: str) -> Any:
    """One name from `jaxmarl.environments.<module>`. The import takes seconds, so it is late; its output is dropped."""
    with _quiet():
        return getattr(importlib.import_module(f"jaxmarl.environments.{module}"), name)


def stack(rows: dict[str, Array], agents: list[str], width: int) -> Float[Array, "N o"]:
    """The agents' vectors as one array, padded with zeros to `width`."""
    return jnp.stack([jnp.pad(rows[agent], (0, width - rows[agent].shape[0])) for agent in agents]).astype(jnp.float32)


def adapt(
    spec: EnvSpec,
    simulator: Any,
    observe: Callable[[dict[str, Array], PyTree], Observation],
    judge: Callable[[PyTree, dict[str, Array], dict[str, Array]], Judgement],
    scene: Callable[[PyTree], Bodies] | None,
) -> Env:
    """An `Env` from a jaxmarl simulator. `observe(obs, inner)`, `judge(inner, rewards, dones)` and `scene(inner)`
    convert what it returns."""

    def reset(key: Key) -> tuple[Timed, Observation]:
        # jaxmarl relies on rank promotion, which the user may have forbidden for their own code
        with jax.numpy_rank_promotion("allow"):
            obs, inner = simulator.reset(key)
            return Timed(strong(inner), jnp.zeros((), jnp.int32)), observe(obs, inner)

    def advance(env_state: Timed, action: Int[Array, " N"], key: Key) -> tuple[Timed, Step]:
        actions = {agent: action[i] for i, agent in enumerate(simulator.agents)}
        with jax.numpy_rank_promotion("allow"):
            obs, inner, rewards, dones, _ = simulator.step_env(key, env_state.inner, actions)
            observation, outcome = observe(obs, inner), judge(inner, rewards, dones)
        clock = env_state.clock + 1
        truncated = (clock >= spec.horizon) & ~outcome.terminated
        step = Step(observation, outcome.reward, outcome.terminated, truncated, outcome.won)
        return Timed(strong(inner), clock), step

    return Env(spec, reset, advance, scene=(lambda env_state: scene(env_state.inner)) if scene else None)


def strong(tree: PyTree) -> PyTree:
    """The same values without weak types, with which a scan over steps would compile twice."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what jaxmarl prints at import. Its import resets stdout and stderr to the interpreter's originals and
    prints there, so the original stdout is replaced as well, and all three are restored afterwards."""
    kept = sys.stdout, sys.stderr, sys.__stdout__
    sys.stdout = sys.__stdout__ = io.StringIO()  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = kept  # pyright: ignore[reportAttributeAccessIssue]
