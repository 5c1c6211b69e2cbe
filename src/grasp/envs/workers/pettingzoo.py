"""Adapter of PettingZoo's parallel environments, and of a user's own written to that interface.

- Agents are `possible_agents`, in that order. One that has left or not come yet keeps its row: alive False, zeros, and
  action 0 as its only legal one. Agents that only the clock stopped are still alive in the last observation, since it
  is valued; agents that terminated are not.
- Reward: the sum of all agents' rewards of the step, as in the family `mpe`, so their returns compare.
- Observations are flattened by gymnasium (Discrete parts one-hot, images as they are) and padded with zeros.
- Actions must be Discrete; smaller sets are padded and masked. Our action 0 is `Discrete.start`.
- Masks: the first found of the observation's "action_mask" (which is then no part of the row), and `infos[agent]`'s
  "action_mask", "avail_actions", "available_actions", at reset as after a step. An agent without one may do anything.
- State: `env.state()`, flattened, where it is implemented (asked once); else all agents' rows, one after another.
- Ends: an episode is over when no agent is left. An agent that is both terminated and truncated counts as terminated.
  If one of the last to go was only truncated the episode is truncated: that agent could have earned more, so the value
  of what follows is not zero. The environment's own clock may be shorter than `horizon`; ours stops it there at last.
- Wins, with `wins=true`: a terminated episode is won if any last info's "won", "battle_won" or "is_success" is true.
"""

from __future__ import annotations

import difflib
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
    """What `parallel_env(**options)` of the module `task` gives, or the factory of `package.module:factory`."""
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
    """A parallel environment that exists already, as a simulator."""
    kind = type(env).__name__
    if callable(getattr(env, "agent_iter", None)):
        raise ValueError(f"{kind} takes turns (AEC); give pettingzoo.utils.aec_to_parallel of it")
    for name in ("possible_agents", "reset", "step", "observation_space", "action_space", "close"):
        if not getattr(env, name, None):
            raise ValueError(f"{kind} has no {name}, so it is not a PettingZoo parallel environment")
    return Parallel(env, _limit(env, horizon), wins)


class Parallel:
    """One parallel environment under the worker's contract."""

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
        answer = self.env.reset(seed=int(seed))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise ValueError("reset must return (observations, infos), as PettingZoo does since 1.23")
        self._check_names(self.env.agents, "env.agents")
        if not self.env.agents:
            raise ValueError("after reset there is no agent in env.agents")
        return self._observe(answer[0], answer[1], set(self.env.agents), over=False)

    def step(self, action: np.ndarray) -> tuple:
        self.clock += 1
        acting = list(self.env.agents)
        answer = self.env.step({agent: self._translate(agent, action) for agent in acting})
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise ValueError("step must return (observations, rewards, terminations, truncations, infos)")
        observations, rewards, terminations, truncations, infos = answer
        for what, told in (("reward", rewards), ("termination", terminations), ("truncation", truncations)):
            self._check_told(what, told, acting)
        ended = {agent for agent in acting if terminations[agent]}
        stopped = {agent for agent in acting if truncations[agent]} - ended
        playing = self._playing(acting, ended | stopped)
        over = not playing
        terminated = over and not stopped
        truncated = not terminated and (over or self.clock >= self.spec["horizon"])
        seen = self._observe(observations, infos, stopped if over else playing, over)
        return seen, self._team(rewards), terminated, truncated, self.spec["has_wins"] and terminated and _won(infos)

    def close(self) -> None:
        self.env.close()

    def _translate(self, agent: Any, action: np.ndarray) -> Any:
        choice, choices = int(action[self.agents.index(agent)]), self.choices[agent]
        if not 0 <= choice < choices.n:
            raise ValueError(f"agent {agent!r} has {choices.n} actions and was given {choice}{self._when()}")
        return choices.dtype.type(choice + choices.start)  # of the type that `sample` gives

    def _playing(self, acting: list, gone: set) -> set:
        """The agents that go on."""
        self._check_names(self.env.agents, "env.agents")
        playing = set(self.env.agents) - gone
        for agent in acting:
            if agent not in playing and agent not in gone:
                raise ValueError(f"agent {agent!r} left without termination or truncation{self._when()}")
        return playing

    def _team(self, rewards: dict) -> float:
        for agent, reward in rewards.items():
            value = np.asarray(reward)
            if value.shape or value.dtype.kind not in "fiub" or not np.isfinite(value):
                raise ValueError(f"agent {agent!r} has the reward {reward}{self._when()}; it must be one finite number")
        return float(sum(rewards.values()))

    def _observe(self, observations: dict, infos: dict, alive: set, over: bool) -> tuple:
        self._check_told("observation", observations, alive)
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
            raise ValueError(f"the observation of agent {agent!r}{self._when()} holds a number that is not finite")
        avail[~avail.any(axis=1), 0] = True
        state = self._read_state() if self.own_state else obs.reshape(-1).copy()
        return obs, state, avail, present

    def _flat(self, agent: Any, space: Any, observation: Any) -> np.ndarray:
        try:
            return _flatten(space, observation)
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"the observation of agent {agent!r}{self._when()} is not of {space}: {error}") from error

    def _mask(self, agent: Any, observation: Any, info: dict, over: bool) -> np.ndarray:
        number = int(self.choices[agent].n)
        places = [observation.get("action_mask")] if isinstance(observation, dict) else []
        found = [mask for mask in places + [info.get(name) for name in MASKS] if mask is not None]
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
            raise ValueError(f"env.state() gave no array of numbers{self._when()}: {error}") from error
        if state.size != (self.spec["state_dim"] or state.size):
            raise ValueError(f"env.state() has changed its size to {state.size}{self._when()}")
        if not np.isfinite(state).all():
            raise ValueError(f"env.state() holds a number that is not finite{self._when()}")
        return state

    def _check_names(self, names: Any, where: str) -> None:
        for agent in names:
            if agent not in self.views:
                raise ValueError(f"{where} name {agent!r}{self._when()}, who is not in possible_agents {self.agents}")

    def _check_told(self, what: str, told: dict, acting: Any) -> None:
        self._check_names(told, f"the {what}s")
        for agent in acting:
            if agent not in told:
                raise ValueError(f"agent {agent!r} has no {what}{self._when()}")

    def _when(self) -> str:
        return f" at step {self.clock}" if self.clock else " at reset"


