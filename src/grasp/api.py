"""The commands as Python functions, with the same names and options."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from rich.console import Console

from grasp import runs
from grasp.analysis import comparison, html_report, run_data, tables
from grasp.config import LARGEST, Config, configure, presets, validate
from grasp.envs.host import SimulatorPool
from grasp.launch import job as jobs
from grasp.launch.base import Launcher, Plan, Task, check_failures, launcher_on, tasks_of
from grasp.launch.local import resolved
from grasp.launch.progress import Display
from grasp.render import film
from grasp.runs import Run, restore
from grasp.runs.restore import Reporter, acting, is_finished, seed_keys, stored_policy
from grasp.runs.tensorboard import Sink, require_tensorboard
from grasp.training import host_rollout, remote_rollout
from grasp.training.evaluation import Evaluation, Scores
from grasp.training.evaluation import evaluate as score
from grasp.training.runner import Built
from grasp.training.runner import make as build
from grasp.types import Algorithm, Env, GraspError, Host, Key, Observation, PyTree

MOST_FILMED = 100
"""Episodes of one film."""


def train(
    algo: str,
    env: str,
    *,
    out: str | Path | None = None,
    on: str = "local",
    tensorboard: bool = False,
    console: Console | None = None,
    **options: Any,
) -> Run:
    """Train an algorithm in an environment and return the run. `options` are those of `grasp train --help`."""
    console = console or Console()
    config = configure(algo, env, options)
    built = build(config)
    config = resolved(config, isinstance(built.env, Host))
    if tensorboard:
        require_tensorboard()
    job = jobs.job_of(on, config)
    if job and job.process > 0:
        console.quiet = True  # process 0 shows the run
        return jobs.join(job, config, config.seeds)
    path = Path(out) if out else runs.default_path(config)
    with launcher_on(on, job) as launcher:
        lines = launcher.check([Plan(path, config, config.seeds, built)])
        run = runs.create(path, config, built.env.spec)
        lines = [*presets.notes(config.preset, config.hyper, config.env), *lines]
        return carry_on(run, built, launcher, tensorboard, console, lines)


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    on: str = "local",
    devices: int | None = None,
    tensorboard: bool = False,
    console: Console | None = None,
) -> Run:
    """Resume a stopped or killed run from its last checkpoint, bit for bit, or up to rounding on another number of
    `devices`. `steps` makes it longer."""
    console = console or Console()
    run = runs.find(path)
    run.need_networks()
    left = len(run.seeds) if steps is not None else sum(not is_finished(run, seed) for seed in run.seeds)
    if not left:
        raise GraspError(f"{path} is finished; train longer with: grasp resume {path} --steps {2 * run.config.steps}")
    built = build(run.config)
    config = run.config if devices is None else runs.spread(run.config, devices)
    validate(resolved(config, isinstance(built.env, Host)))
    job = jobs.job_of(on, config)
    if job and job.process > 0:
        console.quiet = True  # process 0 shows the run
        return jobs.join(job, config, left)
    with launcher_on(on, job) as launcher:
        lines = launcher.check([Plan(run.path, config, left, built)])
        if devices is not None:
            run = runs.move(run, devices)
        if steps is not None:
            run = runs.extend(run, steps)
        return carry_on(run, built, launcher, tensorboard, console, lines)


def carry_on(
    run: Run, built: Built, launcher: Launcher, tensorboard: bool, console: Console, lines: Sequence[str]
) -> Run:
    """Train what is left of a run and show its progress, after some `lines` of text."""
    listeners: list[Reporter] = []

    def notify_all(_: Task, line: dict[str, Any]) -> None:
        for listener in listeners:
            listener(line)

    with ExitStack() as held:
        display = held.enter_context(Display(run.config, console))
        listeners.append(display)
        if tensorboard:
            listeners.append(held.enter_context(closing(Sink(run))))
        for line in lines:
            display.print(line)
        display.expect(run, [seed for seed in run.seeds if not is_finished(run, seed)])
        check_failures(run, launcher.train(tasks_of(run, built), notify_all))
    return run


def evaluate(
    path: str | Path, *, episodes: int = 32, checkpoint: int | None = None, sampled: bool = False
) -> dict[int, Scores]:
    """Score every seed's policy on greedy episodes, or with `sampled` actions: its best policy, or that of the
    evaluation at `checkpoint` environment steps."""
    found = evaluations(path, episodes, checkpoint)
    return {seed: scores.sampled if sampled else scores.greedy for seed, scores in found.items()}


def evaluations(path: str | Path, episodes: int = 32, checkpoint: int | None = None) -> dict[int, Evaluation]:
    """The scores of every seed's policy with greedy and with sampled actions."""
    if not 1 <= episodes <= 10**6:
        raise GraspError(f"episodes must lie between 1 and a million, not {episodes}")
    run = runs.find(path)
    env, algorithm = build(run.config)
    found = {seed: load_state(run, seed, algorithm, checkpoint) for seed in run.seeds}
    with ExitStack() as held:
        scorer = scorer_of(run.config, env, algorithm, episodes, held)
        return {seed: jax.device_get(scorer(state, afterwards(seed))) for seed, state in found.items()}


