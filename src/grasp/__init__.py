"""GRASP: train teams of agents with consensus gradients.

import grasp, optax

u, info = grasp.consensus.min_norm(grads)              # grads: any pytree with a leading agent axis
tx = optax.chain(grasp.realign(), optax.adam(5e-4))    # drop-in: every agent follows g_i + u*

run = grasp.train("grasp-mappo", "mpe/simple_spread", steps=1_000_000, seeds=3)
team = grasp.load(run.path)
action = team.act(obs)                                 # obs[N, o] -> action[N]
"""

import importlib
from typing import TYPE_CHECKING, Any

from grasp.version import __version__

if TYPE_CHECKING:
    from grasp import consensus
    from grasp.api import compare, evaluate, load, play, resume, train
    from grasp.consensus.transforms import realign, realign_off_policy
    from grasp.types import GraspError

__all__ = [
    "GraspError",
    "__version__",
    "compare",
    "consensus",
    "evaluate",
    "load",
    "play",
    "realign",
    "realign_off_policy",
    "resume",
    "train",
]

_HOMES = {
    "GraspError": "grasp.types",
    "compare": "grasp.api",
    "evaluate": "grasp.api",
    "load": "grasp.api",
    "play": "grasp.api",
    "realign": "grasp.consensus.transforms",
    "realign_off_policy": "grasp.consensus.transforms",
    "resume": "grasp.api",
    "train": "grasp.api",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `grasp.consensus` can be used without importing the rest."""
    if name == "consensus":
        return importlib.import_module("grasp.consensus")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'grasp' has no attribute {name!r}")
