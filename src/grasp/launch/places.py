"""Where runs are trained: `--on local`, `--on ray` or `--on ray://HOST:PORT`."""

import contextlib
import re
from collections.abc import Iterator

from grasp.launch.local import Pool
from grasp.launch.tasks import Crew
from grasp.types import GraspError


def address_of(on: str) -> str | None:
    """The address of a Ray cluster, "auto" for the one that this machine belongs to; None for this machine alone."""
    if on == "local":
        return None
    if on == "ray":
        return "auto"
    found = re.fullmatch(r"ray://([^:/\s]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?", on)
    if found is None or int(found[2]) > 65535:
        raise GraspError(f"--on is local, ray or ray://HOST:PORT, not '{on}'")
    return f"{found[1]}:{found[2]}"


@contextlib.contextmanager
def crew_on(on: str) -> Iterator[Crew]:
    """Who trains there."""
    address = address_of(on)
    if address is None:
        yield Pool()
        return
    from grasp.launch import cluster

    with cluster.joined(address) as crew:
        yield crew
