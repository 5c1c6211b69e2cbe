"""What Ray runs on a node whose simulators play for a learner elsewhere. Only the standard library at the top: the
class is sent as it stands, and GRASP is looked for where its sender found it.
"""

import os
import sys
from typing import Any


class Collector:
    """A node's share of the copies (`grasp.training.remote_rollout.Guest`)."""

    def __init__(self, there: dict[str, Any]):
        self.there = there
        self.guest: Any = None

    def play(self, order: Any) -> Any:
        if self.guest is None:
            self.guest = self.make()
        return self.guest.play(order)

    def make(self) -> Any:
        """Decided before jax is imported: the cores are for the simulators, and acting takes one."""
        sys.path += [path for path in self.there["paths"] if path not in sys.path]
        if os.path.isdir(self.there["folder"]):
            os.chdir(self.there["folder"])  # one's own environment may lie there
        single = "--xla_cpu_multi_thread_eigen=false"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {single}".strip()
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.environ["JAX_PLATFORMS"] = "cpu"
        from grasp import runs
        from grasp.training import compilation_cache
        from grasp.training.remote_rollout import Guest

        compilation_cache.enable()
        run, number = runs.find(self.there["run"]), self.there["number"]
        return Guest(run.config, number, run.folder(self.there["seed"]) / f"simulators-{number}.log")

    def close(self) -> None:
        if self.guest is not None:
            self.guest.close()
