"""What a group of seeds runs: begin, advance, evaluate. On a device it is compiled whole; a simulator is stepped by its
workers, and only acting and learning are compiled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Int, Shaped

from grasp import algos
from grasp.algos import replay_buffer as replays
from grasp.config import Config
from grasp.envs import base as envs
from grasp.nn import sharding
from grasp.runs.restore import acting, seed_keys
from grasp.training import host_rollout, rollout
from grasp.training import remote_rollout as shared
from grasp.training.evaluation import Scores, evaluate
from grasp.training.remote_rollout import Order, Others, Player, Share
from grasp.types import Algorithm, Env, Host, Key, Metrics, PyTree


class RunState(NamedTuple):
    """One seed between two iterations."""

    state: PyTree
    arena: PyTree
    """The environments in mid-play; nothing where they are simulators, which cannot be stored."""
    key: Shaped[Array, "*S"]
    iteration: Int[Array, "*S"]


class Built(NamedTuple):
    """An environment and the algorithm for it, made once in a process and handed on."""

    env: Env | Host
    algorithm: Algorithm


class Programs(NamedTuple):
    """What is compiled for a group of seeds."""

    begin: Callable[[list[int]], RunState]
    advance: Callable[[RunState], tuple[RunState, Metrics]]
    outline: Callable[[RunState], RunState]
    score: Callable[[PyTree, Array], Scores]
    score_best: Callable[[PyTree, Array], Scores]
    algorithm: Algorithm
    env: Env | Host
    replaced: Callable[[], dict[str, Any]] = dict
    """What simulators add to the metrics of an evaluation."""
    close: Callable[[], None] = lambda: None


def over_seeds(function: Callable, num_seeds: int) -> Callable:
    """The function with a leading seed axis. One seed is not mapped: under vmap a branch computes both its sides."""
    if num_seeds > 1:
        return jax.vmap(function)

    def alone(*arguments):
        inside = jax.tree.map(lambda x: x[0], arguments)
        return jax.tree.map(lambda x: x[None], function(*inside))

    return alone


def make(config: Config) -> Built:
    env = envs.make(config.env)
    return Built(env, algos.make(config, env.spec))


def build(
    config: Config,
    num_seeds: int,
    log: Path | None = None,
    others: Others | None = None,
    built: Built | None = None,
) -> Programs:
    """Everything a group of seeds runs, not yet compiled. Simulators complain in `log`; those of other machines are
    with the `others`."""
    env, algorithm = built or make(config)
    if isinstance(env, Host):
        return on_host(config, env, algorithm, log, others)
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
    return programs if config.devices == 1 else on_many(programs, sharding.mesh(config.devices))


def on_many(programs: Programs, mesh: Mesh) -> Programs:
    """The same programs with the environments spread over a mesh. What is stored is gathered, so that it can go on with
    any number of devices; what is read is on every machine."""
    same = NamedSharding(mesh, sharding.REPLICATED)
    # The first axis is the seed's.
    places = RunState._make([same, NamedSharding(mesh, sharding.SECOND_AXIS), same, same])

    def among(function: Callable, *given: PyTree) -> Callable:
        """The function with its arguments where they are to be; nothing moves that is there already."""

        def call(*arguments: PyTree) -> PyTree:
            with jax.set_mesh(mesh):
                return function(*sharding.put(arguments, given))

        return call

    return programs._replace(
        advance=among(jax.jit(programs.advance, donate_argnums=0, out_shardings=(places, same)), places),
        outline=among(jax.jit(programs.outline, out_shardings=same), places),
        score=among(jax.jit(programs.score, out_shardings=same), same, same),
        score_best=among(jax.jit(programs.score_best, out_shardings=same), same, same),
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


def on_host(config: Config, host: Host, algorithm: Algorithm, log: Path | None, others: Others | None) -> Programs:
    """Simulators in worker processes, of one seed."""
    simulated = Simulated(config, host, algorithm, log, others)
    return Programs(
        begin=lambda seeds: gather([begin_seed(config, host, algorithm, seed) for seed in seeds], algorithm),
        advance=simulated.advance,
        outline=jax.jit(over_seeds(lambda run: outline(algorithm, run), 1)),
        score=lambda state, keys: simulated.score(state, keys, config.eval_episodes),
        score_best=lambda state, keys: simulated.score(state, keys, config.final_episodes),
        algorithm=algorithm,
        env=host,
        replaced=simulated.replaced,
        close=simulated.close,
    )


class Simulated:
    """One seed's simulators. They play training's and evaluation's episodes in turns: an evaluation ends the running
    ones, so that a run that is resumed from a checkpoint of that moment goes on exactly as it would have."""

    def __init__(
        self, config: Config, host: Host, algorithm: Algorithm, log: Path | None = None, others: Others | None = None
    ):
        self.config, self.algorithm, self.others = config, algorithm, others
        self.player = Player(config, host, algorithm, log=log)
        self.update = jax.jit(over_seeds(algorithm.update, 1), donate_argnums=0)
        self.training = False

    def advance(self, run: RunState) -> tuple[RunState, Metrics]:
        iteration = int(run.iteration[0])
        collect_key, update_key = keys_of(run, iteration)
        fresh, self.training = not self.training, True
        if self.others:
            self.others.ask(self.order(run, iteration, fresh))
        shares = [self.player.play(iteration, self.alone(run.state), collect_key, fresh)]
        if self.others:
            shares += self.gathered(run, iteration)
        trajectory, outcome = shared.joined(shares)
        played = shared.described(shares, outcome, self.player.host.spec.has_wins)
        if self.others:
            played |= shared.provenance(shares, iteration, self.others.missing())
        state, learned = self.update(run.state, one(trajectory), update_key[None])
        return RunState(state, (), run.key, run.iteration + 1), one(played) | learned

    def gathered(self, run: RunState, iteration: int) -> list[Share]:
        """What the others have played; where they may, they play on with the policy that is about to learn.

        So much of the staleness is for playing ahead; with what is left of it a share may come late. Before an
        evaluation, which begins new episodes, nobody is late or ahead.
        """
        assert self.others is not None
        is_last = self.config.is_evaluation(iteration + 1)
        shares = self.others.take(iteration - (0 if is_last else max(self.config.staleness - 1, 0)))
        if self.config.staleness and not is_last:
            self.others.ask(self.order(run, iteration + 1, False))
        return shares

    def order(self, run: RunState, iteration: int, fresh: bool) -> Order:
        """What the others are to play for an iteration, with the policy as it is now."""
        policy = jax.device_get(acting(self.algorithm, self.alone(run.state), judging=True))
        bits = np.asarray(jax.random.key_data(keys_of(run, iteration)[0]))
        return Order(iteration, int(run.iteration[0]), policy, bits, fresh)

    def score(self, state: PyTree, keys: Shaped[Array, " 1"], episodes: int) -> Scores:
        self.training = False
        return one(host_rollout.evaluate(self.player.opened(), self.alone(state), keys[0], episodes))

    def replaced(self) -> dict[str, Any]:
        return one({"restarts": np.asarray(self.player.opened().pool.take_unreported())})

    def alone(self, state: PyTree) -> PyTree:
        """The state without its seed axis, to act with: without its replay too, which acting does not read and which
        would be copied."""
        return jax.tree.map(lambda x: x[0], state._replace(replay=()) if self.algorithm.replays else state)

    def close(self) -> None:
        self.player.close()
        if self.others:
            self.others.close()


def keys_of(run: RunState, iteration: int) -> tuple[Key, Key]:
    """One seed's keys of playing and of learning in an iteration."""
    collect_key, update_key = jax.random.split(jax.random.fold_in(run.key[0], iteration))
    return collect_key, update_key


def one(tree: PyTree) -> PyTree:
    """A seed axis for one seed."""
    return jax.tree.map(lambda x: x[None], tree)
