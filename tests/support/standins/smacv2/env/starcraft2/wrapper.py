from standin_battle import MultiAgentEnv

from smacv2.env.starcraft2.distributions import get_distribution
from smacv2.env.starcraft2.starcraft2 import CannotResetException, StarCraft2Env


class StarCraftCapabilityEnvWrapper(MultiAgentEnv):
    """Draws teams and places, and writes into the configuration it is given."""

    def __init__(self, **kwargs):
        self.distribution_config = kwargs["capability_config"]
        self.env_key_to_distribution_map = {}
        sizes = {name: self.distribution_config[name] for name in ("n_units", "n_enemies")}
        for env_key, config in self.distribution_config.items():
            if env_key not in sizes:
                config.update(env_key=env_key, **sizes)
                self.env_key_to_distribution_map[env_key] = get_distribution(config["dist_type"])(config)
        self.env = StarCraft2Env(**kwargs)

    def reset(self):
        try:
            drawn = {}
            for distribution in self.env_key_to_distribution_map.values():
                drawn.update(distribution.generate())
            return self.env.reset(drawn)
        except CannotResetException:
            self.reset()

    def __getattr__(self, name):
        if hasattr(self.env, name):
            return getattr(self.env, name)
        raise AttributeError

    def get_env_info(self):
        return self.env.get_env_info()

    def step(self, actions):
        return self.env.step(actions)

    def close(self):
        return self.env.close()
