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

A family is a module with `names() -> list[str]` and `make(task) -> Env`; the spec's name is `family/task`. A family
that has options declares them in a NamedTuple `Options`, whose fields `make` takes by name. Options are part of an
environment's name, `family/task?option=value,option=value`: two tasks that differ in one are never taken for the same.
"""

import difflib
import importlib
import math
from dataclasses import replace
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from grasp.types import Env, GraspError


class _Family(NamedTuple):
    module: str
    extra: str | None = None
    """The optional dependency of grasp-marl that brings the family's simulator."""


_FAMILIES = {
    "matrix": _Family("grasp.envs.matrix"),
    "mpe": _Family("grasp.envs.mpe", extra="jaxmarl"),
    "probe": _Family("grasp.envs.probes"),
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


def make(name: str) -> Env:
    """The environment called `family/task`, or what `package.module:factory` gives: an `Env` or a callable to one."""
    if ":" in name:
        return _load(name)
    plain, _, words = name.partition("?")
    if plain not in names():
        raise GraspError(f"unknown environment {plain!r}; {_suggest(plain)}")
    family, _, task = plain.partition("/")
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
    for word in words.split(",") if words else []:
        option, _, text = word.partition("=")
        if option not in known:
            close = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}"
            raise GraspError(f"environment {name!r} has no option {option!r}; {hint}")
        values[option] = _read(option, text, known[option])
    return values


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
    close = difflib.get_close_matches(name, names(), n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"the families are {', '.join(_FAMILIES)}, or give your own as 'package.module:factory'"


def _load(name: str) -> Env:
    path, _, attribute = name.partition(":")
    if not path or path.startswith(".") or not attribute:
        raise GraspError(f"environment {name!r} is not of the form 'package.module:factory'")
    module = _import(path, name)
    if not hasattr(module, attribute):
        close = difflib.get_close_matches(attribute, dir(module), n=1)
        hint = f"did you mean '{path}:{close[0]}'?" if close else "give a callable that returns a grasp.types.Env"
        raise GraspError(f"environment {name!r}: the module {path} has no {attribute!r}; {hint}")
    found = getattr(module, attribute)
    try:
        env = found() if callable(found) else found
    except TypeError as error:
        raise GraspError(f"environment {name!r} cannot be made without arguments: {error}") from error
    if not isinstance(env, Env):
        raise GraspError(f"environment {name!r} is a {type(env).__name__}; it must be or return a grasp.types.Env")
    return env


def _import(path: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        # Only the path itself is a spelling mistake; a package missing inside the module is the user's to see whole.
        if not f"{path}.".startswith(f"{error.name}."):
            raise
        raise GraspError(
            f"environment {name!r}: there is no module {path!r}; run where it can be imported, or set PYTHONPATH"
        ) from error
