"""One direction for many gradients: the minimum-norm point of their convex hull, and the operators it competes with.

    grads[N,…] --gram--> G[N,N] --weighting--> w[N] --combine--> u

Open `aggregate` first, then `min_norm`; `transforms` has the update rules. docs/theory.md lists the functions. Imports
jax and optax, and nothing of RL.
"""

from grasp.consensus.aggregate import Info, consensus, min_norm
from grasp.consensus.crossfit import Crossfitted, Folded, crossfit, crossfit_gram
from grasp.consensus.gram import combine, diagnose, gram, rescale
from grasp.consensus.min_norm import Solution, Status, solve
from grasp.consensus.operators import CONDITIONS, OPERATORS, Conditions, Weighting, weighting
from grasp.consensus.sharded import consensus_of_parts
from grasp.consensus.transforms import (
    ScaledConsensus,
    add_consensus,
    off_policy_factors,
    realign,
    realign_off_policy,
    scale_agents,
    scale_consensus,
)

__all__ = [
    "CONDITIONS",
    "OPERATORS",
    "Conditions",
    "Crossfitted",
    "Folded",
    "Info",
    "ScaledConsensus",
    "Solution",
    "Status",
    "Weighting",
    "add_consensus",
    "combine",
    "consensus",
    "consensus_of_parts",
    "crossfit",
    "crossfit_gram",
    "diagnose",
    "gram",
    "min_norm",
    "off_policy_factors",
    "realign",
    "realign_off_policy",
    "rescale",
    "scale_agents",
    "scale_consensus",
    "solve",
    "weighting",
]
