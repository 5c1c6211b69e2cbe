"""The replay buffer against a plain list of episodes, with values that encode (environment, episode, step)."""

from collections import Counter
from itertools import combinations, count
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.algos import replay_buffer
from grasp.algos.replay_buffer import Episodes, Replay
from grasp.runs import replay_store
from grasp.training import rollout
from grasp.types import Algorithm, Decision, Env, EnvSpec, Observation, Step, Trajectory

SPEC = EnvSpec(name="toy", num_agents=3, obs_dim=3, state_dim=2, num_actions=4, horizon=9)
NUM_ENVS, ROLLOUT = 3, 4
WORST = NUM_ENVS * ROLLOUT
"""The fewest slots a ring may have: every step of a rollout can end an episode."""

append, sample = jax.jit(replay_buffer.append), jax.jit(replay_buffer.sample, static_argnums=2)


class Played(NamedTuple):
    """One episode as it was scripted."""

    env: int
    episode: int
    length: int
    terminated: bool

    def seen(self, step):
        """What is seen before step `step`; step `length` is the true final observation."""
        code = 10_000.0 * self.env + 100.0 * self.episode + step
        agents = np.arange(SPEC.num_agents)
        alive = step <= 2 * agents + 1
        obs = np.stack([np.full(SPEC.num_agents, code), agents + 0.5, np.full(SPEC.num_agents, 7.0)], 1)
        avail = (agents[:, None] + np.arange(SPEC.num_actions)[None] + step + self.episode) % 3 > 0
        return Observation(obs.astype(np.float32), np.array([code, -code], np.float32), avail, alive)

    def stored(self, step):
        """The observations as the replay keeps them: nothing of the dead."""
        seen = self.seen(step)
        return np.where(seen.alive[:, None], seen.obs, 0)

    def action(self, step):
        return (self.env + self.episode + step + np.arange(SPEC.num_agents)) % SPEC.num_actions

    def reward(self, step):
        return 10_000.0 * self.env + 100.0 * self.episode + step + 0.25


def script(lengths, seed=0):
    """Endless episodes of environment after environment; `lengths(rng)` draws one's length."""

    def play(env):
        rng = np.random.default_rng((seed, env))
        for episode in count():
            length = int(lengths(rng))
            terminated = length < SPEC.horizon and bool(rng.integers(2))
            yield Played(env, episode, length, terminated)

    return [play(env) for env in range(NUM_ENVS)]


class Stream:
    """Rollouts cut from scripted episodes that run on over their borders, and the list of those that finished."""

    def __init__(self, lengths, seed=0):
        self.script = script(lengths, seed)
        self.now = [(next(s), 0) for s in self.script]
        self.finished = []

    def step(self, env):
        episode, step = self.now[env]
        over = step + 1 == episode.length
        self.now[env] = (next(self.script[env]), 0) if over else (episode, step + 1)
        if over:
            self.finished.append(episode)
        return {
            "observation": episode.seen(step),
            "first": step == 0,
            "action": episode.action(step).astype(np.int32),
            "reward": np.float32(episode.reward(step)),
            "terminated": over and episode.terminated,
            "truncated": over and not episode.terminated,
            "next_observation": episode.seen(step + 1),
        }

    def rollout(self, num_steps=ROLLOUT):
        steps = [[self.step(env) for env in range(NUM_ENVS)] for _ in range(num_steps)]
        rows = [jax.tree.map(lambda *x: np.stack(x), *row) for row in steps]
        whole = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *rows)
        return Trajectory(memory=(), record=(), **whole)


def assert_is(found: Episodes, episode: Played):
    """Every entry of a stored episode is the scripted one."""
    length = episode.length
    assert int(found.length) == length
    assert bool(found.terminated) == episode.terminated
    np.testing.assert_array_equal(found.obs[: length + 1], [episode.stored(t) for t in range(length + 1)])
    np.testing.assert_array_equal(found.state[: length + 1], [episode.seen(t).state for t in range(length + 1)])
    np.testing.assert_array_equal(found.avail[: length + 1], [episode.seen(t).avail for t in range(length + 1)])
    np.testing.assert_array_equal(found.action[:length], [episode.action(t) for t in range(length)])
    np.testing.assert_array_equal(found.reward[:length], [episode.reward(t) for t in range(length)])


