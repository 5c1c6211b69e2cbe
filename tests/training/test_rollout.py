"""Rollouts in JAX: resets, episode boundaries, and the recorded trajectory."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.training import rollout
from grasp.training.evaluation import evaluate, extended
from grasp.types import Algorithm, Decision, Env, EnvSpec, Observation, Step

HORIZON = 4


def counting_env() -> Env:
    """Each reset draws a name; the state counts steps since. The episode's name decides if it terminates at step 3."""
    spec = EnvSpec("test/counting", num_agents=2, obs_dim=1, state_dim=2, num_actions=2, horizon=HORIZON, has_wins=True)

    def observe(env_state):
        rows = jnp.broadcast_to(env_state[1], (2, 1)).astype(jnp.float32)
        return Observation(rows, env_state.astype(jnp.float32), jnp.ones((2, 2), bool), jnp.ones(2, bool))

    def reset(key):
        env_state = jnp.stack([jax.random.randint(key, (), 0, 1000), jnp.int32(0)])
        return env_state, observe(env_state)

    def step(env_state, action, key):
        env_state = env_state.at[1].add(1)
        terminated = (env_state[1] == 3) & (env_state[0] % 2 == 0)
        truncated = (env_state[1] == HORIZON) & ~terminated
        reward = action.sum().astype(jnp.float32)
        return env_state, Step(observe(env_state), reward, terminated, truncated, terminated)

    return Env(spec, reset, step)