def scorer_of(
    config: Config, env: Env | Host, algorithm: Algorithm, episodes: int, held: ExitStack
) -> Callable[[PyTree, Key], Evaluation]:
    """A function (state, key) -> scores. The workers of a simulator run until `held` is closed."""
    if isinstance(env, Env):
        return jax.jit(lambda state, key: score(env, algorithm, state, key, episodes))
    player = remote_rollout.HostPlayer(config, env, algorithm)
    held.callback(player.close)
    return lambda state, key: host_rollout.evaluate(player.opened(), state, key, episodes)


def afterwards(seed: int) -> Key:
    """The key of episodes after training; evaluations during training fold in their iteration."""
    return jax.random.fold_in(seed_keys(seed).evaluation, LARGEST)


def compare(
    paths: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    latex: bool = False,
    force: bool = False,
    threshold: float | None = None,
    chance: Mapping[str, float] | None = None,
    labels: Sequence[str] = (),
    claims: Mapping[tuple[str, str], str] | None = None,
    notes: Sequence[str] = (),
    score: str | None = None,
) -> comparison.Comparison:
    """Compare runs; with `out`, write report.html, the table (.md, or .tex if `latex`), numbers and curves there.

    `force` compares in spite of different environment versions or evaluation protocols. `threshold` is the score for
    which the steps to it are reported (a win rate, or a fraction of the way from random play to the best). `chance` is
    the return of random play, by environment. `labels` name the runs, `claims` are a paper's scores by environment and
    label, and `notes` are printed with the result. `score` is what is compared: "absolute", "last" or "whole".
    """
    found = run_data.load_runs(paths)
    if labels:
        found = [replace(run, label=label) for run, label in zip(found, labels, strict=True)]
    result = comparison.compare(found, force, threshold, chance, claims, notes, score)
    if out is not None:
        tables.write(result, found, Path(out), latex)
        html_report.write(result, found, Path(out))
    return result


def play(
    path: str | Path,
    *,
    out: str | Path = "episode.gif",
    seed: int | None = None,
    checkpoint: int | None = None,
    episodes: int = 1,
    overlay: bool = False,
) -> list[film.Episode]:
    """Render greedy episodes as a GIF or MP4: of the best policy of a run's first seed, or of another `seed` and the
    evaluation at `checkpoint` environment steps.

    `overlay` shows action probabilities and the critic's value beside every frame. Where a time limit truncates
    episodes, the value includes the rewards after it, and so exceeds the remaining return.
    """
    out = Path(out)
    film.check_path(out)
    if not 1 <= episodes <= MOST_FILMED:
        raise GraspError(f"episodes must lie between 1 and {MOST_FILMED}, not {episodes}")
    run = runs.find(path)
    seed = chosen_seed(run, seed)
    env, algorithm = build(run.config)
    if env.scene is None:
        raise film.cannot_draw(env.spec)
    if overlay and checkpoint is None:
        checkpoint = restore.best_steps(run, seed)  # the stored policy has no critic
    state = load_state(run, seed, algorithm, checkpoint, judging=overlay)
    if isinstance(env, Env):
        played = film.record(env, algorithm, state, afterwards(seed), episodes, overlay)
    else:
        with closing(SimulatorPool(env, 1, 1, run.config.deadline, run.config.restarts)) as pool:
            envs = host_rollout.HostEnvs(pool, algorithm, judging=overlay)
            played = host_rollout.record(envs, state, afterwards(seed), episodes)
    film.save(film.frames(env.spec, played), out)
    return played


