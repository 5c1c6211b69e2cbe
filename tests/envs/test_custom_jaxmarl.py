"""A user's own environment in the style of jaxmarl: its dictionaries, masks, terminations and time limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxmarl_race import Race

from grasp.envs import custom, make
from grasp.envs.check import inspect
from grasp.types import GraspError


def played(env, actions):
    """The first observation and the steps of one episode."""
    state, seen = env.reset(jax.random.key(0))
    steps = []
    for action in actions:
        state, after = jax.jit(env.step)(state, jnp.array(action, jnp.int32), jax.random.key(1))
        steps.append(after)
    return seen, steps


def test_sizes_are_the_largest_and_rows_are_padded():
    env = custom.like_jaxmarl("own:race", Race(), 6)
    assert (env.spec.num_agents, env.spec.obs_dim, env.spec.state_dim, env.spec.num_actions) == (2, 4, 2, 3)
    _, (after,) = played(env, [(2, 1)])
    np.testing.assert_array_equal(after.observation.obs, [[1, 1, 1, 1], [1, 0, 0, 0]])
    np.testing.assert_array_equal(after.observation.state, [10, 10])
    np.testing.assert_array_equal(after.observation.avail, [[1, 1, 1], [1, 1, 0]])
    assert float(after.reward) == 12.0


def test_without_masks_all_actions_are_legal_and_without_world_state_the_state_is_all_observations():
    env = custom.like_jaxmarl("own:race", Race(masks=False, world_state=False), 6)
    seen, (after,) = played(env, [(0, 1)])
    np.testing.assert_array_equal(seen.avail, [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(after.observation.state, [1, 1, 1, 1, 1, 0, 0, 0])


def test_done_before_the_limit_terminates_and_at_the_limit_truncates():
    env = custom.like_jaxmarl("own:race", Race(), 6)
    _, steps = played(env, [(0, 1)] * 3)
    assert [bool(step.terminated) for step in steps] == [False, False, True]
    assert not any(bool(step.truncated) for step in steps)
    _, steps = played(env, [(0, 0)] * 6)
    assert [bool(step.terminated) for step in steps] == [False] * 6
    assert [bool(step.truncated) for step in steps] == [False] * 5 + [True]


def test_an_environment_made_by_name_keeps_the_contract():
    found = inspect(make("jaxmarl_race:race?masks=false,horizon=5"))
    assert found.spec.horizon == 5
    assert found.spec.name == "jaxmarl_race:race?masks=false,horizon=5"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "jaxmarl_race:without_limit",
            r"has no time limit \(max_steps\); type: 'jaxmarl_race:without_limit\?horizon=N'",
        ),
        ("jaxmarl_race:race?horizon=7", "ends its episodes after 6 steps; give a horizon of at most 6"),
        ("jaxmarl_race:with_boxes", "the actions of agent 'fast' are a Box; they must be Discrete"),
    ],
)
def test_unsupported_environments_are_refused(name, sentence):
    with pytest.raises(GraspError, match=sentence):
        make(name)


def test_jaxmarls_own_environment_by_name_equals_the_registered_one():
    ours = make("mpe/simple_spread")
    theirs = make("jaxmarl.environments.mpe.simple_spread:SimpleSpreadMPE?horizon=25,max_steps=1000")
    key, action = jax.random.key(3), jnp.array([1, 2, 3], jnp.int32)
    for env in (ours, theirs):
        assert (env.spec.num_agents, env.spec.obs_dim, env.spec.state_dim, env.spec.horizon) == (3, 18, 54, 25)
    steps = [env.step(env.reset(key)[0], action, key)[1] for env in (ours, theirs)]
    jax.tree.map(np.testing.assert_array_equal, *steps)
