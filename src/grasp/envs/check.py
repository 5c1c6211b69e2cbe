"""`grasp check-env`: an environment played with random legal actions, and the first rule of the contract it breaks.

The rules are those of `grasp.envs.base`. Each is a function of recorded episodes, so that environments of JAX and
simulators are held to the same.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from grasp.envs.host import SimulatorPool, observed
from grasp.types import Env, EnvSpec, GraspError, Host, Observation

SEEDS = (0, 0, 1)
"""The first two are one and the same."""
DEADLINE = 60.0
UNREPEATED = ("smac", "smacv2")
"""Packages whose game takes a seed only when it is started: no battle can be asked for again."""


class Moment(NamedTuple):
    """A step: what followed the action, and what was said of it."""

    observation: Observation
    reward: Any
    terminated: Any
    truncated: Any
    won: Any


class Episode(NamedTuple):
    start: Observation
    moments: list[Moment]


class Report(NamedTuple):
    """What was found of an environment that breaks no rule."""

    spec: EnvSpec
    lengths: list[int]
    returns: list[float]
    steps_per_second: float
    seeds_differ: bool
    notes: list[str]
    """What is allowed, but should be known."""


Play = Callable[[int, Callable[[Observation], np.ndarray]], Iterator[Observation | Moment]]
"""(seed, policy) -> the first observation, then every moment."""


def inspect(env: Env | Host) -> Report:
    """Play three episodes; GraspError with the first rule that is broken."""
    began, episodes = time.monotonic(), []
    play, close = on_host(env) if isinstance(env, Host) else (on_device(env), lambda: None)
    try:
        for seed in SEEDS:
            episodes.append(recorded(env.spec, play, seed))
    finally:
        close()
    notes = []
    for episode in episodes:
        check_end(env.spec, episode, may_cut=isinstance(env, Host))
    if any(episode.moments[-1].truncated and len(episode.moments) < env.spec.horizon for episode in episodes):
        notes.append(f"an episode was truncated before the horizon of {env.spec.horizon} steps")
    if env.spec.package in UNREPEATED:
        notes.append("a seed does not repeat a battle of this game, so that was not looked at")
    elif not same(episodes[0], episodes[1]):
        broken(env.spec, "the same seed and actions gave another episode; draw random numbers from the seed alone")
    lengths = [len(episode.moments) for episode in episodes]
    returns = [float(sum(moment.reward for moment in episode.moments)) for episode in episodes]
    rate = sum(lengths) / (time.monotonic() - began)
    return Report(env.spec, lengths, returns, rate, not same(episodes[0], episodes[2]), notes)


def recorded(spec: EnvSpec, play: Play, seed: int) -> Episode:
    """One episode under random legal actions; every observation is checked before it is acted on."""
    rng = np.random.default_rng(7)

    def policy(seen: Observation) -> np.ndarray:
        lottery = np.where(seen.avail, rng.random(seen.avail.shape), -1.0)
        return lottery.argmax(-1).astype(np.int32)

    start: Observation | None = None
    moments: list[Moment] = []
    for entry in play(seed, policy):
        if isinstance(entry, Moment):
            check_moment(spec, entry, len(moments) + 1)
            moments.append(entry)
        else:
            check_observation(spec, entry, 0)
            start = entry
    assert start is not None
    return Episode(start, moments)


def broken(spec: EnvSpec, rule: str) -> None:
    raise GraspError(f"environment {spec.name!r} breaks a rule: {rule}")


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
            broken(spec, f"{name} has the shape {value.shape} {when}, and its spec says {shape}")
        if value.dtype != kind:
            broken(spec, f"{name} is {value.dtype} {when}; it must be {kind}")
        if not np.isfinite(value).all():
            broken(spec, f"{name} holds a number that is not finite {when}")
    stuck = np.flatnonzero(~seen.avail.any(-1))
    if stuck.size:
        broken(spec, f"agent {stuck[0]} has no legal action {when}; dead agents need one too")


def check_moment(spec: EnvSpec, moment: Moment, step: int) -> None:
    check_observation(spec, moment.observation, step)
    if not np.isfinite(moment.reward):
        broken(spec, f"the reward at step {step} is {moment.reward}")
    if moment.terminated and moment.truncated:
        broken(spec, f"step {step} is both terminated and truncated; one of them says why the episode ended")
    if moment.won and not spec.has_wins:
        broken(spec, f"step {step} is won, but its spec says has_wins = False")
    if moment.won and not (moment.terminated or moment.truncated):
        broken(spec, f"step {step} is won, but the episode goes on")


def check_end(spec: EnvSpec, episode: Episode, may_cut: bool) -> None:
    """A simulator `may_cut` its episodes short; one of JAX has a single limit."""
    last, length = episode.moments[-1], len(episode.moments)
    if not (last.terminated or last.truncated):
        broken(spec, f"an episode goes on after its horizon of {spec.horizon} steps; truncate it there")
    if last.truncated and length < spec.horizon and not may_cut:
        broken(spec, f"an episode was truncated after {length} steps, before its horizon of {spec.horizon}")


def same(one: Episode, other: Episode) -> bool:
    leaves = [jax.tree.leaves((episode.start, episode.moments)) for episode in (one, other)]
    return len(leaves[0]) == len(leaves[1]) and all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


def on_device(env: Env) -> Play:
    reset, step = jax.jit(env.reset), jax.jit(env.step)

    def play(seed: int, policy: Callable[[Observation], np.ndarray]) -> Iterator[Observation | Moment]:
        key = jax.random.key(seed)
        state, seen = reset(key)
        seen = jax.device_get(seen)
        yield seen
        for number in range(env.spec.horizon):
            state, after = step(state, policy(seen), jax.random.fold_in(key, number))
            after = jax.device_get(after)
            seen = after.observation
            yield Moment(*after)
            if after.terminated or after.truncated:
                return

    return play


def on_host(host: Host) -> tuple[Play, Callable[[], None]]:
    pool = SimulatorPool(host, 1, 1, DEADLINE, 0)
    copy = np.zeros(1, int)

    def told(word: str) -> Observation:
        pool.send(word, copy)
        pool.wait(copy)
        return Observation(*(value[0].copy() for value in observed(pool, copy)))

    def play(seed: int, policy: Callable[[Observation], np.ndarray]) -> Iterator[Observation | Moment]:
        pool.records["seed"] = seed
        seen = told("reset")
        yield seen
        for _ in range(host.spec.horizon):
            pool.records["action"] = policy(seen)
            seen = told("step")
            said = pool.records[0]
            yield Moment(seen, *(said[name].item() for name in ("reward", "terminated", "truncated", "won")))
            if said["terminated"] or said["truncated"]:
                return

    return play, pool.close