def load_state(
    run: Run, seed: int, algorithm: Algorithm, env_steps: int | None = None, judging: bool = False
) -> PyTree:
    """A state with the seed's stored policy (`restore.stored_policy`), and its critic if `judging`."""
    run.need_networks()
    state = acting_state(algorithm, seed)
    return state._replace(**stored_policy(run, seed, acting(algorithm, state, judging), env_steps))


def acting_state(algorithm: Algorithm, seed: int) -> PyTree:
    """A new state without its replay buffer, which acting does not need and which may exceed the memory."""

    def init(key: Key) -> PyTree:
        state = algorithm.init(key)
        return state._replace(replay=()) if algorithm.replays else state

    return jax.jit(init)(jax.random.key(seed))


class Team:
    """A trained team that acts one step at a time: `grasp.load(RUN).act(observation)`."""

    def __init__(self, env: Env | Host, algorithm: Algorithm, state: PyTree):
        self.spec = env.spec
        self._algorithm, self._state = algorithm, state
        self._act = jax.jit(algorithm.act, static_argnums=4)
        self._key = jax.random.key(0)
        self.reset()

    def reset(self) -> None:
        """Clear the recurrent memory; call it whenever the environment is reset."""
        self._memory = self._algorithm.memory(1)

    def act(
        self,
        obs: Float[Array | np.ndarray, "N o"] | Observation,
        avail: Bool[Array | np.ndarray, "N a"] | None = None,
        alive: Bool[Array | np.ndarray, " N"] | None = None,
        greedy: bool = True,
    ) -> Int[np.ndarray, " N"]:
        """The action of every agent. By default all actions are available and all agents alive."""
        self._key, act_key = jax.random.split(self._key)
        observation = obs if isinstance(obs, Observation) else self._observation(obs, avail, alive)
        batch = jax.tree.map(lambda x: x[None], observation)
        decision = self._act(self._state, self._memory, batch, act_key, greedy)
        self._memory = decision.memory
        return np.asarray(decision.action[0])

    def _observation(self, obs: Any, avail: Any, alive: Any) -> Observation:
        shape = (self.spec.num_agents, self.spec.obs_dim)
        if np.shape(obs) != shape:
            raise GraspError(f"{self.spec.name} has observations of shape {shape}, not {np.shape(obs)}")
        if avail is None:
            avail = np.ones((self.spec.num_agents, self.spec.num_actions), bool)
        alive = np.ones(self.spec.num_agents, bool) if alive is None else alive
        # only the critic, which acting does not use, reads the state
        return Observation(
            jnp.asarray(obs, jnp.float32), jnp.zeros(self.spec.state_shape), jnp.asarray(avail), jnp.asarray(alive)
        )


def load(path: str | Path, seed: int | None = None) -> Team:
    """The trained team of a run, by default of its first seed."""
    run = runs.find(path)
    env, algorithm = build(run.config)
    return Team(env, algorithm, load_state(run, chosen_seed(run, seed), algorithm))


def chosen_seed(run: Run, seed: int | None) -> int:
    """The seed, which must be one of the run's, or by default its first."""
    if seed is not None and seed not in run.seeds:
        raise GraspError(f"{run.path} has no seed {seed}; it has {', '.join(map(str, run.seeds))}")
    return run.seeds[0] if seed is None else seed
