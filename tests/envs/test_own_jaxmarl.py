"""A user's own environment in the style of jaxmarl: how its dictionaries, masks, ends and limits are read."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.envs import custom, make
from grasp.envs.check import inspect
from grasp.types import GraspError


class Discrete:
    def __init__(self, n):
        self.n = n


class Box:
    pass


class Race:
    """Two unequal agents; the first to make three moves of kind 1 ends it. Its own clock stops it after `max_steps`."""

    agents = ("fast", "slow")
    max_steps = 6

    def __init__(self, masks=True, whole=True):
        self.masks, self.whole = masks, whole
        if masks:
            self.get_avail_actions = lambda state: {"fast": jnp.array([1, 1, state[0] % 2]), "slow": jnp.array([1, 1])}

    def action_space(self, agent):
        return Discrete(3 if agent == "fast" else 2)

    def observe(self, state):
        seen = {"fast": jnp.concatenate([state, state]).astype(jnp.float32), "slow": state[1:].astype(jnp.float32)}
        return seen | ({"world_state": 10.0 * state.astype(jnp.float32)} if self.whole else {})

    def reset(self, key):
        state = jnp.zeros(2, jnp.int32)
        return self.observe(state), state

    def step_env(self, key, state, actions):
        state = state + jnp.array([1, 0]) + jnp.array([0, 1]) * (actions["slow"] == 1)
        over = (state[1] >= 3) | (state[0] >= self.max_steps)
        rewards = {"fast": actions["fast"].astype(jnp.float32), "slow": 10.0 * actions["slow"]}
        return self.observe(state), state, rewards, {"fast": over, "slow": over, "__all__": over}, {}


def played(env, actions):
    state, seen = env.reset(jax.random.key(0))
    steps = []
    for action in actions:
        state, after = jax.jit(env.step)(state, jnp.array(action, jnp.int32), jax.random.key(1))
        steps.append(after)
    return seen, steps


def test_sizes_are_the_largest_and_rows_padded():
    env = custom.like_jaxmarl("own:race", Race(), 6)
    assert (env.spec.num_agents, env.spec.obs_dim, env.spec.state_dim, env.spec.num_actions) == (2, 4, 2, 3)
    _, (after,) = played(env, [(2, 1)])
    np.testing.assert_array_equal(after.observation.obs, [[1, 1, 1, 1], [1, 0, 0, 0]])
    np.testing.assert_array_equal(after.observation.state, [10, 10])
    np.testing.assert_array_equal(after.observation.avail, [[1, 1, 1], [1, 1, 0]])
    assert float(after.reward) == 12.0


def test_without_masks_or_state_of_its_own():
    env = custom.like_jaxmarl("own:race", Race(masks=False, whole=False), 6)
    seen, (after,) = played(env, [(0, 1)])
    np.testing.assert_array_equal(seen.avail, [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(after.observation.state, [1, 1, 1, 1, 1, 0, 0, 0])


def test_an_end_before_the_limit_is_one_and_the_clock_is_not():
    env = custom.like_jaxmarl("own:race", Race(), 6)
    _, steps = played(env, [(0, 1)] * 3)
    assert [bool(step.terminated) for step in steps] == [False, False, True]
    assert not any(bool(step.truncated) for step in steps)
    _, steps = played(env, [(0, 0)] * 6)
    assert [bool(step.terminated) for step in steps] == [False] * 6
    assert [bool(step.truncated) for step in steps] == [False] * 5 + [True]


@pytest.fixture
def module(tmp_path, monkeypatch):
    source = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_own_jaxmarl import Box, Race\n"
    source += "def race(masks=True): return Race(masks)\n"
    source += "def endless():\n    found = Race()\n    found.max_steps = 0\n    return found\n"
    source += "def driven():\n    found = Race()\n    found.action_space = lambda agent: Box()\n    return found\n"
    (tmp_path / "own_race.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("module")
def test_by_its_name_it_keeps_the_contract():
    found = inspect(make("own_race:race?masks=false,horizon=5"))
    assert found.spec.horizon == 5
    assert found.spec.name == "own_race:race?masks=false,horizon=5"


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("own_race:endless", r"does not say its limit \(max_steps\); type: 'own_race:endless\?horizon=N'"),
        ("own_race:race?horizon=7", "stops itself after 6 steps; give a horizon of 6 at most"),
        ("own_race:driven", "agent 'fast' acts in a Box; actions must be Discrete"),
    ],
)
def test_what_cannot_be_learned_is_refused(name, sentence):
    with pytest.raises(GraspError, match=sentence):
        make(name)


def test_jaxmarls_own_task_is_the_one_we_adapt():
    ours = make("mpe/simple_spread")
    theirs = make("jaxmarl.environments.mpe.simple_spread:SimpleSpreadMPE?horizon=25,max_steps=1000")
    key, action = jax.random.key(3), jnp.array([1, 2, 3], jnp.int32)
    for env in (ours, theirs):
        assert (env.spec.num_agents, env.spec.obs_dim, env.spec.state_dim, env.spec.horizon) == (3, 18, 54, 25)
    steps = [env.step(env.reset(key)[0], action, key)[1] for env in (ours, theirs)]
    jax.tree.map(np.testing.assert_array_equal, *steps)
