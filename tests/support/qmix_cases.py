"""Small QMIX networks and episodes, and the loss in plain loops as an oracle."""

from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import numpy as np
import optax
import pytest

from grasp.algos import grasp as realign
from grasp.algos import qmix
from grasp.algos.replay_buffer import Episodes, Replay
from grasp.config.hyperparameters import Qmix
from grasp.nn.actor import Actor
from grasp.types import EnvSpec

SPEC = EnvSpec(name="toy", num_agents=3, obs_dim=4, state_dim=5, num_actions=3, horizon=5)
SMALL = Qmix(
    num_envs=2,
    rollout=4,
    buffer=8,
    batch=6,
    target_interval=1000,
    hidden=4,
    mixer_embed=3,
    mixer_hidden=4,
    gamma=0.9,
    lr=1e-2,
    adam_eps=0.1,
    max_grad_norm=3.0,
    time_limit="bootstrap",
)
SGD = optax.sgd(1.0)
ADAM = optax.chain(optax.clip_by_global_norm(SMALL.max_grad_norm), optax.adam(SMALL.lr, eps=SMALL.adam_eps))
"""The algorithm's own; its epsilon is large, so that the size of a gradient shows."""
OWNED = {"shared": Actor(False, False), "hybrid": Actor(False, True), "separate": Actor(True, True)}


def difference(a, b):
    return jax.tree.map(lambda x, y: np.asarray(x) - np.asarray(y), a, b)


def norm(tree):
    return float(np.sqrt(sum(np.sum(np.square(np.asarray(x, np.float64))) for x in jax.tree.leaves(tree))))


def noised(tree, seed, scale):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: (x + scale * rng.normal(size=x.shape)).astype(np.float32), tree)


def networks(hyper, spec=SPEC):
    """An online and a target network with nothing in common, nor any agent with another."""
    state = jax.eval_shape(qmix.make(hyper, spec).init, jax.random.key(0))
    zeros = jax.tree.map(lambda x: np.zeros(x.shape), qmix.Networks(state.agent, state.mixer))
    return noised(zeros, 1, 0.6), noised(zeros, 2, 0.6)


def garbage(batch, value=50.0):
    """The batch with nonsense wherever nothing was played."""
    time = np.arange(batch.obs.shape[1])[None]
    unseen, undone = time > batch.length[:, None], time[:, :-1] >= batch.length[:, None]
    return batch._replace(
        obs=np.where(unseen[..., None, None], value, batch.obs),
        state=np.where(unseen[..., None], -value, batch.state),
        avail=np.where(unseen[..., None, None], ~batch.avail, batch.avail),
        action=np.where(undone[..., None], batch.avail.shape[-1] - 1 - batch.action, batch.action),
        reward=np.where(undone, 3 * value, batch.reward),
    )


def episodes(seed=0, spec=SPEC, number=SMALL.batch):
    """Episodes of every length, terminated and truncated in turn, with nonsense in the padding."""
    rng = np.random.default_rng(seed)
    steps, agents, choices = spec.horizon, spec.num_agents, spec.num_actions
    avail = rng.random((number, steps + 1, agents, choices)) < 0.6
    avail |= np.arange(choices) == rng.integers(choices, size=(number, steps + 1, agents, 1))
    action = np.argmax(np.where(avail, rng.random(avail.shape), -1), -1)[:, :-1]
    whole = Episodes(
        obs=rng.normal(size=(number, steps + 1, agents, spec.obs_dim)).astype(np.float32),
        state=rng.normal(size=(number, steps + 1, spec.state_dim)).astype(np.float32),
        avail=avail,
        action=action.astype(np.int32),
        reward=rng.normal(size=(number, steps)).astype(np.float32),
        length=(np.arange(number) % steps + 1).astype(np.int32),
        terminated=np.arange(number) % 2 == 0,
    )
    return garbage(whole)


def holding(batch):
    """A replay whose finished episodes are exactly these."""
    number = batch.length.shape[0]
    slots = jax.tree.map(lambda x: np.concatenate([x, x[:2]]), batch)
    return Replay(slots, np.arange(number, dtype=np.int32), number + np.arange(2, dtype=np.int32), np.int32(number))


def state_of(online, target, optimiser):
    return jax.device_get(qmix.State(*online, target, optimiser.init(online), (), np.int32(0), np.int32(0)))


def fetched(function):
    """Compiled, with its results in numpy: only what is tested is compiled."""
    compiled = jax.jit(function)
    return lambda *args: jax.device_get(compiled(*args))


def uncut(function):
    """The function without `at_its_length`, which compiles every gradient once for each width; it has tests of its
    own."""

    def call(*args):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(qmix, "at_its_length", lambda function, tile, fed: function(tile, fed))
            return function(*args)

    return call


@cache
def gradient(hyper):
    return fetched(partial(qmix.td_gradient, hyper, look=partial(qmix.inputs_along, hyper)))


@cache
def improve(hyper, optimiser):
    return uncut(fetched(partial(qmix.improve, hyper, optimiser, see=partial(qmix.plain, hyper))))


@cache
def off_policy(hyper):
    return fetched(partial(realign.off_policy, hyper))


def changed(x, at, value):
    """A copy with one entry set."""
    x = np.array(x)
    x[at] = value
    return x


def one_step(hyper, optimiser, online, target, batch):
    """How one gradient step moves the networks; with plain SGD of step size 1 that is the gradient itself."""
    after, metrics = improve(hyper, optimiser)(state_of(online, target, optimiser), holding(batch), jax.random.key(0))
    return difference(qmix.Networks(after.agent, after.mixer), online), metrics


