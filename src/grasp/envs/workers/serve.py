"""The program of a worker process: steps several copies of one simulator on command.

    python serve.py SOURCE TASK OPTIONS            print the sizes as JSON on standard output
    python serve.py SOURCE TASK OPTIONS COMMANDS REPLIES MEMORY FIRST COUNT SIZES

It may run in another interpreter than the learner, because a simulator may need packages that conflict with JAX's. It
therefore imports nothing of grasp. SOURCE is an adapter, a file with `make(task, **options)`, called with TASK and
OPTIONS (a JSON object). For a name that does not exist it raises `LookupError(sentence, name, known, prefix)`, and the
learner suggests the nearest known name, after the prefix. The simulator that it returns has

    spec                 num_agents, obs_dim, state_dim, num_actions, horizon, has_wins, package
    reset(seed)          -> (obs[N, o], state[s], avail[N, a], alive[N])
    step(action[N])      -> ((obs, state, avail, alive), reward, terminated, truncated, won)
    close()

with the contract of `grasp.envs.base`. Arrays are exchanged in memory that both processes map: one record per copy, of
which this worker has COUNT from index FIRST on. COMMANDS, REPLIES and MEMORY are inherited file descriptors. A command
is a line, `reset 0 2` or `step 0 1 2`, with the worker's own indices of copies. The reply is `ok`, or `fault` and a
sentence, after which the worker exits.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import mmap
import os
import select
import signal
import sys
import time
import traceback

import numpy as np

GRACE = 5.0
"""Seconds for a worker to close its simulators and exit."""
OBSERVED = ("obs", "state", "avail", "alive")
SIZES = ("num_agents", "obs_dim", "state_dim", "num_actions", "horizon", "has_wins", "package", "version")


def record(sizes: dict) -> np.dtype:
    """The record of one copy: the learner writes the first two fields, the worker the others."""
    agents = sizes["num_agents"]
    written = [("action", np.int32, (agents,)), ("seed", np.int64)]
    seen = [
        ("obs", np.float32, (agents, sizes["obs_dim"])),
        ("state", np.float32, (sizes["state_dim"],)),
        ("avail", np.bool_, (agents, sizes["num_actions"])),
        ("alive", np.bool_, (agents,)),
    ]
    ends = [("reward", np.float32), ("terminated", np.bool_), ("truncated", np.bool_), ("won", np.bool_)]
    return np.dtype(written + seen + ends, align=True)


def load(source: str):
    """The module of an adapter, loaded by path: adapters are named like packages, so their folder must not be
    searched."""
    spec = importlib.util.spec_from_file_location("adapter", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(source: str, task: str, options: str):
    return load(source).make(task, **json.loads(options))


def describe(simulator) -> dict:
    """The sizes in a simulator's spec, and the version of the package that determines the dynamics."""
    try:
        version = importlib.metadata.version(simulator.spec["package"])
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return {name: {"version": version, **simulator.spec}[name] for name in SIZES}


class WorkerCopies:
    """The copies of one worker."""

    def __init__(self, simulators: list, records: np.ndarray):
        self.simulators, self.records = simulators, records

    def reset(self, copy: int) -> None:
        self.write(copy, self.simulators[copy].reset(int(self.records[copy]["seed"])))

    def step(self, copy: int) -> None:
        record = self.records[copy]
        seen, reward, terminated, truncated, won = self.simulators[copy].step(record["action"].copy())
        self.write(copy, seen)
        record["reward"], record["terminated"], record["truncated"], record["won"] = reward, terminated, truncated, won

    def write(self, copy: int, seen: tuple) -> None:
        record = self.records[copy]
        for name, value in zip(OBSERVED, seen):
            value, field = np.asarray(value), record[name]
            if value.shape != field.shape:
                raise ValueError(f"{name} has the shape {value.shape}; its spec has {field.shape}")
            field[...] = value


def guard(commands: int, replies: int) -> None:
    """Fork a process that kills this session (the worker and what its simulator started) GRACE seconds after the
    learner exits, even if the learner was killed or the simulator hangs."""
    if os.fork():
        return
    os.close(replies)  # otherwise the learner could not detect the exit of this worker
    poll = select.poll()
    poll.register(commands, 0)  # its other end closes when the learner exits
    poll.poll()
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    source, task, options = arguments[:3]
    if len(arguments) == 3:
        simulator = make(source, task, options)
        sizes = json.dumps(describe(simulator))
        simulator.close()
        print(sizes)  # the last line: closing may also print
        return
    commands, replies, memory, first, count = map(int, arguments[3:8])
    sizes = json.loads(arguments[8])
    guard(commands, replies)
    os.dup2(2, 1)  # what simulators print goes to the log
    layout = record(sizes)
    shared = mmap.mmap(memory, 0)
    records = np.frombuffer(shared, layout, count, first * layout.itemsize)
    with os.fdopen(commands) as incoming, os.fdopen(replies, "w", buffering=1) as outgoing:
        try:
            serve(source, task, options, sizes, records, incoming, outgoing)
        except (Exception, SystemExit) as error:  # a simulator may call sys.exit
            traceback.print_exc()
            outgoing.write(f"fault {sentence(error)}\n")


def serve(source: str, task: str, options: str, sizes: dict, records: np.ndarray, incoming, outgoing) -> None:
    simulators = [make(source, task, options) for _ in records]
    found = describe(simulators[0])
    if found != sizes:
        wrong = [name for name in SIZES if found[name] != sizes[name]]
        raise ValueError(f"the simulator's {wrong[0]} is now {found[wrong[0]]}; at first it was {sizes[wrong[0]]}")
    own = WorkerCopies(simulators, records)
    outgoing.write("ok\n")
    for line in incoming:  # until the learner closes the pipe or exits
        command, *copies = line.split()
        for copy in copies:
            (own.reset if command == "reset" else own.step)(int(copy))
        outgoing.write("ok\n")
    for simulator in simulators:
        simulator.close()


def sentence(error: BaseException) -> str:
    """An error in one line, with its type unless the message is written for users."""
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, (ValueError, ImportError, FileNotFoundError)) else f"{type(error).__name__}: {text}"
    )


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))  # not searched: adapters are named like the packages they import
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    try:
        main(sys.argv[1:])
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        is_unknown = type(error) is LookupError and len(error.args) == 4
        sys.exit(f"unknown {json.dumps(error.args)}" if is_unknown else f"fault {sentence(error)}")
