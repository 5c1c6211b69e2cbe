"""The commands as Python functions, with the same words."""

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

from grasp import algos, runs
from grasp.analysis import comparison, html_report, run_data, tables
from grasp.config import LARGEST, Config, configure, validate
from grasp.envs import base as envs
from grasp.envs.host import SimulatorPool
from grasp.launch import assistant, machines
from grasp.launch.base import Crew, Plan, Task, check_failures, tasks_of
from grasp.launch.local import resolved
from grasp.launch.places import crew_on
from grasp.launch.progress import Display
from grasp.render import film
from grasp.runs import Run, restore
from grasp.runs.restore import Reporter, acting, is_finished, seed_keys, stored_policy
from grasp.runs.tensorboard import Sink, require_tensorboard
from grasp.training import host_rollout, remote_rollout
from grasp.training.evaluation import Scores
from grasp.training.evaluation import evaluate as score
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
    """Train an algorithm in an environment; `options` are the fields of `grasp train --help`. Returns the run."""
    config = resolved(configure(algo, env, options))
    path = Path(out) if out else runs.default_path(config)
    spec = build(config)[0].spec
    if tensorboard:
        require_tensorboard()
    console = console or Console()
    with crew_on(on, saying(console)) as crew:
        words = crew.check([Plan(path, config, config.seeds)])
        return carry_on(runs.create(path, config, spec), crew, tensorboard, console, words)


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    on: str = "local",
    devices: int | None = None,
    tensorboard: bool = False,
    console: Console | None = None,
) -> Run:
    """Continue a stopped or killed run exactly where its last checkpoint stands; `steps` makes it longer, and on other
    `devices` floats are added in another order."""
    run = runs.find(path)
    run.need_networks()
    left = len(run.seeds) if steps is not None else sum(not is_finished(run, seed) for seed in run.seeds)
    if not left:
        raise GraspError(f"{path} is finished; train longer with: grasp resume {path} --steps {2 * run.config.steps}")
    build(run.config)
    config = run.config if devices is None else runs.spread(run.config, devices)
    validate(resolved(config))  # what cannot be spread is refused before anybody is called
    console = console or Console()
    with crew_on(on, saying(console)) as crew:
        words = crew.check([Plan(run.path, config, left)])
        if devices is not None:
            run = runs.move(run, devices)
        if steps is not None:
            run = runs.extend(run, steps)
        return carry_on(run, crew, tensorboard, console, words)


def assist(on: str, config: Config | None = None, *, console: Console | None = None) -> None:
    """Train for machine 0, as the machine that `on` names (K/N@HEAD:PORT). Machine 0 tells what; a `config` that is
    given must be the same as there."""
    place = machines.place_of(on)
    if place is None or place.number == 0:
        raise GraspError(f"only machines 1 to N-1 of N assist, and '{on}' is none of them")
    if config is not None:
        config = resolved(config)
        machines.check_devices(config, place.machines)
        build(config)
    assistant.assist(place, config, saying(console or Console()))


def saying(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True)


def carry_on(run: Run, crew: Crew, tensorboard: bool, console: Console, words: Sequence[str]) -> Run:
    """Train what is left of a run, showing how it goes; `words` are said first."""
    listeners: list[Reporter] = []

    def tell_all(_: Task, line: dict[str, Any]) -> None:
        for listener in listeners:
            listener(line)

    with ExitStack() as held:
        display = held.enter_context(Display(run.config, console))
        listeners.append(display)
        if tensorboard:
            listeners.append(held.enter_context(closing(Sink(run))))
        for line in words:
            display.say(line)
        display.expect(run, [seed for seed in run.seeds if not is_finished(run, seed)])
        check_failures(run, crew.train(tasks_of(run), tell_all))
    return run


def evaluate(path: str | Path, *, episodes: int = 32, checkpoint: int | None = None) -> dict[int, Scores]:
    """Greedy episodes of every seed's stored policy under its stored configuration: the best one, or that of the
    evaluation at `checkpoint` environment steps."""
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
) -> Callable[[PyTree, Key], Scores]:
    """(state, key) -> scores. A simulator's workers are `held` until all is scored."""
    if isinstance(env, Env):
        return jax.jit(lambda state, key: score(env, algorithm, state, key, episodes))
    player = remote_rollout.Player(config, env, algorithm)
    held.callback(player.close)
    return lambda state, key: host_rollout.evaluate(player.opened(), state, key, episodes)