def assert_holds(memory: Replay, stream: Stream):
    """The newest `capacity` finished episodes stand where the ring says, and every slot has one owner."""
    memory = jax.device_get(memory)
    capacity = len(memory.ring)
    assert int(memory.finished) == len(stream.finished)
    assert sorted([*memory.ring, *memory.running]) == list(range(capacity + NUM_ENVS))
    for number in range(max(0, len(stream.finished) - capacity), len(stream.finished)):
        slot = memory.ring[number % capacity]
        assert_is(jax.tree.map(lambda x, i=slot: x[i], memory.slots), stream.finished[number])
    for slot, (_, step) in zip(memory.running, stream.now, strict=True):
        assert memory.slots.length[slot] == step


def filled(lengths, rollouts, capacity=WORST, seed=0):
    stream, memory = Stream(lengths, seed), replay_buffer.empty(SPEC, capacity, NUM_ENVS)
    for _ in range(rollouts):
        memory = append(memory, stream.rollout())
    return memory, stream


LENGTHS = {
    "all_kinds": lambda rng: rng.integers(1, SPEC.horizon + 1),
    "one_step": lambda rng: 1,
    "longer_than_two_rollouts": lambda rng: SPEC.horizon,
    "as_long_as_a_rollout": lambda rng: ROLLOUT,
    "one_step_or_the_longest": lambda rng: rng.choice([1, SPEC.horizon]),
}


@pytest.mark.parametrize("capacity", [WORST, 31])
@pytest.mark.parametrize("kind", LENGTHS)
def test_every_finished_episode_is_whole_and_the_newest_are_kept(kind, capacity):
    stream, memory = Stream(LENGTHS[kind], seed=3), replay_buffer.empty(SPEC, capacity, NUM_ENVS)
    for _ in range(20):
        memory = append(memory, stream.rollout())
        assert_holds(memory, stream)
    assert kind == "longer_than_two_rollouts" or len(stream.finished) > capacity


def test_the_script_has_what_the_tests_are_about():
    _, stream = filled(LENGTHS["all_kinds"], 20)
    assert {e.terminated for e in stream.finished if e.length < SPEC.horizon} == {True, False}
    assert {e.length for e in stream.finished} == set(range(1, SPEC.horizon + 1))
    assert any((e.seen(e.length).obs != e.stored(e.length)).any() for e in stream.finished)


def test_nothing_is_stored_before_the_first_episode_ends():
    memory, stream = filled(LENGTHS["longer_than_two_rollouts"], 2)
    assert int(memory.finished) == 0
    memory = append(memory, stream.rollout())
    assert int(memory.finished) == NUM_ENVS
    assert_holds(memory, stream)


def test_the_dead_are_stored_as_zeros_however_large_their_observation():
    rollout_ = Stream(LENGTHS["longer_than_two_rollouts"]).rollout(SPEC.horizon)
    alive = rollout_.observation.alive
    assert not alive.all()
    seen = rollout_.observation._replace(obs=jnp.where(alive[..., None], rollout_.observation.obs, 3e38))
    memory = append(replay_buffer.empty(SPEC, NUM_ENVS * SPEC.horizon, NUM_ENVS), rollout_._replace(observation=seen))
    obs = jnp.moveaxis(memory.slots.obs[memory.ring[:NUM_ENVS]], 1, 0)[:-1]
    np.testing.assert_array_equal(obs, jnp.where(alive[..., None], seen.obs, 0.0))


def codes(episodes):
    """Who the episodes are: the first feature of their first state."""
    return np.asarray(episodes.state[..., 0, 0])


def test_a_sample_holds_finished_episodes_whole_once_each_and_never_a_running_one():
    memory, stream = filled(LENGTHS["all_kinds"], 20, capacity=16, seed=5)
    kept = {e.seen(0).state[0]: e for e in stream.finished[-16:]}
    running = {e.seen(0).state[0] for e, _ in stream.now}
    assert len(stream.finished) > 16
    for seed in range(20):
        found = jax.device_get(sample(memory, jax.random.key(seed), 16))
        assert set(codes(found)) == set(kept)
        assert not running & set(codes(found))
        for i, code in enumerate(codes(found)):
            assert_is(jax.tree.map(lambda x, i=i: x[i], found), kept[code])


