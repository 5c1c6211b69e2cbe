"""Skirmish: StarCraft battles with the interface of SMAC and SMACv2, simulated in JAX.

Open `env` first: reset, step and scene of a battle. `state` has the arrays of a battle, `unit_stats` the units, `maps`
and `spawns` the teams and where they start. `game_loop` is one step of the game: `targeting`, `combat`, `movement`.
`observation`, `smacv2_visibility` and `reward` are what agents receive. `scripted_policies` are reference policies for
the agents. Imports types only.
"""

from grasp.envs.skirmish.env import VERSION, Options, make, names

__all__ = ["VERSION", "Options", "make", "names"]
