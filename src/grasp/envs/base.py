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
- `obs` and `state` are float32, `avail` and `alive` bool, shapes as `spec` says. Stepping a finished episode is legal
  and ignored by the caller.

A family is a module with `names() -> list[str]` and `make(task) -> Env`; the spec's name is `family/task`.
"""

import difflib
import importlib
from types import ModuleType
from typing import NamedTuple

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
    if name not in names():
        raise GraspError(f"unknown environment {name!r}; {_suggest(name)}")
    family, _, task = name.partition("/")
    entry = _FAMILIES[family]
    try:
        return importlib.import_module(entry.module).make(task)
    except ModuleNotFoundError as error:
        if entry.extra is None:
            raise
        package = (error.name or entry.extra).partition(".")[0]
        raise GraspError(
            f"environment {name!r} needs the package {package}; type: pip install 'grasp-marl[{entry.extra}]'"
        ) from error


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
