"""What the consensus costs: GRASP-MAPPO's iteration over MAPPO's."""

from collections.abc import Iterator

from grasp.bench.measure import Line, in_turns, peak_mb, trainer, workload

ENVS = ("mpe/simple_spread", "smax/5m_vs_6m")


def run(smoke: bool) -> Iterator[Line]:
    """Iteration time of GRASP-MAPPO / MAPPO, taken in turns in one process."""
    for env in ENVS[:1] if smoke else ENVS:
        for minibatches in (1, 2):
            for scope in ("heads",) if smoke or minibatches > 1 else ("heads", "both"):
                actions = {
                    algo: trainer(workload(algo, env, smoke, minibatches=minibatches, **options))
                    for algo, options in {"mappo": {}, "grasp-mappo": {"scope": scope}}.items()
                }
                taken = in_turns(actions, rounds=2 if smoke else 9)
                case = f"{env}, {minibatches} minibatch{'es' * (minibatches > 1)}, {scope}"
                ratio = taken["grasp-mappo"] / taken["mappo"]
                yield Line(case, taken["grasp-mappo"], "s/iteration", ratio, "mappo", peak_mb())
