"""Skirmish: StarCraft battles with the contract of SMAC and SMACv2, simulated in JAX.

`env` is the environment and the file to open first. A battle's state is in `state`, its units in `unit_stats`, its maps
in `maps` and `spawns`; one step of the game is `game_loop` (`movement`, `targeting`, `combat`); `observation`, `reward`
and `smacv2_visibility` are what agents get; `scripted_policies` are opponents to measure against. Imports types only.
"""

from grasp.envs.skirmish.env import VERSION, Options, make, names

__all__ = ["VERSION", "Options", "make", "names"]
