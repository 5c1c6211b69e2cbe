"""One direction for many gradients: the minimum-norm point of their convex hull, and the operators it competes with.

    grads[N,…] --gram--> G[N,N] --weighting--> w[N] --combine--> u

`grads` is any pytree whose leaves carry the agent axis first; u is that pytree without it.

>>> import jax.numpy as jnp
>>> from grasp.consensus import Status, min_norm
>>> u, info = min_norm({"layer": jnp.array([[2.0, 0.0], [0.0, 1.0]])})
>>> [round(float(value), 4) for value in u["layer"]]
[0.4, 0.8]
>>> [round(float(weight), 4) for weight in info.weights]
[0.2, 0.8]
>>> Status(int(info.status)).name
'CERTIFIED'

- `min_norm(grads)` is the exact minimum-norm point with its certificate: g_j·u ≥ ‖u‖² for every agent j.
- `consensus(grads, operator="nash_normalised", key=key)` is the same with another operator of `OPERATORS`, or with
  your own: `operator="package.module:function"`, a function `(G, key) -> w`.
- `diagnose(info.gram, info.weights, info.scale)` gives cosines, conflicts and norms.
- `crossfit(fold_grads)` is the consensus of noisy gradients, from several independent estimates of each.
- `consensus_of_parts(parts, axis_name=axis)` is the consensus of gradients that are sums over devices.
- `add_consensus(grads, u, beta)` is g_i + βu and `scale_consensus(grads, u)` is Γ_i (g_i + u); `realign()` and
  `realign_off_policy()` are the same as optax transformations.
- `solve(G)` is the quadratic program alone.

Open `aggregate` first, then `min_norm`; `transforms` has the update rules. Imports jax and optax, and nothing of RL.
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
