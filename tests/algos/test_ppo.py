"""Advantages, value targets and normalisation of PPO's batch against loops over steps, environments and agents."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from team_rollouts import SPEC, noised, scene

from grasp.algos import mappo, ppo
from grasp.algos.value_norm import ValueNorm
from grasp.config.hyperparameters import Mappo

CHUNK, GAMMA, LAMBDA = 4, 0.9, 0.8
OWN = replace(SPEC, agent_states=True)
MEAN, SQUARE, WEIGHT = 0.5, 2.0, 1e-3
"""What ValueNorm has seen: its moments, and the weight that debiasing divides by."""
MODES = {"team_state": SPEC, "agent_states": OWN}


def world(spec, critic="mlp", value_norm=True, time_limit="bootstrap"):
    sizes = {"rollout": 8, "chunk": CHUNK, "hidden": 6, "gamma": GAMMA, "gae_lambda": LAMBDA}
    hyper = Mappo(**sizes, critic=critic, value_norm=value_norm, time_limit=time_limit)
    state = mappo.make(hyper, spec).init(jax.random.key(0))
    norm = ValueNorm(*(np.float32(WEIGHT * x) for x in (MEAN, SQUARE, 1.0)))
    state = state._replace(critic=single(noised(state.critic)), value_norm=norm)
    return hyper, state, single(scene(spec, critic_hidden=6 if critic == "gru" else 0))


def single(tree):
    """Numbers as the library has them: floats and integers of 32 bits."""
    return jax.tree.map(lambda x: x.astype({"f": "f4", "i": "i4", "b": "?"}[x.dtype.kind]), tree)


def computed(function, hyper, *given, **options):
    return jax.device_get(jax.jit(partial(function, hyper, **options))(*given))


def dense(layer, x):
    return x @ layer["weight"] + layer["bias"]


def value_of(critic, state, memory):
    """The critic's value of one state, in ValueNorm's units, from the memory before it."""
    if "front" not in critic:
        for i in range(4):
            state = dense(critic[f"layer_{i}"], np.maximum(state, 0) if i else state)
        return state[0]
    cell = critic["front"]["gru"]
    into = dense(cell["input"], dense(critic["front"]["encoder"], state)).reshape(3, -1)
    back = dense(cell["memory"], memory).reshape(3, -1)
    reset, update = 1 / (1 + np.exp(-into[:2] - back[:2]))
    memory = (1 - update) * np.tanh(into[2] + reset * back[2]) + update * memory
    return dense(critic["value"], np.maximum(memory, 0))[0]


def by_hand(state, data, value_norm, time_limit="bootstrap"):
    """Â_t = Σ_l (γλ)^l δ_{t+l} to the end of the episode or of the rollout, and Â_t + V_t, in rewards' units."""
    over = data.terminated | data.truncated if time_limit == "terminal" else data.terminated
    scale, shift = (np.sqrt(SQUARE - MEAN**2), MEAN) if value_norm else (1.0, 0.0)
    critic = jax.tree.map(np.float64, jax.device_get(state.critic))
    advantage, target = np.zeros((2, *data.record.value.shape))
    for t, *at in np.ndindex(advantage.shape):
        b, weight = at[0], 1.0
        for later in range(t, len(data.reward)):
            here = (later, *at)
            # what the critic remembers after step `later` is its memory before the next one
            after = value_of(critic, data.next_observation.state[here], data.memory.critic[later + 1, *at])
            future = 0.0 if over[later, b] else GAMMA * (after * scale + shift)
            delta = data.reward[later, b] + future - (data.record.value[here] * scale + shift)
            advantage[t, *at] += weight * delta
            if data.terminated[later, b] or data.truncated[later, b]:
                break
            weight *= GAMMA * LAMBDA
        target[t, *at] = advantage[t, *at] + data.record.value[t, *at] * scale + shift
    return advantage, target