def test_a_sample_of_a_replay_that_is_not_full_holds_no_empty_slot():
    memory, stream = filled(LENGTHS["as_long_as_a_rollout"], 2, capacity=31)
    known = {e.seen(0).state[0] for e in stream.finished}
    assert len(known) == 6
    for seed in range(50):
        found = sample(memory, jax.random.key(seed), 6)
        assert set(codes(found)) == known
        assert (np.asarray(found.length) == ROLLOUT).all()


@pytest.mark.parametrize(("capacity", "rollouts"), [(31, 2), (WORST, 5)])
def test_a_sample_is_uniform_over_sets_of_episodes(capacity, rollouts):
    """Pearson's statistic over all sets of three: its mean is the number of sets less 1, 0.1 % lie beyond the bound."""
    memory, stream = filled(LENGTHS["as_long_as_a_rollout"], rollouts, capacity)
    known = [e.seen(0).state[0] for e in stream.finished[-capacity:]]
    sets = [frozenset(s) for s in combinations(known, 3)]
    each = 60
    keys = jax.random.split(jax.random.key(1), each * len(sets))
    drawn = codes(jax.jit(jax.vmap(lambda key: replay_buffer.sample(memory, key, 3)))(keys))
    counts = Counter(map(frozenset, drawn.tolist()))
    assert set(counts) <= set(sets)
    statistic = sum((counts[s] - each) ** 2 / each for s in sets)
    freedom = len(sets) - 1
    assert statistic < freedom + 3.1 * np.sqrt(2 * freedom) + 3
    assert statistic > freedom - 3.1 * np.sqrt(2 * freedom) - 3


def test_other_keys_draw_other_episodes():
    memory, _ = filled(LENGTHS["one_step"], 5)
    assert len({tuple(codes(sample(memory, jax.random.key(seed), 3))) for seed in range(20)}) > 15


def test_replays_of_several_seeds_at_once_are_those_of_each_seed():
    kinds, seeds = ("all_kinds", "one_step", "one_step_or_the_longest"), (1, 2, 3)
    alone = [Stream(LENGTHS[kind], seed) for kind, seed in zip(kinds, seeds, strict=True)]
    together = jax.tree.map(lambda *x: jnp.stack(x), *[replay_buffer.empty(SPEC, WORST, NUM_ENVS)] * 3)
    many = jax.jit(jax.vmap(replay_buffer.append))
    for _ in range(8):
        together = many(together, jax.tree.map(lambda *x: jnp.stack(x), *[s.rollout() for s in alone]))
    for i, stream in enumerate(alone):
        assert_holds(jax.tree.map(lambda x, i=i: x[i], together), stream)
    keys = jax.random.split(jax.random.key(0), 3)
    batch = jax.vmap(lambda memory, key: replay_buffer.sample(memory, key, 2))(together, keys)
    for i in range(3):
        mine = replay_buffer.sample(jax.tree.map(lambda x, i=i: x[i], together), keys[i], 2)
        np.testing.assert_array_equal(batch.reward[i], mine.reward)


@pytest.mark.parametrize("rollouts", [1, 4, 9])
def test_a_replay_rebuilt_from_its_tail_and_its_segments_goes_on_as_if_never_taken_apart(rollouts, tmp_path):
    memory, stream = filled(LENGTHS["all_kinds"], rollouts, seed=8)
    replay_store.append(tmp_path, jax.tree.map(lambda x: x[None], memory), 0, len(stream.finished))
    again = replay_store.restore(tmp_path, jax.device_get(replay_buffer.checkpointed(memory)), WORST)
    assert_holds(again, stream)
    for _ in range(5):
        following = stream.rollout()
        memory, again = append(memory, following), append(again, following)
        assert_holds(again, stream)
    for seed in range(5):
        ours, theirs = (sample(m, jax.random.key(seed), 4) for m in (memory, again))
        np.testing.assert_array_equal(codes(ours), codes(theirs))


def test_episode_bytes_is_the_memory_of_one_more_slot():
    small, large = (jax.tree.leaves(replay_buffer.empty(SPEC, n, NUM_ENVS).slots) for n in (10, 11))
    assert replay_buffer.episode_bytes(SPEC) == sum(x.nbytes for x in large) - sum(x.nbytes for x in small)


