"""Rollouts and evaluations with a pool of simulators; `grasp.training.rollout` and `grasp.training.evaluation` do the
same in JAX.

Copies are split into two groups, so that the policy acts in one while the workers step the other. When a worker fails,
its copies continue their columns of the rollout where their lost episodes began: the steps of those episodes are
overwritten, and the batch keeps its size.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from grasp.envs.host import Copies, SimulatorPool, observed
from grasp.render.film import Episode, cannot_draw, overlay_of
from grasp.training.evaluation import Evaluation, Scores, extended
from grasp.training.rollout import Outcome, cleared, where
from grasp.types import Algorithm, Decision, Key, Observation, PyTree, Trajectory

GROUPS = 2
"""One is stepped while the policy acts in the other."""
LARGEST_SEED = 2**31 - 1


class HostEnvs:
    """Parallel copies of a simulator, with the policy's memory of their running episodes."""

    def __init__(self, pool: SimulatorPool, algorithm: Algorithm, groups: int = GROUPS, judging: bool = False):
        self.pool, self.algorithm, self.judging = pool, algorithm, judging
        num_envs = len(pool.records)
        groups = min(groups, num_envs)
        # every worker has copies in each group, so that none is idle while the policy acts
        self.groups: list[Copies] = [np.arange(start, num_envs, groups) for start in range(groups)]
        self.first = np.ones(num_envs, bool)
        self.returned, self.length = zeros(num_envs, np.float32), zeros(num_envs, np.int32)
        self.moving: list[Copies] = []
        self.memory: list[PyTree] = []
        self.seed: Callable[[int], int] = lambda copy: copy
        self.act = jax.jit(self._act, static_argnames="greedy")

    def _act(
        self,
        state: PyTree,
        memory: PyTree,
        first: Array,
        active: Array,
        seen: Observation,
        key: Key,
        turn: Array,
        greedy: bool,
    ) -> Decision:
        key = jax.random.fold_in(key, turn)  # compiled with acting: a separate call would take as long as acting
        decision = self.algorithm.act(state, cleared(memory, first), seen, key, greedy)
        if not self.judging:
            decision = decision._replace(preference=(), value=())  # so that they are not computed
        return decision._replace(memory=where(active, decision.memory, memory))

    def begin(self, seed: Callable[[int], int]) -> None:
        """Begin new episodes in all copies; `seed` returns the seed of a copy's next episode."""
        self.seed = seed
        self.moving = [group[:0] for group in self.groups]
        self.memory = [self.algorithm.memory(len(group)) for group in self.groups]
        for index, group in enumerate(self.groups):
            self.pool.wait(group)
            self.renew(index, group)

    def arrived(self, index: int) -> tuple[Copies, Copies]:
        """Wait for a group; returns the copies that were stepped, and those whose episode was lost."""
        group = self.groups[index]
        lost = group[self.pool.wait(group)]
        moved = np.setdiff1d(self.moving[index], lost)
        self.moving[index] = group[:0]
        return moved, lost

    def renew(self, index: int, copies: Copies) -> Copies:
        """Begin new episodes in these copies, and in copies of the group that fail meanwhile; returns the latter."""
        group, lost = self.groups[index], np.zeros(0, int)
        while len(copies):
            self.pool.records["seed"][copies] = [self.seed(copy) for copy in copies]
            self.first[copies], self.returned[copies], self.length[copies] = True, 0.0, 0
            self.pool.send("reset", copies)
            copies = group[self.pool.wait(group)]
            lost = np.union1d(lost, copies)
        return lost

    def decide(
        self, tick: int, index: int, active: Copies, state: PyTree, key: Key, greedy: bool
    ) -> tuple[Observation, Decision]:
        """Act in a group, and step its active copies. Random numbers depend on the tick and the group."""
        group = self.groups[index]
        seen = observed(self.pool, group)
        playing = np.isin(group, active)
        turn = tick * len(self.groups) + index
        decision = self.act(state, self.memory[index], self.first[group], playing, seen, key, turn, greedy=greedy)
        self.memory[index] = decision.memory
        decision = jax.device_get(decision)
        self.pool.records["action"][active] = decision.action[playing]
        self.first[active] = False
        self.pool.send("step", active)
        self.moving[index] = active
        return seen, decision


