"""Environments: one file per family of tasks, all with the contract that `base` states.

Open `base` first: the contract in prose, and the registry. `custom` adapts a user's own environment and `check` tests
one against the contract. `host` steps simulators that JAX cannot compile, in processes whose code is in `workers`.
`skirmish` is our own simulator. Imports types only.
"""

from grasp.envs.base import families, make, names

__all__ = ["families", "make", "names"]
