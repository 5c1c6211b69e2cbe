"""Where runs are trained: `--on local`, `--on ray`, `--on ray://HOST:PORT` or `--on K/N@HEAD:PORT`."""

import contextlib
import re
from collections.abc import Iterator

from grasp.launch import head, machines
from grasp.launch.base import Crew
from grasp.launch.local import Pool
from grasp.types import GraspError


def address_of(on: str) -> str | None:
    """The address of a Ray cluster, "auto" for the one that this machine belongs to; None for this machine alone."""
    if on == "local":
        return None
    if on == "ray":
        return "auto"
    found = re.fullmatch(r"ray://([^:/\s]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?", on)
    if found is None or int(found[2]) > 65535:
        raise GraspError(f"--on is local, ray, ray://HOST:PORT or K/N@HEAD:PORT, not '{on}'")
    return f"{found[1]}:{found[2]}"


@contextlib.contextmanager
def crew_on(on: str, say: machines.Say = lambda _: None) -> Iterator[Crew]:
    """Who trains there; `say` is for what a person should know while others are waited for."""
    place = machines.place_of(on)
    if place is not None:
        if place.number:
            raise GraspError(f"machine {place.number} only helps machine 0, which has the run; call grasp.api.assist")
        with head.leading(place, say) as crew:
            yield crew
        return
    address = address_of(on)
    if address is None:
        yield Pool()
        return
    from grasp.launch import ray_launcher

    with ray_launcher.joined(address) as crew:
        yield crew
