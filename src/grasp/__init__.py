"""GRASP: train teams of agents with consensus gradients."""

from grasp.version import __version__

__all__ = ["__version__"]
