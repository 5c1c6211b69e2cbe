"""`grasp check-env`: check an environment against the contract of `grasp.envs.base`.

The environment is played with random legal actions, and the first violation is raised. The rules are functions of
recorded episodes, so the same rules hold for JAX environments and simulators.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from grasp.envs.host import SimulatorPool, observed
from grasp.types import Env, EnvSpec, GraspError, Host, Observation, Step

SEEDS = (0, 0, 1)
"""The first two are equal, to check that a seed repeats an episode."""
DEADLINE = 60.0
"""Seconds for one step of a simulator."""
NOT_REPEATABLE = ("smac", "smacv2")
"""Packages whose game takes a seed only when it starts, so that no battle can be repeated."""


class Episode(NamedTuple):
    start: Observation
    steps: list[Step]


class Report(NamedTuple):
    """Measurements of an environment that meets the contract."""

    spec: EnvSpec
    lengths: list[int]
    returns: list[float]
    steps_per_second: float
    seeds_differ: bool
    notes: list[str]
    """Properties that the contract allows but the user should know."""


Play = Callable[[int, Callable[[Observation], np.ndarray]], Iterator[Observation | Step]]
"""(seed, policy) -> the first observation, then every step of one episode."""


def inspect(env: Env | Host) -> Report:
    """Play three episodes. Raises a GraspError that names the first rule that is broken."""
    began, episodes = time.monotonic(), []
    play, close = on_host(env) if isinstance(env, Host) else (on_device(env), lambda: None)
    try:
        for seed in SEEDS:
            episodes.append(record(env.spec, play, seed))
    finally:
        close()
    notes = []
    for episode in episodes:
        check_end(env.spec, episode, may_truncate_early=isinstance(env, Host))
    if any(episode.steps[-1].truncated and len(episode.steps) < env.spec.horizon for episode in episodes):
        notes.append(f"an episode was truncated before the horizon of {env.spec.horizon} steps")
    if env.spec.package in NOT_REPEATABLE:
        notes.append("this game cannot repeat an episode, so repetition by seed was not checked")
    elif not same(episodes[0], episodes[1]):
        fail(env.spec, "the same seed and actions gave two different episodes; draw all random numbers from the seed")
    lengths = [len(episode.steps) for episode in episodes]
    returns = [float(sum(step.reward for step in episode.steps)) for episode in episodes]
    rate = sum(lengths) / (time.monotonic() - began)
    return Report(env.spec, lengths, returns, rate, not same(episodes[0], episodes[2]), notes)


def record(spec: EnvSpec, play: Play, seed: int) -> Episode:
    """One episode under random legal actions. Each observation is checked before the policy uses it."""
    rng = np.random.default_rng(7)

    def policy(seen: Observation) -> np.ndarray:
        scores = np.where(seen.avail, rng.random(seen.avail.shape), -1.0)
        return scores.argmax(-1).astype(np.int32)

    start: Observation | None = None
    steps: list[Step] = []
    for entry in play(seed, policy):
        if isinstance(entry, Step):
            check_step(spec, entry, len(steps) + 1)
            steps.append(entry)
        else:
            check_observation(spec, entry, 0)
            start = entry
    assert start is not None
    return Episode(start, steps)


def fail(spec: EnvSpec, rule: str) -> None:
    raise GraspError(f"environment {spec.name!r} breaks the contract: {rule}")


def check_observation(spec: EnvSpec, seen: Observation, step: int) -> None:
    when = f"at step {step}" if step else "at reset"
    agents = spec.num_agents
    shapes = {
        "obs": ((agents, spec.obs_dim), "float32"),
        "state": (spec.state_shape, "float32"),
        "avail": ((agents, spec.num_actions), "bool"),
        "alive": ((agents,), "bool"),
    }
    for name, (shape, kind) in shapes.items():
        value = getattr(seen, name)
        if value.shape != shape:
            fail(spec, f"{name} has the shape {value.shape} {when}; its spec has {shape}")
        if value.dtype != kind:
            fail(spec, f"{name} is {value.dtype} {when}; it must be {kind}")
        if not np.isfinite(value).all():
            fail(spec, f"{name} contains a number that is not finite {when}")
    stuck = np.flatnonzero(~seen.avail.any(-1))
    if stuck.size:
        fail(spec, f"agent {stuck[0]} has no legal action {when}; dead agents need one too")


def check_step(spec: EnvSpec, step: Step, number: int) -> None:
    check_observation(spec, step.observation, number)
    if not np.isfinite(step.reward):
        fail(spec, f"the reward at step {number} is {step.reward}")
    if step.terminated and step.truncated:
        fail(spec, f"step {number} is both terminated and truncated; set only one of them")
    if step.won and not spec.has_wins:
        fail(spec, f"step {number} is won, but spec.has_wins is False")
    if step.won and not (step.terminated or step.truncated):
        fail(spec, f"step {number} is won, but neither terminated nor truncated")


def check_end(spec: EnvSpec, episode: Episode, may_truncate_early: bool) -> None:
    """A simulator may truncate an episode before the horizon; a JAX environment has only that limit."""
    last, length = episode.steps[-1], len(episode.steps)
    if not (last.terminated or last.truncated):
        fail(spec, f"an episode continues after its horizon of {spec.horizon} steps; truncate it there")
    if last.truncated and length < spec.horizon and not may_truncate_early:
        fail(spec, f"an episode was truncated after {length} steps, before its horizon of {spec.horizon}")


def same(one: Episode, other: Episode) -> bool:
    leaves = [jax.tree.leaves((episode.start, episode.steps)) for episode in (one, other)]
    return len(leaves[0]) == len(leaves[1]) and all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


def on_device(env: Env) -> Play:
    reset, step = jax.jit(env.reset), jax.jit(env.step)

    def play(seed: int, policy: Callable[[Observation], np.ndarray]) -> Iterator[Observation | Step]:
        key = jax.random.key(seed)
        state, seen = reset(key)
        seen = jax.device_get(seen)
        yield seen
        for number in range(env.spec.horizon):
            state, after = step(state, policy(seen), jax.random.fold_in(key, number))
            after = jax.device_get(after)
            seen = after.observation
            yield Step(*after)
            if after.terminated or after.truncated:
                return

    return play


def on_host(host: Host) -> tuple[Play, Callable[[], None]]:
    pool = SimulatorPool(host, 1, 1, DEADLINE, 0)
    copy = np.zeros(1, int)

    def run(command: str) -> Observation:
        pool.send(command, copy)
        pool.wait(copy)
        return Observation(*(value[0].copy() for value in observed(pool, copy)))

    def play(seed: int, policy: Callable[[Observation], np.ndarray]) -> Iterator[Observation | Step]:
        pool.records["seed"] = seed
        seen = run("reset")
        yield seen
        for _ in range(host.spec.horizon):
            pool.records["action"] = policy(seen)
            seen = run("step")
            record = pool.records[0]
            yield Step(seen, *(record[name].item() for name in ("reward", "terminated", "truncated", "won")))
            if record["terminated"] or record["truncated"]:
                return

    return play, pool.close
