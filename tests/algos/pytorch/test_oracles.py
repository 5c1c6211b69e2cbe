"""Whole iterations of MAPPO, HAPPO and QMIX against plain PyTorch learners written from the equations.

In float64, where only a mistake makes a difference. What is random is drawn here from the same keys and given to the
learners: the order of chunks and of agents, and the numbers of the replayed episodes.
"""

from dataclasses import replace
from operator import attrgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from team_rollouts import SPEC, acted, noised, scene
from trees import assert_close, named

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'grasp-marl[torch]'")

import torch_learners as oracle  # noqa: E402

from grasp.algos import happo, mappo, qmix  # noqa: E402
from grasp.algos import minibatches as batches  # noqa: E402
from grasp.algos.value_norm import ValueNorm  # noqa: E402
from grasp.config.hyperparameters import Happo, Mappo, Qmix  # noqa: E402

STEPS, ENVS, CHUNK, AGENTS = 8, 4, 4, SPEC.num_agents
PPO = {
    "num_envs": ENVS,
    "rollout": STEPS,
    "chunk": CHUNK,
    "epochs": 2,
    "minibatches": 2,
    "hidden": 6,
    "lr": 0.03,
    "critic_lr": 0.05,
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "entropy": 0.05,
    "huber": 0.4,
    "max_grad_norm": 0.1,
}
"""Large steps, a narrow Huber loss and a small norm, so that every clip is reached."""
REPLAY = {
    "num_envs": ENVS,
    "rollout": 5,
    "buffer": 20,
    "batch": 6,
    "interval": 3,
    "target_interval": 14,
    "hidden": 6,
    "mixer_embed": 3,
    "mixer_hidden": 4,
    "gamma": 0.9,
    "lr": 0.01,
    "max_grad_norm": 0.5,
}
SEEN_TARGETS = ValueNorm(*(1.3e-4 * np.array([0.7, 2.2, 1.0])))
"""ValueNorm after some updates, so that another one moves it."""
AGENT_STATES = replace(SPEC, agent_states=True, state_dim=9)


@pytest.fixture(autouse=True)
def double(x64, monkeypatch):
    """float64 also where the library asks for float32; and several tiles to a minibatch."""
    monkeypatch.setattr(jnp, "float32", jnp.float64)
    monkeypatch.setattr(batches, "TILE_ROWS", 2 * AGENTS)
    monkeypatch.setattr(qmix, "TILE_ROWS", 2 * AGENTS)


def wide(tree):
    """Every number in 64 bits."""
    kinds = {"f": np.float64, "i": np.int64, "b": bool}
    return jax.tree.map(lambda x: np.asarray(x, kinds[np.asarray(x).dtype.kind]), jax.device_get(tree))


def moments(opt, part=lambda tree: tree):
    """The moments of clipped Adam, as optax nests the states of its parts; by their names in PyTorch."""
    return {"exp_avg": part(opt[1][0].mu), "exp_avg_sq": part(opt[1][0].nu)}


def equal_up_to_rounding(found, expected):
    """All numbers, by name, up to the rounding of 64 bits; a number may stand for an array of copies of it."""
    assert found.keys() == expected.keys()
    pairs = {name: np.broadcast_arrays(np.asarray(found[name]), expected[name]) for name in expected}
    assert_close(*({name: pair[side] for name, pair in pairs.items()} for side in (0, 1)), atol=1e-12, rtol=1e-9)


def agrees(learner, metrics, parts):
    """`parts` are triples by name: our parameters, our optimiser's moments of them, and the learner's network."""
    found = {name: metrics[name] for name in learner.metrics()}
    expected = learner.metrics()
    for part, (params, kept, net) in parts.items():
        pairs = [(part, params, oracle.dump(net))]
        for moment, tree in kept.items():
            pairs.append((f"{moment} of {part}", tree, oracle.dump(net, oracle.moment_of(learner.adams, moment))))
        for name, mine, theirs in pairs:
            found |= {f"{name}.{layer}": value for layer, value in named(mine).items()}
            expected |= {f"{name}.{layer}": value for layer, value in theirs.items()}
    equal_up_to_rounding(found, expected)


def schedule(key, hyper):
    """The chunks of every minibatch: a new order for every epoch."""
    chunks = [(t, b) for t in range(0, STEPS, CHUNK) for b in range(ENVS)]
    order = jnp.tile(jnp.arange(len(chunks)), (hyper.epochs, 1))
    order = jax.random.permutation(key, order, axis=1, independent=True)
    return [[chunks[c] for c in row] for row in order.reshape(hyper.epochs * hyper.minibatches, -1)]


