"""Whole training, in child processes."""

from collections.abc import Iterator
from typing import Any

from grasp.bench.measure import SMOKE, WORKLOAD, Line, together
from grasp.launch.local import cores

AGENTS = ("smax/3m", "smax/8m", "smax/25m")


def task(algo: str, env: str, smoke: bool, iterations: int, **options: Any) -> dict[str, Any]:
    sizes = (SMOKE if smoke else WORKLOAD) | {"steps": 10**9} | options
    return {"kind": "ours", "algo": algo, "env": env, "options": sizes, "iterations": 1 if smoke else iterations}


def line(case: str, found: list[dict[str, float]], base: float | None, against: str) -> Line:
    rate = sum(f["rate"] for f in found)
    ratio = None if base is None else rate / base
    return Line(case, rate, "steps/s", ratio, against, max(f["peak_mb"] for f in found))


def run(smoke: bool) -> Iterator[Line]:
    """Environment steps per second of whole training: against a plain MAPPO, by seeds, by number of agents."""
    spread = "mpe/simple_spread"
    yield from against_plain_mappo(smoke, spread)
    free, pinned = [None], list(cores())
    one = together([task("grasp-mappo", spread, smoke, 12)], free)
    yield line("grasp-mappo, one seed, all cores", one, None, "")
    many = together([task("grasp-mappo", spread, smoke, 12)] * len(pinned), pinned)
    yield line(f"grasp-mappo, {len(pinned)} seeds, one core each", many, one[0]["rate"], "one seed")
    base = None
    for env in () if smoke else AGENTS:
        found = together([task("grasp-mappo", env, smoke, 2)], [pinned[0]])
        base = base or found[0]["rate"]
        yield line(f"grasp-mappo, {env}, one core", found, base, AGENTS[0])


def against_plain_mappo(smoke: bool, env: str) -> Iterator[Line]:
    """Our seeds together, one process per core, against one program of the plain MAPPO on all cores."""
    sizes = SMOKE if smoke else WORKLOAD
    options = {k: sizes[k] for k in ("num_envs", "rollout", "epochs", "hidden")}
    plain = {"kind": "plain_mappo", "options": {"env_name": env, **options}, "iterations": 1 if smoke else 4}
    theirs = together([plain], [None])
    yield line("plain recurrent MAPPO, recurrent critic", theirs, None, "")
    pinned = list(cores())
    for critic in ("mlp", "gru"):
        ours = together([task("mappo", env, smoke, 12, critic=critic)] * len(pinned), pinned)
        case = f"mappo, {critic} critic, {len(pinned)} seeds, one core each"
        yield line(case, ours, theirs[0]["rate"], "plain MAPPO")
