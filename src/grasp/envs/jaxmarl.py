"""What the adapters of jaxmarl share: dictionaries become arrays here, once, and time is kept here.

jaxmarl's `step` resets by itself and recomputes that reset at every step, and its `done` counts one step more than the
papers' limits. So only `step_env` is used, our families never read `done`, and the clock is ours.
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
"""A `max_steps` that jaxmarl's own clock does not reach."""


class Timed(NamedTuple):
    """A simulator's state and the steps taken since reset."""

    inner: PyTree
    clock: Int[Array, ""]


class Verdict(NamedTuple):
    """What a step was worth to the team, and whether it ended the task."""

    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    won: Bool[Array, ""]


def load(module: str, name: str) -> Any:
    """One name from `jaxmarl.environments.<module>`, imported late (seconds) and without the lines it prints."""
    with _quiet():
        return getattr(importlib.import_module(f"jaxmarl.environments.{module}"), name)


def stack(rows: dict[str, Array], agents: list[str], width: int) -> Float[Array, "N o"]:
    """The agents' vectors as one array, each padded with zeros to `width`."""
    return jnp.stack([jnp.pad(rows[agent], (0, width - rows[agent].shape[0])) for agent in agents]).astype(jnp.float32)


def adapt(
    spec: EnvSpec,
    simulator: Any,
    observe: Callable[[dict[str, Array], PyTree], Observation],
    judge: Callable[[PyTree, dict[str, Array], dict[str, Array]], Verdict],
    scene: Callable[[PyTree], Bodies] | None,
) -> Env:
    """An `Env` from a jaxmarl simulator; `observe(obs, inner)`, `judge(inner, rewards, dones)` and `scene(inner)` read
    it."""

    def reset(key: Key) -> tuple[Timed, Observation]:
        # jaxmarl broadcasts silently in many places; whoever forbids that for their own code can still use it.
        with jax.numpy_rank_promotion("allow"):
            obs, inner = simulator.reset(key)
            return Timed(strong(inner), jnp.zeros((), jnp.int32)), observe(obs, inner)

    def advance(env_state: Timed, action: Int[Array, " N"], key: Key) -> tuple[Timed, Step]:
        actions = {agent: action[i] for i, agent in enumerate(simulator.agents)}
        with jax.numpy_rank_promotion("allow"):
            obs, inner, rewards, dones, _ = simulator.step_env(key, env_state.inner, actions)
            observation, verdict = observe(obs, inner), judge(inner, rewards, dones)
        clock = env_state.clock + 1
        truncated = (clock >= spec.horizon) & ~verdict.terminated
        step = Step(observation, verdict.reward, verdict.terminated, truncated, verdict.won)
        return Timed(strong(inner), clock), step

    return Env(spec, reset, advance, scene=(lambda env_state: scene(env_state.inner)) if scene else None)


def strong(tree: PyTree) -> PyTree:
    """The same values without weak types, which would make a scan over steps compile twice."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)


@contextmanager
def _quiet() -> Iterator[None]:
    """No lines on stdout. While it is imported jaxmarl sets stdout and stderr back to the interpreter's own, and prints
    there: so both are put back afterwards, and the interpreter's own stdout is covered too."""
    kept = sys.stdout, sys.stderr, sys.__stdout__
    sys.stdout = sys.__stdout__ = io.StringIO()  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = kept  # pyright: ignore[reportAttributeAccessIssue]
