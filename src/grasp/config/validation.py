"""What options of an algorithm must have to do with each other: one sentence for each that has not."""

from grasp.config.hyperparameters import Hyper, Mappo, Qmix
from grasp.types import GraspError


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
        f"minibatches {h.minibatches} does not divide the {chunks // nodes} chunks of a node, which may be all that is "
        f"left",
    )


def check_decay(h: Hyper, steps: int) -> None:
    require(
        h.decay == 0 or h.decay >= steps,
        f"decay {h.decay} ends before steps {steps} and nothing would be learned after it; train with a decay of at "
        f"least {steps}",
    )


def check_consensus(h: Hyper) -> None:
    """What only means something beside something else."""
    chosen = {"gram": h.gram, "control": h.control} | ({"trust": h.trust} if isinstance(h, Mappo) else {})
    for name in [n for n, value in chosen.items() if value not in ("batch", "none", "clip", "kl_stop")]:
        require(h.operator != "none", f"{name} {chosen[name]} needs a consensus; add operator min_norm")
    parted = h.num_envs if isinstance(h, Mappo) else h.batch
    require(
        h.gram != "crossfit" or parted % h.folds == 0,
        f"folds {h.folds} does not divide {'num_envs' if isinstance(h, Mappo) else 'batch'} {parted}",
    )
    if isinstance(h, Mappo):
        require(
            h.gram != "crossfit" or h.refresh != "minibatch",
            "gram crossfit folds whole environments, which refresh minibatch tears apart; use refresh epoch",
        )
        require(
            h.gram != "representation" or (h.sharing, h.scope) == ("hybrid", "heads"),
            "gram representation compares heads over common features; use sharing hybrid and scope heads",
        )
        require(h.gram != "inputs" or h.sharing == "shared", "gram inputs is for one shared actor; use sharing shared")
        if h.trust == "trcco":
            require(
                h.control not in ("step_size", "update_size"),
                f"trust trcco sets the length of its step itself; leave control {h.control} out",
            )
            require(
                (h.weight, h.refresh) == (1.0, "iteration"),
                "trust trcco follows the consensus alone, once an iteration; leave weight and refresh out",
            )


def check_replay(h: Qmix) -> None:
    least = max(h.batch, h.num_envs * h.rollout)
    require(
        h.buffer >= least,
        f"buffer {h.buffer} is too small for batch {h.batch} and num_envs × rollout = {h.num_envs * h.rollout}; "
        f"give at least {least}",
    )


def nearest_divisor(h: Mappo) -> int:
    return min((d for d in range(1, h.rollout + 1) if h.rollout % d == 0), key=lambda d: abs(d - h.chunk))


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise GraspError(sentence)