@pytest.mark.parametrize("spec", MODES.values(), ids=MODES)
@pytest.mark.parametrize(
    ("critic", "value_norm", "time_limit"),
    [("mlp", True, "bootstrap"), ("gru", True, "terminal"), ("gru", False, "bootstrap")],
)
def test_advantages_and_targets_are_the_sums_of_the_loops(spec, critic, value_norm, time_limit):
    hyper, state, data = world(spec, critic, value_norm, time_limit)
    assert data.terminated.any()
    assert data.truncated[:-1].any()
    assert not (data.terminated | data.truncated)[-1].all(), "the rollout must end inside an episode"
    found = computed(ppo.estimate, hyper, state, data)
    expected = by_hand(state, data, value_norm, time_limit)
    for name, mine, loops in zip(("advantage", "target"), found, expected, strict=True):
        np.testing.assert_allclose(mine, loops, rtol=1e-4, atol=1e-5, err_msg=name)


def live(data, agents):
    """(t, b, i) of every live step of these agents."""
    alive = data.observation.alive
    return [at for at in np.ndindex(alive.shape) if at[2] in agents and alive[at]]


@pytest.mark.parametrize(
    ("spec", "per_agent", "groups"),
    [(SPEC, False, [{0, 1, 2}]), (SPEC, True, [{0}, {1}, {2}]), (OWN, False, [{0, 1, 2}]), (OWN, True, [{0, 1, 2}])],
    ids=["mappo", "happo", "mappo_with_agent_states", "happo_with_agent_states"],
)
def test_advantages_are_normalised_over_the_live_steps_of_the_team_or_of_each_agent(spec, per_agent, groups):
    hyper, state, data = world(spec)
    advantage, target = by_hand(state, data, value_norm=True)
    each = advantage if spec.agent_states else np.stack([advantage] * spec.num_agents, -1)
    expected = np.zeros_like(each)
    for agents in groups:
        counted = [each[at] for at in live(data, agents)]
        for i in agents:
            expected[..., i] = (each[..., i] - np.mean(counted)) / (np.std(counted) + 1e-5)
    steps = computed(ppo.prepare, hyper, state, data, per_agent=per_agent).steps
    for number, (start, b) in enumerate(chunks(data)):
        for name, whole in (("advantage", expected), ("target", target)):
            found = getattr(steps, name)[:, number]
            np.testing.assert_allclose(found, whole[start : start + CHUNK, b], rtol=1e-4, atol=2e-5, err_msg=name)


def chunks(data):
    """(first step, environment) in the order of a batch."""
    return [(t, b) for t in range(0, len(data.reward), CHUNK) for b in range(data.reward.shape[1])]


@pytest.mark.parametrize("spec", MODES.values(), ids=MODES)
def test_a_chunk_has_the_rollout_s_steps_zeros_for_the_dead_and_the_memories_it_starts_from(spec):
    hyper, state, data = world(spec, "gru")
    batch = computed(ppo.prepare, hyper, state, data)
    seen = data.observation
    for number, (start, b) in enumerate(chunks(data)):
        for t in range(start, start + CHUNK):
            for i in range(spec.num_agents):
                expected = seen.obs[t, b, i] if seen.alive[t, b, i] else np.zeros(spec.obs_dim)
                np.testing.assert_array_equal(batch.steps.obs[t - start, number, i], expected)
        here = (slice(start, start + CHUNK), b)
        expected = {"avail": seen.avail, "alive": seen.alive, "state": seen.state, "action": data.action}
        expected |= {"first": data.first, "log_prob": data.record.log_prob, "value": data.record.value}
        for name, whole in expected.items():
            np.testing.assert_array_equal(getattr(batch.steps, name)[:, number], whole[here], err_msg=name)
        for name in ("actor", "critic"):
            found = getattr(batch.start, name)[number]
            np.testing.assert_array_equal(found, getattr(data.memory, name)[start, b], err_msg=name)