def begun(module, hyper, spec, norm=SEEN_TARGETS):
    """A PPO algorithm, a state in which no two agents are equal, and a rollout of its policy."""
    algorithm = module.make(hyper, spec)
    state = wide(algorithm.init(jax.random.key(0)))
    actor, critic = noised((state.actor, state.critic))
    state = state._replace(actor=actor, critic=critic, value_norm=wide(norm))
    hidden, critic_hidden = (hyper.hidden * (kind == "gru") for kind in (hyper.actor, hyper.critic))
    trajectory = scene(spec, STEPS, hidden=hidden, critic_hidden=critic_hidden, last_action=hyper.last_action)
    return algorithm, state, acted(algorithm, state, trajectory)


def ppo_agrees(algorithm, learner, state, trajectory, key):
    after, metrics = jax.device_get(jax.jit(algorithm.update)(state, trajectory, key))
    equal_up_to_rounding(after.value_norm._asdict(), dict(zip(after.value_norm._fields, learner.norm, strict=True)))
    actor = (after.actor, moments(after.actor_opt), learner.team)
    agrees(learner, metrics, {"actor": actor, "critic": (after.critic, moments(after.critic_opt), learner.critic)})
    assert 0 < metrics["clip_fraction"] < 1
    assert metrics["grad_norm"] > learner.hyper.max_grad_norm
    return metrics


INPUTS = {"agent_id": True, "last_action": True}
REFERENCE = {"layout": "reference", "critic": "gru", "init": "separate", "gain": 1.0, **INPUTS}
FEEDFORWARD = {"layout": "reference", "actor": "mlp", "blocks": 3, "sharing": "separate", "time_limit": "terminal"}


@pytest.mark.parametrize(
    "options", [{}, {"critic": "gru"}, REFERENCE, FEEDFORWARD], ids=["mlp", "gru", "reference", "feedforward"]
)
@pytest.mark.parametrize("spec", [SPEC, AGENT_STATES], ids=["team_state", "agent_states"])
def test_acting_records_what_the_networks_say_step_by_step(options, spec):
    hyper = Mappo(**PPO, **options)
    _, state, trajectory = begun(mappo, hyper, spec)
    learner = oracle.Mappo(hyper, state, trajectory)
    for b in range(ENVS):
        for i in range(AGENTS):
            memory = oracle.real(trajectory.memory.actor[0, b, i])
            for t in range(STEPS):
                policy, taken, memory = learner.policy(i, t, b, memory)
                equal_up_to_rounding(
                    {"memory": trajectory.memory.actor[t + 1, b, i], "log_prob": trajectory.record.log_prob[t, b, i]},
                    {"memory": memory.detach().numpy(), "log_prob": oracle.number(policy.log_prob(taken))},
                )
        for at in learner.streams(b):
            memory = oracle.real(trajectory.memory.critic[0, *at])
            for t in range(STEPS):
                memory = memory * (not trajectory.first[t, b])
                value, memory = oracle.judge(learner.critic, oracle.real(trajectory.observation.state[t, *at]), memory)
                equal_up_to_rounding(
                    {"memory": trajectory.memory.critic[t + 1, *at], "value": trajectory.record.value[t, *at]},
                    {"memory": memory.detach().numpy(), "value": oracle.number(value)},
                )


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (SPEC, {}),
        (AGENT_STATES, {"sharing": "shared", "critic": "gru", "denominator": "common"}),
        (SPEC, {"operator": "min_norm", "critic": "gru", "weight": 0.7}),
        (SPEC, REFERENCE | {"sharing": "shared", "time_limit": "terminal"}),
        (AGENT_STATES, REFERENCE | {"operator": "min_norm"}),
        (SPEC, FEEDFORWARD),
    ],
    ids=["hybrid", "shared_with_agent_states", "grasp", "reference_shared", "reference_grasp", "feedforward_separate"],
)
def test_an_iteration_of_mappo_is_that_of_the_loops(spec, options):
    hyper = Mappo(**PPO, **options)
    algorithm, state, trajectory = begun(mappo, hyper, spec)
    key = jax.random.key(7)
    learner = oracle.Mappo(hyper, state, trajectory)
    learner.iterate(schedule(jax.random.split(key)[1], hyper))
    ppo_agrees(algorithm, learner, state, trajectory, key)


