"""What the user chose: frozen dataclasses, the named presets, and their JSON.

Every option is defined once, here: its name is the flag, its annotation the type, its metadata the help.
"""

import difflib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin

from grasp.types import GraspError

FORMAT = 1
"""Version of the run directory's layout. A directory of a newer one is refused, not guessed at."""


def option(default: Any, help: str) -> Any:
    """A field with its help text beside its default."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Mappo:
    """MAPPO; with an operator, GRASP-MAPPO."""

    num_envs: int = option(32, "copies of the environment that run at once")
    rollout: int = option(100, "steps each copy takes between two updates")
    chunk: int = option(10, "steps of back-propagation through time; divides rollout")
    epochs: int = option(10, "passes over each batch")
    minibatches: int = option(1, "parts into which a pass splits the batch")
    lr: float = option(5e-4, "Adam's step size, actor")
    critic_lr: float = option(5e-4, "Adam's step size, critic")
    adam_eps: float = option(1e-5, "Adam's epsilon")
    gamma: float = option(0.99, "discount")
    gae_lambda: float = option(0.95, "lambda of the advantage estimate")
    clip: float = option(0.2, "clip range of the probability ratio and of the value")
    entropy: float = option(0.01, "weight of the entropy bonus")
    max_grad_norm: float = option(10.0, "global-norm clip of each network's gradient")
    huber: float = option(10.0, "where the value loss turns from squared to linear")
    value_norm: bool = option(True, "learn values in units of the returns' running spread")
    hidden: int = option(64, "width of every hidden layer")
    critic: Literal["mlp", "gru"] = option("mlp", "the critic's network: the paper's MLP, or a recurrent one")
    sharing: Literal["shared", "hybrid", "separate"] = option(
        "hybrid", "one actor for all agents, one backbone with a head each, or an actor each"
    )
    denominator: Literal["agent", "common"] = option(
        "agent", "average losses over each agent's own live steps, or over all agents' together"
    )
    operator: str = option("none", "consensus operator; none is plain MAPPO (see `grasp list`)")
    scope: Literal["heads", "backbone", "both"] = option("heads", "what the consensus covers in a hybrid actor")
    weight: float = option(1.0, "beta: how much of the consensus is added to every agent's gradient")
    refresh: Literal["iteration", "epoch", "minibatch", "first"] = option(
        "iteration", "when the consensus is computed anew; first: once, and only the first step uses it"
    )


Hyper = Mappo
"""The hyper-parameters of some algorithm (a union, once there are several)."""

PRESETS: dict[str, Hyper] = {
    "mappo": Mappo(),
    "grasp-mappo": Mappo(operator="min_norm"),
}
"""Every algorithm by name. GRASP-X is X with one argument changed."""


@dataclass(frozen=True)
class Config:
    """One run: an algorithm in an environment, for a number of steps, with some seeds."""

    algo: str
    env: str
    hyper: Hyper
    steps: int = option(1_000_000, "environment steps of each seed, all copies counted together")
    seeds: int = option(1, "how many seeds to train")
    seed: int = option(0, "the first seed")
    eval_interval: int = option(0, "environment steps between evaluations; 0: a twentieth of the run")
    eval_episodes: int = option(32, "greedy episodes of each evaluation")
    final_episodes: int = option(320, "greedy episodes of the best checkpoint at the end (absolute metric)")
    parallel: Literal["auto", "processes", "vmap"] = option(
        "auto", "several seeds as one process a core, or as one mapped program; auto takes the faster here"
    )

    @property
    def steps_per_iteration(self) -> int:
        return self.hyper.num_envs * self.hyper.rollout

    @property
    def iterations(self) -> int:
        return self.steps // self.steps_per_iteration

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seed, self.seed + self.seeds))

    def is_evaluation(self, iteration: int) -> bool:
        """Whether the policy is scored after this many iterations: at multiples of the interval, and at the end."""
        interval = max(1, round(self.eval_interval / self.steps_per_iteration))
        return iteration % interval == 0 or iteration == self.iterations


RUN_FIELDS = [f for f in fields(Config) if f.name not in ("algo", "env", "hyper")]
EVALUATIONS = 20
LARGEST = 2**31 - 1
"""The largest whole number any option takes: counters are 32-bit."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the nearest known word, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"


def preset(algo: str) -> Hyper:
    """The hyper-parameters an algorithm's name stands for."""
    if algo not in PRESETS:
        raise GraspError(f"unknown algorithm '{algo}'; {did_you_mean(algo, PRESETS)}")
    return PRESETS[algo]