def remembering() -> Algorithm:
    """Always action 1; its memory counts the steps it has seen in the episode, plus one."""

    def act(state, memory, observation, key, greedy):
        return Decision(jnp.ones(observation.alive.shape, int), memory + 1, ())

    return Algorithm(
        init=lambda key: (), memory=lambda num_envs: jnp.zeros((num_envs, 1)), act=act, update=lambda s, t, k: (s, {}),
        acting=(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def collected():
    env, algorithm = counting_env(), remembering()
    arena = rollout.open_arena(env, algorithm, 5, jax.random.key(0))
    collect = jax.jit(partial(rollout.collect, env, algorithm, num_steps=40))
    return collect((), arena, jax.random.key(1))


def test_an_episode_ends_and_the_next_begins(collected):
    _, trajectory, _ = collected
    name, clock = trajectory.observation.state[..., 0], trajectory.observation.state[..., 1]
    np.testing.assert_array_equal(trajectory.first, clock == 0)
    np.testing.assert_array_equal(trajectory.terminated, (name % 2 == 0) & (clock == 2))
    np.testing.assert_array_equal(trajectory.truncated, (name % 2 == 1) & (clock == 3))
    ended = trajectory.terminated | trajectory.truncated
    np.testing.assert_array_equal(trajectory.first[1:], ended[:-1])


def test_the_next_observation_of_a_last_step_is_not_the_next_episode_s(collected):
    _, trajectory, _ = collected
    np.testing.assert_array_equal(trajectory.next_observation.state[..., 1], trajectory.observation.state[..., 1] + 1)
    np.testing.assert_array_equal(trajectory.next_observation.state[..., 0], trajectory.observation.state[..., 0])


def test_every_episode_is_a_new_one(collected):
    _, trajectory, _ = collected
    starts = np.asarray(trajectory.observation.state[..., 0])[np.asarray(trajectory.first)]
    assert len(starts) > 40
    assert len(set(starts)) > 0.9 * len(starts)


def test_memory_is_cleared_at_the_start_of_an_episode(collected):
    _, trajectory, _ = collected
    clock = trajectory.observation.state[..., 1]
    after = trajectory.memory[1:, :, 0]
    np.testing.assert_array_equal(after, clock + 1)


def test_episode_metrics_are_means_over_those_that_ended(collected):
    _, trajectory, metrics = collected
    ended = np.asarray(trajectory.terminated | trajectory.truncated)
    length = np.asarray(trajectory.observation.state[..., 1] + 1)[ended]
    assert metrics["episodes"] == ended.sum()
    assert metrics["train_length"] == pytest.approx(length.mean())
    assert metrics["train_return"] == pytest.approx(2 * length.mean())
    assert metrics["train_win_rate"] == pytest.approx(np.asarray(trajectory.terminated)[ended].mean())


def test_without_an_ended_episode_there_is_no_return():
    env, algorithm = counting_env(), remembering()
    arena = rollout.open_arena(env, algorithm, 2, jax.random.key(0))
    _, _, metrics = rollout.collect(env, algorithm, (), arena, jax.random.key(1), num_steps=2)
    assert metrics["episodes"] == 0
    assert np.isnan(metrics["train_return"])


def test_no_reset_is_computed_at_a_step_that_needs_none():
    """Resets happen inside a branch: the program of one step has them only under a conditional."""
    env, algorithm = counting_env(), remembering()
    arena = rollout.open_arena(env, algorithm, 2, jax.random.key(0))
    program = jax.make_jaxpr(lambda a: rollout.reopen(env, a, jax.random.key(0)))(arena)
    assert [e.primitive.name for e in program.eqns].count("cond") == 1
    assert not any("randint" in str(e.params.get("name", "")) for e in program.eqns)


def test_an_evaluation_scores_each_episode_once_and_stops_at_its_end():
    env, algorithm = counting_env(), remembering()
    for scores in jax.jit(lambda key: evaluate(env, algorithm, (), key, 70))(jax.random.key(0)):
        assert scores.returned.shape == (70,)
        np.testing.assert_array_equal(scores.length, np.where(scores.won, 3, HORIZON))
        np.testing.assert_array_equal(scores.timed_out, ~scores.won)
        np.testing.assert_array_equal(scores.returned, 2 * scores.length)
        assert 0.3 < scores.won.mean() < 0.7


# Keys: every number that is drawn shows itself


def drawing_env() -> Env:
    """Episodes of three steps. A reset's draw is the state, and a step's is the reward."""
    spec = EnvSpec("test/drawing", num_agents=1, obs_dim=1, state_dim=1, num_actions=2, horizon=3)

    def observe(draw):
        return Observation(jnp.zeros((1, 1)), draw[None], jnp.ones((1, 2), bool), jnp.ones(1, bool))

    def reset(key):
        draw = jax.random.uniform(key)
        return (draw, jnp.int32(0)), observe(draw)

    def step(env_state, action, key):
        draw, clock = env_state
        over = clock == 2
        return (draw, clock + 1), Step(observe(draw), jax.random.uniform(key), over, jnp.array(False), over)

    return Env(spec, reset, step)


def drawing() -> Algorithm:
    """It records a draw per copy."""

    def act(state, memory, observation, key, greedy):
        copies = observation.alive.shape[0]
        draws = jax.vmap(jax.random.uniform)(jax.random.split(key, copies))
        return Decision(jnp.zeros((copies, 1), int), memory, draws)

    return remembering()._replace(act=act)


def test_resets_steps_and_actions_of_every_copy_draw_by_themselves():
    env, algorithm = drawing_env(), drawing()
    arena = rollout.open_arena(env, algorithm, 4, jax.random.key(0))
    collect = jax.jit(partial(rollout.collect, env, algorithm, num_steps=18))
    _, trajectory, _ = collect((), arena, jax.random.key(1))
    starts = np.asarray(trajectory.observation.state[..., 0])[np.asarray(trajectory.first)]
    draws = np.concatenate([starts, np.ravel(trajectory.reward), np.ravel(trajectory.record)])
    assert len(starts) == 4 * 6
    values, times = np.unique(draws, return_counts=True)
    assert values[times > 1].tolist() == [], "a key was used twice"


def test_no_two_episodes_of_an_evaluation_are_alike():
    scores = jax.jit(lambda key: evaluate(drawing_env(), drawing(), (), key, 70))(jax.random.key(0))
    assert len(np.unique(np.concatenate([scores.greedy.returned, scores.sampled.returned]))) == 140


def test_greedy_and_sampled_episodes_have_the_same_starts():
    """The return is the sum of the state's draw over three steps."""
    env = drawing_env()

    def step(env_state, action, key):
        after = env.step(env_state, action, key)[1]
        return env.step(env_state, action, key)[0], after._replace(reward=env_state[0])

    scores = evaluate(env._replace(step=step), drawing(), (), jax.random.key(0), 5)
    np.testing.assert_array_equal(scores.greedy.returned, scores.sampled.returned)
    assert len(np.unique(scores.greedy.returned)) == 5


# Greedy or not, and with a memory


def test_training_samples_and_an_evaluation_plays_greedy_and_sampled_episodes():
    """The algorithm's action is whether it is asked to be greedy, plus its state; the reward is the sum of the two
    agents' actions. What is evaluated with sampled actions is `evaluated` of the state."""

    def act(state, memory, observation, key, greedy):
        wanted = jnp.broadcast_to(jnp.asarray(greedy, int), observation.alive.shape[:1])
        return Decision(jnp.broadcast_to((wanted + state)[:, None], observation.alive.shape), memory, ())

    env, algorithm = counting_env(), remembering()._replace(act=act, evaluated=lambda state: state + 3)
    arena = rollout.open_arena(env, algorithm, 2, jax.random.key(0))
    _, trajectory, _ = rollout.collect(env, algorithm, 0, arena, jax.random.key(1), num_steps=2)
    assert (trajectory.action == 0).all()
    greedy, sampled = evaluate(env, algorithm, 0, jax.random.key(0), 3)
    np.testing.assert_array_equal(greedy.returned, 2 * 4 * greedy.length)
    np.testing.assert_array_equal(sampled.returned, 2 * 3 * sampled.length)


def test_the_hash_of_an_episode_s_actions_depends_on_all_of_them_and_on_nothing_else():
    rng = np.random.default_rng(0)
    episode = rng.integers(9, size=(40, 5))

    def hashed(actions, array):
        played = array(np.zeros(1, np.uint32))
        for joint in actions:
            played = extended(played, array(joint[None]))
        return int(played[0])

    known = hashed(episode, np.asarray)
    assert hashed(episode, jnp.asarray) == known
    others = {known}
    for t, i in np.ndindex(episode.shape):
        changed = episode.copy()
        changed[t, i] = (changed[t, i] + 1) % 9
        others.add(hashed(changed, np.asarray))
    others |= {hashed(other, np.asarray) for other in (episode[:-1], episode[::-1], episode[:, ::-1])}
    assert len(others) == 1 + episode.size + 3


def test_a_policy_that_is_evaluated_remembers():
    """It acts only at the step at which it remembers nothing."""

    def act(state, memory, observation, key, greedy):
        return Decision(jnp.broadcast_to(memory == 0, observation.alive.shape).astype(int), memory + 1, ())

    for scores in evaluate(counting_env(), remembering()._replace(act=act), (), jax.random.key(0), 3):
        assert (scores.returned == 2).all()
