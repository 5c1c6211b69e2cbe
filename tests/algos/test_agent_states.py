"""Environments whose agents have states of their own: a value and an advantage each."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mappo_cases import prepare
from trees import assert_close, distance

from grasp.algos import happo, mappo, ppo, qmix
from grasp.algos.ma2e import algorithm as ma2e
from grasp.config.hyperparameters import Happo, Ma2e, Mappo, Qmix
from grasp.envs import base as envs
from grasp.nn import critic as critics
from grasp.training import rollout
from grasp.types import Env, GraspError

SIZES = {"num_envs": 6, "rollout": 10, "chunk": 5, "epochs": 2, "hidden": 8, "lr": 3e-3}


def with_agent_states(env: Env, change) -> Env:
    """The environment with `change(state[s]) -> [N, s]` for the agents' states."""

    def changed(observation):
        return observation._replace(state=change(observation.state))

    def reset(key):
        env_state, observation = env.reset(key)
        return env_state, changed(observation)

    def step(env_state, action, key):
        env_state, after = env.step(env_state, action, key)
        return env_state, after._replace(observation=changed(after.observation))

    return Env(replace(env.spec, agent_states=True), reset, step)


def copied(num_agents: int):
    return lambda state: jnp.broadcast_to(state, (num_agents, *state.shape))


def scaled(num_agents: int):
    return lambda state: state[None] * (1.0 + jnp.arange(num_agents))[:, None]


def collected(module, hyper, env):
    algorithm = module.make(hyper, env.spec)
    state = algorithm.init(jax.random.key(0))
    arena = rollout.open_arena(env, algorithm, hyper.num_envs, jax.random.key(1))
    collect = jax.jit(partial(rollout.collect, env, algorithm, num_steps=hyper.rollout))
    _, trajectory, _ = collect(state, arena, jax.random.key(2))
    return algorithm, state, trajectory


@pytest.mark.parametrize(
    ("module", "hyper", "probe", "critic"),
    [
        (mappo, Mappo(**SIZES), "mask_death", "gru"),
        (happo, Happo(**SIZES), "truncation", "mlp"),
        pytest.param(mappo, Mappo(**SIZES), "mask_death", "mlp", marks=pytest.mark.full("every critic")),
        pytest.param(happo, Happo(**SIZES), "truncation", "gru", marks=pytest.mark.full("every critic")),
    ],
    ids=["mappo-gru", "happo-mlp", "mappo-mlp", "happo-gru"],
)
def test_states_that_are_all_the_team_s_teach_what_the_team_s_teaches(module, hyper, probe, critic):
    """HAPPO where no agent dies: it normalises the team's advantages agent by agent, and those of agents together."""
    hyper, env = replace(hyper, critic=critic), envs.make(f"probe/{probe}")
    own = with_agent_states(env, copied(env.spec.num_agents))
    algorithm, state, trajectory = collected(module, hyper, env)
    own_algorithm, own_state, own_trajectory = collected(module, hyper, own)
    deaths = (~trajectory.observation.alive).any()
    assert deaths == (module is mappo), "an agent must die for the masks to matter"
    assert own_trajectory.record.value.shape == trajectory.observation.alive.shape
    for i in range(env.spec.num_agents):
        np.testing.assert_allclose(own_trajectory.record.value[..., i], trajectory.record.value, atol=1e-6)
    after, _ = jax.jit(algorithm.update)(state, trajectory, jax.random.key(3))
    own_after, _ = jax.jit(own_algorithm.update)(own_state, own_trajectory, jax.random.key(3))
    assert distance(after.critic, state.critic) > 5e-4
    assert_close((own_after.actor, own_after.critic), (after.actor, after.critic), atol=2e-5, rtol=1e-7)


def test_happo_normalises_the_agents_own_advantages_over_all_of_them():
    env = envs.make("probe/mask_death")
    _, state, trajectory = collected(happo, Happo(**SIZES), with_agent_states(env, scaled(env.spec.num_agents)))
    steps = prepare(Happo(**SIZES), state, trajectory, per_agent=True).steps
    alive = np.asarray(steps.alive)
    assert (~alive.astype(bool)).any()
    together = np.asarray(steps.advantage)[alive > 0]
    assert together.mean() == pytest.approx(0, abs=1e-5)
    assert together.std() == pytest.approx(1, abs=1e-3)
    each = [np.asarray(steps.advantage)[..., i][alive[..., i] > 0].mean() for i in range(env.spec.num_agents)]
    assert np.ptp(each) > 1e-3, "agent by agent they would all be 0"


@pytest.mark.parametrize("critic", ["mlp", "gru"])
def test_every_agent_s_advantage_comes_from_its_own_values(critic):
    hyper, env = Mappo(**SIZES, critic=critic), envs.make("probe/truncation")
    own = with_agent_states(env, scaled(env.spec.num_agents))
    _, state, trajectory = collected(mappo, hyper, own)
    advantage, target = ppo.estimate(hyper, state, trajectory)
    for i in range(env.spec.num_agents):
        mine = trajectory._replace(
            record=trajectory.record._replace(value=trajectory.record.value[..., i]),
            memory=trajectory.memory._replace(critic=trajectory.memory.critic[..., i, :]),
            next_observation=trajectory.next_observation._replace(state=trajectory.next_observation.state[..., i, :]),
        )
        alone = ppo.estimate(hyper, state, mine)
        np.testing.assert_allclose(advantage[..., i], alone[0], atol=1e-6)
        np.testing.assert_allclose(target[..., i], alone[1], atol=1e-6)
    assert np.abs(advantage[..., 0] - advantage[..., -1]).max() > 1e-3


def test_a_recurrent_critic_sees_the_values_of_the_rollout():
    hyper, env = Mappo(**SIZES, critic="gru"), envs.make("probe/truncation")
    own = with_agent_states(env, scaled(env.spec.num_agents))
    _, state, trajectory = collected(mappo, hyper, own)
    batch = prepare(hyper, state, trajectory)
    assert batch.steps.first[1:].any(), "an episode must begin inside a chunk"
    values = critics.values(state.critic, batch.start.critic, batch.steps.state, batch.steps.first)
    np.testing.assert_allclose(values, batch.steps.value, atol=1e-5)


@pytest.mark.parametrize(("module", "hyper"), [(qmix, Qmix()), (ma2e, Ma2e())], ids=["qmix", "ma2e"])
def test_a_mixer_refuses_them_in_one_sentence(module, hyper):
    env = with_agent_states(envs.make("probe/roles"), copied(2))
    with pytest.raises(GraspError, match="probe/roles has agent-specific states, but the mixer needs a global one"):
        module.make(hyper, env.spec)
