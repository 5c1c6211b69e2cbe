"""The options of every algorithm: one frozen dataclass per family, and the algorithms by name.

Every option is defined once: its name is the flag, its annotation the type, its metadata the help text and the bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Bound = tuple[Callable[[Any], bool], str]
"""A predicate that valid values satisfy, and its description: "must …"."""
COUNT: Bound = (lambda x: x >= 1, "be at least 1")
SEVERAL: Bound = (lambda x: x >= 2, "be at least 2")
POSITIVE: Bound = (lambda x: x > 0, "be positive")
NOT_NEGATIVE: Bound = (lambda x: x >= 0, "not be negative")
UNIT: Bound = (lambda x: 0 <= x <= 1, "lie between 0 and 1")
EVEN: Bound = (lambda x: x >= 2 and x % 2 == 0, "be even and at least 2")
ANY: Bound = (lambda x: True, "")


def option(default: Any, help: str, bound: Bound = ANY, renamed: dict[str, str] | None = None) -> Any:
    """A dataclass field with a default, a help text and a bound; `renamed` has the old words of its choices, which are
    still read."""
    return field(default=default, metadata={"help": help, "bound": bound, "renamed": renamed or {}})


CONTROLS = (
    "ablation that replaces the consensus: placebo, a random direction of the same norm; permuted, every agent's "
    "weight given to another agent; step_size, each agent's own gradient scaled to the norm of the realigned one"
)
INIT = (
    "initial parameters that agents do not share: common, the same for every agent, which a consensus needs; separate, "
    "drawn for each agent"
)


@dataclass(frozen=True)
class Mappo:
    """MAPPO; with an operator, GRASP-MAPPO."""

    num_envs: int = option(32, "parallel copies of the environment", COUNT)
    rollout: int = option(100, "steps per copy between two updates", COUNT)
    chunk: int = option(10, "steps of back-propagation through time; must divide rollout", COUNT)
    epochs: int = option(10, "passes over each batch per update", COUNT)
    minibatches: int = option(1, "minibatches per epoch", COUNT)
    lr: float = option(5e-4, "actor learning rate", POSITIVE)
    critic_lr: float = option(5e-4, "critic learning rate", POSITIVE)
    decay: int = option(
        0, "anneal both learning rates linearly to 0 over this many environment steps; 0: constant", NOT_NEGATIVE
    )
    adam_eps: float = option(1e-5, "Adam's epsilon", POSITIVE)
    gamma: float = option(0.99, "discount factor", UNIT)
    gae_lambda: float = option(0.95, "GAE lambda", UNIT)
    clip: float = option(0.2, "PPO clipping range, of the probability ratio and of the value", POSITIVE)
    time_limit: Literal["bootstrap", "terminal"] = option(
        "bootstrap", "at a time-out: bootstrap from the value of the next state, or treat it as terminal"
    )
    entropy: float = option(0.01, "entropy coefficient", NOT_NEGATIVE)
    max_grad_norm: float = option(10.0, "maximum global norm of the gradient, per network", POSITIVE)
    huber: float = option(10.0, "threshold of the Huber value loss", POSITIVE)
    value_norm: bool = option(True, "normalise value targets by their running mean and standard deviation")
    hidden: int = option(64, "width of every hidden layer", COUNT)
    layout: Literal["paper", "reference"] = option(
        "paper", "networks: paper, linear layer, GRU, ReLU, head; reference, on-policy's and HARL's: layer norm, "
        "blocks of linear layer, ReLU and layer norm, GRU, layer norm, head"
    )  # fmt: skip
    blocks: int = option(2, "blocks before the GRU in the reference layout", COUNT)
    actor: Literal["mlp", "gru"] = option("gru", "actor network: recurrent, or feed-forward in the reference layout")
    critic: Literal["mlp", "gru"] = option("mlp", "critic network: feed-forward as in the paper, or recurrent")
    gain: float = option(0.01, "scale of the initial weights of the actor's head", POSITIVE)
    init: Literal["common", "separate"] = option("common", INIT)
    agent_id: bool = option(
        False,
        "append the agent's index to the actor's input; default true for one shared actor in the reference layout",
    )
    last_action: bool = option(False, "append the agent's last action to the actor's input")
    sharing: Literal["shared", "hybrid", "separate"] = option(
        "hybrid", "parameter sharing of the actors; hybrid: a shared backbone with one head per agent"
    )
    denominator: Literal["agent", "common"] = option(
        "agent", "average losses over the steps that an agent is alive: per agent, or over all agents together"
    )
    operator: str = option("none", "consensus operator, see `grasp list`; none: plain MAPPO")
    scope: Literal["heads", "backbone", "both"] = option("heads", "parts of a hybrid actor that the consensus covers")
    weight: float = option(1.0, "beta, the coefficient of the consensus in every agent's gradient", NOT_NEGATIVE)
    refresh: Literal["iteration", "epoch", "minibatch", "first"] = option(
        "iteration", "how often the consensus is computed; first: once per iteration, for its first step only"
    )
    gram: Literal["batch", "crossfit", "representation", "inputs"] = option(
        "batch", "how the agents' Gram matrix is estimated: batch, from their gradients; crossfit, from products of "
        "gradients of different folds; representation, from gradients of heads over unit features; inputs, from "
        "gradients with respect to observations (the paper's Listing 1)"
    )  # fmt: skip
    folds: int = option(4, "folds of the environments for gram crossfit", SEVERAL)
    control: Literal["none", "placebo", "permuted", "step_size", "update_size"] = option(
        "none", f"{CONTROLS}; update_size, each agent's own Adam update scaled to the norm of the realigned one"
    )  # fmt: skip
    trust: Literal["clip", "kl_stop", "trcco"] = option(
        "clip", "trust region: clip, PPO's clipping; kl_stop, clipping with early stopping at a KL divergence of kl; "
        "trcco, a step along the consensus alone, up to a KL divergence of kl"
    )  # fmt: skip
    kl: float = option(
        0.02,
        "KL divergence allowed per iteration: mean over agents for kl_stop, of the joint policy for trcco",
        POSITIVE,
    )


@dataclass(frozen=True)
class Happo(Mappo):
    """HAPPO; with an operator, GRASP-HAPPO. MAPPO's options, some with a single choice (docs/algorithms/happo.md)."""

    sharing: Literal["separate"] = option(
        "separate", "parameter sharing of the actors: none, because agents are updated sequentially"
    )
    denominator: Literal["agent"] = option("agent", "average losses over the steps that each agent is alive")
    scope: Literal["both"] = option("both", "parts of the actor that the consensus covers: all")
    refresh: Literal["iteration"] = option(
        "iteration", "how often the consensus is computed: once per iteration, before the first agent's update"
    )
    gram: Literal["batch", "crossfit"] = option(
        "batch", "how the agents' Gram matrix is estimated: from their gradients, or from those of different folds"
    )
    control: Literal["none", "placebo", "permuted", "step_size"] = option("none", CONTROLS)
    trust: Literal["clip"] = option("clip", "trust region: PPO's clipping")


