"""The host collector and evaluator: as `grasp.training.rollout` and `grasp.training.evaluation`, on a pool of
simulators.

Copies are split into two groups, so that the policy acts in one while the workers step the other. A copy whose worker
failed takes up its column of the rollout again where its lost episode began: what was recorded of that episode is
written over, and the batch is as large as ever.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from grasp.envs.host import Copies, SimulatorPool, observed
from grasp.render.film import Episode, cannot_draw, overlay_of
from grasp.training.evaluation import Scores
from grasp.training.rollout import Outcome, cleared, where
from grasp.types import Algorithm, Decision, Key, Observation, PyTree, Trajectory

GROUPS = 2
"""One is stepped while the policy acts in the other."""
LARGEST_SEED = 2**31 - 1


class Stage:
    """Copies in mid-play."""

    def __init__(self, pool: SimulatorPool, algorithm: Algorithm, groups: int = GROUPS, judging: bool = False):
        self.pool, self.algorithm, self.judging = pool, algorithm, judging
        num_envs = len(pool.records)
        groups = min(groups, num_envs)
        # every worker has copies in each group, so that none waits while the policy acts
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
        key = jax.random.fold_in(key, turn)  # here, where it costs nothing: alone it takes as long as acting
        decision = self.algorithm.act(state, cleared(memory, first), seen, key, greedy)
        if not self.judging:
            decision = decision._replace(preference=(), value=())  # not computed, and not fetched
        return decision._replace(memory=where(active, decision.memory, memory))

    def begin(self, seed: Callable[[int], int]) -> None:
        """New episodes everywhere; `seed` gives the seed of a copy's next one."""
        self.seed = seed
        self.moving = [group[:0] for group in self.groups]
        self.memory = [self.algorithm.memory(len(group)) for group in self.groups]
        for place, group in enumerate(self.groups):
            self.pool.wait(group)
            self.renew(place, group)

    def arrived(self, place: int) -> tuple[Copies, Copies]:
        """Wait for a group: who has made its step, and whose episode was lost."""
        group = self.groups[place]
        lost = group[self.pool.wait(group)]
        moved = np.setdiff1d(self.moving[place], lost)
        self.moving[place] = group[:0]
        return moved, lost

    def renew(self, place: int, copies: Copies) -> Copies:
        """Begin new episodes of these copies, and of those of the group that are lost meanwhile: which those are."""
        group, lost = self.groups[place], np.zeros(0, int)
        while len(copies):
            self.pool.records["seed"][copies] = [self.seed(copy) for copy in copies]
            self.first[copies], self.returned[copies], self.length[copies] = True, 0.0, 0
            self.pool.send("reset", copies)
            copies = group[self.pool.wait(group)]
            lost = np.union1d(lost, copies)
        return lost

    def decide(
        self, tick: int, place: int, active: Copies, state: PyTree, key: Key, greedy: bool
    ) -> tuple[Observation, Decision]:
        """Act in a group, and set those of it stepping that are active; every tick and group draws anew."""
        group = self.groups[place]
        seen = observed(self.pool, group)
        playing = np.isin(group, active)
        turn = tick * len(self.groups) + place
        decision = self.act(state, self.memory[place], self.first[group], playing, seen, key, turn, greedy=greedy)
        self.memory[place] = decision.memory
        decision = jax.device_get(decision)
        self.pool.records["action"][active] = decision.action[playing]
        self.first[active] = False
        self.pool.send("step", active)
        self.moving[place] = active
        return seen, decision


def zeros(shape: int | tuple[int, ...], kind: Any) -> Any:
    """To be written into, and to stand where an array of JAX may: hence of no type."""
    return np.zeros(shape, kind)


class Columns:
    """A rollout that is being filled. Every copy has its own place in time, so that one can go back alone."""

    def __init__(self, stage: Stage, num_steps: int):
        self.stage, self.num_steps = stage, num_steps
        num_envs = len(stage.first)
        self.shape = num_steps, num_envs
        self.time = np.zeros(num_envs, int)
        self.since = np.zeros(num_envs, int)
        """Where each copy's running episode began in this rollout."""
        self.reward, self.terminated, self.truncated = (zeros(self.shape, kind) for kind in (np.float32, bool, bool))
        self.outcome = Outcome(*(zeros(self.shape, kind) for kind in (bool, np.float32, np.int32, bool)))
        self.acted: PyTree = None
        """What was seen, remembered and done, and how it was recorded: allocated by the first decision."""
        self.followed: PyTree = None

    def act(self, tick: int, place: int, state: PyTree, key: Key) -> None:
        """Let the copies of a group act that have not finished their columns."""
        group = self.stage.groups[place]
        active = group[self.time[group] < self.num_steps]
        if not len(active):
            return
        first, memory = self.stage.first[group], jax.device_get(self.stage.memory[place])
        seen, did = self.stage.decide(tick, place, active, state, key, False)
        row = seen, memory, first, did.action, did.record
        if self.acted is None:
            self.acted, self.followed = jax.tree.map(self.empty, row), jax.tree.map(self.empty, seen)
        playing = np.isin(group, active)
        write(self.acted, (self.time[active], active), jax.tree.map(lambda x: x[playing], row))

    def empty(self, like: np.ndarray) -> np.ndarray:
        return np.zeros((*self.shape, *like.shape[1:]), like.dtype)

    def follow(self, copies: Copies) -> Copies:
        """Write what came of their step; whose episode has ended."""
        stage, at = self.stage, (self.time[copies], copies)
        said: Any = stage.pool.records[copies]
        stage.returned[copies] += said["reward"]
        stage.length[copies] += 1
        ended = said["terminated"] | said["truncated"]
        self.reward[at], self.terminated[at], self.truncated[at] = said["reward"], said["terminated"], said["truncated"]
        write(self.outcome, at, Outcome(ended, stage.returned[copies], stage.length[copies], said["won"]))
        write(self.followed, at, observed(stage.pool, copies))
        self.time[copies] += 1
        self.since[copies[ended]] = self.time[copies[ended]]
        return copies[ended]

    def rewind(self, copies: Copies) -> None:
        """Forget the running episodes of these copies, which were lost: their columns go on where those began."""
        self.time[copies] = self.since[copies]

    def full(self) -> bool:
        return bool((self.time == self.num_steps).all()) and not self.stage.pool.lost.any()

    def trajectory(self) -> Trajectory:
        seen, memory, first, action, record = self.acted
        last = jax.tree.map(lambda m: np.zeros_like(m[:1]), memory)
        for group, end in zip(self.stage.groups, jax.device_get(self.stage.memory), strict=True):
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


