"""The functions that train a group of seeds: begin, advance, evaluate.

With an environment in JAX they are compiled whole. Simulators are stepped by worker processes, and only acting and
learning are compiled.
"""

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
from grasp.training import host_rollout, remote_rollout, rollout
from grasp.training.evaluation import Evaluation, evaluate
from grasp.training.remote_rollout import HostPlayer, RemoteRollouts, RolloutPart, RolloutRequest
from grasp.types import Algorithm, Env, Host, Key, Metrics, PyTree


class RunState(NamedTuple):
    """One seed between two iterations."""

    state: PyTree
    arena: PyTree
    """The running environments; empty for simulators, whose state cannot be stored."""
    key: Shaped[Array, "*S"]
    iteration: Int[Array, "*S"]


class Built(NamedTuple):
    """An environment and the algorithm for it, made once per process and passed on."""

    env: Env | Host
    algorithm: Algorithm


class Runner(NamedTuple):
    """The functions that train a group of seeds; every array has a leading seed axis."""

    begin: Callable[[list[int]], RunState]
    advance: Callable[[RunState], tuple[RunState, Metrics]]
    outline: Callable[[RunState], RunState]
    score: Callable[[PyTree, Array], Evaluation]
    score_best: Callable[[PyTree, Array], Evaluation]
    algorithm: Algorithm
    env: Env | Host
    host_metrics: Callable[[], dict[str, Any]] = dict
    """Metrics of simulators, added to those of an evaluation."""
    close: Callable[[], None] = lambda: None


def over_seeds(function: Callable, num_seeds: int) -> Callable:
    """The function with a leading seed axis. One seed is not vmapped: vmap makes `lax.cond` compute both branches."""
    if num_seeds > 1:
        return jax.vmap(function)

    def alone(*arguments):
        inside = jax.tree.map(lambda x: x[0], arguments)
        return jax.tree.map(lambda x: x[None], function(*inside))

    return alone


def make(config: Config, env: Env | Host | None = None) -> Built:
    """The algorithm of a configuration and its environment, which several runs may share."""
    env = env or envs.make(config.env)
    return Built(env, algos.make(config, env.spec))


def build(
    config: Config,
    num_seeds: int,
    log: Path | None = None,
    remote: RemoteRollouts | None = None,
    built: Built | None = None,
) -> Runner:
    """The functions for a group of seeds, not yet compiled. Simulators write their errors to `log`; `remote` are the
    simulators of other nodes."""
    env, algorithm = built or make(config)
    if isinstance(env, Host):
        return on_host(config, env, algorithm, log, remote)
    return on_device(config, env, algorithm, num_seeds)


def on_device(config: Config, env: Env, algorithm: Algorithm, num_seeds: int) -> Runner:
    """For an environment in JAX, which is part of the compiled program."""

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

    runner = Runner(
        begin=begin,
        advance=jax.jit(over_seeds(advance, num_seeds), donate_argnums=0),
        outline=jax.jit(over_seeds(lambda run: outline(algorithm, run), num_seeds)),
        score=scorer(config.eval_episodes),
        score_best=scorer(config.final_episodes),
        algorithm=algorithm,
        env=env,
    )
    return runner if config.devices == 1 else on_devices(runner, sharding.mesh(config.devices))


def on_devices(runner: Runner, mesh: Mesh) -> Runner:
    """The same functions with the environments sharded over a mesh. Checkpoints are gathered, so that training can be
    resumed on any number of devices; metrics and scores are replicated on every node."""
    same = NamedSharding(mesh, sharding.REPLICATED)
    shardings = RunState._make([same, NamedSharding(mesh, sharding.SECOND_AXIS), same, same])  # axis 0 is the seed

    def sharded(function: Callable, *given: PyTree) -> Callable:
        """The function with its arguments moved to the given shardings, unless they have them already."""

        def call(*arguments: PyTree) -> PyTree:
            with jax.set_mesh(mesh):
                return function(*sharding.put(arguments, given))

        return call

    return runner._replace(
        advance=sharded(jax.jit(runner.advance, donate_argnums=0, out_shardings=(shardings, same)), shardings),
        outline=sharded(jax.jit(runner.outline, out_shardings=same), shardings),
        score=sharded(jax.jit(runner.score, out_shardings=same), same, same),
        score_best=sharded(jax.jit(runner.score_best, out_shardings=same), same, same),
    )


def gather(states: list[RunState], algorithm: Algorithm) -> RunState:
    """`stack`, which invalidates the states: a single replay buffer, which may fill the memory, is not copied."""
    if len(states) > 1 or not algorithm.replays:
        return stack(states)
    alone = states[0]
    replay = jax.jit(lambda x: jax.tree.map(lambda leaf: leaf[None], x), donate_argnums=0)(alone.state.replay)
    rest = stack([alone._replace(state=alone.state._replace(replay=()))])
    return rest._replace(state=rest.state._replace(replay=replay))