@dataclass(frozen=True)
class Qmix:
    """QMIX and VDN; with an operator, GRASP-QMIX."""

    num_envs: int = option(8, "parallel copies of the environment", COUNT)
    rollout: int = option(50, "steps per copy between two updates", COUNT)
    buffer: int = option(5000, "replay buffer size, in episodes", COUNT)
    batch: int = option(128, "batch size, in episodes; batch / interval is the replay ratio", COUNT)
    interval: int = option(8, "finished episodes between two gradient steps", COUNT)
    target_interval: int = option(200, "finished episodes between two updates of the target networks", COUNT)
    lr: float = option(1e-3, "learning rate", POSITIVE)
    decay: int = option(
        0, "anneal the learning rate linearly to 0 over this many environment steps; 0: constant", NOT_NEGATIVE
    )
    adam_eps: float = option(1e-8, "Adam's epsilon", POSITIVE)
    max_grad_norm: float = option(10.0, "maximum global norm of the gradient of all networks", POSITIVE)
    gamma: float = option(0.99, "discount factor", UNIT)
    td_lambda: float = option(0.6, "TD(lambda): 0 for one-step targets, 1 for Monte Carlo returns", UNIT)
    time_limit: Literal["bootstrap", "terminal"] = option(
        "terminal", "at a time-out: bootstrap from the value of the next state, or treat it as terminal",
        renamed={"end": "terminal", "cut": "bootstrap"},
    )  # fmt: skip
    reward_scale: float = option(1.0, "factor by which rewards are multiplied in value targets", POSITIVE)
    epsilon: float = option(0.05, "final epsilon of epsilon-greedy exploration", UNIT)
    anneal: int = option(100_000, "anneal epsilon linearly from 1 over this many environment steps", COUNT)
    hidden: int = option(64, "width of the agents' network", COUNT)
    layout: Literal["paper", "reference"] = option(
        "paper", "agents' network: paper, linear layer, GRU, ReLU, head; reference, pymarl2's: linear layer, ReLU, "
        "GRU, head, with PyTorch's initial weights"
    )  # fmt: skip
    init: Literal["common", "separate"] = option("common", INIT)
    agent_id: bool = option(True, "append the agent's index to its network's input")
    last_action: bool = option(True, "append the agent's last action to its network's input")
    mixer: Literal["monotone", "sum"] = option("monotone", "mixing network: monotone as in QMIX, or VDN's sum")
    mixer_embed: int = option(32, "width of the mixing network", COUNT)
    mixer_hidden: int = option(64, "width of the hypernetworks of the mixing network", COUNT)
    sharing: Literal["shared", "hybrid", "separate"] = option(
        "hybrid", "parameter sharing of the agents; hybrid: a shared backbone with one head per agent"
    )
    operator: str = option("none", "consensus operator, see `grasp list`; none: plain QMIX")
    scope: Literal["heads", "backbone", "both"] = option("heads", "parts of a hybrid network that the consensus covers")
    gamma_on: Literal["gradient", "update"] = option(
        "gradient", "whether the factors Gamma_i multiply the gradient, or the optimiser's update"
    )
    gram: Literal["batch", "crossfit"] = option(
        "batch", "how the agents' Gram matrix is estimated: from their gradients, or from those of different folds"
    )
    folds: int = option(4, "folds of the sampled episodes for gram crossfit", SEVERAL)
    control: Literal["none", "placebo", "permuted", "step_size"] = option("none", CONTROLS)


