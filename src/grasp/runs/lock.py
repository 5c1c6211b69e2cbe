"""A lock on a seed's folder: one process writes it at a time, on any node that shares the storage.

The operating system's file lock keeps out other processes of the same node and ends with its holder, but on shared
storage it may not reach other nodes. So the holder also writes `claim.json` and touches it every few seconds. Where it
has not been touched for a minute, its node is taken to have failed, and another process may take the lock over. A
holder that was only suspended finds another token in the file, and stops before it writes again.
"""

import contextlib
import errno
import fcntl
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from grasp.types import GraspError

CLAIM = "claim.json"
RENEWED = 5.0
"""Seconds between two touches."""
STALE = 60.0
"""Seconds without a touch after which the holder's node is taken to have failed."""
SETTLED = 1.0
"""Seconds between taking a lock over and the first write: if two processes take it over at the same time, the second to
write `claim.json` has it, and a last write of the old holder can finish."""
PAUSE = 0.5
"""Seconds between two attempts to acquire a lock."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of storage without file locks, where `claim.json` has to suffice."""


class Busy(GraspError):
    """Another process holds the lock."""


def here() -> dict[str, str]:
    """This node, until it is rebooted."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {"host": platform.node(), "boot": boot.read_text().strip() if boot.exists() else ""}


class Lock:
    """The lock on a folder, held until another process has taken it over or it is released."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / CLAIM
        self.token = uuid.uuid4().hex
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.renew, daemon=True)

    def check(self) -> None:
        """GraspError if another process has taken the lock over. To be called before every write."""
        if not self.is_held():
            where = host_of(self.path)
            raise GraspError(
                f"{self.folder} was taken over by a process on {where} while this one did not respond; it continues "
                f"there"
            )

    def is_held(self) -> bool:
        return holder_of(self.path).get("token") == self.token

    def renew(self) -> None:
        while not self.ended.wait(RENEWED):
            with contextlib.suppress(OSError):  # storage that is unavailable for a while may return in time
                if not self.is_held():
                    return
                os.utime(self.path)

    def write(self, exclusive: bool) -> None:
        """Write `claim.json`: as a new file (FileExistsError where there is one), or in place of another's."""
        data = json.dumps(here() | {"pid": os.getpid(), "token": self.token}).encode()
        target = self.path if exclusive else self.folder / f".claim.{self.token}"
        with target.open("xb", buffering=0) as file:
            file.write(data)
        if not exclusive:
            target.replace(self.path)

    def release(self) -> None:
        self.ended.set()
        self.thread.join(RENEWED)
        with contextlib.suppress(OSError):
            if self.is_held():
                self.path.unlink()


def holder_of(path: Path) -> dict[str, Any]:
    """The content of a `claim.json`; empty where there is none, or while it is being written."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def host_of(path: Path) -> str:
    return str(holder_of(path).get("host", "another node"))


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[Lock]:
    """Hold the lock on a folder; however the process ends, it is released. Waits up to `patience` seconds for another
    holder, whose node may have failed; then `Busy`."""
    end = time.monotonic() + patience
    while True:
        with (folder / "lock").open("w") as file:
            try:
                lock = acquire(folder, file)
            except Busy:
                if time.monotonic() >= end:
                    raise
            else:
                lock.thread.start()
                try:
                    yield lock
                finally:
                    lock.release()
                return
        time.sleep(PAUSE)


def acquire(folder: Path, file: IO[str]) -> Lock:
    """Take the file lock, then `claim.json`, unless another holder is alive."""
    has_file_lock = True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(f"{folder} is being written by another process; wait for it or stop it first") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        has_file_lock = False
    lock = Lock(folder)
    with contextlib.suppress(FileExistsError):
        lock.write(exclusive=True)
        return lock
    # a holder on this node would have the file lock
    has_exited = has_file_lock and here().items() <= holder_of(lock.path).items()
    is_taken = not has_exited and is_fresh(lock.path, file)
    if not is_taken:
        lock.write(exclusive=False)
        time.sleep(0.0 if has_exited else SETTLED)
        is_taken = not lock.is_held()
    if is_taken:
        raise Busy(f"{folder} is being written on {host_of(lock.path)}; wait for it or stop it first")
    return lock


def is_fresh(path: Path, file: IO[str]) -> bool:
    """Whether a `claim.json` was touched recently, by the storage's own clock: the clocks of nodes may differ."""
    os.utime(file.fileno())
    now = os.fstat(file.fileno()).st_mtime
    try:
        with path.open("rb") as claim:  # opened, because network storage may serve a mere stat from its cache
            touched = os.fstat(claim.fileno()).st_mtime
    except FileNotFoundError:  # released in between: the next attempt succeeds
        return True
    return abs(now - touched) < STALE
