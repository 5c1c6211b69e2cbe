"""A small simulator for tests; `twin` in tests/training/test_host_rollout.py is the same as a JAX environment.

`fault` is how it fails and `at` the step, counted over all episodes, at which it does. If the file `once` exists it has
failed already and does not again. Its first reset takes `slow` seconds, `restless` ignores seeds, and episodes are
truncated after `cut` steps.
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
        if self.restless:
            self.total = int.from_bytes(os.urandom(4), "little")
        return self.seen()

    def step(self, action):
        self.life += 1
        if self.fault and self.life == self.at and self.is_first():
            self.fail()
        self.time += 1
        self.total += int(action[0]) + 2 * int(action[1])
        won = self.total % 7 == 6
        seen, reward = self.seen(), float(self.total % 5)
        if self.wrong == "shape":
            seen = (seen[0][:1], *seen[1:])
        if self.wrong == "mask":
            seen[2][0] = False
        if self.wrong == "reward":
            reward = float("inf")
        if self.wrong == "both":
            return seen, reward, True, True, won
        return seen, reward, won, not won and self.time == self.cut, won

    def is_first(self):
        """Whether no other copy, in any worker, has failed before: only one can create the file."""
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

    def fail(self):
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
        raise LookupError(f"there is no task {task!r}", task, ["toy", "joystick"], "zoo." if task == "roy" else "")
    return Toy(**options)
