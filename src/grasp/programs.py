"""What a group of seeds runs: begin, advance, evaluate. On a device it is compiled whole; a simulator is stepped by its
workers, and only acting and learning are compiled."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Int, Shaped

from grasp import algos, devices, hosted, rollout
from grasp import replay as replays
from grasp.config import LARGEST, Config
from grasp.envs import base as envs
from grasp.envs.host import Pool, cores
from grasp.evaluation import Scores, evaluate
from grasp.recovery import seed_keys
from grasp.types import Algorithm, Env, Host, Metrics, PyTree


class RunState(NamedTuple):
    """One seed between two iterations."""

    state: PyTree
    arena: PyTree
    """The environments in mid-play; nothing where they are simulators, which cannot be stored."""
    key: Shaped[Array, "*S"]
    iteration: Int[Array, "*S"]


class Programs(NamedTuple):
    """What is compiled for a group of seeds."""

    begin: Callable[[list[int]], RunState]
    advance: Callable[[RunState], tuple[RunState, Metrics]]
    outline: Callable[[RunState], RunState]
    score: Callable[[PyTree, Array], Scores]
    score_best: Callable[[PyTree, Array], Scores]
    algorithm: Algorithm
    env: Env | Host
    close: Callable[[], None] = lambda: None


def over_seeds(function: Callable, num_seeds: int) -> Callable:
    """The function with a leading seed axis. One seed is not mapped: under vmap a branch computes both its sides."""
    if num_seeds > 1:
        return jax.vmap(function)

    def alone(*arguments):
        inside = jax.tree.map(lambda x: x[0], arguments)
        return jax.tree.map(lambda x: x[None], function(*inside))

    return alone


def build(config: Config, num_seeds: int, log: Path | None = None) -> Programs:
    """Everything a group of seeds runs, not yet compiled. Simulators complain in `log`."""
    env = envs.make(config.env)
    algorithm = algos.make(config, env.spec)
    if isinstance(env, Host):
        return on_host(config, env, algorithm, log)
    return on_device(config, env, algorithm, num_seeds)


def on_device(config: Config, env: Env, algorithm: Algorithm, num_seeds: int) -> Programs:
    """An environment that is part of the compiled program."""

    def begin(seeds: list[int]) -> RunState:
        return gather([begin_seed(config, env, algorithm, seed) for seed in seeds], algorithm)

    def advance(run: RunState) -> tuple[RunState, Metrics]:
        collect_key, update_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
        arena, trajectory, played = rollout.collect(
            env, algorithm, run.state, run.arena, collect_key, config.hyper.rollout
        )
        state, learned = algorithm.update(run.state, trajectory, update_key)
        return RunState(state, arena, run.key, run.iteration + 1), played | learned

    def scorer(episodes: int) -> Callable:
        return jax.jit(over_seeds(lambda state, key: evaluate(env, algorithm, state, key, episodes), num_seeds))

    programs = Programs(
        begin=begin,
        advance=jax.jit(over_seeds(advance, num_seeds), donate_argnums=0),
        outline=jax.jit(over_seeds(lambda run: outline(algorithm, run), num_seeds)),
        score=scorer(config.eval_episodes),
        score_best=scorer(config.final_episodes),
        algorithm=algorithm,
        env=env,
    )
    return programs if config.devices == 1 else on_many(programs, devices.mesh(config.devices))


def on_many(programs: Programs, mesh: Mesh) -> Programs:
    """The same programs with the environments spread over a mesh. What is stored is gathered, so that it can go on with
    any number of devices."""
    same = NamedSharding(mesh, devices.SAME)
    places = RunState._make([same, NamedSharding(mesh, devices.SECOND), same, same])  # the seed's axis is the first

    def among(function: Callable, *given: PyTree) -> Callable:
        """The function with its arguments where they are to be; nothing moves that is there already."""

        def call(*arguments: PyTree) -> PyTree:
            with jax.set_mesh(mesh):
                return function(*jax.device_put(arguments, given))

        return call

    return programs._replace(
        advance=among(programs.advance, places),
        outline=among(jax.jit(programs.outline, out_shardings=same), places),
        score=among(programs.score, same, same),
        score_best=among(programs.score_best, same, same),
    )


def gather(states: list[RunState], algorithm: Algorithm) -> RunState:
    """`stack`, for states that are not used again: one replay alone is not copied, since it may fill the memory."""
    if len(states) > 1 or not algorithm.replays:
        return stack(states)
    alone = states[0]
    replay = jax.jit(lambda x: jax.tree.map(lambda leaf: leaf[None], x), donate_argnums=0)(alone.state.replay)
    rest = stack([alone._replace(state=alone.state._replace(replay=()))])
    return rest._replace(state=rest.state._replace(replay=replay))


def stack(trees: list[PyTree]) -> PyTree:
    """One tree with a leading seed axis."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def begin_seed(config: Config, env: Env | Host, algorithm: Algorithm, seed: int) -> RunState:
    """A seed before its first iteration."""
    init_key, arena_key, run_key, _ = seed_keys(seed)
    arena = ()
    if isinstance(env, Env):
        arena = jax.jit(lambda key: rollout.open_arena(env, algorithm, config.hyper.num_envs, key))(arena_key)
    return RunState(algorithm.init(init_key), arena, run_key, jnp.zeros((), jnp.int32))


