"""The environment contract, once, and the registry that turns a name into an environment.

An environment is an `Env`: a spec and two pure functions for one copy of it, usable under `jit` and `vmap`.

- `reset(key) -> (env_state, observation)` and `step(env_state, action[N], key) -> (env_state, step)`.
- `Step.observation` is always the true next observation. The environment never resets itself: the collector does,
  so the final observation is kept and no reset is computed at a step that needs none.
- `terminated` means the task ended (no more reward was possible); `truncated` means only the time limit ended the
  episode, after exactly `spec.horizon` steps. At most one of them is true. `won` may be true only on a terminated step
  (or on a truncated one where the task itself counts it), and never where `spec.has_wins` is false.
- `reward` is the team's, one float32 scalar. An adapter's docstring states how it is made from per-agent rewards.
- `avail[N, a]` has a legal action for every agent, dead ones too. A dead agent's `obs` row may hold anything finite:
  algorithms mask it with `alive`.
- Agents of different sizes are padded to the largest: observation rows with zeros, actions through `avail`.
- `state` is the team's, [s]; where `spec.agent_states`, every agent's, [N, s], which on-policy critics take and mixers
  do not. Dead agents have a state too: their values are still learned.
- `obs` and `state` are float32, `avail` and `alive` bool, shapes as `spec` says. Stepping a finished episode is legal
  and ignored by the caller.

An environment that JAX cannot compile is a `Host`, stepped by worker processes under the same contract
(`grasp.envs.host`).

A family is a module with `names() -> list[str]` and `make(task) -> Env`; the spec's name is `family/task`. A family
that has options declares them in a NamedTuple `Options`, whose fields `make` takes by name. Options are part of an
environment's name, `family/task?option=value,option=value`, so that tasks with different options have different names.
"""

import contextlib
import importlib
import math
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from grasp.types import Env, GraspError, Host, suggest


class _Family(NamedTuple):
    module: str
    member: str = ""
    """The object in `module` that implements the family; empty: the module itself."""
    extra: str | None = None
    """The optional dependency of grasp-marl that installs the family's simulator."""
    host: bool = False
    """Whether worker processes step it (`grasp.envs.host`)."""
    open_ended: bool = False
    """Whether any task and any option are accepted, not only the listed ones."""

    def load(self) -> Any:
        """What has the family's `names`, `make` and `Options`."""
        module = importlib.import_module(self.module)
        return getattr(module, self.member) if self.member else module


_FAMILIES = {
    "grf": _Family("grasp.envs.football", host=True),
    "jumanji": _Family("grasp.envs.jumanji", extra="jumanji"),
    "matrix": _Family("grasp.envs.matrix"),
    "mpe": _Family("grasp.envs.mpe", extra="jaxmarl"),
    "pettingzoo": _Family("grasp.envs.pettingzoo", host=True, open_ended=True),
    "probe": _Family("grasp.envs.probes"),
    "smac": _Family("grasp.envs.smac", host=True),
    "smacv2": _Family("grasp.envs.smac", member="Smacv2", host=True),
    "skirmish": _Family("grasp.envs.skirmish"),
    "smax": _Family("grasp.envs.smax", extra="jaxmarl"),
}


def families() -> dict[str, list[str]]:
    """The full names of all registered environments, by family. Imports no simulator."""
    return {family: [f"{family}/{task}" for task in entry.load().names()] for family, entry in _FAMILIES.items()}


def names() -> list[str]:
    """All registered names, sorted by family."""
    return [name for group in families().values() for name in group]


def make(name: str) -> Env | Host:
    """The environment called `family/task`, or the one that a user's `package.module:factory` returns
    (`grasp.envs.custom`)."""
    plain, _, text = name.partition("?")
    if ":" in plain:
        return importlib.import_module("grasp.envs.custom").load(name, plain, parse_options(plain, text))
    family, _, task = plain.partition("/")
    if plain not in names() and not (task and _is_open_ended(family)):
        raise GraspError(f"unknown environment {plain!r}; {_suggest(plain)}")
    entry = _FAMILIES[family]
    chosen = parse_options(plain, text)
    try:
        env = entry.load().make(task, **chosen)
        return env._replace(spec=replace(env.spec, name=name))
    except ModuleNotFoundError as error:
        if entry.extra is None:
            raise
        package = (error.name or entry.extra).partition(".")[0]
        raise GraspError(
            f"environment {name!r} needs the package {package}; type: pip install 'grasp-marl[{entry.extra}]'"
        ) from error


def compiled(name: str) -> Env:
    """The environment of that name; an error if it is a simulator in worker processes."""
    env = make(name)
    if isinstance(env, Host):
        raise GraspError(f"environment {name!r} is a simulator in worker processes; use one that JAX compiles")
    return env


def simulated(name: str) -> bool:
    """Whether an environment is a simulator in worker processes. Registered simulators are not started, which would
    take seconds and fail where they are not installed."""
    plain = name.partition("?")[0]
    entry = None if ":" in plain else _FAMILIES.get(plain.partition("/")[0])
    return entry.host if entry else isinstance(make(name), Host)


def _is_open_ended(family: str) -> bool:
    return family in _FAMILIES and _FAMILIES[family].open_ended


def options(name: str) -> dict[str, Any]:
    """The types of an environment's options, by name."""
    entry = _FAMILIES.get(name.partition("/")[0])
    declared = getattr(entry.load(), "Options", None) if entry else None
    return get_type_hints(declared) if declared else {}


def with_options(name: str, options: dict[str, str]) -> str:
    """The environment's name with these options."""
    return name if not options else f"{name}?{','.join(f'{option}={options[option]}' for option in sorted(options))}"


def parse_options(name: str, text: str) -> dict[str, Any]:
    """The options after the `?` of an environment's name, as values of their types."""
    known, values = options(name), {}
    open_ended = ":" in name or _is_open_ended(name.partition("/")[0])
    for item in text.split(",") if text else []:
        option, _, value = item.partition("=")
        if open_ended:
            values[option] = _guess(value)
            continue
        if option not in known:
            hint = suggest(option, known, f"it has {', '.join(known) or 'none'}")
            raise GraspError(f"environment {name!r} has no option {option!r}; {hint}")
        values[option] = _read(option, value, known[option])
    return values


def _guess(text: str) -> bool | int | float | str:
    """The value of an option without a declared type."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text == "true" if text in ("true", "false") else text


def _read(option: str, text: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        if text in get_args(kind):
            return text
        raise GraspError(f"{option} must be one of {', '.join(get_args(kind))}, not {text!r}")
    if kind is bool:
        if text in ("true", "false"):
            return text == "true"
        raise GraspError(f"{option} must be true or false, not {text!r}")
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise GraspError(f"{option} must be a number, not {text!r}")
    return number


def _suggest(name: str) -> str:
    families = f"the families are {', '.join(_FAMILIES)}, or give your own as 'package.module:factory'"
    return suggest(name, names(), families)
