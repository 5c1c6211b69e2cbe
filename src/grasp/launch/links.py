"""What the commands of one run on several machines say to each other, and how they notice that one of them is gone."""

import io
import json
import socket
import zipfile
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from grasp import runs
from grasp.runs import Run
from grasp.runs.checkpoint import stored
from grasp.types import GraspError

SILENT_SECONDS = 30
"""After which a machine that answers nothing, not even to the system, is taken for lost."""
LARGEST_WORDS = 2**20


class Gone(Exception):
    """The command at the other end has ended, or cannot be reached, or is none of ours."""


class Link:
    """A connection to another machine's command: JSON objects, and bytes where one announces them."""

    def __init__(self, ends: socket.socket, name: str = "the head"):
        self.name = name
        ends.settimeout(None)
        ends.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # a machine without power says no goodbye: ask it now and then, and do not wait long for what it did not take
        asking = {"KEEPIDLE": 10, "KEEPINTVL": 5, "KEEPCNT": 4, "USER_TIMEOUT": 1000 * SILENT_SECONDS}
        for option, value in asking.items():
            if hasattr(socket, f"TCP_{option}"):
                ends.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"), value)
        self.is_inside = ends.getsockname()[0] == ends.getpeername()[0]
        self.pipe = Connection(ends.detach())

    def send(self, words: dict[str, Any], data: bytes | None = None) -> None:
        try:
            self.pipe.send_bytes(json.dumps(words).encode())
            if data is not None:
                self.pipe.send_bytes(data)
        except OSError:
            raise Gone(self.name) from None

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """What comes next. `Gone` also where nothing comes in time, or nothing that one of us would say."""
        try:
            words = json.loads(self.pipe.recv_bytes(LARGEST_WORDS)) if self.pipe.poll(seconds) else None
        except (EOFError, OSError, ValueError):
            words = None
        if not isinstance(words, dict):
            raise Gone(self.name)
        return words

    def receive_bytes(self) -> bytes:
        try:
            return self.pipe.recv_bytes()
        except (EOFError, OSError):
            raise Gone(self.name) from None

    def close(self) -> None:
        self.pipe.close()


class Hello(NamedTuple):
    """What a machine says of itself when it comes."""

    number: int
    machines: int
    host: str
    alike: dict[str, str]
    """What must be the same on all."""
    config: str | None
    """What it was told to train; None where it trains whatever the head does."""


def hello_on(link: Link, seconds: float) -> Hello:
    words = link.receive(seconds)
    if words.keys() != set(Hello._fields):
        raise Gone(link.name)
    return Hello(**words)


def ready(links: list[Link], seconds: float) -> list[Link]:
    """Those who say something within so many seconds, or have gone."""
    speaking = wait([link.pipe for link in links], seconds)
    return [link for link in links if link.pipe in speaking]


def check_name(link: Link) -> None:
    """Workers tell each other the address that their machine's own name means, and some systems let it mean a
    loopback."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        address = "nothing"
    if not link.is_inside and (address == "nothing" or address.startswith("127.")):
        raise GraspError(
            f"on {name} its own name means {address}, where no other machine finds it; write its address in the "
            f"network into its /etc/hosts"
        )


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def packed(run: Run, seeds: tuple[int, ...]) -> bytes:
    """All that training reads of a run and some of its seeds."""
    files = [run.path / "config.json"]
    for seed in seeds:
        files += [run.metrics_log(seed), *stored(run.checkpoints(seed)), *stored(run.snapshots(seed))]
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for path in files:
            if path.exists():
                archive.write(path, path.relative_to(run.path))
    return memory.getvalue()


def unpacked(data: bytes, folder: Path) -> Run:
    """A copy of the run in a folder; names that lead out of it are cut by zipfile."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)
    return runs.find(folder)