@dataclass(frozen=True)
class Ma2e(Qmix):
    """MA2E: QMIX's options, and those of the masked autoencoder whose predictions are inputs of its agents."""

    hidden: int = option(128, "width of the agents' network, half of it for the predicted observations", EVEN)
    layout: Literal["paper"] = option("paper", "agents' network: attention over the agents' inputs, GRU, ReLU, head")
    mode: Literal["paper", "released"] = option("paper", "follow the figures of the MA2E paper, or its released code")
    window: int = option(5, "time steps per autoencoder window", COUNT)
    embed: int = option(24, "token width of the autoencoder", COUNT)
    heads: int = option(4, "attention heads of the autoencoder", COUNT)
    encoder_layers: int = option(3, "encoder layers", COUNT)
    decoder_layers: int = option(2, "decoder layers", COUNT)
    feedforward: int = option(96, "width of the autoencoder's feed-forward layers; 2048 in the reference", COUNT)
    windows: int = option(16, "batch size of the autoencoder, in windows", COUNT)
    autoencoder_lr: float = option(5e-4, "learning rate of the autoencoder", POSITIVE)
    pretrain: int = option(5000, "maximum environment steps of pretraining with random actions", NOT_NEGATIVE)
    threshold: float = option(
        0.015, "end pretraining below this mean error of the last 100 autoencoder steps", NOT_NEGATIVE
    )
    fine_tune: int = option(500, "environment steps between two rounds of autoencoder training", COUNT)
    pretraining_counts: bool = option(True, "count pretraining steps in --steps; false: train them in addition")


Hyper = Mappo | Happo | Qmix | Ma2e
"""The options of some algorithm."""

ALGORITHMS: dict[str, Hyper] = {
    "mappo": Mappo(),
    "grasp-mappo": Mappo(operator="min_norm"),
    "happo": Happo(),
    "grasp-happo": Happo(operator="min_norm"),
    "qmix": Qmix(),
    "vdn": Qmix(mixer="sum"),
    "grasp-qmix": Qmix(operator="min_norm"),
    "ma2e": Ma2e(),
}
"""Every algorithm by name. GRASP-X is X with one option changed."""
