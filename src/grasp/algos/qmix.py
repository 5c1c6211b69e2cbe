"""QMIX and VDN; and GRASP-QMIX, which is QMIX with a consensus operator.

Every agent has a recurrent network for its action values; a mixer computes the team's value from them. Both learn from
whole replayed episodes (`replay_buffer`): double-Q, TD(λ) targets, target networks. GRASP-QMIX replaces every agent's
gradient g_i by Γ_i (g_i + u*) in each step. Gradients are ascent directions, those of the negated
loss. `docs/algorithms/qmix.md` has the departures.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from grasp.algos import exploration, grasp, inputs, losses, returns
from grasp.algos import replay_buffer as replay
from grasp.algos.minibatches import accumulate, tile_size
from grasp.algos.optimiser import ascend, clipped_adam
from grasp.algos.replay_buffer import Episodes, Replay, at_its_length, time_first
from grasp.config.hyperparameters import Qmix
from grasp.nn import actor as actors
from grasp.nn import backbone as backbones
from grasp.nn import layers
from grasp.nn import mixer as mixers
from grasp.nn.actor import Actor
from grasp.types import Algorithm, Decision, EnvSpec, GraspError, Key, Metric, Metrics, Observation, PyTree, Trajectory

TILE_ROWS = 32
"""Rows (episodes × agents) of a tile: whole episodes are long, so fewer fit the cache than of MAPPO's chunks."""

See = Callable[[PyTree, Key, Episodes], Float[Array, "H1 E N i"]]
"""(senses, key, episodes) -> the inputs of the agents' networks along the episodes (time first)."""


class Memory(NamedTuple):
    """The team's memory between two steps."""

    agent: Float[Array, "*B N H"]
    last_action: Float[Array, "*B N a"]
    """One-hot."""


class Networks(NamedTuple):
    agent: Actor
    mixer: PyTree


class State(NamedTuple):
    """Everything that learning changes."""

    agent: Actor
    mixer: PyTree
    target: Networks
    opt: optax.OptState
    replay: Replay
    env_steps: Int[Array, ""]
    copied: Int[Array, ""]
    """Episodes finished when the target networks were last copied."""
    senses: PyTree = ()
    """Parameters that compute the networks' inputs (MA2E's autoencoder); and their optimiser and counters."""
    tutor: PyTree = ()


def make(hyper: Qmix, spec: EnvSpec) -> Algorithm:
    """The algorithm for an environment of these sizes."""
    check_state(spec)
    if hyper.operator != "none":
        grasp.check_operator(hyper.operator, spec.num_agents)
    optimiser = clipped_adam(hyper.lr, hyper.adam_eps, hyper.max_grad_norm)

    def init(key: Key) -> State:
        agent_key, mixer_key = jax.random.split(key)
        front, head = (
            (backbones.encoded_init, actors.policy_head())
            if hyper.layout == "paper"
            else (backbones.rectified_init, layers.uniform_init)
        )
        width = inputs.width(hyper, spec)
        agent = actors.actor_init(agent_key, spec, hyper.hidden, hyper.sharing, width, front, head, hyper.init)
        return begin(hyper, spec, optimiser, agent, mixer_key)

    def memory(num_envs: int) -> Memory:
        shape = (num_envs, spec.num_agents)
        return Memory(jnp.zeros((*shape, hyper.hidden)), jnp.zeros((*shape, spec.num_actions)))

    return Algorithm(
        init=init,
        memory=memory,
        act=partial(decide, hyper),
        update=partial(learn, hyper, optimiser),
        acting=("agent", "env_steps"),  # ε depends on the steps
        judging=("mixer",),
        evaluated=partial(exploration.annealed, hyper),
        replays=hyper.buffer,
    )


def check_state(spec: EnvSpec) -> None:
    if spec.agent_states:
        raise GraspError(f"{spec.name} has agent-specific states, but the mixer needs a global one; remove the option")


def begin(hyper: Qmix, spec: EnvSpec, optimiser: optax.GradientTransformation, agent: Actor, mixer_key: Key) -> State:
    """A fresh state with these agents."""
    mixer = mixers.mixer_init(mixer_key, hyper.mixer, spec, hyper.mixer_embed, hyper.mixer_hidden)
    online = Networks(agent, mixer)
    target = jax.tree.map(jnp.copy, online)  # not the same arrays: each buffer of a state is donated
    episodes = replay.empty(spec, hyper.buffer, hyper.num_envs)
    counters = (jnp.zeros((), jnp.int32) for _ in range(2))
    return State(*online, target, optimiser.init(online), episodes, *counters)