def zeros(shape: int | tuple[int, ...], kind: Any) -> Any:
    """An array to be filled in place. Untyped, because it is used where JAX's arrays are declared."""
    return np.zeros(shape, kind)


class RolloutBuffer:
    """A rollout that is being filled. Every copy has its own time step, so that a single copy can be rewound."""

    def __init__(self, envs: HostEnvs, num_steps: int):
        self.envs, self.num_steps = envs, num_steps
        num_envs = len(envs.first)
        self.shape = num_steps, num_envs
        self.time = np.zeros(num_envs, int)
        self.since = np.zeros(num_envs, int)
        """The time step at which each copy's running episode began in this rollout."""
        self.reward, self.terminated, self.truncated = (zeros(self.shape, kind) for kind in (np.float32, bool, bool))
        self.outcome = Outcome(*(zeros(self.shape, kind) for kind in (bool, np.float32, np.int32, bool)))
        self.acted: PyTree = None
        """Observation, memory, first, action and record, allocated by the first decision."""
        self.followed: PyTree = None

    def act(self, tick: int, index: int, state: PyTree, key: Key) -> None:
        """Act in the copies of a group whose columns are not full."""
        group = self.envs.groups[index]
        active = group[self.time[group] < self.num_steps]
        if not len(active):
            return
        first, memory = self.envs.first[group], jax.device_get(self.envs.memory[index])
        seen, did = self.envs.decide(tick, index, active, state, key, False)
        row = seen, memory, first, did.action, did.record
        if self.acted is None:
            self.acted, self.followed = jax.tree.map(self.empty, row), jax.tree.map(self.empty, seen)
        playing = np.isin(group, active)
        write(self.acted, (self.time[active], active), jax.tree.map(lambda x: x[playing], row))

    def empty(self, like: np.ndarray) -> np.ndarray:
        return np.zeros((*self.shape, *like.shape[1:]), like.dtype)

    def follow(self, copies: Copies) -> Copies:
        """Record the step of these copies; returns those whose episode has ended."""
        envs, at = self.envs, (self.time[copies], copies)
        result: Any = envs.pool.records[copies]
        envs.returned[copies] += result["reward"]
        envs.length[copies] += 1
        ended = result["terminated"] | result["truncated"]
        self.reward[at], self.terminated[at], self.truncated[at] = (
            result["reward"],
            result["terminated"],
            result["truncated"],
        )
        write(self.outcome, at, Outcome(ended, envs.returned[copies], envs.length[copies], result["won"]))
        write(self.followed, at, observed(envs.pool, copies))
        self.time[copies] += 1
        self.since[copies[ended]] = self.time[copies[ended]]
        return copies[ended]

    def rewind(self, copies: Copies) -> None:
        """Discard the running episodes of these copies, which were lost."""
        self.time[copies] = self.since[copies]

    def full(self) -> bool:
        return bool((self.time == self.num_steps).all()) and not self.envs.pool.lost.any()

    def trajectory(self) -> Trajectory:
        seen, memory, first, action, record = self.acted
        last = jax.tree.map(lambda m: np.zeros_like(m[:1]), memory)
        for group, end in zip(self.envs.groups, jax.device_get(self.envs.memory), strict=True):
            write(last, (np.zeros_like(group), group), end)
        return Trajectory(
            observation=seen,
            memory=jax.tree.map(lambda m, end: np.concatenate([m, end]), memory, last),
            first=first,
            action=action,
            record=record,
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            next_observation=self.followed,
        )


def write(rows: PyTree, at: tuple[Copies, Copies], values: PyTree) -> None:
    jax.tree.map(lambda row, value: row.__setitem__(at, value), rows, values)


def collect(envs: HostEnvs, state: PyTree, key: Key, num_steps: int) -> tuple[Trajectory, Outcome, int]:
    """T steps of the current policy in every copy (Alg. 1 l. 6), the episodes that ended, and the number of restarted
    workers."""
    buffer = RolloutBuffer(envs, num_steps)
    tick = 0
    while not buffer.full():
        for index in range(len(envs.groups)):
            moved, lost = envs.arrived(index)
            buffer.rewind(lost)
            ended = buffer.follow(moved) if len(moved) else moved
            buffer.rewind(envs.renew(index, np.union1d(ended, lost)))
            buffer.act(tick, index, state, key)
        tick += 1
    return buffer.trajectory(), buffer.outcome, envs.pool.take_unreported()


