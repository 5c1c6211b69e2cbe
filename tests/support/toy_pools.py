"""Pools of the small simulator in `standins/toy.py`."""

import sys

from paths import TOY

from grasp.envs.host import SimulatorPool, from_adapter


def toy(**options):
    return from_adapter("host/toy", sys.executable, TOY, "toy", options)


def pools():
    """Yields a function that opens pools, and closes them at the end."""
    opened = []

    def make(num_envs=4, workers=2, deadline=20.0, restarts=3, **options):
        opened.append(SimulatorPool(toy(**options), num_envs, workers, deadline, restarts))
        return opened[-1]

    yield make
    for pool in opened:
        pool.close()