class Case(NamedTuple):
    online: qmix.Networks
    target: qmix.Networks
    batch: Episodes
    hyper: Qmix
    paths: Actor
    """Every agent's own gradient of every part; compared with the loops by
    `test_the_loss_and_every_agent_s_path_gradient_are_those_of_the_loops` of test_qmix.py."""
    mixer: dict
    metrics: dict


@cache
def case(sharing, mixer="monotone"):
    hyper = replace(SMALL, sharing=sharing, mixer=mixer, operator="min_norm", scope="both")
    online, target = networks(hyper)
    batch = episodes()
    found, metrics = gradient(hyper)(online, target, batch)
    return Case(online, target, batch, hyper, found.agent, found.mixer, metrics)


@cache
def acting(sharing="hybrid", greedy=False):
    hyper = replace(SMALL, sharing=sharing, epsilon=0.1, anneal=100)
    return fetched(lambda state, memory, seen, key: qmix.decide(hyper, state, memory, seen, key, greedy))


def summed(sharing, paths):
    """Every agent's own where each has its own parameters, else the sum."""
    parts = zip(paths, OWNED[sharing], strict=True)
    return Actor(*(part if own else jax.tree.map(lambda x: x.sum(0), part) for part, own in parts))


# The oracle: numpy in 64 bits, no code of grasp.


def team_of(actor, sharing, num_agents=SPEC.num_agents):
    """The parameters of each agent's network."""

    def one(i):
        parts = zip(actor, OWNED[sharing], strict=True)
        return [jax.tree.map(lambda x: x[i], part) if own else part for part, own in parts]

    return [one(i) for i in range(num_agents)]


def in_loops(networks, sharing):
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), networks)
    return team_of(exact.agent, sharing), exact.mixer


def linear(layer, x):
    return x @ layer["weight"] + layer["bias"]


def two_layers(net, x):
    return linear(net["layer_1"], np.maximum(linear(net["layer_0"], x), 0))


def agent_values(params, agent, episode):
    """Q_i(·) at every time step of one episode, the final one included."""
    backbone, head = params
    hidden = len(head["weight"])
    memory, last, found = np.zeros(hidden), np.zeros(head["weight"].shape[1]), []
    for t in range(episode.length + 1):
        seen = np.concatenate([episode.obs[t, agent], last, np.eye(episode.obs.shape[1])[agent]])
        into = linear(backbone["gru"]["input"], linear(backbone["encoder"], seen)).reshape(3, hidden)
        back = linear(backbone["gru"]["memory"], memory).reshape(3, hidden)
        reset, update = 1 / (1 + np.exp(-into[:2] - back[:2]))
        memory = (1 - update) * np.tanh(into[2] + reset * back[2]) + update * memory
        found.append(linear(head, np.maximum(memory, 0)))
        if t < episode.length:
            last = np.eye(len(last))[episode.action[t, agent]]
    return found


def team_value(mixer, values, state):
    if not mixer:
        return sum(values)
    weight_1 = np.abs(two_layers(mixer["weight_1"], state)).reshape(len(values), -1)
    hidden = sum(value * row for value, row in zip(values, weight_1, strict=True))
    hidden = hidden + linear(mixer["bias_1"]["layer_0"], state)
    hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
    return hidden @ np.abs(two_layers(mixer["weight_2"], state)) + two_layers(mixer["bias_2"], state)[0]


def team_values(online, episode):
    """Q_tot of what was done, at every step."""
    team, mixer = online
    along = [agent_values(params, i, episode) for i, params in enumerate(team)]
    return [
        team_value(mixer, [q[t][episode.action[t, i]] for i, q in enumerate(along)], episode.state[t])
        for t in range(episode.length)
    ]


def goals(hyper, online, target, episode):
    """Double-Q TD(λ): the online network chooses, the target network judges."""
    choosing, judging = (
        [agent_values(params, i, episode) for i, params in enumerate(net[0])] for net in (online, target)
    )

    def judged(t):
        legal = [np.flatnonzero(avail) for avail in episode.avail[t]]
        choice = [max(actions, key=lambda a, q=q: q[t][a]) for actions, q in zip(legal, choosing, strict=True)]
        return team_value(target[1], [q[t][a] for a, q in zip(choice, judging, strict=True)], episode.state[t])

    last = episode.length - 1
    reward = hyper.reward_scale * episode.reward
    has_ended = episode.terminated or hyper.time_limit == "terminal"
    found = [reward[last] + (0.0 if has_ended else hyper.gamma * judged(last + 1))]
    for t in reversed(range(last)):
        mixed = (1 - hyper.td_lambda) * judged(t + 1) + hyper.td_lambda * found[0]
        found.insert(0, reward[t] + hyper.gamma * mixed)
    return found


def apart(batch):
    arrays = jax.device_get(batch)
    return [jax.tree.map(lambda x, e=e: x[e], arrays) for e in range(len(arrays.length))]


def loss(online, each, goal):
    errors = [np.array(team_values(online, ep)) - g for ep, g in zip(each, goal, strict=True)]
    return 0.5 * np.mean(np.concatenate(errors) ** 2)


def slope(function, params, path, direction, step=1e-6):
    """The derivative of a function of nested parameters along a direction in one leaf."""

    def at(size):
        moved = jax.tree_util.tree_map_with_path(lambda p, x: x + size * direction if p == path else x, params)
        return function(moved)

    return (at(step) - at(-step)) / (2 * step)
