"""A `Config` from names and options, the text of flags, and `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Literal, get_args, get_origin

from grasp.config import presets
from grasp.config.hyperparameters import ALGORITHMS, Happo, Hyper, Ma2e, Mappo, Qmix
from grasp.config.run import EVALUATIONS, RUN_FIELDS, Config
from grasp.config.validation import LARGEST, validate
from grasp.types import GraspError, suggest

FORMAT = 3
"""Version of the run directory and of `config.json`. A newer one is refused. When you add an option, increment it and
enter in `ADDED` the value that runs of earlier formats had."""

ON_POLICY = {"decay": 0, "gram": "batch", "folds": 4, "control": "none", "trust": "clip", "kl": 0.02}
OFF_POLICY = {
    "decay": 0,
    "gram": "batch",
    "folds": 4,
    "control": "none",
    "reward_scale": 1.0,
    "time_limit": "bootstrap",
}
OF_RUN = {
    "preset": "default", "parallel": "auto", "devices": 1, "workers": 0, "deadline": 60.0, "restarts": 10, "nodes": 1,
    "staleness": 0,
}  # fmt: skip
LAYOUT = {"layout": "paper", "init": "common"}
ON_POLICY_LAYOUT = LAYOUT | {
    "blocks": 2, "actor": "gru", "gain": 0.01, "agent_id": False, "last_action": False, "time_limit": "bootstrap",
}  # fmt: skip
OFF_POLICY_LAYOUT = LAYOUT | {"agent_id": True, "last_action": True}
ADDED: dict[int, tuple[dict[str, Any], dict[type, dict[str, Any]]]] = {
    1: (OF_RUN, {Mappo: ON_POLICY, Happo: ON_POLICY, Qmix: OFF_POLICY, Ma2e: OFF_POLICY}),
    2: (
        {},
        {Mappo: ON_POLICY_LAYOUT, Happo: ON_POLICY_LAYOUT, Qmix: OFF_POLICY_LAYOUT, Ma2e: OFF_POLICY_LAYOUT},
    ),
}
"""By format: the options of a run, and of an algorithm, that files of this format and of earlier ones may lack, each
with the value that runs had before the option existed. Format 1 was not incremented as options were added."""


def defaults(algo: str) -> Hyper:
    """An algorithm's options, by its name."""
    if algo not in ALGORITHMS:
        raise GraspError(f"unknown algorithm '{algo}'; {suggest(algo, ALGORITHMS)}")
    return ALGORITHMS[algo]


def configure(algo: str, env: str, options: Mapping[str, Any]) -> Config:
    """The complete configuration of a run from names and options; unknown names and wrong types are refused."""
    hyper = defaults(algo)
    options = checked(hyper, options)
    preset, wanted = options.get("preset", "default"), replace(hyper, operator=options.get("operator", hyper.operator))
    of_preset = presets.settings(preset, wanted, env)
    return made(algo, presets.with_states(preset, wanted, env), hyper, of_preset | options)


