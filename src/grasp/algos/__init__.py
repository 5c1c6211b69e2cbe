"""The registry: from an algorithm's options to its functions. Names are in `grasp.hyper.ALGORITHMS`."""

from grasp.algos import happo, ma2e, mappo, qmix
from grasp.config import Config
from grasp.hyper import Happo, Ma2e, Mappo, Qmix
from grasp.types import Algorithm, EnvSpec

MAKERS = {Mappo: mappo.make, Happo: happo.make, Qmix: qmix.make, Ma2e: ma2e.make}


def make(config: Config, spec: EnvSpec) -> Algorithm:
    """The configured algorithm for an environment of these sizes."""
    return MAKERS[type(config.hyper)](config.hyper, spec)
