"""Training with simulators: real worker processes, killed with signals; no data lost, no process left."""

import itertools
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import WAIT, lines_of, start, wait_for
from safetensors.numpy import load_file
from trees import assert_close

import grasp
from grasp import envs, runs
from grasp.config import configure
from grasp.launch.local import resolved
from grasp.runs import checkpoint
from grasp.training import loop
from grasp.types import GraspError

OWN = '''
import os
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

class Meet(ParallelEnv):
    """Two agents are rewarded for the same choice; `crash` names a file whose existence makes every step fail."""

    metadata = {"name": "meet"}
    possible_agents = ["left", "right"]

    def __init__(self, crash="", slow=0.0):
        self.crash, self.slow = crash, slow

    def observation_space(self, agent):
        return spaces.Box(0.0, 1.0, (3,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def seen(self):
        return {agent: self.rng.random(3).astype(np.float32) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.rng, self.agents, self.time = np.random.default_rng(seed), list(self.possible_agents), 0
        return self.seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        if self.crash and os.path.exists(self.crash):
            os._exit(7)
        import time; time.sleep(self.slow)
        self.time += 1
        now, over = self.agents, self.time == 5
        paid = float(actions["left"] == actions["right"])
        seen = self.seen()
        if over:
            self.agents = []
        every = lambda value: {agent: value for agent in now}
        return seen, every(paid), every(False), every(over), every({})

    def close(self):
        pass
'''
SIZES = {
    "num_envs": 4, "rollout": 20, "chunk": 10, "epochs": 2, "hidden": 8, "eval_episodes": 4, "final_episodes": 8,
    "steps": 80 * 12, "eval_interval": 80 * 3, "workers": 2,
}  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the user's module in it, where workers and this process find it."""
    (tmp_path / "meet.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "meet", raising=False)
    return tmp_path


def env_of(here: Path, **options: object) -> str:
    """The environment of one test: the folder in its name tells its processes from those of tests beside it."""
    return "meet:Meet?horizon=5," + ",".join(f"{k}={v}" for k, v in {"crash": here / "broken", **options}.items())


def simulators(here: Path) -> list[int]:
    """A test's worker processes and their guards."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            # workers have more words than the process that only asks for the sizes
            if b"serve.py" in words and str(here).encode() in words and b"num_agents" in words:
                found.append(int(entry.name))
    return found


def options(algo: str = "mappo") -> list[str]:
    sizes = SIZES
    if algo == "qmix":
        sizes = {name: value for name, value in SIZES.items() if name not in ("chunk", "epochs")} | {"batch": 4}
    return [word for name, value in sizes.items() for word in (f"--{name}", str(value))]


def iterations(path: Path) -> int:
    return sum(line["kind"] == "iteration" for line in lines_of(path))


def gone(here: Path) -> bool:
    end = time.monotonic() + 20
    while simulators(here) and time.monotonic() < end:
        time.sleep(0.05)
    return not simulators(here)


@pytest.mark.full("lost workers in the middle of a whole run; rollouts that lose workers are in test_host_rollout")
@pytest.mark.parametrize("algo", ["mappo", "qmix"])
def test_workers_killed_during_training_lose_only_their_episodes(here, algo):
    sizes = (
        SIZES if algo == "mappo" else {k: v for k, v in SIZES.items() if k not in ("chunk", "epochs")} | {"batch": 4}
    )
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    process = start("train", algo, env_of(here, slow=0.002), *words, "--out", "run")
    for least in (2, 4):
        wait_for(
            lambda least=least: sum(line["kind"] == "iteration" for line in lines_of(here / "run")) >= least, process
        )
        workers = [pid for pid in simulators(here) if os.getsid(pid) == pid]  # not their guards
        os.kill(workers[0], signal.SIGKILL)
    out = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 0, out
    lines = lines_of(here / "run")
    learned = [line for line in lines if line["kind"] == "iteration"]
    assert [line["env_steps"] for line in learned] == [80 * (k + 1) for k in range(12)]
    assert sum(line["restarts"] for line in lines) == 2
    assert all(line["train_length"] == 5 for line in learned)
    assert lines[-1]["kind"] == "absolute"
    assert gone(here)


@pytest.mark.parametrize("algo", ["mappo", pytest.param("qmix", marks=pytest.mark.full("every family"))])
def test_a_run_killed_with_its_simulators_resumes_exactly(here, algo):
    straight, cut = here / "straight", here / "cut"
    whole = start("train", algo, env_of(here), *options(algo), "--out", str(straight))
    words = whole.communicate(timeout=WAIT)[0]
    assert whole.returncode == 0, words
    process = start("train", algo, env_of(here), *options(algo), "--out", str(cut))
    wait_for(lambda: sum(line["kind"] == "evaluation" for line in lines_of(cut)) >= 2, process)
    process.kill()
    process.communicate()
    assert gone(here)
    grasp.resume(cut)
    assert lines_of(cut) == lines_of(straight)
    assert_close(*(load_file(path / "seed-0" / "policy.safetensors") for path in (cut, straight)))


@pytest.mark.full("Ctrl-C")
def test_an_interrupt_ends_all_simulators_and_the_run_can_be_resumed(here):
    process = start("train", "mappo", env_of(here, slow=0.01), *options(), "--out", "run")
    wait_for(lambda: len(lines_of(here / "run")) >= 2, process)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 130, out
    assert gone(here)
    assert lines_of(here / "run")[-1]["kind"] != "absolute"
    grasp.resume(here / "run")
    lines = lines_of(here / "run")
    assert lines[-1]["kind"] == "absolute"
    assert [line["env_steps"] for line in lines if line["kind"] == "iteration"] == [80 * (k + 1) for k in range(12)]


def test_simulators_that_always_fail_end_in_a_checkpoint_and_a_sentence(here):
    process = start("train", "mappo", env_of(here), *options(), "--restarts", "2", "--out", "run")
    wait_for(lambda: iterations(here / "run") >= 4, process)
    (here / "broken").touch()
    out = process.communicate(timeout=WAIT)[0]
    assert process.returncode == 2, out
    assert "exited with code 7" in out.replace("\n", " ")
    assert "grasp resume" in out
    stopped = checkpoint.stored(here / "run" / "seed-0" / "checkpoints")[-1]
    assert checkpoint.number_of(stopped) == iterations(here / "run")  # not one iteration is lost
    (here / "broken").unlink()
    grasp.resume(here / "run")
    lines = lines_of(here / "run")
    assert lines[-1]["kind"] == "absolute"
    steps = [line["env_steps"] for line in lines if line["kind"] == "iteration"]
    assert steps == [80 * (k + 1) for k in range(12)]


EVERY_EVALUATION = pytest.mark.full("the first and the last evaluation")


@pytest.mark.parametrize(
    ("score", "due", "stands_at"),
    [
        pytest.param("score", 0, 0, marks=EVERY_EVALUATION),
        ("score", 1, 2),
        pytest.param("score_best", 0, 4, marks=EVERY_EVALUATION),
    ],
    ids=["first", "second", "last"],
)
def test_simulators_that_fail_in_an_evaluation_end_in_a_checkpoint_and_resume_with_it(
    here, monkeypatch, score, due, stands_at
):
    sizes = SIZES | {"steps": 80 * 4, "eval_interval": 80 * 2, "restarts": 1}
    config = resolved(configure("mappo", env_of(here), sizes), simulated=True)
    spec, build = envs.make(config.env).spec, loop.build
    straight = runs.create(here / "straight", config, spec)
    loop.train(straight, [0], lambda line: None)

    def broken(*given):
        """All simulators fail in one evaluation."""
        runner, calls = build(*given), itertools.count()

        def fail(*arguments):
            if next(calls) == due:
                (here / "broken").touch()
            return getattr(runner, score)(*arguments)

        return runner._replace(**{score: fail})

    stopped = runs.create(here / "stopped", config, spec)
    monkeypatch.setattr(loop, "build", broken)
    with pytest.raises(GraspError, match=r"and 1 had been replaced before.*continue with: grasp resume"):
        loop.train(stopped, [0], lambda line: None)
    (here / "broken").unlink()
    newest = checkpoint.stored(stopped.checkpoints(0))[-1]
    assert checkpoint.number_of(newest) == iterations(stopped.path) == stands_at
    monkeypatch.setattr(loop, "build", build)
    loop.train(stopped, [0], lambda line: None)
    assert lines_of(stopped.path) == lines_of(straight.path)


def test_restarts_during_the_last_evaluation_are_logged(here, monkeypatch):
    config = resolved(configure("mappo", env_of(here), SIZES | {"steps": 80}), simulated=True)
    build = loop.build

    def struck(*given):
        runner = build(*given)

        def score_best(*arguments):
            os.kill(next(pid for pid in simulators(here) if os.getsid(pid) == pid), signal.SIGKILL)
            return runner.score_best(*arguments)

        return runner._replace(score_best=score_best)

    monkeypatch.setattr(loop, "build", struck)
    loop.train(runs.create(here / "run", config, envs.make(config.env).spec), [0], lambda line: None)
    assert [line["restarts"] for line in lines_of(here / "run")] == [0, 0, 0, 1]


def test_evaluate_and_load_work_on_a_hosted_run(here):
    grasp.train("mappo", env_of(here), out="run", **SIZES | {"steps": 160})
    scores = grasp.evaluate("run", episodes=6)[0]
    assert scores.returned.shape == (6,)
    assert (scores.length == 5).all()
    assert grasp.load("run").act(np.zeros((2, 3), np.float32)).shape == (2,)
    with pytest.raises(GraspError, match="cannot be drawn"):
        grasp.play("run", out="x.gif")
    with pytest.raises(GraspError, match="cannot be vmapped"):
        grasp.train("mappo", env_of(here), out="other", parallel="vmap", **SIZES)
    assert not Path("other").exists()