def stack(trees: list[PyTree]) -> PyTree:
    """Stack trees on a leading seed axis."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def begin_seed(config: Config, env: Env | Host, algorithm: Algorithm, seed: int) -> RunState:
    """The state of a seed before its first iteration."""
    init_key, arena_key, run_key, _ = seed_keys(seed)
    arena = ()
    if isinstance(env, Env):
        arena = jax.jit(lambda key: rollout.open_arena(env, algorithm, config.hyper.num_envs, key))(arena_key)
    return RunState(algorithm.init(init_key), arena, run_key, jnp.zeros((), jnp.int32))


def outline(algorithm: Algorithm, run: RunState) -> RunState:
    """The part of a state that a checkpoint has: all but finished episodes, which are in segments."""
    if not algorithm.replays:
        return run
    return run._replace(state=run.state._replace(replay=replays.checkpointed(run.state.replay)))


def on_host(
    config: Config, host: Host, algorithm: Algorithm, log: Path | None, remote: RemoteRollouts | None
) -> Runner:
    """For simulators in worker processes, which train one seed."""
    runner = HostRunner(config, host, algorithm, log, remote)
    return Runner(
        begin=lambda seeds: gather([begin_seed(config, host, algorithm, seed) for seed in seeds], algorithm),
        advance=runner.advance,
        outline=jax.jit(over_seeds(lambda run: outline(algorithm, run), 1)),
        score=lambda state, keys: runner.score(state, keys, config.eval_episodes),
        score_best=lambda state, keys: runner.score(state, keys, config.final_episodes),
        algorithm=algorithm,
        env=host,
        host_metrics=runner.metrics,
        close=runner.close,
    )


class HostRunner:
    """Trains one seed with simulators, which serve training and evaluation alternately. An evaluation ends the episodes
    of training, so that a run resumed from the checkpoint after it continues exactly as it would have."""

    def __init__(
        self,
        config: Config,
        host: Host,
        algorithm: Algorithm,
        log: Path | None = None,
        remote: RemoteRollouts | None = None,
    ):
        self.config, self.algorithm, self.remote = config, algorithm, remote
        self.player = HostPlayer(config, host, algorithm, log=log)
        self.update = jax.jit(over_seeds(algorithm.update, 1), donate_argnums=0)
        self.training = False

    def advance(self, run: RunState) -> tuple[RunState, Metrics]:
        iteration = int(run.iteration[0])
        collect_key, update_key = keys_of(run, iteration)
        fresh, self.training = not self.training, True
        if self.remote:
            self.remote.request(self.request(run, iteration, fresh))
        parts = [self.player.play(iteration, self.single(run.state), collect_key, fresh)]
        if self.remote:
            parts += self.received(run, iteration)
        trajectory, outcome = remote_rollout.joined(parts)
        played = remote_rollout.simulator_metrics(parts, outcome, self.player.host.spec.has_wins)
        if self.remote:
            played |= remote_rollout.node_metrics(parts, iteration, self.remote.missing())
        state, learned = self.update(run.state, one(trajectory), update_key[None])
        return RunState(state, (), run.key, run.iteration + 1), one(played) | learned

    def received(self, run: RunState, iteration: int) -> list[RolloutPart]:
        """The parts of the other nodes. With `staleness` they collect during the update, too, with the current policy.

        This makes the parts one update stale; they may also arrive up to `staleness - 1` iterations late. Before an
        evaluation, which begins new episodes, no part is late and none is requested in advance.
        """
        assert self.remote is not None
        is_last = self.config.is_evaluation(iteration + 1)
        parts = self.remote.receive(iteration - (0 if is_last else max(self.config.staleness - 1, 0)))
        if self.config.staleness and not is_last:
            self.remote.request(self.request(run, iteration + 1, False))
        return parts

    def request(self, run: RunState, iteration: int, fresh: bool) -> RolloutRequest:
        """The request for an iteration, with the current policy."""
        policy = jax.device_get(acting(self.algorithm, self.single(run.state), judging=True))
        bits = np.asarray(jax.random.key_data(keys_of(run, iteration)[0]))
        return RolloutRequest(iteration, int(run.iteration[0]), policy, bits, fresh)

    def score(self, state: PyTree, keys: Shaped[Array, " 1"], episodes: int) -> Evaluation:
        self.training = False
        return one(host_rollout.evaluate(self.player.opened(), self.single(state), keys[0], episodes))

    def metrics(self) -> dict[str, Any]:
        return one({"restarts": np.asarray(self.player.opened().pool.take_unreported())})

    def single(self, state: PyTree) -> PyTree:
        """The state without its seed axis, for acting, and without its replay buffer, which acting does not read and
        which would be copied."""
        return jax.tree.map(lambda x: x[0], state._replace(replay=()) if self.algorithm.replays else state)

    def close(self) -> None:
        self.player.close()
        if self.remote:
            self.remote.close()


def keys_of(run: RunState, iteration: int) -> tuple[Key, Key]:
    """The keys of one seed for collecting and for the update in an iteration."""
    collect_key, update_key = jax.random.split(jax.random.fold_in(run.key[0], iteration))
    return collect_key, update_key


def one(tree: PyTree) -> PyTree:
    """Add a seed axis of length 1."""
    return jax.tree.map(lambda x: x[None], tree)
