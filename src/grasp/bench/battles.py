"""Skirmish compared with jaxmarl's SMAX on the maps that both have."""

import time
from collections.abc import Iterator
from typing import Any

import jax

from grasp.bench.envs import STEPS, at_random, player
from grasp.bench.measure import Line, interleaved, peak_mb, together
from grasp.envs import base
from grasp.launch.local import cores
from grasp.types import Key

CASES = [("5m_vs_6m", 64), ("5m_vs_6m", 256), ("27m_vs_30m", 64), ("27m_vs_30m", 256)]
CROWD = 4096
"""Copies of the memory measurement."""


def run(smoke: bool) -> Iterator[Line]:
    """Memory and time to compile; then steps per second with random legal actions, resets included."""
    task, crowd = CASES[0 if smoke else -1][0], 4 if smoke else CROWD
    yield from alone(f"skirmish/{task}", crowd)
    for task, num_envs in CASES[:1] if smoke else CASES:
        copies = 4 if smoke else num_envs
        names = [f"skirmish/{task}", f"smax/{task}"]
        taken = interleaved({name: player(name, copies) for name in names}, rounds=1 if smoke else 5)
        ours, theirs = (STEPS * copies / taken[name] for name in names)
        yield Line(f"{names[0]}, {copies} copies, one process", ours, "steps/s", ours / theirs, names[1], peak_mb())
        best = max(theirs, on_all_cores(names[1], copies, smoke))
        ours = on_all_cores(names[0], copies, smoke)
        yield Line(
            f"{names[0]}, {copies} copies, one process per core", ours, "steps/s", ours / best, f"best of {names[1]}"
        )


def on_all_cores(name: str, num_envs: int, smoke: bool) -> float:
    """Steps per second of one pinned process per core, each with its portion of the copies, as seeds are trained."""
    pinned = list(cores())
    options = {"env_name": name, "num_envs": max(1, num_envs // len(pinned))}
    task = {"kind": "play", "options": options, "iterations": 1 if smoke else 5}
    return sum(found["rate"] for found in together([task] * len(pinned), pinned))


def alone(name: str, num_envs: int) -> Iterator[Line]:
    """Many copies without recording a trajectory, so that the environment dominates the memory of the process."""
    env, act = base.compiled(name), at_random().act

    def step(carry: tuple[Any, Any], key: Key) -> tuple[tuple[Any, Any], jax.Array]:
        act_key, env_key = jax.random.split(key)
        action = act((), (), carry[1], act_key, False).action
        env_state, after = jax.vmap(env.step)(carry[0], action, jax.random.split(env_key, num_envs))
        return (env_state, after.observation), after.reward.mean()

    carry = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), num_envs))
    keys = jax.random.split(jax.random.key(1), STEPS)
    lowered = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys)).lower(carry, keys)
    began = time.perf_counter()
    program = lowered.compile()
    yield Line(f"{name}, compiling {num_envs} copies", time.perf_counter() - began, "s")
    jax.block_until_ready(program(carry, keys))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(carry)) / num_envs
    yield Line(f"{name}, {num_envs} copies, state per copy", held / 1024, "KiB", None, "", peak_mb())