def checked(hyper: Hyper, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the types of their fields."""
    known = {f.name: f for f in [*RUN_FIELDS, *fields(hyper)]}
    found = {}
    for name, value in options.items():
        if name not in known:
            raise GraspError(f"unknown option '{name}'; {suggest(name, known)}")
        value = known[name].metadata["renamed"].get(value, value) if isinstance(value, str) else value
        if not fits(value, known[name].type):
            raise GraspError(f"{name} must be {describe(known[name].type)}, not {value!r}")
        if type(value) in (int, float) and not abs(value) <= LARGEST:
            raise GraspError(f"{name} must be a number up to {LARGEST:,}, not {value}")
        found[name] = float(value) if known[name].type is float else value
    return found


def made(algo: str, env: str, hyper: Hyper, options: dict[str, Any]) -> Config:
    """A configuration with these options, validated."""
    names = {f.name for f in RUN_FIELDS}
    of_run = {name: value for name, value in options.items() if name in names}
    of_algorithm = {name: value for name, value in options.items() if name not in names}
    hyper = replace(hyper, **of_algorithm)
    if isinstance(hyper, Mappo) and (hyper.layout, hyper.sharing) == ("reference", "shared"):
        hyper = replace(hyper, agent_id=of_algorithm.get("agent_id", True))
    config = Config(algo, env, hyper, **of_run)
    if config.eval_interval == 0:
        config = replace(config, eval_interval=max(config.steps // EVALUATIONS, 1))
    validate(config)
    return config


def fits(value: Any, kind: Any) -> bool:
    """Whether a value, from Python or from a file, is of a field's type; an integer will do for a float."""
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
    """A type, for an error message."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}[kind]


def to_json(config: Config) -> str:
    """The complete configuration as the text of `config.json`."""
    return json.dumps({"format": FORMAT, **asdict(config)}, indent=2) + "\n"


def from_json(text: str, source: str) -> Config:
    """The configuration of a `config.json`; `source` names the file in errors.

    Today's defaults are not used. An option that the file lacks has the value that runs of its format had, or the file
    is refused.
    """
    version, values = _read(text, source)
    algo, env = values.pop("algo"), values.pop("env")
    of_algorithm = values.pop("hyper", None)
    if not isinstance(of_algorithm, dict):
        raise GraspError(f"{source} is not a configuration of grasp; is this a run directory?")
    hyper = defaults(algo)
    before = missing(version, hyper)
    given = {**values, **of_algorithm}
    for f in [*RUN_FIELDS, *fields(hyper)]:
        if f.name not in given and f.name not in before:
            raise GraspError(f"{source} lacks '{f.name}', which every run of format {version} has; restore the file")
    try:
        return made(algo, env, hyper, checked(hyper, before | given))
    except GraspError as mistake:
        raise GraspError(f"{source}: {mistake}") from None


def missing(version: int, hyper: Hyper) -> dict[str, Any]:
    """The options that a file of this format may lack, with the values that its run had."""
    found: dict[str, Any] = {}
    for format, (of_runs, of_algorithms) in ADDED.items():
        if format >= version:
            found |= of_runs | of_algorithms.get(type(hyper), {})
    return found


def header(text: str, source: str) -> dict[str, Any]:
    """The values of a `config.json`, unchecked, for a report on runs whose algorithm may be unknown. Options that the
    file lacks have the values that its run had, choices their present names."""
    version, values = _read(text, source)
    hyper, of_algorithm = ALGORITHMS.get(str(values["algo"])), values.get("hyper")
    if hyper is None or not isinstance(of_algorithm, dict):
        return values
    renamed = {f.name: f.metadata["renamed"] for f in fields(hyper)}
    before, own = missing(version, hyper), {f.name for f in fields(hyper)}
    for name, value in of_algorithm.items():
        before[name] = renamed[name].get(value, value) if name in own and isinstance(value, str) else value
    of_run = {name: value for name, value in before.items() if name not in own and name not in of_algorithm}
    return of_run | values | {"hyper": {name: value for name, value in before.items() if name not in of_run}}


def planned_steps(text: str, source: str) -> int | None:
    """Environment steps of a finished seed, in whole iterations. Where this version cannot read the configuration, its
    `steps`, which may be fewer; None if it has none."""
    try:
        return from_json(text, source).total_steps
    except (GraspError, RecursionError, ValueError, TypeError, ArithmeticError):
        pass
    try:
        steps = header(text, source).get("steps")
    except (GraspError, RecursionError):
        return None
    return steps if type(steps) is int and 0 <= steps <= LARGEST else None


def _read(text: str, source: str) -> tuple[int, dict[str, Any]]:
    """The format of a `config.json`, which must be one that this version reads, and the other values."""
    try:
        values = json.loads(text)
        version = values.pop("format")
        right = type(version) is int and isinstance(values["algo"], str) and isinstance(values["env"], str)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        right, version, values = False, 0, {}
    if not right or version < 1:
        raise GraspError(f"{source} is not a configuration of grasp; is this a run directory?")
    if version > FORMAT:
        raise GraspError(
            f"{source} was written by a newer grasp (format {version}, this version reads up to {FORMAT}); "
            f"upgrade grasp"
        )
    return version, values