def _view(agent: Any, space: Any) -> Any:
    """The space of what makes an agent's row: all but the mask."""
    from gymnasium.spaces import Dict

    if isinstance(space, Dict):
        space = Dict([(name, part) for name, part in space.spaces.items() if name != "action_mask"])
    if not space.is_np_flattenable:
        raise ValueError(f"the observation space {space} of agent {agent!r} has no fixed size to flatten to")
    return space


def _discrete(agent: Any, space: Any) -> Any:
    from gymnasium.spaces import Discrete

    if not isinstance(space, Discrete):
        raise ValueError(f"agent {agent!r} has the action space {space}; only Discrete actions can be learned here")
    return space


def _flatten(space: Any, value: Any) -> np.ndarray:
    from gymnasium.spaces import Dict, utils

    # PettingZoo's tutorial on masks declares the space of "observation" alone.
    if isinstance(value, dict) and not isinstance(space, Dict) and "observation" in value:
        value = value["observation"]
    if not _fits(space, value):
        raise ValueError("another shape, kind or range")
    return np.asarray(utils.flatten(space, value))


def _fits(space: Any, value: Any) -> bool:
    """What flattening does not see: sizes, fractions cut off, one-hot numbers that fall into the next one's place."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return all(_fits(part, value[name]) for name, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return len(value) == len(space.spaces) and all(map(_fits, space.spaces, value))
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        number = space.n if isinstance(space, spaces.Discrete) else space.nvec
        place = np.asarray(value) - getattr(space, "start", 0)
        return place.shape == space.shape and bool(((place >= 0) & (place < number)).all())
    array = np.asarray(value)
    return array.shape == space.shape and (array.dtype.kind != "f" or space.dtype.kind == "f")


def _has_state(env: Any) -> bool:
    state = getattr(env, "state", None)
    try:
        return callable(state) and state() is not None
    except NotImplementedError:
        return False
    except AttributeError as error:
        if "'metadata'" not in str(error):  # PettingZoo's own refusal stumbles over an environment without it
            raise
        return False


def _won(infos: dict) -> bool:
    return any(bool(info.get(name)) for info in infos.values() if info for name in WINS)


def _limit(env: Any, horizon: Any) -> int:
    """The clock: the one asked for, or the one the environment tells of."""
    bare, metadata = getattr(env, "unwrapped", env), getattr(env, "metadata", None) or {}
    told = [getattr(place, name, None) for place in (env, bare) for name in LIMITS] + [*map(metadata.get, LIMITS)]
    for value in told if horizon is None else [horizon]:
        if (type(value) is int or isinstance(value, np.integer)) and value > 0:
            return int(value)
    if horizon is not None:
        raise ValueError(f"horizon must be a whole number above 0, not {horizon!r}")
    raise ValueError(f"{type(bare).__name__} does not say after how many steps an episode is cut; add ?horizon=N")


@functools.lru_cache(maxsize=None)
def _distribution(package: str) -> str:
    """What to ask for its version; the package itself where nothing installed it."""
    known = getattr(importlib.metadata, "packages_distributions", dict)()  # newer than Python 3.9
    return known.get(package, [package])[0]


def _import(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(_hint(path, error.name or path)) from error


def _hint(path: str, missing: str) -> str:
    above, _, name = missing.rpartition(".")
    if not f"{path}.".startswith(f"{missing}."):
        return f"{path} needs the package {missing}; type: pip install {missing}"
    if not above:
        return f"there is no package {missing!r}; type: pip install {missing} (or, if it is yours, set PYTHONPATH)"
    siblings = [found.name for found in pkgutil.iter_modules(getattr(sys.modules[above], "__path__", []))]
    close = difflib.get_close_matches(name, siblings, n=1)
    hint = f"did you mean {above}.{close[0]}?" if close else f"it has {', '.join(siblings) or 'none'}"
    return f"{above} has no module {name!r}; {hint}"
