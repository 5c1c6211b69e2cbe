"""HAPPO compared with MAPPO, and GRASP-QMIX with QMIX."""

from collections.abc import Iterator

from grasp.algos import replay_buffer
from grasp.bench.measure import Line, interleaved, peak_mb, trainer, workload
from grasp.config import configure
from grasp.envs import base as envs

TEAMS = ("mpe/simple_spread", "mpe/simple_spread_10")
BATTLE = "smax/5m_vs_6m"
Q_SIZES = {"num_envs": 32, "rollout": 100, "buffer": 3200}
Q_SMOKE = {"num_envs": 4, "rollout": 20, "buffer": 100, "batch": 4, "hidden": 8}


def run(smoke: bool) -> Iterator[Line]:
    """HAPPO against MAPPO, by number of agents; GRASP-QMIX against QMIX; memory of a replayed episode."""
    yield from happo(smoke)
    env = "mpe/simple_spread" if smoke else BATTLE
    configs = {
        a: configure(a, env, {"steps": 10**9, **(Q_SMOKE if smoke else Q_SIZES)}) for a in ("qmix", "grasp-qmix")
    }
    taken = interleaved({algo: trainer(config) for algo, config in configs.items()}, rounds=2 if smoke else 9)
    ratio = taken["grasp-qmix"] / taken["qmix"]
    yield Line(f"grasp-qmix, {env}", taken["grasp-qmix"], "s/iteration", ratio, "qmix", peak_mb())
    for algo, seconds in taken.items():
        yield Line(f"{algo}, {env}", configs[algo].steps_per_iteration / seconds, "steps/s", None, "", peak_mb())
    for name in dict.fromkeys(("mpe/simple_spread", env)):
        yield Line(f"one replayed episode, {name}", replay_buffer.episode_bytes(envs.make(name).spec) / 1e6, "MB")


def happo(smoke: bool) -> Iterator[Line]:
    """Iteration times at the same sizes: a turn of HAPPO is a pass over one agent's data, so the work is the same."""
    for env in TEAMS[:1] if smoke else TEAMS:
        configs = {
            "mappo, separate actors": workload("mappo", env, smoke, sharing="separate"),
            "happo": workload("happo", env, smoke),
        }
        taken = interleaved({name: trainer(config) for name, config in configs.items()}, rounds=2 if smoke else 5)
        base = taken["mappo, separate actors"]
        yield Line(f"happo, {env}", taken["happo"], "s/iteration", taken["happo"] / base, "mappo, separate", peak_mb())
        rate = configs["happo"].steps_per_iteration / taken["happo"]
        yield Line(f"happo, {env}", rate, "steps/s", None, "", peak_mb())
