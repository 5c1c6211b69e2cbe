"""MPE compared with mpe2, the maintained reference: single steps from the same states and actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_contract import FAST_COMPILE

from grasp.envs import make
from grasp.envs.jaxmarl import Timed, load
from grasp.types import Env, PyTree


def reference(num_agents: int):
    """mpe2's parallel environment and its world, in which bodies can be placed."""
    from mpe2 import simple_spread_v3

    env = simple_spread_v3.parallel_env(N=num_agents, max_cycles=25)
    env.reset(seed=0)
    return env, env.unwrapped.world


def start(env: Env, seed: int):
    """A start, and the compiled step."""
    env_state, _ = jax.jit(env.reset, compiler_options=FAST_COMPILE)(jax.random.key(seed))
    return env_state, jax.jit(env.step, compiler_options=FAST_COMPILE)


def place(world, inner: PyTree) -> None:
    for body, position, velocity in zip(world.entities, inner.p_pos, inner.p_vel, strict=True):
        body.state.p_pos = np.asarray(position, np.float64)
        body.state.p_vel = np.asarray(velocity, np.float64)


@pytest.mark.parametrize(("name", "num_agents"), [("mpe/simple_spread", 3), ("mpe/simple_spread_5", 5)])
def test_simple_spread_agrees_with_mpe2(name, num_agents):
    env, (theirs, world) = make(name), reference(num_agents)
    env_state, step_once = start(env, seed=3)
    # agents start close together, so that the first steps have collisions
    crowd = 0.3 * env_state.inner.p_pos[:num_agents]
    inner = env_state.inner.replace(p_pos=env_state.inner.p_pos.at[:num_agents].set(crowd))
    env_state = Timed(inner, env_state.clock)
    collisions = 0.0
    for t in range(25):
        action_key, step_key = jax.random.split(jax.random.fold_in(jax.random.key(4), t))
        action = jax.random.randint(action_key, (num_agents,), 0, 5)
        place(world, env_state.inner)
        rows, rewards, terminated, truncated, _ = theirs.step({f"agent_{i}": int(action[i]) for i in range(num_agents)})
        env_state, step = step_once(env_state, action, step_key)
        expected = np.stack([rows[f"agent_{i}"] for i in range(num_agents)])
        np.testing.assert_allclose(step.observation.obs, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(step.observation.state, theirs.state(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(step.reward, sum(rewards.values()), rtol=1e-5)
        assert bool(step.truncated) == all(truncated.values()) == (t == 24)
        assert not bool(step.terminated)
        assert not any(terminated.values())
        collisions += len({round(value, 4) for value in rewards.values()}) > 1
    assert collisions, "no step had a collision, so the individual part of the reward was not compared"


def test_the_reward_is_the_sum_of_individual_rewards():
    """Both agents receive the listener's distance, so the team reward counts it twice."""
    env = make("mpe/simple_speaker_listener")
    env_state, step_once = start(env, seed=0)
    env_state, step = step_once(env_state, jnp.array([2, 1]), jax.random.key(1))
    inner = env_state.inner
    distance = inner.p_pos[1] - inner.p_pos[2 + inner.goal]
    np.testing.assert_allclose(step.reward, -2 * jnp.sum(distance**2), rtol=1e-5)


def test_the_smaller_agent_is_padded_and_masked():
    env = make("mpe/simple_speaker_listener")
    env_state, first = jax.jit(env.reset, compiler_options=FAST_COMPILE)(jax.random.key(0))
    assert first.avail.tolist() == [[True, True, True, False, False], [True] * 5]
    colour = np.full(3, 0.15)
    colour[int(env_state.inner.goal)] = 0.65
    np.testing.assert_allclose(first.obs[0], np.concatenate([colour, np.zeros(8)]), rtol=1e-6)
    _, step = jax.jit(env.step, compiler_options=FAST_COMPILE)(env_state, jnp.array([2, 0]), jax.random.key(1))
    np.testing.assert_array_equal(step.observation.obs[1, -3:], [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(step.observation.state, step.observation.obs.reshape(-1))


def test_reference_task_has_jaxmarls_rewards_and_observations():
    env, theirs = make("mpe/simple_reference"), load("mpe", "SimpleReferenceMPE")()
    env_state, step_once = start(env, seed=0)
    action, key = jnp.array([7, 33]), jax.random.key(1)
    with jax.numpy_rank_promotion("allow"):
        obs, _, rewards, _, _ = theirs.step_env(key, env_state.inner, {"agent_0": action[0], "agent_1": action[1]})
    _, step = step_once(env_state, action, key)
    np.testing.assert_allclose(step.reward, rewards["agent_0"] + rewards["agent_1"], rtol=1e-6)
    np.testing.assert_allclose(step.observation.obs, np.stack([obs["agent_0"], obs["agent_1"]]), rtol=1e-6)
