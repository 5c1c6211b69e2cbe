"""Refuses impossible configurations before anything is written: one sentence each."""

from dataclasses import fields

from grasp.config.hyperparameters import ANY, Hyper, Ma2e, Mappo, Qmix
from grasp.config.run import Config
from grasp.types import GraspError

LARGEST = 2**31 - 1
"""The largest number any option takes: counters are 32-bit."""


def validate(config: Config) -> None:
    """GraspError where options are out of bounds or contradict each other."""
    h = config.hyper
    for owner in (h, config):
        for f in fields(owner):
            holds, bound = f.metadata.get("bound", ANY)
            value = getattr(owner, f.name)
            require(holds(value), f"{f.name} must {bound}, not {value}")
    require(config.seed + config.seeds <= LARGEST, f"seed {config.seed} and {config.seeds} seeds exceed {LARGEST:,}")
    check_decay(h, config.steps)
    check_consensus(h)
    if config.devices > 1:
        check_devices(config)
    check_nodes(config)
    if isinstance(h, Mappo):
        require(h.layout == "reference" or h.actor == "gru", "actor mlp needs layout reference; the paper's has a GRU")
        check_batch(h, config.nodes)
    else:
        check_replay(h)
    if isinstance(h, Ma2e):
        require(
            not h.pretraining_counts or h.pretrain < config.steps,
            f"pretrain {h.pretrain} leaves none of the {config.steps} steps for learning; give a smaller pretrain",
        )
    require(
        config.steps >= config.steps_per_iteration,
        f"steps {config.steps} does not reach one iteration of num_envs × rollout = {config.steps_per_iteration}; "
        f"give at least that many steps, or a smaller num_envs or rollout",
    )


def check_batch(h: Mappo, nodes: int) -> None:
    require(
        h.rollout % h.chunk == 0,
        f"chunk {h.chunk} does not divide rollout {h.rollout}; the nearest that does is {nearest_divisor(h)}",
    )
    chunks = h.num_envs * h.rollout // h.chunk
    require(
        chunks % h.minibatches == 0,
        f"minibatches {h.minibatches} does not divide the {chunks} chunks of a batch (num_envs × rollout / chunk)",
    )
    require(
        chunks // nodes % h.minibatches == 0,
        f"minibatches {h.minibatches} does not divide the {chunks // nodes} chunks of a node, which are the whole "
        f"batch if the other nodes fail",
    )


def check_decay(h: Hyper, steps: int) -> None:
    require(
        h.decay == 0 or h.decay >= steps,
        f"decay {h.decay} anneals the learning rate to 0 before step {steps}; give a decay of at least {steps}",
    )


def check_consensus(h: Hyper) -> None:
    """Options that need a consensus, or exclude each other."""
    chosen = {"gram": h.gram, "control": h.control} | ({"trust": h.trust} if isinstance(h, Mappo) else {})
    for name in [n for n, value in chosen.items() if value not in ("batch", "none", "clip", "kl_stop")]:
        require(h.operator != "none", f"{name} {chosen[name]} needs a consensus; add operator min_norm")
    size = h.num_envs if isinstance(h, Mappo) else h.batch
    require(
        h.gram != "crossfit" or size % h.folds == 0,
        f"folds {h.folds} does not divide {'num_envs' if isinstance(h, Mappo) else 'batch'} {size}",
    )
    if isinstance(h, Mappo):
        require(
            h.gram != "crossfit" or h.refresh != "minibatch",
            "gram crossfit needs whole environments in each fold, which refresh minibatch splits; use refresh epoch",
        )
        require(
            h.gram != "representation" or (h.sharing, h.scope) == ("hybrid", "heads"),
            "gram representation compares heads over common features; use sharing hybrid and scope heads",
        )
        require(h.gram != "inputs" or h.sharing == "shared", "gram inputs is for one shared actor; use sharing shared")
        if h.trust == "trcco":
            require(
                h.control not in ("step_size", "update_size"),
                f"trust trcco sets the norm of its step itself; leave control {h.control} out",
            )
            require(
                (h.weight, h.refresh) == (1.0, "iteration"),
                "trust trcco follows the consensus alone, once per iteration; leave weight and refresh out",
            )


def check_replay(h: Qmix) -> None:
    least = max(h.batch, h.num_envs * h.rollout)
    require(
        h.buffer >= least,
        f"buffer {h.buffer} is too small for batch {h.batch} and num_envs × rollout = {h.num_envs * h.rollout}; "
        f"give at least {least}",
    )


def check_nodes(config: Config) -> None:
    """Collecting on several nodes."""
    h, nodes = config.hyper, config.nodes
    require(
        nodes > 1 or config.staleness == 0,
        f"staleness {config.staleness} has no effect on one node; give --nodes 2 or more, or remove it",
    )
    if nodes == 1:
        return
    require(
        isinstance(h, Mappo),
        f"nodes {nodes} needs an on-policy algorithm such as mappo; the replay buffer of {config.algo} needs "
        f"every environment in every batch",
    )
    require(h.num_envs % nodes == 0, f"nodes {nodes} does not divide num_envs {h.num_envs}")
    require(
        h.gram != "crossfit" or config.envs_per_node % h.folds == 0,
        f"folds {h.folds} does not divide the {config.envs_per_node} environments of a node, which are the whole "
        f"batch if the other nodes fail",
    )


def check_devices(config: Config) -> None:
    """Sharding over several devices."""
    h, number = config.hyper, config.devices
    if not isinstance(h, Mappo):
        raise GraspError(f"the replay buffer of {config.algo} is on one device; train it with --devices 1")
    nearest = max(round(h.num_envs / number), 1) * number
    require(
        h.num_envs % number == 0,
        f"num_envs {h.num_envs} cannot be sharded over {number} devices; the nearest that can is {nearest}",
    )
    chunks = h.num_envs * h.rollout // h.chunk
    require(
        h.minibatches == 1 or chunks % (h.minibatches * number) == 0,
        f"the {chunks} chunks of a batch cannot be sharded over {h.minibatches} minibatches × {number} devices; "
        f"use minibatches 1",
    )
    require(
        h.gram in ("batch", "representation") or h.operator == "none",
        f"gram {h.gram} is for one device; use gram batch, or --devices 1",
    )
    require(
        config.parallel != "vmap",
        "--parallel vmap does not support several devices; remove it, or use processes",
    )


def nearest_divisor(h: Mappo) -> int:
    return min((d for d in range(1, h.rollout + 1) if h.rollout % d == 0), key=lambda d: abs(d - h.chunk))


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise GraspError(sentence)