@pytest.mark.parametrize(
    ("spec", "options", "norm"),
    [
        (SPEC, {"critic": "gru"}, SEEN_TARGETS),
        (AGENT_STATES, {"operator": "min_norm"}, ValueNorm(*np.zeros(3))),
        (SPEC, REFERENCE, SEEN_TARGETS),
    ],
    ids=["team_state", "grasp_with_agent_states_and_a_new_value_norm", "reference"],
)
def test_an_iteration_of_happo_is_that_of_the_loops(spec, options, norm):
    hyper = Happo(**PPO, **options)
    algorithm, state, trajectory = begun(happo, hyper, spec, norm)
    key = jax.random.key(7)
    order_key, turn_key, _, critic_key = jax.random.split(key, 4)
    order = [int(i) for i in jax.random.permutation(order_key, AGENTS)]
    assert order != sorted(order)
    turns = [(i, schedule(k, hyper)) for i, k in zip(order, jax.random.split(turn_key, AGENTS), strict=True)]
    learner = oracle.Happo(hyper, state, trajectory)
    learner.iterate(turns, schedule(critic_key, hyper))
    metrics = ppo_agrees(algorithm, learner, state, trajectory, key)
    assert metrics["compound_ratio_max"] > 1.2


def drawn(key, hyper, finished):
    """The numbers of the episodes of one gradient step: the ring holds the newest."""
    lottery = jax.random.uniform(jax.random.split(key, 3)[0], (hyper.buffer,))
    lottery = jnp.where(jnp.arange(hyper.buffer) < finished, lottery, -1.0)
    places = jax.lax.top_k(lottery, hyper.batch)[1]
    return [max(n for n in range(finished) if n % hyper.buffer == int(place)) for place in places]


@pytest.mark.parametrize(
    "options",
    [
        {"time_limit": "bootstrap", "adam_eps": 1e-5},
        {"sharing": "shared", "mixer": "sum", "time_limit": "terminal", "reward_scale": 2.0},
        {"operator": "min_norm", "time_limit": "bootstrap"},
        {"layout": "reference", "sharing": "shared"},
        {"layout": "reference", "init": "separate", "agent_id": False, "last_action": False},
    ],
    ids=["qmix", "vdn", "grasp", "reference", "without_inputs"],
)
def test_iterations_of_qmix_are_those_of_the_loops(options, monkeypatch):
    """Three rollouts: episodes run on from one to the next, the oldest leave the ring, and the target networks are
    copied between two gradient steps."""
    hyper = Qmix(**REPLAY, **options)
    # it compiles every gradient once for each width, and has tests of its own
    monkeypatch.setattr(qmix, "at_its_length", lambda function, tile, fed: function(tile, fed))
    algorithm = qmix.make(hyper, SPEC)
    state = wide(algorithm.init(jax.random.key(0)))
    agent, mixer = noised((state.agent, state.mixer))
    state = state._replace(agent=agent, mixer=mixer, target=noised(state.target, seed=2))
    learner, update = oracle.Qmix(hyper, AGENTS, state), jax.jit(algorithm.update)
    for k in range(3):
        key, since = jax.random.key(k), len(learner.episodes)
        played = [len(learner.running[b]["reward"]) if b in learner.running else 0 for b in range(ENVS)]
        trajectory = scene(SPEC, hyper.rollout, played, seed=3 + k)
        learner.store(trajectory)
        learner.stats = []
        finished = len(learner.episodes)
        due = finished // hyper.interval - since // hyper.interval if finished >= hyper.batch else 0
        for step in range(due):
            learner.learn(drawn(jax.random.fold_in(key, step), hyper, finished))
        state, metrics = jax.device_get(update(wide(state), trajectory, key))
        found = {name: metrics[name] for name in ("finished_episodes", "gradient_steps", "target_copies")}
        assert found == {
            "finished_episodes": finished,
            "gradient_steps": due,
            "target_copies": learner.copied == finished,
        }
    assert finished > hyper.buffer
    assert 0 < learner.copied < finished
    assert metrics["grad_norm"] > hyper.max_grad_norm
    parts = {}
    for name, net, target in zip(("agent", "mixer"), (learner.team, learner.mixer), learner.target, strict=True):
        parts[name] = (getattr(state, name), moments(state.opt, attrgetter(name)), net)
        parts[f"target's {name}"] = (getattr(state.target, name), {}, target)
    agrees(learner, metrics, parts)
