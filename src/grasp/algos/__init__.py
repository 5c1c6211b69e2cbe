"""The registry: an algorithm's name to its functions."""

from grasp.algos import mappo
from grasp.config import Config
from grasp.types import Algorithm, EnvSpec

MAKERS = {"mappo": mappo.make, "grasp-mappo": mappo.make}


def make(config: Config, spec: EnvSpec) -> Algorithm:
    """The configured algorithm for an environment of these sizes."""
    return MAKERS[config.algo](config.hyper, spec)