def outline(algorithm: Algorithm, run: RunState) -> RunState:
    """What a checkpoint holds: everything but finished episodes, which are in segments."""
    if not algorithm.replays:
        return run
    return run._replace(state=run.state._replace(replay=replays.tail(run.state.replay)))


def on_host(config: Config, host: Host, algorithm: Algorithm, log: Path | None) -> Programs:
    """Simulators in worker processes, of one seed."""
    simulated = Simulated(config, host, algorithm, log)
    return Programs(
        begin=lambda seeds: gather([begin_seed(config, host, algorithm, seed) for seed in seeds], algorithm),
        advance=simulated.advance,
        outline=jax.jit(over_seeds(lambda run: outline(algorithm, run), 1)),
        score=lambda state, keys: simulated.score(state, keys, config.eval_episodes),
        score_best=lambda state, keys: simulated.score(state, keys, config.final_episodes),
        algorithm=algorithm,
        env=host,
        close=simulated.close,
    )


class Simulated:
    """One seed's simulators. They play training's and evaluation's episodes in turns: an evaluation ends the running
    ones, so that a run that is resumed from a checkpoint of that moment goes on exactly as it would have."""

    def __init__(self, config: Config, host: Host, algorithm: Algorithm, log: Path | None):
        self.config, self.host, self.algorithm, self.log = config, host, algorithm, log
        self.update = jax.jit(over_seeds(algorithm.update, 1), donate_argnums=0)
        self.stage: hosted.Stage | None = None
        self.training = False

    def opened(self) -> hosted.Stage:
        if self.stage is None:
            config = self.config
            workers = config.workers or len(cores())
            pool = Pool(self.host, config.hyper.num_envs, workers, config.deadline, config.restarts, self.log)
            self.stage = hosted.Stage(pool, self.algorithm)
        return self.stage

    def advance(self, run: RunState) -> tuple[RunState, Metrics]:
        stage = self.opened()
        collect_key, update_key = jax.random.split(jax.random.fold_in(run.key[0], run.iteration[0]))
        if not self.training:
            seeds_key = jax.random.fold_in(collect_key, LARGEST)
            stage.begin(hosted.episode_seeds(seeds_key, self.config.hyper.num_envs))
            self.training = True
        trajectory, played = hosted.collect(stage, self.alone(run.state), collect_key, self.config.hyper.rollout)
        state, learned = self.update(run.state, one(trajectory), update_key[None])
        return RunState(state, (), run.key, run.iteration + 1), one(played) | learned

    def score(self, state: PyTree, keys: Shaped[Array, " 1"], episodes: int) -> Scores:
        self.training = False
        return one(hosted.evaluate(self.opened(), self.alone(state), keys[0], episodes))

    def alone(self, state: PyTree) -> PyTree:
        """The state without its seed axis, to act with: without its replay too, which acting does not read and which
        would be copied."""
        return jax.tree.map(lambda x: x[0], state._replace(replay=()) if self.algorithm.replays else state)

    def close(self) -> None:
        if self.stage is not None:
            self.stage.pool.close()


def one(tree: PyTree) -> PyTree:
    """A seed axis for one seed."""
    return jax.tree.map(lambda x: x[None], tree)
