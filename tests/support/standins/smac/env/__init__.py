from standin_battle import MultiAgentEnv

from smac.env.starcraft2.starcraft2 import StarCraft2Env

__all__ = ["MultiAgentEnv", "StarCraft2Env"]
