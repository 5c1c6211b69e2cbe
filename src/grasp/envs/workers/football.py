"""Google Research Football: the academy scenarios, in the real engine (gfootball 2.10.2).

- Observations: simple115v2, a row an agent; all 19 actions of the default set are always legal.
- State: a row with all players that agents have now in the place of one's own, then the share of time that has gone.
- Reward: the mean of what gfootball pays the agents. A goal is 1 for every agent (-1 if conceded), so 1 for the team. A
  checkpoint is 0.1 for the agent who carries the ball nearer to the goal, so 0.1/N for the team; those that were left
  out are paid with the goal. An episode with a goal returns 2, with `rewards="scoring"` 1.
- Ends: academy episodes end with a goal, with the ball out of play and, all but the corner, when the other team gets
  the ball. The engine's own limit falls a step late, since it counts a step before kick-off as -1; our clock cuts
  after exactly the scenario's number of steps (400; 3000 in academy_single_goal_versus_lazy). Won: ended by our goal.
- Seeds: `reset(seed)` repeats an episode exactly, in a new engine as in one that has played. gfootball would derive the
  order in which teams move from the first seed that a process sees; here it follows from the seed of every episode.
- After a goal the engine plays on to the next kick-off before it shows itself: that is the last observation.

Who plays whom. As it comes, the engine hands players around. At reset agents have players of its choice, not those
nearest to the ball (in 3_vs_1 the keeper, for one step); in play a free player who gets to the ball is given to one of
them; the last observation of an episode, with the ball out of play, may have them all in another order. So a row's
player changes. With `pinned=True` agent i has one player for good: the N nearest to the ball in the scenario (the last
is the keeper, in all of them), in the order of the team sheet. The others are marked as not controllable, a mark of
gfootball's own scenarios; the built-in AI plays them, also when they have the ball. A pinned player who is sent off
leaves a row with alive False; without pins the agent is given another player.

Not gfootball's `FootballEnv` but the core below it is used: the former copies the whole observation twice an agent at
every step. Tests compare rows and rewards with those of `create_environment`.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import math
import pkgutil
import sys
from typing import Any

import numpy as np

AGENTS = {"academy_counterattack_easy": 4, "academy_counterattack_hard": 4}
"""How many play if nobody says, where it is not the whole team but its keeper."""
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
"""Of one unit along and across the pitch."""
CHECKPOINTS = 0.99 - 0.8 / 9 * np.arange(10)
"""Distances of the ball from the goal's middle."""
CHECKPOINT_REWARD = 0.1


def make(task: str, agents: int = 0, rewards: str = "scoring+checkpoints", pinned: bool = False) -> Football:
    """The scenario `task` with so many agents; 0: four in counterattacks, otherwise all but the keeper."""
    if rewards not in REWARDS:
        raise ValueError(f"rewards must be one of {', '.join(REWARDS)}, not {rewards!r}")
    known = _scenarios()
    if task not in known:
        close = difflib.get_close_matches(task, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
        raise ValueError(f"there is no academy scenario {task!r}; {hint}")
    scenario = _load("gfootball.env.config").Config({"level": task}).ScenarioConfig()
    number = agents or AGENTS.get(task, len(scenario.left_team) - 1)
    if not 1 <= number <= len(scenario.left_team):
        raise ValueError(f"agents must be 1 to {len(scenario.left_team)} in {task}, not {agents}")
    pins = _nearest(scenario, number) if pinned else None
    return Football(_config(task, number, pins), scenario.game_duration, "checkpoints" in rewards)


class Football:
    """One engine under the worker's contract."""

    def __init__(self, config: Any, horizon: int, checkpoints: bool):
        self.config, self.checkpoints, self.clock = config, checkpoints, 0
        self.core = _load("gfootball.env.football_env_core").FootballEnvCore(config)
        number = config.number_of_left_players()
        self.passed = np.zeros(number, int)
        """Checkpoints that each agent has been paid for."""
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
        """The mean of what agents are paid for bringing the ball nearer, or for all that was left when they score."""
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
            if player >= 0:  # -1: sent off, and nobody to take his place
                obs[row, ACTIVE + player] = state[ACTIVE + player] = 1
                alive[row] = raw["left_team_active"][player]
        return obs, state, avail, alive


def _shared(raw: dict) -> np.ndarray:
    """simple115v2 without the mark of one's own player. Missing players are -1, as there."""
    shared = np.zeros(FEATURES, np.float32)
    shared[:BALL] = -1
    for place, name in enumerate(TEAMS):
        team = raw[name].reshape(-1)
        shared[2 * PLAYERS * place :][: team.size] = team
    shared[BALL:OWNER] = [*raw["ball"], *raw["ball_direction"]]
    shared[OWNER + 1 + raw["ball_owned_team"]] = 1
    shared[MODE + raw["game_mode"]] = 1
    return shared


def _nearest(scenario: Any, number: int) -> list[int]:
    """Whom agents have for good."""

    def distance(place: int) -> float:
        position, ball = scenario.left_team[place].position, scenario.ball_position
        return math.hypot(*((position[axis] - ball[axis]) * METRES[axis] for axis in (0, 1)))

    return sorted(sorted(range(len(scenario.left_team)), key=distance)[:number])


def _config(task: str, agents: int, pins: list[int] | None) -> Any:
    """gfootball's configuration, which it asks for the scenario anew at every reset."""
    base = _load("gfootball.env.config").Config

    class Config(base):
        def NewScenario(self, inc: int = 1) -> None:
            super().NewScenario(inc)
            for place, player in enumerate(self.ScenarioConfig().left_team):
                player.controllable &= pins is None or place in pins

    players = [f"agent:left_players={agents},right_players=0"]
    return Config({"level": task, "players": players, "game_engine_random_seed": 0, "reverse_team_processing": False})


def _scenarios() -> list[str]:
    folder = _load("gfootball.scenarios").__path__
    return [found.name for found in pkgutil.iter_modules(folder) if found.name.startswith("academy_")]


def _load(name: str) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # gym tells everybody that it is old
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = f"it needs Google Research Football, and {sys.executable} has no {error.name}; type: make football"
        raise ModuleNotFoundError(missing) from error
    except ImportError as error:
        raise ImportError(f"gfootball's engine cannot be loaded ({error}); type: make football") from error
