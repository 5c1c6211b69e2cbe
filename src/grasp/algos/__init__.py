"""Algorithms as pure functions over a visible `State`: MAPPO, HAPPO, QMIX, VDN, MA2E and their GRASP variants.

Open `mappo` first: it is Algorithm 1 of the paper, with `ppo` (losses and gradients), `grasp` (the consensus of
per-agent gradients) and `minibatches`. Beside it `happo`, `qmix` and `ma2e`; `ablations` and `trust_region` are the
variants of studies. This file is the registry, from an algorithm's options to its functions. Imports consensus, nn,
config and types.
"""

from grasp.algos import happo, ma2e, mappo, qmix
from grasp.config import Config
from grasp.config.hyperparameters import Happo, Ma2e, Mappo, Qmix
from grasp.types import Algorithm, EnvSpec

MAKERS = {Mappo: mappo.make, Happo: happo.make, Qmix: qmix.make, Ma2e: ma2e.make}


def make(config: Config, spec: EnvSpec) -> Algorithm:
    """The configured algorithm for an environment of these sizes."""
    return MAKERS[type(config.hyper)](config.hyper, spec)