def decide(
    hyper: Qmix, state: State, memory: Memory, observation: Observation, key: Key, greedy: bool | Bool[Array, " B"]
) -> Decision:
    """Every agent's ε-greedy action, each drawn independently."""
    obs = observation.obs * observation.alive[..., None]
    seen = inputs.of_agents(hyper, obs, memory.last_action)
    hidden, features = actors.step(state.agent.backbone, hyper.sharing, memory.agent, seen)
    q = actors.logits(state.agent.head, hyper.sharing, features)
    action = exploration.act(hyper, q, observation.avail, state.env_steps, key, greedy)
    memory = Memory(hidden, jax.nn.one_hot(action, q.shape[-1]))
    return Decision(action, memory, (), *exploration.judged(hyper, state.mixer, q, observation))


def learn(
    hyper: Qmix, optimiser: optax.GradientTransformation, state: State, trajectory: Trajectory, key: Key
) -> tuple[State, Metrics]:
    """Store the rollout, then learn from the replay buffer."""
    before = state.replay.finished
    return fit(hyper, optimiser, partial(plain, hyper), store(state, trajectory), before, key)


def store(state: State, trajectory: Trajectory) -> State:
    return state._replace(
        replay=replay.append(state.replay, trajectory), env_steps=state.env_steps + trajectory.reward.size
    )


def fit(
    hyper: Qmix, optimiser: optax.GradientTransformation, see: See, state: State, since: Int[Array, ""], key: Key
) -> tuple[State, Metrics]:
    """One gradient step for every `interval` episodes finished after the first `since`."""
    episodes = state.replay
    due = jnp.where(episodes.finished >= hyper.batch, episodes.finished // hyper.interval - since // hyper.interval, 0)

    def step(index: Int[Array, ""], carry: tuple[State, Metrics]) -> tuple[State, Metrics]:
        state, total = carry
        state, stats = improve(hyper, optimiser, state, episodes, jax.random.fold_in(key, index), see)
        return state, jax.tree.map(jnp.add, total, stats)

    # the episodes stay outside the loop, whose carry would copy them
    light = state._replace(replay=())
    shapes = jax.eval_shape(lambda: improve(hyper, optimiser, light, episodes, key, see)[1])
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    light, total = jax.lax.fori_loop(0, due, step, (light, nothing))
    counts = {name: total.pop(name) for name in list(total) if name in COUNTED}
    means = jax.tree.map(lambda x: x / jnp.where(due > 0, due, jnp.nan), total)
    run = {
        "epsilon": exploration.epsilon(hyper, state.env_steps),
        "gradient_steps": due,
        "finished_episodes": episodes.finished,
    }
    return light._replace(replay=episodes), means | counts | run


COUNTED = (
    Metric.SKIPPED_STEPS,
    Metric.FROZEN_STEPS,
    Metric.CLIPPED_FACTORS,
    Metric.UNCERTIFIED_STEPS,
    Metric.TARGET_COPIES,
)
"""Metrics that add up over the gradient steps of an iteration; the others are means."""


def improve(
    hyper: Qmix,
    optimiser: optax.GradientTransformation,
    state: State,
    episodes: Replay,
    key: Key,
    see: See,
) -> tuple[State, Metrics]:
    """One gradient step on a batch of episodes."""
    sample_key, consensus_key, see_key = jax.random.split(key, 3)
    batch = replay.sample(episodes, sample_key, hyper.batch)
    online = Networks(state.agent, state.mixer)
    gradient, stats, folds = gradients(hyper, online, state.target, batch, partial(see, state.senses, see_key))
    factor = None
    if hyper.operator != "none":
        aligned = grasp.off_policy(hyper, state.agent, gradient.agent, consensus_key, folds)
        gradient, stats = gradient._replace(agent=aligned.gradient), stats | aligned.diagnostics
        if aligned.factor is not None:
            factor = Networks(aligned.factor, jax.tree.map(lambda _: 1.0, state.mixer))
    if hyper.decay:
        left = jnp.maximum(0.0, 1.0 - state.env_steps / hyper.decay)
        factor = jax.tree.map(lambda f: left * f, factor or jax.tree.map(lambda _: 1.0, online))
    online, opt, ascent = ascend(optimiser, online, state.opt, gradient, factor)
    copy = episodes.finished - state.copied >= hyper.target_interval
    target = jax.tree.map(lambda new, old: jnp.where(copy, new, old), online, state.target)
    copied = jnp.where(copy, episodes.finished, state.copied)
    state = state._replace(agent=online.agent, mixer=online.mixer, target=target, opt=opt, copied=copied)
    return state, stats | ascent | {Metric.TARGET_COPIES: copy.astype(jnp.float32)}


def td_gradient(
    hyper: Qmix, online: Networks, target: Networks, batch: Episodes, look: Callable[[Episodes], Array]
) -> tuple[Networks, Metrics]:
    """The gradient of the negated loss; every agent's own, [N, ...], for the parts in scope.

    An agent's own gradient is that of the joint loss along the path through its values, dL/dQ_i dQ_i/dθ. The agents'
    gradients sum to the ordinary one.
    """
    num_agents = batch.action.shape[-1]
    parts = () if hyper.operator == "none" else grasp.parts_in_scope(hyper)
    agent, sharing = actors.unshare(online.agent, hyper.sharing, parts, num_agents)
    total_steps = jnp.maximum(batch.length.sum(), 1)
    slope = jax.grad(partial(objective, hyper, sharing), has_aux=True)

    def one(tile: Episodes) -> tuple[Networks, Metrics]:
        moved = partial(slope, online._replace(agent=agent), target, total_steps=total_steps)
        return at_its_length(moved, tile, look(time_first(tile)))

    tile = tile_size(batch.length.shape[0], num_agents, TILE_ROWS)
    by_length = jax.tree.map(lambda x: x[jnp.argsort(batch.length)], batch)  # so that short ones share a tile
    return accumulate(one, jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), by_length))