def evaluate(envs: HostEnvs, state: PyTree, key: Key, episodes: int) -> Evaluation:
    """The scores of `episodes` independent episodes with greedy and as many with sampled actions, from the same starts.

    Episodes are still running at the end; call `begin` before anything else.
    """
    envs.pool.restarts = 0
    greedy = play(envs, state, key, episodes, True)
    sampled = play(envs, envs.algorithm.evaluated(state), key, episodes, False)
    return Evaluation(greedy, sampled)


def play(envs: HostEnvs, state: PyTree, key: Key, episodes: int, greedy: bool) -> Scores:
    """The scores of independent episodes. Copy i plays episodes i, i + B, ...: if the first free copy played the next
    episode, short episodes would be over-represented. A lost episode is played again."""
    num_envs = len(envs.first)
    seeds = generator(key).integers(LARGEST_SEED, size=episodes)
    episode = np.arange(num_envs)
    scores: Any = Scores(*(zeros(episodes, kind) for kind in (np.float32, np.int32, bool, bool, np.uint32)))

    def forget(copies: Copies) -> None:
        playing = episode[copies[episode[copies] < episodes]]
        scores.returned[playing] = scores.length[playing] = scores.played[playing] = 0

    envs.begin(lambda copy: int(seeds[min(episode[copy], episodes - 1)]))
    tick = 0
    while (episode < episodes).any():
        for index, group in enumerate(envs.groups):
            moved, lost = envs.arrived(index)
            forget(lost)
            result, now = envs.pool.records[moved], episode[moved]
            scores.returned[now] += result["reward"]
            scores.length[now] += 1
            scores.won[now] |= result["won"]
            scores.timed_out[now] |= result["truncated"]
            scores.played[now] = extended(scores.played[now], result["action"])
            ended = moved[result["terminated"] | result["truncated"]]
            episode[ended] += num_envs
            forget(envs.renew(index, np.union1d(ended, lost)))
            active = group[episode[group] < episodes]
            if len(active):
                envs.decide(tick, index, active, state, key, greedy)
        tick += 1
    return scores


def record(envs: HostEnvs, state: PyTree, key: Key, episodes: int) -> list[Episode]:
    """Greedy episodes of a single copy as scenes, as in `grasp.render.film.record`. A lost episode is played again."""
    pool = envs.pool
    if pool.host.scene is None:
        raise cannot_draw(pool.host.spec)
    (group,) = envs.groups
    seeds = generator(key).integers(LARGEST_SEED, size=episodes)
    played: list[Episode] = []
    envs.begin(lambda copy: int(seeds[len(played)]))
    states, rewards, overlays, tick = [pool.records["state"][0].copy()], [], [], 0
    while len(played) < episodes:
        seen, decision = envs.decide(tick, 0, group, state, key, True)
        tick += 1
        moved, lost = envs.arrived(0)
        result: Any = pool.records[0].copy()
        ended = len(moved) > 0 and bool(result["terminated"] | result["truncated"])
        if len(moved):
            states.append(result["state"])
            rewards.append(result["reward"])
            overlays += [overlay_of(*jax.tree.map(lambda x: x[0], (decision, seen)))] if envs.judging else []
        if ended:
            scenes = [pool.host.scene(row) for row in states]
            played.append(Episode(scenes, np.array(rewards), bool(result["won"]), bool(result["truncated"]), overlays))
        if len(lost) or (ended and len(played) < episodes):
            envs.renew(0, group)
            states, rewards, overlays = [pool.records["state"][0].copy()], [], []
    return played


def generator(key: Key) -> np.random.Generator:
    """A NumPy generator seeded by a key of JAX."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def episode_seeds(key: Key, num_envs: int, first: int = 0) -> Callable[[int], int]:
    """A function that returns the seed of a copy's next episode, independently of other copies. `first` is
    the number of copy 0 among all copies of a run."""
    streams = [generator(jax.random.fold_in(key, first + copy)) for copy in range(num_envs)]
    return lambda copy: int(streams[copy].integers(LARGEST_SEED))
