"""The environment contract, once, and the registry that turns a name into an environment.

An environment is an `Env`: a spec and two pure functions for one copy of it, usable under `jit` and `vmap`.

- `reset(key) -> (env_state, observation)` and `step(env_state, action[N], key) -> (env_state, step)`.
- `Step.observation` is always the true next observation. The environment never resets itself: the collector does,
  so the final observation is kept and no reset is computed at a step that needs none.
- `terminated` means the task ended (nothing more could be earned); `truncated` means only the clock stopped it, after
  exactly `spec.horizon` steps. At most one of them is true. `won` may be true only on a terminated step (or on a
  truncated one where the task itself counts it), and never where `spec.has_wins` is false.
- `reward` is the team's, one float32 scalar. An adapter says in its docstring how it was made from per-agent rewards.
- `avail[N, a]` has a legal action for every agent, dead ones too. A dead agent's `obs` row may hold anything finite:
  algorithms mask it with `alive`.
- Agents of different sizes are padded to the largest: observation rows with zeros, actions through `avail`.
- `state` is the team's, [s]; where `spec.agent_states`, every agent's, [N, s], which on-policy critics take and mixers
  do not. It is a state for dead agents too: their values go on being learned.
- `obs` and `state` are float32, `avail` and `alive` bool, shapes as `spec` says. Stepping a finished episode is legal
  and ignored by the caller.

An environment that JAX cannot compile is a `Host`, stepped by worker processes under the same contract
(`grasp.envs.host`).

A family is a module with `names() -> list[str]` and `make(task) -> Env`; the spec's name is `family/task`. A family
that has options declares them in a NamedTuple `Options`, whose fields `make` takes by name. Options are part of an
environment's name, `family/task?option=value,option=value`: two tasks that differ in one are never taken for the same.
"""

import contextlib
import importlib
import math
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from grasp.types import Env, GraspError, Host, suggest


class _Family(NamedTuple):
    module: str
    extra: str | None = None
    """The optional dependency of grasp-marl that brings the family's simulator."""
    host: bool = False
    """Whether workers step it (`grasp.envs.host`)."""
    anything: bool = False
    """Whether its tasks and options are not ours to list."""


_FAMILIES = {
    "grf": _Family("grasp.envs.football", host=True),
    "jumanji": _Family("grasp.envs.jumanji", extra="jumanji"),
    "matrix": _Family("grasp.envs.matrix"),
    "mpe": _Family("grasp.envs.mpe", extra="jaxmarl"),
    "pettingzoo": _Family("grasp.envs.pettingzoo", host=True, anything=True),
    "probe": _Family("grasp.envs.probes"),
    "smac": _Family("grasp.envs.smac", host=True),
    "smacv2": _Family("grasp.envs.smacv2", host=True),
    "skirmish": _Family("grasp.envs.skirmish"),
    "smax": _Family("grasp.envs.smax", extra="jaxmarl"),
}


def families() -> dict[str, list[str]]:
    """The full names of every registered environment, by family. No simulator is imported for it."""
    return {
        family: [f"{family}/{task}" for task in importlib.import_module(entry.module).names()]
        for family, entry in _FAMILIES.items()
    }


def names() -> list[str]:
    """Every registered name, sorted by family."""
    return [name for group in families().values() for name in group]


def make(name: str) -> Env | Host:
    """The environment called `family/task`, or what the user's `package.module:factory` gives (`grasp.envs.custom`)."""
    plain, _, words = name.partition("?")
    if ":" in plain:
        return importlib.import_module("grasp.envs.custom").load(name, plain, chosen(plain, words))
    family, _, task = plain.partition("/")
    if plain not in names() and not (task and _takes_any(family)):
        raise GraspError(f"unknown environment {plain!r}; {_suggest(plain)}")
    entry = _FAMILIES[family]
    given = chosen(plain, words)
    try:
        env = importlib.import_module(entry.module).make(task, **given)
        return env._replace(spec=replace(env.spec, name=name))
    except ModuleNotFoundError as error:
        if entry.extra is None:
            raise
        package = (error.name or entry.extra).partition(".")[0]
        raise GraspError(
            f"environment {name!r} needs the package {package}; type: pip install 'grasp-marl[{entry.extra}]'"
        ) from error


def compiled(name: str) -> Env:
    """The environment of that name, which must be one that JAX compiles."""
    env = make(name)
    if isinstance(env, Host):
        raise GraspError(f"environment {name!r} is a simulator of its own; this needs one that JAX compiles")
    return env


def simulated(name: str) -> bool:
    """Whether an environment is a simulator. A registered one is not started for it: that takes seconds, and it may not
    be installed here."""
    plain = name.partition("?")[0]
    entry = None if ":" in plain else _FAMILIES.get(plain.partition("/")[0])
    return entry.host if entry else isinstance(make(name), Host)


def _takes_any(family: str) -> bool:
    return family in _FAMILIES and _FAMILIES[family].anything


def options(name: str) -> dict[str, Any]:
    """The options of an environment: their types by name."""
    entry = _FAMILIES.get(name.partition("/")[0])
    declared = getattr(importlib.import_module(entry.module), "Options", None) if entry else None
    return get_type_hints(declared) if declared else {}


def with_options(name: str, words: dict[str, str]) -> str:
    """The environment's name with these options."""
    return name if not words else f"{name}?{','.join(f'{option}={words[option]}' for option in sorted(words))}"


def chosen(name: str, words: str) -> dict[str, Any]:
    """The options in the words after an environment's name, as values of their types."""
    known, values = options(name), {}
    anything = ":" in name or _takes_any(name.partition("/")[0])
    for word in words.split(",") if words else []:
        option, _, text = word.partition("=")
        if anything:
            values[option] = _guess(text)
            continue
        if option not in known:
            hint = suggest(option, known, f"it has {', '.join(known) or 'none'}")
            raise GraspError(f"environment {name!r} has no option {option!r}; {hint}")
        values[option] = _read(option, text, known[option])
    return values


def _guess(text: str) -> bool | int | float | str:
    """A value whose type nobody has declared."""
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