def configure(algo: str, env: str, options: dict[str, Any]) -> Config:
    """The complete configuration of a run from names and options; unknown names and wrong types are refused."""
    hyper = preset(algo)
    run_names = {f.name: f for f in RUN_FIELDS}
    hyper_names = {f.name: f for f in fields(hyper)}
    known = run_names | hyper_names
    for name, value in options.items():
        if name not in known:
            raise GraspError(f"unknown option '{name}'; {did_you_mean(name, known)}")
        if not fits(value, known[name].type):
            raise GraspError(f"{name} must be {describe(known[name].type)}, not {value!r}")
        if type(value) in (int, float) and not abs(value) <= LARGEST:
            raise GraspError(f"{name} must be a number up to {LARGEST:,}, not {value}")
    hyper = replace(hyper, **{n: v for n, v in options.items() if n in hyper_names})
    config = Config(algo, env, hyper, **{n: v for n, v in options.items() if n in run_names})
    if config.eval_interval == 0:
        config = replace(config, eval_interval=max(config.steps // EVALUATIONS, 1))
    validate(config)
    return config


def fits(value: Any, kind: Any) -> bool:
    """Whether a value, from Python or from a file, is of a field's type; a whole number will do for a float."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind


def parse(text: str, kind: Any) -> Any:
    """A flag's text as its field's type; ValueError where it is not one."""
    if get_origin(kind) is Literal:
        kind = dict(zip(get_args(kind), get_args(kind), strict=True)).__getitem__
    elif kind is bool:
        kind = {"true": True, "false": False}.__getitem__
    elif kind is int and not text.lstrip("+-").isdigit():
        number = float(text)  # so that 1e6 is a number of steps
        kind = int if number.is_integer() else None
        text = str(int(number)) if kind else text
    try:
        return kind(text)
    except (KeyError, TypeError):
        raise ValueError(text) from None


def describe(kind: Any) -> str:
    """A type in the words of an error message."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}[kind]


def validate(config: Config) -> None:
    """Refuse impossible sizes before anything is written, one sentence each."""
    h = config.hyper
    for name in ("num_envs", "rollout", "chunk", "epochs", "minibatches", "hidden"):
        _require(getattr(h, name) >= 1, f"{name} must be at least 1, not {getattr(h, name)}")
    for name in ("steps", "seeds", "eval_interval", "eval_episodes", "final_episodes"):
        _require(getattr(config, name) >= 1, f"{name} must be at least 1, not {getattr(config, name)}")
    for name in ("lr", "critic_lr", "adam_eps", "clip", "max_grad_norm", "huber"):
        _require(getattr(h, name) > 0, f"{name} must be positive, not {getattr(h, name)}")
    for name in ("gamma", "gae_lambda"):
        _require(0 <= getattr(h, name) <= 1, f"{name} must lie between 0 and 1, not {getattr(h, name)}")
    for name in ("entropy", "weight"):
        _require(getattr(h, name) >= 0, f"{name} must not be negative, not {getattr(h, name)}")
    _require(config.seed >= 0, f"seed must not be negative, not {config.seed}")
    _require(config.seed + config.seeds <= LARGEST, f"seed {config.seed} and {config.seeds} seeds exceed {LARGEST:,}")
    _require(
        h.rollout % h.chunk == 0,
        f"chunk {h.chunk} does not divide rollout {h.rollout}; the nearest that does is {_nearest_divisor(h)}",
    )
    chunks = h.num_envs * h.rollout // h.chunk
    _require(
        chunks % h.minibatches == 0,
        f"minibatches {h.minibatches} does not divide the {chunks} chunks of a batch (num_envs × rollout / chunk)",
    )
    _require(
        config.iterations >= 1,
        f"steps {config.steps} does not reach one iteration of num_envs × rollout = {config.steps_per_iteration}; "
        f"give at least that many steps, or a smaller num_envs or rollout",
    )


def _nearest_divisor(h: Mappo) -> int:
    return min((d for d in range(1, h.rollout + 1) if h.rollout % d == 0), key=lambda d: abs(d - h.chunk))


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise GraspError(sentence)


def to_json(config: Config) -> str:
    """The complete configuration, as it stands in `config.json`."""
    return json.dumps({"format": FORMAT, **asdict(config)}, indent=2) + "\n"


def from_json(text: str, source: str) -> Config:
    """The configuration back from `config.json`; `source` names the file in errors."""
    values = header(text, source)
    hyper = values.pop("hyper", None)
    algo, env = values.pop("algo"), values.pop("env")
    if not isinstance(hyper, dict):
        raise GraspError(f"{source} is not a configuration of grasp; is this a run directory?")
    return configure(algo, env, {**values, **hyper})


def header(text: str, source: str) -> dict[str, Any]:
    """The values of a `config.json` without its format, which must be one that we can read."""
    try:
        values = json.loads(text)
        version = values.pop("format")
        right = isinstance(version, int) and isinstance(values["algo"], str) and isinstance(values["env"], str)
    except (ValueError, KeyError, AttributeError, TypeError):
        right, version, values = False, 0, {}
    if not right:
        raise GraspError(f"{source} is not a configuration of grasp; is this a run directory?")
    if version > FORMAT:
        raise GraspError(f"{source} was written by a newer grasp (format {version}, this one reads {FORMAT}); upgrade")
    return values
