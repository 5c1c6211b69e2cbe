"""Adapter of PettingZoo's parallel environments, and of a user's own with that interface.

- Agents are `possible_agents`, in that order. An absent agent (not in `env.agents`) keeps its row: alive False, zeros,
  and action 0 as its only legal action. Truncated agents are alive in the last observation, from which the learner
  bootstraps; terminated agents are not.
- Reward: the sum of all agents' rewards of the step, as in the family `mpe`, so that returns are comparable.
- Observations are flattened by gymnasium (Discrete parts one-hot, images unscaled) and padded with zeros.
- Actions must be Discrete. Smaller action sets are padded and masked. Action 0 here is `Discrete.start`.
- Masks: the first found of the observation's "action_mask" (which is then no part of the row) and "action_mask",
  "avail_actions", "available_actions" in `infos[agent]`, after resets and steps. Without a mask all actions are legal.
- State: `env.state()`, flattened, if implemented (checked once); else the concatenated rows of all agents.
- Ends: an episode ends when no agent remains. An agent that is both terminated and truncated counts as terminated. If
  one of the last agents was only truncated, the episode is truncated: that agent could have earned more reward, so the
  value of the last state is not zero. The environment may truncate before `horizon`; at `horizon` the adapter does.
- Wins, with `wins=true`: a terminated episode is won if "won", "battle_won" or "is_success" of any last info is true.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
import sys
from typing import Any

import numpy as np

MASKS = ("action_mask", "avail_actions", "available_actions")
LIMITS = ("max_cycles", "max_steps", "max_episode_steps", "episode_limit")
WINS = ("won", "battle_won", "is_success")


def make(task: str, horizon: int | None = None, wins: bool = False, **options) -> Parallel:
    """The environment of `parallel_env(**options)` in the module `task`, or of `package.module:factory`."""
    path, name = [*task.split(":", 1), "parallel_env"][:2]
    factory = getattr(_import(path), name, None)
    if not callable(factory):
        raise ValueError(f"the module {path} has no function {name} that makes a parallel environment")
    try:
        env = factory(**options)
    except TypeError as error:
        raise ValueError(f"{path}.{name} cannot be called with {options or 'no options'}: {error}") from error
    return wrap(env, options.get("max_cycles") if horizon is None else horizon, wins)


def wrap(env: Any, horizon: int | None = None, wins: bool = False) -> Parallel:
    """An existing parallel environment as a simulator."""
    kind = type(env).__name__
    if callable(getattr(env, "agent_iter", None)):
        raise ValueError(f"{kind} is an AEC environment; convert it with pettingzoo.utils.aec_to_parallel")
    for name in ("possible_agents", "reset", "step", "observation_space", "action_space", "close"):
        if not getattr(env, name, None):
            raise ValueError(f"{kind} has no {name}, so it is not a PettingZoo parallel environment")
    return Parallel(env, _limit(env, horizon), wins)


class Parallel:
    """One parallel environment as a simulator (see `serve`)."""

    def __init__(self, env: Any, horizon: int, wins: bool):
        from gymnasium.spaces import utils

        self.env, self.clock, self.own_state = env, 0, False
        self.agents = list(env.possible_agents)
        self.views = {agent: _view(agent, env.observation_space(agent)) for agent in self.agents}
        self.choices = {agent: _discrete(agent, env.action_space(agent)) for agent in self.agents}
        self.spec = {
            "num_agents": len(self.agents),
            "obs_dim": max(map(utils.flatdim, self.views.values())),
            "state_dim": 0,
            "num_actions": int(max(choices.n for choices in self.choices.values())),
            "horizon": horizon,
            "has_wins": bool(wins),
            "package": _distribution(type(getattr(env, "unwrapped", env)).__module__.partition(".")[0]),
        }
        rows = self.reset(0)[0]
        self.own_state = _has_state(env)
        self.spec["state_dim"] = (self._read_state() if self.own_state else rows).size

    def reset(self, seed: int) -> tuple:
        self.clock = 0
        result = self.env.reset(seed=int(seed))
        if not isinstance(result, tuple) or len(result) != 2:
            raise ValueError("reset must return (observations, infos), as PettingZoo does since 1.23")
        self._check_names(self.env.agents, "env.agents")
        if not self.env.agents:
            raise ValueError("env.agents is empty after reset")
        return self._observe(result[0], result[1], set(self.env.agents), over=False)

    def step(self, action: np.ndarray) -> tuple:
        self.clock += 1
        acting = list(self.env.agents)
        result = self.env.step({agent: self._translate(agent, action) for agent in acting})
        if not isinstance(result, tuple) or len(result) != 5:
            raise ValueError("step must return (observations, rewards, terminations, truncations, infos)")
        observations, rewards, terminations, truncations, infos = result
        for what, values in (("reward", rewards), ("termination", terminations), ("truncation", truncations)):
            self._check_has(what, values, acting)
        terminated_agents = {agent for agent in acting if terminations[agent]}
        truncated_agents = {agent for agent in acting if truncations[agent]} - terminated_agents
        playing = self._playing(acting, terminated_agents | truncated_agents)
        over = not playing
        terminated = over and not truncated_agents
        truncated = not terminated and (over or self.clock >= self.spec["horizon"])
        seen = self._observe(observations, infos, truncated_agents if over else playing, over)
        return seen, self._team(rewards), terminated, truncated, self.spec["has_wins"] and terminated and _won(infos)

    def close(self) -> None:
        self.env.close()

    def _translate(self, agent: Any, action: np.ndarray) -> Any:
        choice, choices = int(action[self.agents.index(agent)]), self.choices[agent]
        if not 0 <= choice < choices.n:
            raise ValueError(f"agent {agent!r} has {choices.n} actions but received action {choice}{self._when()}")
        return choices.dtype.type(choice + choices.start)  # of the type that `sample` returns

    def _playing(self, acting: list, ended: set) -> set:
        """The agents that continue."""
        self._check_names(self.env.agents, "env.agents")
        playing = set(self.env.agents) - ended
        for agent in acting:
            if agent not in playing and agent not in ended:
                raise ValueError(f"agent {agent!r} disappeared without termination or truncation{self._when()}")
        return playing

    def _team(self, rewards: dict) -> float:
        for agent, reward in rewards.items():
            value = np.asarray(reward)
            if value.shape or value.dtype.kind not in "fiub" or not np.isfinite(value):
                raise ValueError(f"agent {agent!r} has the reward {reward}{self._when()}; it must be one finite number")
        return float(sum(rewards.values()))

    def _observe(self, observations: dict, infos: dict, alive: set, over: bool) -> tuple:
        self._check_has("observation", observations, alive)
        obs = np.zeros((len(self.agents), self.spec["obs_dim"]), np.float32)
        avail = np.zeros((len(self.agents), self.spec["num_actions"]), bool)
        present = np.array([agent in alive for agent in self.agents])
        for row in np.flatnonzero(present):
            agent = self.agents[row]
            mask = self._mask(agent, observations[agent], infos.get(agent) or {}, over)
            flat = self._flat(agent, self.views[agent], observations[agent])
            avail[row, : mask.size] = mask
            obs[row, : flat.size] = flat
        if not np.isfinite(obs).all():
            agent = self.agents[np.isfinite(obs).all(axis=1).argmin()]
            raise ValueError(f"the observation of agent {agent!r}{self._when()} contains a number that is not finite")
        avail[~avail.any(axis=1), 0] = True
        state = self._read_state() if self.own_state else obs.reshape(-1).copy()
        return obs, state, avail, present

    def _flat(self, agent: Any, space: Any, observation: Any) -> np.ndarray:
        try:
            return _flatten(space, observation)
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(
                f"the observation of agent {agent!r}{self._when()} does not fit {space}: {error}"
            ) from error

    def _mask(self, agent: Any, observation: Any, info: dict, over: bool) -> np.ndarray:
        number = int(self.choices[agent].n)
        masks = [observation.get("action_mask")] if isinstance(observation, dict) else []
        found = [mask for mask in masks + [info.get(name) for name in MASKS] if mask is not None]
        if not found:
            return np.ones(number, bool)
        mask = np.asarray(found[0])
        if mask.shape != (number,) or not ((mask == 0) | (mask == 1)).all():
            raise ValueError(f"the mask of agent {agent!r} is {found[0]}{self._when()}, not {number} zeros and ones")
        if not over and not mask.any():
            raise ValueError(f"the mask of agent {agent!r} leaves no legal action{self._when()}")
        return mask.astype(bool)

    def _read_state(self) -> np.ndarray:
        try:
            state = np.array(self.env.state(), np.float32).reshape(-1)
        except (TypeError, ValueError) as error:
            raise ValueError(f"env.state() did not return an array of numbers{self._when()}: {error}") from error
        if state.size != (self.spec["state_dim"] or state.size):
            raise ValueError(f"the size of env.state() changed to {state.size}{self._when()}")
        if not np.isfinite(state).all():
            raise ValueError(f"env.state() contains a number that is not finite{self._when()}")
        return state

    def _check_names(self, names: Any, where: str) -> None:
        for agent in names:
            if agent not in self.views:
                raise ValueError(
                    f"{where} contain {agent!r}{self._when()}, which is not in possible_agents {self.agents}"
                )

    def _check_has(self, what: str, values: dict, acting: Any) -> None:
        self._check_names(values, f"the {what}s")
        for agent in acting:
            if agent not in values:
                raise ValueError(f"agent {agent!r} has no {what}{self._when()}")

    def _when(self) -> str:
        return f" at step {self.clock}" if self.clock else " at reset"


def _view(agent: Any, space: Any) -> Any:
    """The observation space without the mask."""
    from gymnasium.spaces import Dict

    if isinstance(space, Dict):
        space = Dict([(name, part) for name, part in space.spaces.items() if name != "action_mask"])
    if not space.is_np_flattenable:
        raise ValueError(f"the observation space {space} of agent {agent!r} cannot be flattened to a fixed size")
    return space


def _discrete(agent: Any, space: Any) -> Any:
    from gymnasium.spaces import Discrete

    if not isinstance(space, Discrete):
        raise ValueError(f"agent {agent!r} has the action space {space}; only Discrete is supported")
    return space


def _flatten(space: Any, value: Any) -> np.ndarray:
    from gymnasium.spaces import Dict, utils

    # PettingZoo's tutorial on masks declares only the space of "observation".
    if isinstance(value, dict) and not isinstance(space, Dict) and "observation" in value:
        value = value["observation"]
    if not _fits(space, value):
        raise ValueError("another shape, type or range")
    return np.asarray(utils.flatten(space, value))


def _fits(space: Any, value: Any) -> bool:
    """Checks that flattening omits: sizes, fractions that would be rounded, one-hot indices out of range."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return all(_fits(part, value[name]) for name, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return len(value) == len(space.spaces) and all(map(_fits, space.spaces, value))
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        number = space.n if isinstance(space, spaces.Discrete) else space.nvec
        index = np.asarray(value) - getattr(space, "start", 0)
        return index.shape == space.shape and bool(((index >= 0) & (index < number)).all())
    array = np.asarray(value)
    return array.shape == space.shape and (array.dtype.kind != "f" or space.dtype.kind == "f")


