"""A stand-in for StarCraft II in tests: the interface of SMAC's environment class around a trivial battle.

All units are in range of each other. An attacking ally takes about 20 from its target, a medivac heals, and each living
enemy takes 6 from the first living ally. Names, results, types and the order of operations are those of the real class
(GitHub projects oxwhirl/smac and oxwhirl/smacv2), including their pitfalls; observations are not.

With the folder of this file on PYTHONPATH the packages `smac` and `smacv2` and an old protobuf (its metadata only) can
be found; SC2PATH may be the folder StarCraftII in it. The variable STANDIN is a list of faults separated by spaces. K
counts from 1 over the life of one environment:

    lost=K        step K loses the connection: (0, True, {})
    empty=K       step K has an empty info, and no end
    hang=K        step K never returns
    crash=K       step K ends the process, with status 13
    lost_reset=K  reset K loses the connection: the units remain those of the previous battle
    respawn=K     reset K needs a second attempt at spawning (SMACv2: returns None; SMAC: enemies are counted twice)
    no_limit      a battle at its time limit has no mark in info, whatever continuing_episode is
    no_clock      a battle continues after its time limit
    peace         the enemies do not shoot
    once=FILE     only the first of the faults with K occurs: the process that creates the file
    games=FILE    each started game is a sleeping child process, whose id is appended to the file
"""

import atexit
import os
import random
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
from absl import flags

MEDIVAC = 54
HEALTH = {"marine": 45, "marauder": 125, "medivac": 150, "stalker": 80, "zealot": 100, "colossus": 200}
HEALTH.update(zergling=35, baneling=30, hydralisk=80)
SHIELD = {"stalker": 80, "zealot": 50, "colossus": 150}


class CannotResetException(Exception):
    """SMACv2's exception: the units did not appear."""


def faults() -> dict[str, str]:
    pairs = (word.partition("=") for word in os.environ.get("STANDIN", "").split())
    return {name: value for name, _, value in pairs}