def gradients(
    hyper: Qmix, online: Networks, target: Networks, batch: Episodes, look: Callable[[Episodes], Array]
) -> tuple[Networks, Metrics, Actor | None]:
    """`td_gradient` of the batch; with `gram = crossfit` also the agents' gradients on every fold of its episodes."""
    if hyper.gram != "crossfit":
        return *td_gradient(hyper, online, target, batch, look), None
    parts = jax.tree.map(lambda x: x.reshape(hyper.folds, -1, *x.shape[1:]), batch)
    each = jax.lax.map(lambda part: td_gradient(hyper, online, target, part, look), parts)
    steps = parts.length.sum(1)
    fraction = steps / jnp.maximum(steps.sum(), 1)
    gradient, stats = jax.tree.map(lambda x: jnp.tensordot(fraction, x, axes=1), each)
    return gradient, stats, each[0].agent


def objective(
    hyper: Qmix,
    sharing: Actor,
    online: Networks,
    target: Networks,
    batch: Episodes,
    seen: Float[Array, "H1 E N i"],
    total_steps: Int[Array, ""],
) -> tuple[Float[Array, ""], Metrics]:
    """The negated loss: half the squared TD error over played steps."""
    batch = time_first(batch)
    q = values(online.agent, sharing, seen)
    team = mixers.mix(online.mixer, losses.chosen(q[:-1], batch.action), batch.state[:-1])
    # double-Q: the online network chooses the action, the target network evaluates it
    greedy = exploration.best(jax.lax.stop_gradient(q), batch.avail)
    judged = values(target.agent, Actor(hyper.sharing, hyper.sharing), seen)
    next_team = mixers.mix(target.mixer, losses.chosen(judged, greedy), batch.state)[1:]
    reward = batch.reward * hyper.reward_scale
    ended = batch.terminated | (hyper.time_limit == "terminal")
    goal = returns.td_lambda(reward, next_team, batch.length, ended, hyper.gamma, hyper.td_lambda)
    played = jnp.arange(team.shape[0])[:, None] < batch.length[None]
    error = jnp.where(played, team - jax.lax.stop_gradient(goal), 0.0)
    loss = 0.5 * jnp.square(error).sum() / total_steps

    def mean(x: Array) -> Array:
        return jnp.where(played, x, 0.0).sum() / total_steps

    return -loss, {"loss": loss, "td_error": mean(jnp.abs(error)), "q_team": mean(team), "target": mean(goal)}


def inputs_along(hyper: Qmix, batch: Episodes) -> Float[Array, "H1 E N i"]:
    """The agents' network inputs along episodes (time first)."""
    done = jax.nn.one_hot(batch.action, batch.avail.shape[-1])
    return inputs.of_agents(hyper, batch.obs, jnp.concatenate([jnp.zeros_like(done[:1]), done]))


def plain(hyper: Qmix, senses: PyTree, key: Key, batch: Episodes) -> Float[Array, "H1 E N i"]:
    """QMIX's inputs: no learned part, no randomness."""
    return inputs_along(hyper, batch)


def values(agent: Actor, sharing: Actor, seen: Float[Array, "H1 E N i"]) -> Float[Array, "H1 E N a"]:
    """Every agent's action values along its episode, from a zero memory."""
    start = jnp.zeros((*seen.shape[1:-1], backbones.memory_width(agent.backbone)))
    features = actors.features(agent.backbone, sharing.backbone, start, seen, jnp.zeros(seen.shape[:2], bool))
    return actors.logits(agent.head, sharing.head, features)
