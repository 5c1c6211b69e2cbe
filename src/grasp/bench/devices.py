"""One run over several devices: speed-up, communication, and the cost of many agents.

It measures the constants of docs/scaling.md.
"""

from collections.abc import Iterator

import jax

from grasp import consensus
from grasp.algos.grasp import groups
from grasp.bench.measure import Line, interleaved, peak_mb, together, workload
from grasp.bench.speed import line, task
from grasp.config import Config
from grasp.config.hyperparameters import Mappo
from grasp.envs.host import cores
from grasp.launch.local import core_groups
from grasp.nn.actor import owned
from grasp.training.runner import make
from grasp.types import PyTree

ENV = "mpe/simple_spread"
TEAMS = ((10, 10_000), (100, 10_000), (1000, 10_000))
"""Numbers of agents and of parameters that the consensus covers."""


def run(smoke: bool) -> Iterator[Line]:
    """Two virtual devices on two cores against one on one; bytes received by a device; the consensus of many agents."""
    yield from training(smoke)
    yield from traffic(smoke)
    for num_agents, parameters in ((10, 100),) if smoke else TEAMS:
        yield from agents(num_agents, parameters, smoke)


def training(smoke: bool) -> Iterator[Line]:
    """Whole training, interleaved: medians of three processes of each kind."""
    one, two = (core_groups(cores(), number)[0] for number in (1, 2))
    kinds = {"one device, one core": (1, one), "two devices, two cores": (2, two), "one device, all cores": (1, None)}
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(1 if smoke else 3):
        for kind, (number, pinned) in kinds.items():
            found[kind] += together([task("grasp-mappo", ENV, smoke, 8, devices=number)], [pinned])
    middle = {kind: sorted(results, key=lambda r: r["rate"])[len(results) // 2] for kind, results in found.items()}
    base = middle["one device, one core"]["rate"]
    for kind, result in middle.items():
        yield line(f"grasp-mappo, {ENV}, {kind}", [result], base, "one device, one core")
    # processor time, unlike wall time, does not include other programs on the same cores
    alone, both = (min(r["work"] for r in found[kind]) for kind in list(kinds)[:2])
    yield Line("two devices, processor time", both, "s/iteration", both / alone, "one device", peak_mb())


def received(config: Config, num_devices: int) -> dict[str, float]:
    """Bytes that each device receives per iteration, by purpose (ring algorithms, float32)."""
    h = config.hyper
    assert isinstance(h, Mappo)
    env, algorithm = make(config)
    spec, state = env.spec, jax.eval_shape(algorithm.init, jax.random.key(0))
    fraction = (num_devices - 1) / num_devices
    own = owned(h.sharing)._asdict()
    of_agent = {
        name: size(part) // (spec.num_agents if own[name] else 1) for name, part in state.actor._asdict().items()
    }
    covered = sum(of_agent[name] for group in groups(h) for name in group)
    steps = h.epochs * h.minibatches
    times = {"minibatch": steps, "epoch": h.epochs}.get(h.refresh, 1)
    seen = spec.num_agents * (4 * spec.obs_dim + spec.num_actions + 4 * 5) + 4 * (spec.state_dim + 3)
    return {
        "gradients of all parameters": 4 * steps * 2 * fraction * size((state.actor, state.critic)),
        "agents' gradients, in slices": 4 * times * fraction * spec.num_agents * covered,
        "Gram matrices": 4 * times * len(groups(h)) * 2 * fraction * spec.num_agents**2,
        "the consensus u": 4 * times * fraction * covered,
        "chunks, where minibatches mix them": fraction * h.num_envs * h.rollout * seen if h.minibatches > 1 else 0.0,
    }


def size(tree: PyTree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def traffic(smoke: bool) -> Iterator[Line]:
    """Bytes by purpose, relative to sending all agents' gradients to every device."""
    found = received(workload("grasp-mappo", ENV, smoke, scope="both"), 2)
    whole = 2 * found["agents' gradients, in slices"]  # all-reduced, not reduce-scattered
    for purpose, number in found.items():
        case = f"{purpose}, 2 devices"
        yield Line(case, number / 1e3, "kB/iteration", number / whole, "all agents' gradients", peak_mb())


def agents(num_agents: int, parameters: int, smoke: bool) -> Iterator[Line]:
    """The Gram matrix and the whole consensus of given gradients."""
    grads = jax.random.normal(jax.random.key(0), (num_agents, parameters)) + 0.1
    gram, min_norm = jax.jit(consensus.gram), jax.jit(consensus.min_norm)
    taken = interleaved({"gram": lambda: gram(grads), "consensus": lambda: min_norm(grads)}, rounds=2 if smoke else 5)
    rate = 2.0 * num_agents**2 * parameters / taken["gram"] / 1e9
    case = f"{num_agents} agents, {parameters:,} parameters"
    yield Line(f"Gram matrix, {case}", rate, "Gflop/s", None, "", peak_mb())
    ratio = taken["consensus"] / taken["gram"]
    yield Line(f"consensus, {case}", 1e3 * taken["consensus"], "ms", ratio, "Gram matrix", peak_mb())
