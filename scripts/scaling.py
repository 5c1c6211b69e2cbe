"""The cost model of docs/scaling.md: its constants, measured on this machine, and its predictions for larger clusters.

python scripts/scaling.py            the predictions, from the constants below
python scripts/scaling.py measure    the constants of this machine first (a minute or two)
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from math import ceil, log2

WAIT = 300.0
PORT = 45671


@dataclass(frozen=True)
class Constants:
    """The performance of a node and its network."""

    agent_steps: float = 37e3
    """Agent steps per second of whole training on one core: 12.3k environment steps of 3 agents (docs/speed.md)."""
    latency: float = 5e-5
    """Seconds per hop of a message between nodes: typical of Ethernet in a data centre, not measured."""
    bandwidth: float = 1.25e9
    """Bytes per second: 10 Gbit/s, not measured."""
    gram_flops: float = 23e9
    """Flops per second of the Gram matrix, 1,000 agents, one busy core."""
    solve: float = 1.4
    """Seconds of the quadratic program of 1,000 agents, one busy core; times (N/1000)³ for N agents."""


@dataclass(frozen=True)
class Team:
    """A training run: agents, sizes of networks, and the batch."""

    num_agents: int
    obs: int = 18
    state: int = 54
    actions: int = 5
    hidden: int = 64
    num_envs: int = 64
    rollout: int = 120
    epochs: int = 10

    @property
    def backbone(self) -> int:
        return (self.obs + 1) * self.hidden + 6 * self.hidden**2 + 6 * self.hidden

    @property
    def head(self) -> int:
        return (self.hidden + 1) * self.actions

    @property
    def learned(self) -> int:
        critic = (self.state + 1) * self.hidden + 2 * self.hidden * (self.hidden + 1) + self.hidden + 1
        return self.backbone + self.num_agents * self.head + critic


def all_reduce(size: float, n: int, c: Constants) -> float:
    """Seconds of an all-reduce of `size` floats over n devices: a ring's bytes, a tree's hops."""
    return 8 * size * (n - 1) / n / c.bandwidth + 2 * ceil(log2(n)) * c.latency if n > 1 else 0.0


def scatter(size: float, n: int, c: Constants) -> float:
    """Seconds of a reduce-scatter or an all-gather of `size` floats."""
    return 4 * size * (n - 1) / n / c.bandwidth + ceil(log2(n)) * c.latency if n > 1 else 0.0


def predict(team: Team, n: int, c: Constants, scope: str = "heads") -> dict[str, float]:
    """Seconds of an iteration over n devices of one core each, by part."""
    covered = team.head if scope == "heads" else team.backbone
    samples = team.num_envs * team.rollout * team.num_agents
    solve = c.solve * (team.num_agents / 1000) ** 3
    return {
        "rollout and update": samples / c.agent_steps / n,
        "one bit per step (resets)": team.rollout * all_reduce(0.25, n, c),
        "gradients": team.epochs * all_reduce(team.learned, n, c),
        "slices and u": scatter(team.num_agents * covered, n, c) + scatter(covered, n, c),
        "Gram": 2 * team.num_agents**2 * covered / n / c.gram_flops + all_reduce(team.num_agents**2, n, c),
        "solve": solve,
    }


def table(c: Constants) -> None:
    small, large = Team(3), Team(1000, obs=30, state=4000)
    for name, team, scope in (
        ("3 agents, 64 environments", small, "heads"),
        ("3 agents, 4,096 environments", replace(small, num_envs=4096), "heads"),
        ("1,000 agents, 128 environments, heads", replace(large, num_envs=128), "heads"),
        ("1,000 agents, 128 environments, backbone", replace(large, num_envs=128), "backbone"),
    ):
        print(f"\n{name}: {team.learned:,} parameters")
        alone = sum(predict(team, 1, c, scope).values())
        for n in (1, 2, 16, 64, 128):
            if team.num_envs % n:
                continue
            parts = predict(team, n, c, scope)
            total = sum(parts.values())
            shown = ", ".join(f"{part} {1e3 * seconds:.3g}" for part, seconds in parts.items())
            print(f"  {n:4d} devices: {1e3 * total:9.4g} ms, {alone / total / n:4.0%} of ideal   (ms: {shown})")


def measure() -> Constants:
    """Measure what one machine can: messages between two processes, Gram matrices, the quadratic program."""
    import jax

    from grasp import consensus

    def best(function, rounds: int = 5) -> float:
        jax.block_until_ready(function())
        taken = []
        for _ in range(rounds):
            began = time.perf_counter()
            jax.block_until_ready(function())
            taken.append(time.perf_counter() - began)
        return min(taken)

    gram, solve = jax.jit(consensus.gram), jax.jit(consensus.solve)
    found = Constants()
    for num_agents in (10, 100, 1000):
        grads = jax.random.normal(jax.random.key(0), (num_agents, 10_000)) + 0.1
        G = gram(grads)
        flops = 2.0 * num_agents**2 * 10_000 / best(lambda g=grads: gram(g))
        seconds = best(lambda G=G: solve(G / G.max()))
        print(f"{num_agents} agents: Gram matrix {flops / 1e9:.3g} Gflop/s, program {1e3 * seconds:.3g} ms", flush=True)
        found = replace(found, gram_flops=flops, solve=seconds * (1000 / num_agents) ** 3)
    for size, seconds in messages().items():
        print(f"sum of {size:,} floats over two processes of this machine: {1e3 * seconds:.3g} ms", flush=True)
    return found


def messages() -> dict[int, float]:
    """Seconds of an all-reduce between two processes (gloo over loopback), by number of floats."""
    command = [sys.executable, __file__, "process"]
    processes = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    try:
        printed = [process.communicate(timeout=WAIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    rows = [line.split()[1:] for line in printed[0].splitlines() if line.startswith("sum ")]
    return {int(size): float(seconds) for size, seconds in rows}


def all_reduces(rank: int) -> None:
    """One of the two processes."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{PORT}", 2, rank)
    same = PartitionSpec()
    mesh = jax.make_mesh((2,), ("devices",))
    add = jax.jit(
        jax.shard_map(lambda x: jax.lax.psum(x, "devices"), mesh=mesh, in_specs=same, out_specs=same, check_vma=False)
    )
    for size in (1, 20_000, 2_000_000):
        x = jax.make_array_from_callback((size,), NamedSharding(mesh, same), lambda _, n=size: np.ones(n, np.float32))
        taken = []
        for _ in range(20):
            began = time.perf_counter()
            jax.block_until_ready(add(x))
            taken.append(time.perf_counter() - began)
        print("sum", size, min(taken), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["process"]:
        all_reduces(int(sys.argv[2]))
    else:
        table(measure() if sys.argv[1:] == ["measure"] else Constants())
