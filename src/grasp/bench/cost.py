"""What the consensus costs: GRASP-MAPPO's iteration over MAPPO's."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from grasp.bench.measure import Line, in_turns, peak_mb, trainer, workload

ENVS = ("mpe/simple_spread", "smax/5m_vs_6m")


class Case(NamedTuple):
    """What both have, and what only the consensus has."""

    words: str
    both: dict[str, Any]
    grasp: dict[str, Any]


CASES = (
    Case("1 minibatch, heads", {}, {}),
    Case("2 minibatches, heads", {"minibatches": 2}, {}),
    Case("1 minibatch, heads and backbone", {}, {"scope": "both"}),
    Case("heads, crossfit", {}, {"gram": "crossfit"}),
    # The paper weighs agents that share an actor by gradients of their inputs (Listing 1), which come on top of those
    # that move them; what each of them costs alone is in `grasp bench gradients`.
    Case("one shared actor, parameters' gradients", {"sharing": "shared"}, {}),
    Case("one shared actor, inputs' gradients (Listing 1)", {"sharing": "shared"}, {"gram": "inputs"}),
)
SMOKED = 2


def run(smoke: bool) -> Iterator[Line]:
    """Iteration time of GRASP-MAPPO / MAPPO, taken in turns in one process."""
    for env in ENVS[:1] if smoke else ENVS:
        for case in CASES[:SMOKED] if smoke else CASES:
            actions = {
                "mappo": trainer(workload("mappo", env, smoke, **case.both)),
                "grasp-mappo": trainer(workload("grasp-mappo", env, smoke, **case.both, **case.grasp)),
            }
            taken = in_turns(actions, rounds=2 if smoke else 9)
            ratio = taken["grasp-mappo"] / taken["mappo"]
            yield Line(f"{env}, {case.words}", taken["grasp-mappo"], "s/iteration", ratio, "mappo", peak_mb())
