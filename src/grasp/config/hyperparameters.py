"""The options of every algorithm: one frozen dataclass a family, and the names they stand for.

Every option is defined once, here: its name is the flag, its annotation the type, its metadata the help and the bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Bound = tuple[Callable[[Any], bool], str]
"""What holds of a right value, and the words for it."""
COUNT: Bound = (lambda x: x >= 1, "be at least 1")
SEVERAL: Bound = (lambda x: x >= 2, "be at least 2")
POSITIVE: Bound = (lambda x: x > 0, "be positive")
NOT_NEGATIVE: Bound = (lambda x: x >= 0, "not be negative")
UNIT: Bound = (lambda x: 0 <= x <= 1, "lie between 0 and 1")
EVEN: Bound = (lambda x: x >= 2 and x % 2 == 0, "be even and at least 2")
ANY: Bound = (lambda x: True, "")


def option(default: Any, help: str, bound: Bound = ANY) -> Any:
    """A field with its help text and its bound beside its default."""
    return field(default=default, metadata={"help": help, "bound": bound})


STAND_INS = (
    "instead of the consensus: a random direction of its length, the weights of other agents, or only the length that "
    "it gives to a gradient"
)


@dataclass(frozen=True)
class Mappo:
    """MAPPO; with an operator, GRASP-MAPPO."""

    num_envs: int = option(32, "copies of the environment that run at once", COUNT)
    rollout: int = option(100, "steps each copy takes between two updates", COUNT)
    chunk: int = option(10, "steps of back-propagation through time; divides rollout", COUNT)
    epochs: int = option(10, "passes over each batch", COUNT)
    minibatches: int = option(1, "parts into which a pass splits the batch", COUNT)
    lr: float = option(5e-4, "Adam's step size, actor", POSITIVE)
    critic_lr: float = option(5e-4, "Adam's step size, critic", POSITIVE)
    decay: int = option(
        0, "environment steps over which both step sizes fall to zero in a line; 0: they stay", NOT_NEGATIVE
    )
    adam_eps: float = option(1e-5, "Adam's epsilon", POSITIVE)
    gamma: float = option(0.99, "discount", UNIT)
    gae_lambda: float = option(0.95, "lambda of the advantage estimate", UNIT)
    clip: float = option(0.2, "clip range of the probability ratio and of the value", POSITIVE)
    entropy: float = option(0.01, "weight of the entropy bonus", NOT_NEGATIVE)
    max_grad_norm: float = option(10.0, "global-norm clip of each network's gradient", POSITIVE)
    huber: float = option(10.0, "where the value loss turns from squared to linear", POSITIVE)
    value_norm: bool = option(True, "learn values in units of the returns' running spread")
    hidden: int = option(64, "width of every hidden layer", COUNT)
    critic: Literal["mlp", "gru"] = option("mlp", "the critic's network: the paper's MLP, or a recurrent one")
    sharing: Literal["shared", "hybrid", "separate"] = option(
        "hybrid", "one actor for all agents, one backbone with a head each, or an actor each"
    )
    denominator: Literal["agent", "common"] = option(
        "agent", "average losses over each agent's own live steps, or over all agents' together"
    )
    operator: str = option("none", "consensus operator; none is plain MAPPO (see `grasp list`)")
    scope: Literal["heads", "backbone", "both"] = option("heads", "what the consensus covers in a hybrid actor")
    weight: float = option(1.0, "beta: how much of the consensus is added to every agent's gradient", NOT_NEGATIVE)
    refresh: Literal["iteration", "epoch", "minibatch", "first"] = option(
        "iteration", "when the consensus is computed anew; first: once, and only the first step uses it"
    )
    gram: Literal["batch", "crossfit", "representation", "inputs"] = option(
        "batch", "what the agents' Gram matrix is made of: their gradients over the batch, the products of different "
        "folds of it, gradients of heads over unit features, or gradients of the inputs (the paper's Listing 1)"
    )  # fmt: skip
    folds: int = option(4, "groups of environments whose gradients are multiplied with each other (crossfit)", SEVERAL)
    control: Literal["none", "placebo", "permuted", "step_size", "update_size"] = option(
        "none", "instead of the consensus: a random direction of its length, the weights of other agents, only the "
        "length that it gives to a gradient, or only the length that it gives to Adam's step"
    )  # fmt: skip
    trust: Literal["clip", "kl_stop", "trcco"] = option(
        "clip", "how far a policy may move: PPO's clip; the clip, and no further step once the divergence exceeds kl; "
        "or along the consensus alone, up to a divergence of kl"
    )  # fmt: skip
    kl: float = option(
        0.02, "divergence allowed in an iteration: by kl_stop of an agent on average, by trcco of the team", POSITIVE
    )


@dataclass(frozen=True)
class Happo(Mappo):
    """HAPPO; with an operator, GRASP-HAPPO. MAPPO's options, some with one choice left (docs/algorithms/happo.md)."""

    sharing: Literal["separate"] = option("separate", "agents take turns, so each has an actor of its own")
    denominator: Literal["agent"] = option("agent", "losses are averaged over each agent's own live steps")
    scope: Literal["both"] = option("both", "the consensus covers the whole actor")
    refresh: Literal["iteration"] = option("iteration", "the consensus is computed once, before the first turn")
    gram: Literal["batch", "crossfit"] = option(
        "batch", "what the agents' Gram matrix is made of: their gradients, or the products of different folds of them"
    )
    control: Literal["none", "placebo", "permuted", "step_size"] = option("none", STAND_INS)
    trust: Literal["clip"] = option("clip", "how far a policy may move: PPO's clip")