def collect(stage: Stage, state: PyTree, key: Key, num_steps: int) -> tuple[Trajectory, Outcome, int]:
    """T steps of the current policy in every copy (Alg. 1 l. 6), the episodes that ended, and how many workers were
    replaced."""
    columns = Columns(stage, num_steps)
    tick = 0
    while not columns.full():
        for place in range(len(stage.groups)):
            moved, lost = stage.arrived(place)
            columns.rewind(lost)
            ended = columns.follow(moved) if len(moved) else moved
            columns.rewind(stage.renew(place, np.union1d(ended, lost)))
            columns.act(tick, place, state, key)
        tick += 1
    return columns.trajectory(), columns.outcome, stage.pool.take_unreported()


def evaluate(stage: Stage, state: PyTree, key: Key, episodes: int, greedy: bool = True) -> Scores:
    """The scores of `episodes` independent episodes. Copy i plays episodes i, i + B, ...: whoever ended first would
    otherwise play more of them, and short episodes would count for more. A lost episode is played again.

    The copies are left in mid-play: `begin` again before anything else.
    """
    stage.pool.restarts = 0
    num_envs = len(stage.first)
    seeds = generator(key).integers(LARGEST_SEED, size=episodes)
    episode = np.arange(num_envs)
    scores: Any = Scores(*(zeros(episodes, kind) for kind in (np.float32, np.int32, bool)))

    def forget(copies: Copies) -> None:
        playing = episode[copies[episode[copies] < episodes]]
        scores.returned[playing] = scores.length[playing] = 0

    stage.begin(lambda copy: int(seeds[min(episode[copy], episodes - 1)]))
    tick = 0
    while (episode < episodes).any():
        for place, group in enumerate(stage.groups):
            moved, lost = stage.arrived(place)
            forget(lost)
            said, now = stage.pool.records[moved], episode[moved]
            scores.returned[now] += said["reward"]
            scores.length[now] += 1
            scores.won[now] |= said["won"]
            ended = moved[said["terminated"] | said["truncated"]]
            episode[ended] += num_envs
            forget(stage.renew(place, np.union1d(ended, lost)))
            active = group[episode[group] < episodes]
            if len(active):
                stage.decide(tick, place, active, state, key, greedy)
        tick += 1
    return scores


def record(stage: Stage, state: PyTree, key: Key, episodes: int) -> list[Episode]:
    """Greedy episodes of the one copy of this stage and what it showed, as `grasp.render.film.record`. A lost one is
    played again."""
    pool = stage.pool
    if pool.host.scene is None:
        raise cannot_draw(pool.host.spec)
    (group,) = stage.groups
    seeds = generator(key).integers(LARGEST_SEED, size=episodes)
    played: list[Episode] = []
    stage.begin(lambda copy: int(seeds[len(played)]))
    states, rewards, thoughts, tick = [pool.records["state"][0].copy()], [], [], 0
    while len(played) < episodes:
        seen, decision = stage.decide(tick, 0, group, state, key, True)
        tick += 1
        moved, lost = stage.arrived(0)
        said: Any = pool.records[0].copy()
        ended = len(moved) > 0 and bool(said["terminated"] | said["truncated"])
        if len(moved):
            states.append(said["state"])
            rewards.append(said["reward"])
            thoughts += [overlay_of(*jax.tree.map(lambda x: x[0], (decision, seen)))] if stage.judging else []
        if ended:
            scenes = [pool.host.scene(row) for row in states]
            played.append(Episode(scenes, np.array(rewards), bool(said["won"]), bool(said["truncated"]), thoughts))
        if len(lost) or (ended and len(played) < episodes):
            stage.renew(0, group)
            states, rewards, thoughts = [pool.records["state"][0].copy()], [], []
    return played


def generator(key: Key) -> np.random.Generator:
    """Random numbers outside JAX that depend on the key alone."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def episode_seeds(key: Key, num_envs: int, first: int = 0) -> Callable[[int], int]:
    """The seeds of one copy's episodes after another's, whichever copy asks first. `first` is the number that the first
    of them has among all copies of a run."""
    streams = [generator(jax.random.fold_in(key, first + copy)) for copy in range(num_envs)]
    return lambda copy: int(streams[copy].integers(LARGEST_SEED))