def afterwards(seed: int) -> Key:
    """The key of episodes played after training: those during it are numbered by iteration."""
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

    `force` mixes environment versions and evaluation protocols; `threshold` is the score whose reaching is timed (a win
    rate, or a share of the way from random play to the best); `chance` is what random play returns, by environment;
    `labels` are what to call the runs; `claims` a paper's scores by environment and label; `notes` what a reader must
    know of them; `score` what is compared: "absolute", "last" or "whole".
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
    """Greedy episodes of a run's stored policy as a film: the first seed's and its best, unless others are named.

    `checkpoint` is the environment steps of an evaluation. `overlay` shows beside every moment what the team made of
    it: how much each agent is for each action, and the value. Where episodes are cut at a limit the value counts what
    would follow, and so exceeds what is left of the return.
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
        checkpoint = restore.best_steps(run, seed)  # the stored policy itself has only what acting needs
    state = load_state(run, seed, algorithm, checkpoint, judging=overlay)
    if isinstance(env, Env):
        played = film.record(env, algorithm, state, afterwards(seed), episodes, overlay)
    else:
        with closing(SimulatorPool(env, 1, 1, run.config.deadline, run.config.restarts)) as pool:
            stage = host_rollout.Stage(pool, algorithm, judging=overlay)
            played = host_rollout.record(stage, state, afterwards(seed), episodes)
    film.save(film.frames(env.spec, played), out)
    return played


def build(config: Config) -> tuple[Env | Host, Algorithm]:
    env = envs.make(config.env)
    return env, algos.make(config, env.spec)


def load_state(
    run: Run, seed: int, algorithm: Algorithm, env_steps: int | None = None, judging: bool = False
) -> PyTree:
    """A state that acts (and judges) with the seed's stored policy (`recovery.stored_policy`)."""
    run.need_networks()
    state = acting_state(algorithm, seed)
    return state._replace(**stored_policy(run, seed, acting(algorithm, state, judging), env_steps))


def acting_state(algorithm: Algorithm, seed: int) -> PyTree:
    """A fresh state without its replay, which acting does not read and which may be larger than the memory."""

    def init(key: Key) -> PyTree:
        state = algorithm.init(key)
        return state._replace(replay=()) if algorithm.replays else state

    return jax.jit(init)(jax.random.key(seed))


class Team:
    """A trained team, one step at a time: `grasp.load(RUN).act(observation)`."""

    def __init__(self, env: Env | Host, algorithm: Algorithm, state: PyTree):
        self.spec = env.spec
        self._algorithm, self._state = algorithm, state
        self._act = jax.jit(algorithm.act, static_argnums=4)
        self._key = jax.random.key(0)
        self.reset()

    def reset(self) -> None:
        """Forget the episode so far; call it whenever the environment is reset."""
        self._memory = self._algorithm.memory(1)

    def act(
        self,
        obs: Float[Array | np.ndarray, "N o"] | Observation,
        avail: Bool[Array | np.ndarray, "N a"] | None = None,
        alive: Bool[Array | np.ndarray, " N"] | None = None,
        greedy: bool = True,
    ) -> Int[np.ndarray, " N"]:
        """Every agent's action. `avail` and `alive` may be left out where all actions are legal and all agents live."""
        self._key, act_key = jax.random.split(self._key)
        observation = obs if isinstance(obs, Observation) else self._observation(obs, avail, alive)
        batch = jax.tree.map(lambda x: x[None], observation)
        decision = self._act(self._state, self._memory, batch, act_key, greedy)
        self._memory = decision.memory
        return np.asarray(decision.action[0])

    def _observation(self, obs: Any, avail: Any, alive: Any) -> Observation:
        shape = (self.spec.num_agents, self.spec.obs_dim)
        if np.shape(obs) != shape:
            raise GraspError(f"{self.spec.name} gives observations of shape {shape}, not {np.shape(obs)}")
        if avail is None:
            avail = np.ones((self.spec.num_agents, self.spec.num_actions), bool)
        alive = np.ones(self.spec.num_agents, bool) if alive is None else alive
        # The state feeds only the critic, which acting does not read.
        return Observation(
            jnp.asarray(obs, jnp.float32), jnp.zeros(self.spec.state_shape), jnp.asarray(avail), jnp.asarray(alive)
        )


def load(path: str | Path, seed: int | None = None) -> Team:
    """The trained team of a run (its first seed, unless another is named)."""
    run = runs.find(path)
    env, algorithm = build(run.config)
    return Team(env, algorithm, load_state(run, chosen_seed(run, seed), algorithm))


def chosen_seed(run: Run, seed: int | None) -> int:
    """The named seed, which must be the run's, or its first."""
    if seed is not None and seed not in run.seeds:
        raise GraspError(f"{run.path} has no seed {seed}; it has {', '.join(map(str, run.seeds))}")
    return run.seeds[0] if seed is None else seed
