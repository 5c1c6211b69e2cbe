"""Generators without a seed, some in parts of parts, and the global shuffle: where the real ones are."""

from random import shuffle

import numpy as np
from numpy.random import default_rng


class WeightedTeamsDistribution:
    def __init__(self, config):
        self.config, self.rng = config, default_rng()

    def _draw(self, size):
        config, team = self.config, []
        while not team or all(name in config["exception_unit_types"] for name in team):
            team = [str(name) for name in self.rng.choice(config["unit_types"], size=size, p=config["weights"])]
            shuffle(team)
        return team

    def generate(self):
        n_units, n_enemies = self.config["n_units"], self.config["n_enemies"]
        team = self._draw(n_units)
        enemies = team[:n_enemies] + (self._draw(n_enemies - n_units) if n_enemies > n_units else [])
        return {self.config["env_key"]: {"ally_team": team, "enemy_team": enemies, "id": 0}}


class PerAgentUniformDistribution:
    def __init__(self, config):
        self.config, self.rng = config, default_rng()

    def generate(self):
        upper = (self.config["map_x"] / 2 - 1, self.config["map_y"])
        return self.rng.uniform((0, 0), upper, (self.config["n_units"], 2))


class ReflectPositionDistribution:
    def __init__(self, config):
        self.pos_generator = PerAgentUniformDistribution(config)

    def generate(self):
        return self.pos_generator.generate()


class SurroundedPositionDistribution:
    def __init__(self, config):
        self.config, self.rng = config, default_rng()

    def generate(self):
        return np.tile([self.config["map_x"] / 2, self.config["map_y"] / 2], (self.config["n_units"], 1))


class SurroundedAndReflectPositionDistribution:
    def __init__(self, config):
        self.p_threshold = config["p"]
        self.surrounded_distribution = SurroundedPositionDistribution(config)
        self.reflect_distribution = ReflectPositionDistribution(config)
        self.rng = default_rng()

    def generate(self):
        surrounded = self.rng.random() > self.p_threshold
        chosen = self.surrounded_distribution if surrounded else self.reflect_distribution
        return {"ally_start_positions": {"item": chosen.generate(), "id": 0}}


DISTRIBUTION_MAP = {
    "weighted_teams": WeightedTeamsDistribution,
    "surrounded_and_reflect": SurroundedAndReflectPositionDistribution,
}


def get_distribution(key):
    return DISTRIBUTION_MAP[key]
