"""The cost of the consensus: the time of an iteration of GRASP-MAPPO relative to MAPPO."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from grasp.bench.measure import Line, interleaved, peak_mb, trainer, workload

ENVS = ("mpe/simple_spread", "smax/5m_vs_6m")


class Case(NamedTuple):
    """Options of both algorithms, and of GRASP-MAPPO only."""

    name: str
    both: dict[str, Any]
    grasp: dict[str, Any]


CASES = (
    Case("1 minibatch, heads", {}, {}),
    Case("2 minibatches, heads", {"minibatches": 2}, {}),
    Case("1 minibatch, heads and backbone", {}, {"scope": "both"}),
    Case("heads, crossfit", {}, {"gram": "crossfit"}),
    # In a shared actor the paper weights agents by the gradients of their inputs (Listing 1), which are computed in
    # addition to the parameter gradients; `grasp bench gradients` measures each alone.
    Case("one shared actor, parameter gradients", {"sharing": "shared"}, {}),
    Case("one shared actor, input gradients (Listing 1)", {"sharing": "shared"}, {"gram": "inputs"}),
)
SMOKED = 2


def run(smoke: bool) -> Iterator[Line]:
    """Iteration time of GRASP-MAPPO / MAPPO, interleaved in one process."""
    for env in ENVS[:1] if smoke else ENVS:
        for case in CASES[:SMOKED] if smoke else CASES:
            actions = {
                "mappo": trainer(workload("mappo", env, smoke, **case.both)),
                "grasp-mappo": trainer(workload("grasp-mappo", env, smoke, **case.both, **case.grasp)),
            }
            taken = interleaved(actions, rounds=2 if smoke else 9)
            ratio = taken["grasp-mappo"] / taken["mappo"]
            yield Line(f"{env}, {case.name}", taken["grasp-mappo"], "s/iteration", ratio, "mappo", peak_mb())
