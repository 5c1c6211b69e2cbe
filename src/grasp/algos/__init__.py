"""The registry: from an algorithm's options to its functions. Names are in `grasp.hyper.ALGORITHMS`."""

from grasp.algos import happo, mappo, qmix
from grasp.config import Config
from grasp.hyper import Happo, Mappo, Qmix
from grasp.types import Algorithm, EnvSpec

MAKERS = {Mappo: mappo.make, Happo: happo.make, Qmix: qmix.make}


def make(config: Config, spec: EnvSpec) -> Algorithm:
    """The configured algorithm for an environment of these sizes."""
    return MAKERS[type(config.hyper)](config.hyper, spec)
