"""What the user chose: one frozen dataclass, how names and options become one, and its JSON.

This file has `Config`. `hyperparameters` has the options of every algorithm, each with its help and its bound;
`presets` the settings of the paper and of reference code; `validation` what options must have to do with each other.
Open `hyperparameters` first. Imports types only.
"""

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin

from grasp.config import presets, validation
from grasp.config.hyperparameters import ALGORITHMS, ANY, COUNT, NOT_NEGATIVE, POSITIVE, Hyper, Ma2e, Mappo, option
from grasp.config.validation import require
from grasp.types import GraspError, suggest

FORMAT = 1
"""Version of the run directory's layout. A directory of a newer one is refused, not guessed at."""


@dataclass(frozen=True)
class Config:
    """One run: an algorithm in an environment, for a number of steps, with some seeds."""

    algo: str
    env: str
    hyper: Hyper
    preset: Literal["default", "paper", "tuned"] = option(
        "default", "what the options below start from: ours, the paper's, or the reference code's for this scenario"
    )
    steps: int = option(1_000_000, "environment steps of each seed, all copies counted together", COUNT)
    seeds: int = option(1, "how many seeds to train", COUNT)
    seed: int = option(0, "the first seed", NOT_NEGATIVE)
    eval_interval: int = option(0, "environment steps between evaluations; 0: a twentieth of the run", NOT_NEGATIVE)
    eval_episodes: int = option(32, "greedy episodes of each evaluation", COUNT)
    final_episodes: int = option(320, "greedy episodes of the best checkpoint at the end (absolute metric)", COUNT)
    parallel: Literal["auto", "processes", "vmap"] = option(
        "auto", "several seeds as one process a core, or as one mapped program; auto takes the faster here"
    )
    devices: int = option(1, "devices over which a seed's copies of the environment are spread (MAPPO, HAPPO)", COUNT)
    workers: int = option(0, "processes that step a simulator; 0: one a core", NOT_NEGATIVE)
    deadline: float = option(60.0, "seconds within which a simulator must answer, or its worker is replaced", POSITIVE)
    restarts: int = option(10, "workers replaced in one iteration before the run stops", NOT_NEGATIVE)
    nodes: int = option(1, "machines whose simulators play for one learner; more than one needs --on ray", COUNT)
    staleness: int = option(
        0, "updates by which the policy that played may be behind the one that learns; 0: nobody plays meanwhile",
        NOT_NEGATIVE,
    )  # fmt: skip

    @property
    def steps_per_iteration(self) -> int:
        return self.hyper.num_envs * self.hyper.rollout

    @property
    def share(self) -> int:
        """Copies of one node."""
        return self.hyper.num_envs // self.nodes

    @property
    def iterations(self) -> int:
        return (self.steps + self.uncounted_steps) // self.steps_per_iteration

    @property
    def total_steps(self) -> int:
        """Environment steps of a seed in whole iterations."""
        return self.iterations * self.steps_per_iteration

    @property
    def uncounted_steps(self) -> int:
        """Steps taken beside `steps`: MA2E's pretraining, in whole iterations, where it is not to count."""
        if not isinstance(self.hyper, Ma2e) or self.hyper.pretraining_counts:
            return 0
        return -(-self.hyper.pretrain // self.steps_per_iteration) * self.steps_per_iteration

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


def defaults(algo: str) -> Hyper:
    """The options an algorithm's name stands for."""
    if algo not in ALGORITHMS:
        raise GraspError(f"unknown algorithm '{algo}'; {suggest(algo, ALGORITHMS)}")
    return ALGORITHMS[algo]


def configure(algo: str, env: str, options: dict[str, Any]) -> Config:
    """The complete configuration of a run from names and options; unknown names and wrong types are refused."""
    hyper = defaults(algo)
    run_names = {f.name: f for f in RUN_FIELDS}
    hyper_names = {f.name: f for f in fields(hyper)}
    known = run_names | hyper_names
    for name, value in options.items():
        if name not in known:
            raise GraspError(f"unknown option '{name}'; {suggest(name, known)}")
        if not fits(value, known[name].type):
            raise GraspError(f"{name} must be {describe(known[name].type)}, not {value!r}")
        if type(value) in (int, float) and not abs(value) <= LARGEST:
            raise GraspError(f"{name} must be a number up to {LARGEST:,}, not {value}")
    options = {name: float(value) if known[name].type is float else value for name, value in options.items()}
    chosen = presets.settings(options.get("preset", "default"), hyper, env)
    hyper = replace(hyper, **chosen | {n: v for n, v in options.items() if n in hyper_names})
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
    for owner in (h, config):
        for f in fields(owner):
            holds, words = f.metadata.get("bound", ANY)
            value = getattr(owner, f.name)
            require(holds(value), f"{f.name} must {words}, not {value}")
    require(config.seed + config.seeds <= LARGEST, f"seed {config.seed} and {config.seeds} seeds exceed {LARGEST:,}")
    validation.check_decay(h, config.steps)
    validation.check_consensus(h)
    if config.devices > 1:
        _validate_devices(config)
    _validate_nodes(config)
    if isinstance(h, Mappo):
        validation.check_batch(h, config.nodes)
    else:
        validation.check_replay(h)
    if isinstance(h, Ma2e):
        require(
            not h.pretraining_counts or h.pretrain < config.steps,
            f"pretrain {h.pretrain} leaves nothing of the {config.steps} steps to learn in; give a smaller pretrain",
        )
    require(
        config.steps >= config.steps_per_iteration,
        f"steps {config.steps} does not reach one iteration of num_envs × rollout = {config.steps_per_iteration}; "
        f"give at least that many steps, or a smaller num_envs or rollout",
    )


def _validate_nodes(config: Config) -> None:
    h, nodes = config.hyper, config.nodes
    require(
        nodes > 1 or config.staleness == 0,
        f"staleness {config.staleness} is for nodes that play while another learns; give --nodes 2 or more, or leave "
        f"it out",
    )
    if nodes == 1:
        return
    require(
        isinstance(h, Mappo),
        f"nodes {nodes} needs an algorithm that learns from each batch once, as mappo; the replay of {config.algo} "
        f"expects every copy in every batch",
    )
    require(h.num_envs % nodes == 0, f"nodes {nodes} does not divide num_envs {h.num_envs}")
    require(
        h.gram != "crossfit" or config.share % h.folds == 0,
        f"folds {h.folds} does not divide the {config.share} copies of a node, which may be all that is left",
    )


def _validate_devices(config: Config) -> None:
    """What can be spread over devices."""
    h, number = config.hyper, config.devices
    if not isinstance(h, Mappo):
        raise GraspError(f"the replay of {config.algo} is on one device; train it with --devices 1")
    nearest = max(round(h.num_envs / number), 1) * number
    require(
        h.num_envs % number == 0,
        f"num_envs {h.num_envs} cannot be shared out to {number} devices; the nearest that can is {nearest}",
    )
    chunks = h.num_envs * h.rollout // h.chunk
    require(
        h.minibatches == 1 or chunks % (h.minibatches * number) == 0,
        f"the {chunks} chunks of a batch cannot be shared out to {h.minibatches} minibatches × {number} devices; "
        f"use minibatches 1",
    )
    require(
        h.gram in ("batch", "representation") or h.operator == "none",
        f"gram {h.gram} is for one device; use gram batch, or --devices 1",
    )
    require(
        config.parallel != "vmap", "seeds over many devices are a process each; leave --parallel out, or use processes"
    )


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
    if "td_lambda" in hyper:
        hyper.setdefault("time_limit", "cut")  # the rule of runs that were begun before there was a choice
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