def _has_state(env: Any) -> bool:
    state = getattr(env, "state", None)
    try:
        return callable(state) and state() is not None
    except NotImplementedError:
        return False
    except AttributeError as error:
        if "'metadata'" not in str(error):  # PettingZoo's NotImplementedError fails to format without metadata
            raise
        return False


def _won(infos: dict) -> bool:
    return any(bool(info.get(name)) for info in infos.values() if info for name in WINS)


def _limit(env: Any, horizon: Any) -> int:
    """The time limit: the option `horizon`, else the environment's own."""
    bare, metadata = getattr(env, "unwrapped", env), getattr(env, "metadata", None) or {}
    limits = [getattr(owner, name, None) for owner in (env, bare) for name in LIMITS] + [*map(metadata.get, LIMITS)]
    for value in limits if horizon is None else [horizon]:
        if (type(value) is int or isinstance(value, np.integer)) and value > 0:
            return int(value)
    if horizon is not None:
        raise ValueError(f"horizon must be a whole number above 0, not {horizon!r}")
    raise ValueError(f"{type(bare).__name__} has no time limit; add ?horizon=N")


@functools.lru_cache(maxsize=None)
def _distribution(package: str) -> str:
    """The distribution that installed a package, or the package's own name."""
    known = getattr(importlib.metadata, "packages_distributions", dict)()  # newer than Python 3.9
    return known.get(package, [package])[0]


def _import(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise _missing(path, error.name or path) from error


def _missing(path: str, missing: str) -> Exception:
    above, _, name = missing.rpartition(".")
    if not f"{path}.".startswith(f"{missing}."):
        return ModuleNotFoundError(f"{path} needs the package {missing}; type: pip install {missing}")
    if not above:
        fix = f"type: pip install {missing} (for a module of yours, set PYTHONPATH)"
        return ModuleNotFoundError(f"there is no package {missing!r}; {fix}")
    siblings = [found.name for found in pkgutil.iter_modules(getattr(sys.modules[above], "__path__", []))]
    if not siblings:
        return ModuleNotFoundError(f"{above} has no module {name!r}; it has none")
    return LookupError(f"{above} has no module {name!r}", name, siblings, f"{above}.")