def due(name: str, count: int) -> bool:
    given = faults()
    if given.get(name) != str(count):
        return False
    if "once" not in given:
        return True
    try:
        os.close(os.open(given["once"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def unit(name: str, x: float, y: float) -> SimpleNamespace:
    shield = float(SHIELD.get(name, 0))
    body = {"health": float(HEALTH[name]), "health_max": float(HEALTH[name]), "shield": shield, "shield_max": shield}
    kind = MEDIVAC if name == "medivac" else 1 + list(HEALTH).index(name)
    return SimpleNamespace(unit_type=kind, pos=SimpleNamespace(x=x, y=y), energy=50.0, weapon_cooldown=0.0, **body)


class MultiAgentEnv:
    def get_env_info(self):
        return {
            "state_shape": self.get_state_size(),
            "obs_shape": self.get_obs_size(),
            "n_actions": self.get_total_actions(),
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
        }


class Battle(MultiAgentEnv):
    """Shared by both classes. `given` are the arguments of the constructor."""

    def __init__(self, given: dict, params: dict, n_agents: int, n_enemies: int, n_actions: int):
        self.map_name, self.map_type, self.episode_limit = given["map_name"], params["map_type"], params["limit"]
        self.n_agents, self.n_enemies, self.n_actions = n_agents, n_enemies, n_actions
        self.continuing_episode, self._seed = given["continuing_episode"], given["seed"]
        self.reward_death_value, self.reward_win = given["reward_death_value"], given["reward_win"]
        self.reward_defeat, self.reward_scale_rate = given["reward_defeat"], given["reward_scale_rate"]
        self.unit_type_bits = params["unit_type_bits"]
        self.shield_bits_ally = self.shield_bits_enemy = int(params["a_race"] == "P")
        self.own_pos = 2 * given.get("obs_own_pos", False)
        self.max_reward = n_enemies * self.reward_death_value + self.reward_win
        self.agents, self.enemies = {}, {}
        self._episode_count = self._episode_steps = self._total_steps = self._resets = 0
        self.battles_won = self.battles_game = self.timeouts = self.force_restarts = 0
        self.last_action = np.zeros((n_agents, n_actions))
        self._sc2_proc = self._game = None
        atexit.register(lambda: self.close())

    def _launch(self):
        if not flags.FLAGS.is_parsed():
            raise flags.UnparsedFlagAccessError("Trying to access flag --sc2_run_config before flags were parsed.")
        self._game = random.Random(self._seed)
        given = faults()
        if "games" in given:
            self.close()
            self._sc2_proc = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            with open(given["games"], "a") as file:
                file.write(f"{self._sc2_proc.pid}\n")

    def full_restart(self):
        self.close()
        self._launch()
        self.force_restarts += 1

    def reset_with(self, allies: list[str], enemies: list[str], places=None, patient: bool = True):
        """`patient`: wait for units that appear late; otherwise raise."""
        self._episode_steps, self._resets = 0, self._resets + 1
        if self._episode_count == 0:
            self._launch()
        self.last_action = np.zeros((self.n_agents, self.n_actions))
        if due("lost_reset", self._resets):
            self.full_restart()
            return self.get_obs(), self.get_state()
        late = due("respawn", self._resets)
        for _ in range(2 if late else 1):
            self._spawn(allies, enemies, places)
        if late and not patient:
            raise CannotResetException("waited for units to spawn and they didn't")
        return self.get_obs(), self.get_state()

    def _spawn(self, allies: list[str], enemies: list[str], places) -> None:
        where = np.full((self.n_agents, 2), 8.0) if places is None else places
        made = [unit(name, float(x), float(y)) for name, (x, y) in zip(allies, where, strict=True)]
        made.sort(key=lambda one: (one.unit_type, one.pos.x, one.pos.y))
        self.agents = dict(enumerate(made))
        self.enemies = {index: unit(name, 24.0, 16.0) for index, name in enumerate(enemies)}
        if self._episode_count == 0:
            self.max_reward += sum(one.health_max + one.shield_max for one in self.enemies.values())

    def step(self, actions):
        actions_int = [int(a) for a in actions]
        self.last_action = np.eye(self.n_actions)[np.array(actions_int)]
        for agent, action in enumerate(actions_int):
            assert self.get_avail_agent_actions(agent)[action] == 1, f"Agent {agent} cannot perform action {action}"
        count = self._total_steps + 1
        if due("crash", count):
            os._exit(13)
        while due("hang", count):
            time.sleep(600)
        if due("lost", count):
            self.full_restart()
            return 0, True, {}
        self._total_steps, self._episode_steps = count, self._episode_steps + 1
        reward = self._fight(actions_int)
        reward, terminated, info = self._judge(reward)
        return reward / (self.max_reward / self.reward_scale_rate), terminated, {} if due("empty", count) else info

    def _fight(self, actions: list[int]) -> float:
        reward = 0.0
        for agent, action in enumerate(actions):
            one = self.agents[agent]
            if action >= 6 and one.unit_type == MEDIVAC:
                patient = self.agents[action - 6]
                patient.health = min(patient.health + 5.0, patient.health_max)
            elif action >= 6:
                reward += self._hit(self.enemies[action - 6], 20.0 + self._game.random())
        for _ in [one for one in self.enemies.values() if one.health > 0 and "peace" not in faults()]:
            living = [one for one in self.agents.values() if one.health > 0]
            if living:
                self._hit(living[0], 6.0)
        return reward

    def _hit(self, target: SimpleNamespace, damage: float) -> float:
        """Damage the shield first, then health. Returns the damage, plus the value of a death."""
        if target.health == 0:
            return 0.0
        before = target.shield + target.health
        through = max(damage - target.shield, 0.0)
        target.shield = max(target.shield - damage, 0.0)
        target.health = max(target.health - through, 0.0)
        return before - target.shield - target.health + self.reward_death_value * (target.health == 0)

    def _judge(self, reward: float) -> tuple[float, bool, dict]:
        dead_allies = sum(one.health == 0 for one in self.agents.values())
        dead_enemies = sum(one.health == 0 for one in self.enemies.values())
        info = {"battle_won": False, "dead_allies": dead_allies, "dead_enemies": dead_enemies}
        terminated = True
        if dead_allies == self.n_agents or self.only_medivac_left(ally=True):
            reward += self.reward_defeat
        elif dead_enemies == self.n_enemies or self.only_medivac_left(ally=False):
            info["battle_won"] = True
            reward += self.reward_win
            self.battles_won += 1
        elif self._episode_steps >= self.episode_limit and "no_clock" not in faults():
            if self.continuing_episode and "no_limit" not in faults():
                info["episode_limit"] = True
            self.timeouts += 1
        else:
            terminated = False
        self.battles_game += terminated
        self._episode_count += terminated
        return reward, terminated, info

    def only_medivac_left(self, ally):
        if self.map_type not in ("MMM", "terran_gen"):
            return False
        team = self.agents if ally else self.enemies
        return not [one for one in team.values() if one.health > 0 and one.unit_type != MEDIVAC]

    def get_unit_by_id(self, a_id):
        return self.agents[a_id]

    def get_avail_agent_actions(self, agent_id):
        one = self.agents[agent_id]
        if one.health == 0:
            return [1] + [0] * (self.n_actions - 1)
        avail = [0, 1, 1, 1, 1, 1] + [0] * (self.n_actions - 6)
        targets = self.enemies.items()
        if one.unit_type == MEDIVAC:
            targets = [(index, ally) for index, ally in self.agents.items() if ally.unit_type != MEDIVAC]
        for index, target in targets:
            avail[6 + index] = int(target.health > 0)
        return avail

    def get_avail_actions(self):
        return [self.get_avail_agent_actions(agent) for agent in range(self.n_agents)]

    def get_obs_agent(self, agent_id):
        """The time, the position and the health in the last entries, so that observations differ. Zeros if dead."""
        obs, one = np.zeros(self.get_obs_size(), dtype=np.float32), self.agents[agent_id]
        if one.health > 0:
            obs[:4], obs[-1] = 1.0, one.health / one.health_max
            obs[-4:-1] = self._episode_steps / self.episode_limit, one.pos.x / 32, one.pos.y / 32
        return obs

    def get_obs(self):
        return [self.get_obs_agent(agent) for agent in range(self.n_agents)]

    def get_state(self):
        """The health of both teams, and the last actions at the end."""
        units = [*self.agents.values(), *self.enemies.values()]
        state = np.zeros(self.get_state_size(), dtype=np.float32)
        state[: len(units)] = [one.health / one.health_max for one in units]
        state[-self.last_action.size :] = self.last_action.flatten()
        return state

    def get_obs_size(self):
        ally, enemy = self.shield_bits_ally + self.unit_type_bits, self.shield_bits_enemy + self.unit_type_bits
        return 4 + self.n_enemies * (5 + enemy) + (self.n_agents - 1) * (5 + ally) + 1 + ally + self.own_pos

    def get_state_size(self):
        ally, enemy = self.shield_bits_ally + self.unit_type_bits, self.shield_bits_enemy + self.unit_type_bits
        return self.n_agents * (4 + ally + self.n_actions) + self.n_enemies * (3 + enemy)

    def get_total_actions(self):
        return self.n_actions

    def get_stats(self):
        return {
            "battles_won": self.battles_won,
            "battles_game": self.battles_game,
            "battles_draw": self.timeouts,
            "win_rate": self.battles_won / self.battles_game,
            "timeouts": self.timeouts,
            "restarts": self.force_restarts,
        }

    def seed(self):
        return self._seed

    def close(self):
        if self._sc2_proc:
            self._sc2_proc.kill()
            self._sc2_proc.wait()
            self._sc2_proc = None
