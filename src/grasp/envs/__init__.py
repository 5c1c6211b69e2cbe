"""Environments: the contract and the registry in `base`, one module per family."""

from grasp.envs.base import families, make, names

__all__ = ["families", "make", "names"]
