"""Who may write a folder, on whatever machine: a lock and a claim.

The system's lock keeps other processes of this machine out and ends with its holder, but on shared storage it may know
of this machine only. So the holder also leaves `claim.json` and touches it every few seconds. Where nobody has touched
it for a minute its machine is gone, and another may take it over. A holder that was only asleep finds another's token
in it, and stops before it writes again.
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

RENEWED = 5.0
"""Seconds between two touches."""
STALE = 60.0
"""Seconds without a touch after which the holder's machine is taken for lost."""
SETTLED = 1.0
"""Seconds from taking over to writing: another who took it at the same moment shows, and the old holder's last write
ends."""
PAUSE = 0.5
"""Seconds between two tries of one who waits."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What a storage without locks answers; the claim must do there."""


class Busy(GraspError):
    """Somebody else is writing the folder."""


def here() -> dict[str, str]:
    """This machine, until it is started anew."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {"host": platform.node(), "boot": boot.read_text().strip() if boot.exists() else ""}


class Claim:
    """The right to write a folder, as long as `check` does not complain."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / "claim.json"
        self.token = uuid.uuid4().hex
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.renew, daemon=True)

    def check(self) -> None:
        """Complain if another holds the claim by now. To be called before anything is written."""
        if not self.is_mine():
            where = host_of(self.path)
            raise GraspError(f"{self.folder} was taken over on {where} while this process was silent; it goes on there")

    def is_mine(self) -> bool:
        return holder_of(self.path).get("token") == self.token

    def renew(self) -> None:
        while not self.ended.wait(RENEWED):
            with contextlib.suppress(OSError):  # a storage that is away for a while may come back in time
                if not self.is_mine():
                    return
                os.utime(self.path)

    def write(self, exclusive: bool) -> None:
        """The claim's file: as a new one (FileExistsError where there is one), or in place of another's."""
        data = json.dumps(here() | {"pid": os.getpid(), "token": self.token}).encode()
        target = self.path if exclusive else self.folder / f".claim.{self.token}"
        with target.open("xb", buffering=0) as file:
            file.write(data)
        if not exclusive:
            target.replace(self.path)

    def close(self) -> None:
        self.ended.set()
        self.thread.join(RENEWED)
        with contextlib.suppress(OSError):
            if self.is_mine():
                self.path.unlink()


def holder_of(path: Path) -> dict[str, Any]:
    """What a claim says; nothing where there is none, or where one is being written."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def host_of(path: Path) -> str:
    return str(holder_of(path).get("host", "another machine"))


@contextlib.contextmanager
def claimed(folder: Path, patience: float = 0.0) -> Iterator[Claim]:
    """The right to write a folder, given up when the process ends, however it ends. Waits so long for a holder that may
    be lost: `Busy` if it is not by then."""
    end = time.monotonic() + patience
    while True:
        with (folder / "lock").open("w") as lock:
            try:
                claim = take(folder, lock)
            except Busy:
                if time.monotonic() >= end:
                    raise
            else:
                claim.thread.start()
                try:
                    yield claim
                finally:
                    claim.close()
                return
        time.sleep(PAUSE)


def take(folder: Path, lock: IO[str]) -> Claim:
    """Lock the folder and claim it, from nobody or from one who is gone."""
    is_locked = True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(f"{folder} is being written by another process; wait for it or stop it first") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        is_locked = False
    claim = Claim(folder)
    with contextlib.suppress(FileExistsError):
        claim.write(exclusive=True)
        return claim
    # with its lock in our hands, a holder of this very machine has ended
    is_dead = is_locked and here().items() <= holder_of(claim.path).items()
    is_taken = not is_dead and is_fresh(claim.path, lock)
    if not is_taken:
        claim.write(exclusive=False)
        time.sleep(0.0 if is_dead else SETTLED)
        is_taken = not claim.is_mine()
    if is_taken:
        raise Busy(f"{folder} is being written on {host_of(claim.path)}; wait for it or stop it first")
    return claim


def is_fresh(path: Path, lock: IO[str]) -> bool:
    """Whether a claim was touched lately, by the storage's own clock: this machine's and its holder's may differ."""
    os.utime(lock.fileno())
    now = os.fstat(lock.fileno()).st_mtime
    try:
        with path.open("rb") as file:  # opened, because a network's storage may answer a mere look from its cache
            touched = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:  # given up this moment: to be tried again
        return True
    return abs(now - touched) < STALE
