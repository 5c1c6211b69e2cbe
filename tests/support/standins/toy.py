"""A simulator for tests, like `twin` in tests/envs/test_host.py.

`fault` names how it fails, `at` the step of its life at which, and `once` a file whose existence says that it has
already happened. Its first reset takes `slow` seconds; a `restless` one ignores its seed; after `cut` steps it is
truncated.
"""

import os
import threading
import time

import numpy as np

HORIZON = 5


class Toy:
    spec = {  # noqa: RUF012
        "num_agents": 2, "obs_dim": 4, "state_dim": 3, "num_actions": 3, "horizon": HORIZON, "has_wins": True,
        "package": "numpy",
    }  # fmt: skip

    def __init__(self, fault="", at=0, once="", seeded=False, slow=0.0, restless=False, cut=HORIZON):
        self.fault, self.at, self.once, self.seeded, self.life, self.wrong = fault, at, once, seeded, 0, ""
        self.slow, self.restless, self.cut = slow, restless, cut

    def reset(self, seed):
        time.sleep(self.slow)
        self.slow = 0.0
        self.time, self.total = 0, (seed % 100 if self.seeded else 0)
        if self.restless:  # whatever the seed
            self.total = int.from_bytes(os.urandom(4), "little")
        return self.seen()

    def step(self, action):
        self.life += 1
        if self.fault and self.life == self.at and self.is_first():
            self.misbehave()
        self.time += 1
        self.total += int(action[0]) + 2 * int(action[1])
        won = self.total % 7 == 6
        seen, paid = self.seen(), float(self.total % 5)
        if self.wrong == "shape":
            seen = (seen[0][:1], *seen[1:])
        if self.wrong == "mask":
            seen[2][0] = False
        if self.wrong == "reward":
            paid = float("inf")
        if self.wrong == "both":
            return seen, paid, True, True, won
        return seen, paid, won, not won and self.time == self.cut, won

    def is_first(self):
        """Whether no other copy has failed before, in this worker or another: only one can make the file."""
        try:
            if self.once:
                os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            return False

    def seen(self):
        obs = np.array([[agent, self.time, self.total % 7, self.total % 3] for agent in range(2)], np.float32)
        avail = np.ones((2, 3), bool)
        avail[1, 2] = self.time % 2 == 0
        return obs, np.array([self.time, self.total % 7, 1.0], np.float32), avail, np.array([True, self.time < 4])

    def misbehave(self):
        if self.fault == "crash":
            os._exit(3)
        if self.fault == "hang":
            time.sleep(3600)
        if self.fault in ("exit", "mute"):
            threading.Thread(target=time.sleep, args=(3600,)).start()  # keeps the process alive
        if self.fault == "exit":
            raise SystemExit(4)
        if self.fault == "mute":
            os.closerange(3, 64)
        if self.fault == "raise":
            raise RuntimeError("the battle was lost")
        if self.fault == "nan":
            self.total = float("nan")
        self.wrong = self.fault

    def close(self):
        pass


def make(task, **options):
    if task != "toy":
        raise ValueError(f"there is no task {task!r}; did you mean 'toy'?")
    return Toy(**options)
