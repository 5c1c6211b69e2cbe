"""Adapter of Google Research Football: the academy scenarios in the real engine (gfootball 2.10.2).

- Observations: simple115v2, one row per agent. All 19 actions of the default set are always legal.
- State: one such row that marks all players controlled by agents, then the elapsed fraction of the episode.
- Reward: the mean of gfootball's rewards over agents. A goal is 1 for every agent (-1 if conceded), so 1 for the team.
  A checkpoint is 0.1 for the agent who carries the ball nearer to the goal, so 0.1/N for the team; a goal also pays the
  checkpoints not yet reached. An episode with a goal returns 2; with `rewards="scoring"` 1.
- Termination: a goal, the ball out of play and, except in the corner, possession by the other team. Won: terminated by
  a goal of the agents' team.
- Time limit: exactly the scenario's number of steps (400; 3000 in academy_single_goal_versus_lazy), counted here. The
  engine's own limit falls one step late, because it counts a step before kick-off as -1.
- Seeds: `reset(seed)` repeats an episode exactly, also in an engine that has played before. gfootball derives the order
  in which teams move from the first seed of a process; here it is derived from the seed of each episode.
- After a goal the engine plays until the next kick-off before it returns: that is the last observation.

Which agent controls which player. By default the engine reassigns players. At reset it assigns players of its choice,
not those nearest to the ball (in 3_vs_1 the keeper, for one step). During play an uncontrolled player who reaches the
ball is assigned to an agent. In the last observation, with the ball out of play, the order may differ. So the player of
a row changes. With `pinned=True` agent i always controls the same player: one of the N nearest to the ball in the
scenario (the keeper is always the farthest), in the order of the team sheet. The others are marked as not controllable,
as gfootball's own scenarios can do, and are played by the built-in AI, also when they have the ball. A pinned player
who is sent off has alive False; an agent without pins gets another player.

The adapter uses the core below gfootball's `FootballEnv`, which copies the whole observation twice per agent at every
step. Tests compare observations and rewards with those of `create_environment`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import pkgutil
import sys
from typing import Any

import numpy as np

AGENTS = {"academy_counterattack_easy": 4, "academy_counterattack_hard": 4}
"""The default number of agents where it is not the whole team except the keeper."""
REWARDS = ("scoring", "scoring+checkpoints")
TEAMS = ("left_team", "left_team_direction", "right_team", "right_team_direction")
PLAYERS = 11
ACTIONS = 19
MODES = 7
BALL = 2 * PLAYERS * len(TEAMS)
OWNER = BALL + 6
ACTIVE = OWNER + 3
MODE = ACTIVE + PLAYERS
FEATURES = MODE + MODES
METRES = (54.4, 83.6)
"""Metres per unit of the engine along and across the pitch."""
CHECKPOINTS = 0.99 - 0.8 / 9 * np.arange(10)
"""Distances of the ball from the centre of the goal at which checkpoints are paid."""
CHECKPOINT_REWARD = 0.1


def make(task: str, agents: int = 0, rewards: str = "scoring+checkpoints", pinned: bool = False) -> Football:
    """The scenario `task`. `agents=0`: four agents in counterattacks, otherwise all players except the keeper."""
    if rewards not in REWARDS:
        raise ValueError(f"rewards must be one of {', '.join(REWARDS)}, not {rewards!r}")
    known = _scenarios()
    if task not in known:
        raise LookupError(f"unknown academy scenario {task!r}", task, list(known), "")
    scenario = _load("gfootball.env.config").Config({"level": task}).ScenarioConfig()
    num_agents = agents or AGENTS.get(task, len(scenario.left_team) - 1)
    if not 1 <= num_agents <= len(scenario.left_team):
        raise ValueError(f"agents must be 1 to {len(scenario.left_team)} in {task}, not {agents}")
    pins = _nearest(scenario, num_agents) if pinned else None
    return Football(_config(task, num_agents, pins), scenario.game_duration, "checkpoints" in rewards)


class Football:
    """One engine as a simulator (see `serve`)."""

    def __init__(self, config: Any, horizon: int, checkpoints: bool):
        self.config, self.checkpoints, self.clock = config, checkpoints, 0
        self.core = _load("gfootball.env.football_env_core").FootballEnvCore(config)
        number = config.number_of_left_players()
        self.passed = np.zeros(number, int)
        """The number of checkpoints that each agent was paid for."""
        self.spec = {
            "num_agents": number,
            "obs_dim": FEATURES,
            "state_dim": FEATURES + 1,
            "num_actions": ACTIONS,
            "horizon": horizon,
            "has_wins": True,
            "package": "gfootball",
        }

    def reset(self, seed: int) -> tuple:
        self.config["game_engine_random_seed"] = int(seed) % 2**32
        self.config["reverse_team_processing"] = bool(seed % 2)
        self.core.reset()
        self.clock = 0
        self.passed[:] = 0
        return self._observe(self.core.observation())

    def step(self, action: np.ndarray) -> tuple:
        raw, goal, ended, _ = self.core.step(action.tolist())
        self.clock += 1
        reward = float(goal) + (self._checkpoints(raw, goal) if self.checkpoints else 0.0)
        truncated = not ended and self.clock >= self.spec["horizon"]
        return self._observe(raw), reward, bool(ended), truncated, bool(ended and goal == 1)

    def close(self) -> None:
        self.core.close()

    def _checkpoints(self, raw: dict, goal: int) -> float:
        """The mean over agents of the checkpoint rewards: for bringing the ball nearer, and for all others with a
        goal."""
        reached = self.passed.copy()
        if goal == 1:
            reached[:] = len(CHECKPOINTS)
        elif raw["ball_owned_team"] == 0:
            carrier = np.array(raw["left_agent_controlled_player"]) == raw["ball_owned_player"]
            distance = math.hypot(raw["ball"][0] - 1, raw["ball"][1])
            reached[carrier] = np.maximum(reached, (distance <= CHECKPOINTS).sum())[carrier]
        paid = CHECKPOINT_REWARD * float((reached - self.passed).mean())
        self.passed = reached
        return paid

    def _observe(self, raw: dict) -> tuple:
        shared = _shared(raw)
        state = np.append(shared, np.float32(self.clock / self.spec["horizon"]))
        obs = np.tile(shared, (self.spec["num_agents"], 1))
        avail = np.ones((len(obs), ACTIONS), bool)
        alive = np.zeros(len(obs), bool)
        for row, player in enumerate(raw["left_agent_controlled_player"]):
            if player >= 0:  # -1: sent off, and no other player left to control
                obs[row, ACTIVE + player] = state[ACTIVE + player] = 1
                alive[row] = raw["left_team_active"][player]
        return obs, state, avail, alive


def _shared(raw: dict) -> np.ndarray:
    """simple115v2 without the one-hot of the own player. Missing players are -1."""
    shared = np.zeros(FEATURES, np.float32)
    shared[:BALL] = -1
    for index, name in enumerate(TEAMS):
        team = raw[name].reshape(-1)
        shared[2 * PLAYERS * index :][: team.size] = team
    shared[BALL:OWNER] = [*raw["ball"], *raw["ball_direction"]]
    shared[OWNER + 1 + raw["ball_owned_team"]] = 1
    shared[MODE + raw["game_mode"]] = 1
    return shared


def _nearest(scenario: Any, number: int) -> list[int]:
    """The players of pinned agents."""

    def distance(player: int) -> float:
        position, ball = scenario.left_team[player].position, scenario.ball_position
        return math.hypot(*((position[axis] - ball[axis]) * METRES[axis] for axis in (0, 1)))

    return sorted(sorted(range(len(scenario.left_team)), key=distance)[:number])


def _config(task: str, agents: int, pins: list[int] | None) -> Any:
    """gfootball's configuration, from which the engine builds the scenario at every reset."""
    base = _load("gfootball.env.config").Config

    class Config(base):
        def NewScenario(self, inc: int = 1) -> None:
            super().NewScenario(inc)
            for index, player in enumerate(self.ScenarioConfig().left_team):
                player.controllable &= pins is None or index in pins

    players = [f"agent:left_players={agents},right_players=0"]
    return Config({"level": task, "players": players, "game_engine_random_seed": 0, "reverse_team_processing": False})


def _scenarios() -> list[str]:
    folder = _load("gfootball.scenarios").__path__
    return [found.name for found in pkgutil.iter_modules(folder) if found.name.startswith("academy_")]


def _load(name: str) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # gym warns that it is unmaintained
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (
            f"Google Research Football needs {error.name}, which {sys.executable} does not have; type: make football"
        )
        raise ModuleNotFoundError(missing) from error
    except ImportError as error:
        raise ImportError(f"gfootball's engine cannot be loaded ({error}); type: make football") from error
