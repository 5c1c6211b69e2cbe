"""What a worker process runs: several copies of one simulator, answering commands.

    python serve.py SOURCE TASK OPTIONS            say the sizes, as JSON on standard output
    python serve.py SOURCE TASK OPTIONS COMMANDS ANSWERS MEMORY PLACE NUMBER SIZES

It may run in another interpreter than the learner (a simulator may need packages that JAX cannot live with), so it
imports nothing of grasp. SOURCE is an adapter, a file with `make(task, **options)`; the task and OPTIONS (a JSON
object) are its arguments. An adapter's simulator has

    spec                 num_agents, obs_dim, state_dim, num_actions, horizon, has_wins, package
    reset(seed)          -> (obs[N, o], state[s], avail[N, a], alive[N])
    step(action[N])      -> ((obs, state, avail, alive), reward, terminated, truncated, won)
    close()

with the meaning that `grasp.envs.base` gives these words. Arrays are exchanged in a memory that both processes map: a
record a copy, of which this worker has NUMBER from PLACE on. COMMANDS, ANSWERS and MEMORY are inherited file
descriptors. A command is a line, `reset 0 2` or `step 0 1 2`, that names copies by their place in the worker; the
answer is `ok`, or `fault` and a sentence, after which the worker ends.
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
"""Seconds that a worker has to close its simulators when it is told to end."""
SEEN = ("obs", "state", "avail", "alive")
SIZES = ("num_agents", "obs_dim", "state_dim", "num_actions", "horizon", "has_wins", "package", "version")


def record(sizes: dict) -> np.dtype:
    """What the two processes tell each other about one copy: the learner the first two, the simulator the rest."""
    agents = sizes["num_agents"]
    told = [("action", np.int32, (agents,)), ("seed", np.int64)]
    seen = [
        ("obs", np.float32, (agents, sizes["obs_dim"])),
        ("state", np.float32, (sizes["state_dim"],)),
        ("avail", np.bool_, (agents, sizes["num_actions"])),
        ("alive", np.bool_, (agents,)),
    ]
    done = [("reward", np.float32), ("terminated", np.bool_), ("truncated", np.bool_), ("won", np.bool_)]
    return np.dtype(told + seen + done, align=True)


def load(source: str):
    """An adapter's module. By its path: the folder must not be searched, where adapters are named like packages."""
    spec = importlib.util.spec_from_file_location("adapter", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(source: str, task: str, options: str):
    return load(source).make(task, **json.loads(options))


def describe(simulator) -> dict:
    """The sizes alone, whatever else an adapter keeps in its spec, and the version of what decides the dynamics."""
    try:
        version = importlib.metadata.version(simulator.spec["package"])
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return {name: {"version": version, **simulator.spec}[name] for name in SIZES}


class Server:
    """The copies of one worker."""

    def __init__(self, simulators: list, records: np.ndarray):
        self.simulators, self.records = simulators, records

    def reset(self, place: int) -> None:
        self.write(place, self.simulators[place].reset(int(self.records[place]["seed"])))

    def step(self, place: int) -> None:
        entry = self.records[place]
        seen, reward, terminated, truncated, won = self.simulators[place].step(entry["action"].copy())
        self.write(place, seen)
        entry["reward"], entry["terminated"], entry["truncated"], entry["won"] = reward, terminated, truncated, won

    def write(self, place: int, seen: tuple) -> None:
        entry = self.records[place]
        for name, value in zip(SEEN, seen):
            value, field = np.asarray(value), entry[name]
            if value.shape != field.shape:
                raise ValueError(f"{name} has the shape {value.shape}, not {field.shape} as its spec says")
            field[...] = value


def guard(commands: int, answers: int) -> None:
    """Leave a process behind that ends this one, and whatever the simulator starts, soon after the learner is gone:
    even if that was killed, and even if the simulator does not return."""
    if os.fork():
        return
    os.close(answers)  # or the learner would not notice the end of this worker
    poll = select.poll()
    poll.register(commands, 0)  # its other end closes when the learner ends
    poll.poll()
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)


def main(words: list[str]) -> None:
    source, task, options = words[:3]
    if len(words) == 3:
        simulator = make(source, task, options)
        sizes = json.dumps(describe(simulator))
        simulator.close()
        print(sizes)  # the last line: closing may print too
        return
    commands, answers, memory, place, number = map(int, words[3:8])
    sizes = json.loads(words[8])
    guard(commands, answers)
    os.dup2(2, 1)  # simulators print: their words belong in the log
    layout = record(sizes)
    shared = mmap.mmap(memory, 0)
    records = np.frombuffer(shared, layout, number, place * layout.itemsize)
    with os.fdopen(commands) as asked, os.fdopen(answers, "w", buffering=1) as told:
        try:
            serve(source, task, options, sizes, records, asked, told)
        except (Exception, SystemExit) as error:  # a simulator may give up by ending its program
            traceback.print_exc()
            told.write(f"fault {sentence(error)}\n")


def serve(source: str, task: str, options: str, sizes: dict, records: np.ndarray, asked, told) -> None:
    simulators = [make(source, task, options) for _ in records]
    found = describe(simulators[0])
    if found != sizes:
        wrong = [name for name in SIZES if found[name] != sizes[name]]
        raise ValueError(f"the simulator's {wrong[0]} is {found[wrong[0]]}, not {sizes[wrong[0]]} as before")
    server = Server(simulators, records)
    told.write("ok\n")
    for line in asked:  # ends when the parent does
        word, *places = line.split()
        for one in places:
            (server.reset if word == "reset" else server.step)(int(one))
        told.write("ok\n")
    for simulator in simulators:
        simulator.close()


def sentence(error: BaseException) -> str:
    """A fault in one line."""
    words = " ".join(str(error).split())
    return (
        words if isinstance(error, (ValueError, ImportError, FileNotFoundError)) else f"{type(error).__name__}: {words}"
    )


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))  # not to be searched: files are named like what they adapt
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    try:
        main(sys.argv[1:])
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        sys.exit(f"fault {sentence(error)}")
