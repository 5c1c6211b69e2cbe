"""Machines 1 to N-1 of N: train for the head what it sends, and keep nothing."""

import contextlib
import platform
import socket
import tempfile
import time
from pathlib import Path

from grasp import algos
from grasp import config as configs
from grasp.config import Config
from grasp.envs import base as envs
from grasp.launch.base import Task
from grasp.launch.links import Gone, Hello, Link, check_name, unpacked
from grasp.launch.machines import LOOK_SECONDS, MEET_SECONDS, Place, Say, alike, work
from grasp.types import GraspError


def assist(place: Place, config: Config | None, say: Say) -> None:
    """Train for the head whatever it says: all of this machine's part of `grasp train` and `grasp resume`. A `config`
    must be the head's own."""
    with contextlib.closing(Link(knock(place))) as link:
        try:
            serve(link, place, config, say)
        except Gone:
            where = f"{place.host}:{place.port}"
            raise GraspError(
                f"the head at {where} is gone or silent; what it wrote is not lost: type grasp resume RUN there, and "
                f"here the same with --on {place.number}/{place.machines}@{where}"
            ) from None


def knock(place: Place) -> socket.socket:
    """A connection to the head, which may be a little late."""
    end = time.monotonic() + MEET_SECONDS
    while True:
        try:
            return socket.create_connection((place.host, place.port), max(end - time.monotonic(), 0.01))
        except OSError as error:
            why = error.strerror or error
        if time.monotonic() > end:
            raise GraspError(
                f"no head answers at {place.host}:{place.port} ({why}); type the same command there with "
                f"--on 0/{place.machines}@{place.host}:{place.port}"
            )
        time.sleep(LOOK_SECONDS)


def serve(link: Link, place: Place, config: Config | None, say: Say) -> None:
    own = None if config is None else configs.to_json(config)
    link.send(Hello(place.number, place.machines, platform.node(), alike(), own)._asdict())
    patience = MEET_SECONDS
    while True:
        said = link.receive(patience)
        patience = None
        if said.get("end"):
            raise GraspError(said["end"])
        if "end" in said:
            return
        if "config" in said:
            problem = problem_here(said["config"], link)
            link.send({"problem": problem})
            if problem:
                raise GraspError(problem)
            say(f"machine {place.number} of {place.machines} trains for {place.host}; see there how it goes")
            continue
        with tempfile.TemporaryDirectory(prefix="grasp-") as folder:
            run = unpacked(link.receive_bytes(), Path(folder))
            task = Task(run, tuple(said["seeds"]))
            words = work(task, place, said["address"], [link], lambda *_: None)
            if words.startswith(f"{link.name}: "):
                raise GraspError(words)
            log = task.log.read_text(errors="replace")[-20_000:] if words and task.log.exists() else ""
        link.send({"end": words.replace(folder, said["path"]), "log": log})


def problem_here(text: str, link: Link) -> str:
    """What keeps this machine from training for the head, in words."""
    try:
        config = configs.from_json(text, "the head's configuration")
        algos.make(config, envs.make(config.env).spec)
        check_name(link)
    except GraspError as mistake:
        return f"{platform.node()} cannot take part: {mistake}"
    return ""
