"""PettingZoo's parallel environments: `pettingzoo/<module>`, whose `parallel_env(**options)` is made by workers.

How agents, rewards, masks and ends are read is told in `grasp.envs.workers.pettingzoo`. Any module will do, so any task
is accepted, and any option: `?horizon=` and `?wins=` are ours, the rest go to the environment.
"""

import sys
from typing import Any

from grasp.envs.host import SIMULATORS, ask
from grasp.types import Host

ADAPTER = SIMULATORS / "pettingzoo.py"


def names() -> list[str]:
    """Those that our tests train in; others are given by their module."""
    return ["mpe2.simple_spread_v3", "mpe2.simple_reference_v3", "mpe2.simple_speaker_listener_v4"]


def make(task: str, **options: Any) -> Host:
    return ask(f"pettingzoo/{task}", sys.executable, ADAPTER, task, options)


def own(name: str, factory: str, **options: Any) -> Host:
    """What a user's `package.module:factory` makes, if it is a PettingZoo environment."""
    return ask(name, sys.executable, ADAPTER, factory, options)