def counting_env():
    """An episode is known by a number drawn at reset, which also decides its length and how it ends."""
    spec = EnvSpec(name="counting", num_agents=2, obs_dim=2, state_dim=2, num_actions=2, horizon=6)

    def observe(number, step):
        obs = jnp.stack([jnp.stack([number, step])] * 2).astype(jnp.float32)
        state = jnp.stack([number, step]).astype(jnp.float32)
        return Observation(obs, state, jnp.ones((2, 2), bool), jnp.ones(2, bool))

    def reset(key):
        number = jax.random.randint(key, (), 1, 1_000_000)
        return (number, jnp.zeros_like(number)), observe(number, jnp.zeros_like(number))

    def step(env_state, action, key):
        number, clock = env_state[0], env_state[1] + 1
        over, truncated = clock >= number % 7 + 1, clock >= spec.horizon
        seen = observe(number, clock)
        return (number, clock), Step(seen, number + 0.5 * clock, over, truncated & ~over, jnp.array(False))

    return Env(spec, reset, step)


def idle():
    """An algorithm that does nothing."""

    def act(state, memory, observation, key, greedy):
        return Decision(jnp.zeros(observation.alive.shape, jnp.int32), memory, ())

    return Algorithm(lambda key: (), lambda n: jnp.zeros((n, 1)), act, lambda s, t, k: (s, {}), ())


def test_the_collector_s_episodes_end_with_their_true_last_observation_not_with_the_reset():
    env, algorithm = counting_env(), idle()
    arena = rollout.open_arena(env, algorithm, 4, jax.random.key(0))
    memory = replay_buffer.empty(env.spec, 40, 4)
    play = jax.jit(lambda arena, key: rollout.collect(env, algorithm, (), arena, key, 10)[:2])
    for i in range(6):
        arena, trajectory = play(arena, jax.random.key(i))
        memory = append(memory, trajectory)
    assert int(memory.finished) > 40
    found = jax.device_get(sample(memory, jax.random.key(9), 40))
    for i in range(40):
        number, length = found.state[i, 0, 0], found.length[i]
        assert length == min(number % 7 + 1, env.spec.horizon)
        assert found.terminated[i] == (number % 7 < env.spec.horizon)
        np.testing.assert_array_equal(found.state[i, : length + 1, 0], number)
        np.testing.assert_array_equal(found.state[i, : length + 1, 1], np.arange(length + 1))
        np.testing.assert_array_equal(found.obs[i, : length + 1, 1], found.state[i, : length + 1])
        np.testing.assert_array_equal(found.reward[i, :length], number + 0.5 * np.arange(1, length + 1))
    assert not found.terminated.all()


def test_a_sample_holds_zeros_beyond_an_episode_s_end_whatever_the_slot_held():
    memory, _ = filled(LENGTHS["all_kinds"], 20, capacity=16, seed=5)
    memory = jax.device_get(memory)
    real = replay_buffer.played(memory.slots.length, memory.slots.reward.shape[1])
    poisoned = {
        name: np.where(real[name].reshape(*real[name].shape, *[1] * (x.ndim - 2)), x, np.nan)
        for name, x in memory.slots._asdict().items()
        if name in ("obs", "state", "reward")
    }
    clean, found = (
        jax.device_get(sample(m, jax.random.key(3), 8))
        for m in (memory, memory._replace(slots=memory.slots._replace(**poisoned)))
    )
    for name in ("obs", "state", "reward"):
        np.testing.assert_array_equal(getattr(found, name), getattr(clean, name))
        mask = replay_buffer.played(found.length, memory.slots.reward.shape[1])[name]
        assert not getattr(found, name)[~mask].any()
        assert (~mask).any()


def test_an_episode_that_was_lost_is_written_over_by_the_next():
    """A simulator's worker that fails loses its episode: the next `first` comes in the middle of it."""
    stream, memory = Stream(LENGTHS["longer_than_two_rollouts"]), replay_buffer.empty(SPEC, WORST, NUM_ENVS)
    memory = append(memory, stream.rollout())
    stream.now[1] = (next(stream.script[1]), 0)  # environment 1 begins anew; nothing says that the other has ended
    for _ in range(4):
        memory = append(memory, stream.rollout())
        assert_holds(memory, stream)
    assert len(stream.finished) >= 3
