"""Environments alone, without learning."""

from collections.abc import Callable, Iterator
from typing import Any

import jax

from grasp.bench.measure import SMOKE, WORKLOAD, Line, interleaved, peak_mb
from grasp.envs import base
from grasp.training import rollout
from grasp.types import Algorithm, Decision, Key, Observation

ENVS = ("mpe/simple_spread", "mpe/simple_spread_10", "smax/3m", "smax/5m_vs_6m", "smax/8m", "smax/25m")
STEPS = 50


def at_random() -> Algorithm:
    """An algorithm that draws legal actions uniformly."""

    def act(state: Any, memory: Any, observation: Observation, key: Key, greedy: Any) -> Decision:
        return Decision(jax.random.categorical(key, jax.numpy.where(observation.avail, 0.0, -1e9)), (), ())

    return Algorithm(lambda key: (), lambda num_envs: (), act, lambda state, trajectory, key: (state, {}), ())


def player(env_name: str, num_envs: int) -> Callable[[], Any]:
    """A function that plays STEPS more steps in every copy each time it is called."""
    env = base.compiled(env_name)
    algorithm = at_random()
    arena = [rollout.open_arena(env, algorithm, num_envs, jax.random.key(0)), jax.random.key(1)]

    @jax.jit
    def play(arena: rollout.Arena, key: Key) -> tuple[rollout.Arena, Any]:
        arena, _, metrics = rollout.collect(env, algorithm, (), arena, key, STEPS)
        return arena, metrics

    def more() -> Any:
        arena[0], metrics = play(arena[0], arena[1])
        return metrics

    return more


def run(smoke: bool) -> Iterator[Line]:
    """Environment steps per second with random legal actions, resets included, by number of agents."""
    num_envs = (SMOKE if smoke else WORKLOAD)["num_envs"]
    rates: dict[str, float] = {}
    for name in ENVS[:1] if smoke else ENVS:
        taken = interleaved({name: player(name, num_envs)}, rounds=3)
        rates[name] = STEPS * num_envs / taken[name]
        first = next(n for n in rates if n.split("/")[0] == name.split("/")[0])
        yield Line(name, rates[name], "steps/s", rates[name] / rates[first], first, peak_mb())
