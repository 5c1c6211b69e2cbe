"""Family `pettingzoo`: parallel environments of PettingZoo, `pettingzoo/<module>`, created in worker processes by
`parallel_env(**options)`.

`grasp.envs.workers.pettingzoo` states how agents, rewards, masks and the ends of episodes are read. Any module is
accepted as a task. The options `horizon` and `wins` belong to the adapter; all others are passed to `parallel_env`.
"""

import sys
from typing import Any

from grasp.envs.host import WORKERS, from_adapter
from grasp.types import Host

ADAPTER = WORKERS / "pettingzoo.py"


def names() -> list[str]:
    """The environments that the tests train in. Others are accepted by the name of their module."""
    return ["mpe2.simple_spread_v3", "mpe2.simple_reference_v3", "mpe2.simple_speaker_listener_v4"]


def make(task: str, **options: Any) -> Host:
    return from_adapter(f"pettingzoo/{task}", sys.executable, ADAPTER, task, options)


def from_factory(name: str, factory: str, **options: Any) -> Host:
    """The PettingZoo environment that a user's `package.module:factory` makes."""
    return from_adapter(name, sys.executable, ADAPTER, factory, options)