@dataclass(frozen=True)
class Qmix:
    """QMIX and VDN; with an operator, GRASP-QMIX."""

    num_envs: int = option(8, "copies of the environment that run at once", COUNT)
    rollout: int = option(50, "steps each copy takes between two updates", COUNT)
    buffer: int = option(5000, "episodes the replay holds", COUNT)
    batch: int = option(32, "episodes of one gradient step", COUNT)
    interval: int = option(8, "finished episodes between two gradient steps", COUNT)
    target_interval: int = option(200, "finished episodes between two copies into the target networks", COUNT)
    lr: float = option(1e-3, "Adam's step size", POSITIVE)
    decay: int = option(
        0, "environment steps over which the step size falls to zero in a line; 0: it stays", NOT_NEGATIVE
    )
    adam_eps: float = option(1e-8, "Adam's epsilon", POSITIVE)
    max_grad_norm: float = option(10.0, "global-norm clip of the gradient of all networks", POSITIVE)
    gamma: float = option(0.99, "discount", UNIT)
    td_lambda: float = option(0.6, "lambda of the value target: 0 one step, 1 the whole episode", UNIT)
    time_limit: Literal["end", "cut"] = option(
        "end",
        "an episode at its limit has ended, as in the reference code, or was cut, and what would follow has a value",
    )
    reward_scale: float = option(1.0, "what rewards are multiplied by before values are learned from them", POSITIVE)
    epsilon: float = option(0.05, "share of random actions in the end", UNIT)
    anneal: int = option(100_000, "environment steps over which random actions fall from all to epsilon", COUNT)
    hidden: int = option(64, "width of the agents' network", COUNT)
    mixer: Literal["monotone", "sum"] = option("monotone", "how agents' values become the team's: QMIX's, or VDN's sum")
    mixer_embed: int = option(32, "width of the mixing network", COUNT)
    mixer_hidden: int = option(64, "width of the networks that make its weights from the state", COUNT)
    sharing: Literal["shared", "hybrid", "separate"] = option(
        "hybrid", "one network for all agents, one backbone with a head each, or a network each"
    )
    operator: str = option("none", "consensus operator; none is plain QMIX (see `grasp list`)")
    scope: Literal["heads", "backbone", "both"] = option("heads", "what the consensus covers in a hybrid network")
    gamma_on: Literal["gradient", "update"] = option(
        "gradient", "whether the factors Gamma_i multiply the gradient, or what the optimiser makes of it"
    )
    gram: Literal["batch", "crossfit"] = option(
        "batch", "what the agents' Gram matrix is made of: their gradients, or the products of different folds of them"
    )
    folds: int = option(4, "groups of episodes whose gradients are multiplied with each other (crossfit)", SEVERAL)
    control: Literal["none", "placebo", "permuted", "step_size"] = option("none", STAND_INS)


@dataclass(frozen=True)
class Ma2e(Qmix):
    """MA2E: QMIX's options, and those of the masked autoencoder that feeds its agents."""

    hidden: int = option(128, "width of the agents' network, half of it for what they imagine", EVEN)
    mode: Literal["paper", "released"] = option("paper", "as MA2E's figures draw it, or as its published code does it")
    window: int = option(5, "steps that the autoencoder sees", COUNT)
    embed: int = option(24, "width of its tokens", COUNT)
    heads: int = option(4, "heads of its attention", COUNT)
    encoder_layers: int = option(3, "layers of its encoder", COUNT)
    decoder_layers: int = option(2, "layers of its decoder", COUNT)
    feedforward: int = option(96, "width of its feed-forward layers; the reference has 2048", COUNT)
    windows: int = option(16, "windows of each of its gradient steps", COUNT)
    autoencoder_lr: float = option(5e-4, "its step size", POSITIVE)
    pretrain: int = option(5000, "environment steps of random play before learning, at most, to train it", NOT_NEGATIVE)
    threshold: float = option(0.015, "mean error of the last 100 steps at which pretraining ends", NOT_NEGATIVE)
    fine_tune: int = option(500, "environment steps between two rounds of training it during learning", COUNT)
    pretraining_counts: bool = option(True, "count pretraining in --steps; if not, the run is that much longer")


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
"""Every algorithm by name. GRASP-X is X with one argument changed."""
