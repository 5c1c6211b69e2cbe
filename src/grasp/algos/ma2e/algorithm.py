"""MA2E: QMIX whose agents reconstruct, each from its own window, the inputs of the other agents.

A masked autoencoder (`autoencoder`) learns from windows of the whole team to fill in those of masked agents: first on
random play, then at intervals on the newest episodes. An acting agent masks all agents but itself; its network attends
to its own input and to its reconstruction of the others' (`perception`). The TD loss does not reach the autoencoder.
Everything else is QMIX (`grasp.algos.qmix`). `docs/algorithms/ma2e.md` has the departures.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from grasp.algos import exploration, grasp, inputs, qmix, replay_buffer
from grasp.algos.ma2e import autoencoder, perception
from grasp.algos.ma2e.perception import Window
from grasp.algos.optimiser import ascend, clipped_adam
from grasp.algos.qmix import State
from grasp.algos.replay_buffer import Episodes, Replay
from grasp.config.hyperparameters import Ma2e
from grasp.nn import actor as actors
from grasp.nn import backbone as backbones
from grasp.types import Algorithm, Decision, EnvSpec, Key, Metric, Metrics, Observation, PyTree, Trajectory

EPISODES = 32
"""Episodes per round of pretraining."""
NEWEST = 8
"""Episodes per round of fine-tuning."""
GROUPS = 9
"""Random groups of visible agents per episode in pretraining, beside each agent alone; one in fine-tuning."""
RELEASED_ROUNDS = 301
"""Rounds after which the released code stops fine-tuning."""
MEAN_OF = 100
"""Gradient steps over which the error that ends pretraining is averaged."""


class Memory(NamedTuple):
    """The team's memory between two steps."""

    agent: Float[Array, "*B N H"]
    last_action: Float[Array, "*B N a"]
    window: Window


class Tutor(NamedTuple):
    """The state of the autoencoder's training."""

    opt: optax.OptState
    errors: Float[Array, " 100"]
    """Errors of its newest steps over masked tokens, initially infinite."""
    pretraining: Bool[Array, ""]
    played: Int[Array, ""]
    """Environment steps of random play."""
    rounds: Int[Array, ""]
    """Rounds of fine-tuning."""


def make(hyper: Ma2e, spec: EnvSpec) -> Algorithm:
    """The algorithm for an environment of these sizes."""
    qmix.check_state(spec)
    if hyper.operator != "none":
        grasp.check_operator(hyper.operator, spec.num_agents)
    optimiser = clipped_adam(hyper.lr, hyper.adam_eps, hyper.max_grad_norm)
    autoencoder_optimiser = (optax.adam if hyper.mode == "paper" else optax.sgd)(hyper.autoencoder_lr)
    width = inputs.width(hyper, spec)
    sizes = {
        name: getattr(hyper, name) for name in ("embed", "heads", "encoder_layers", "decoder_layers", "feedforward")
    }
    senses_init = partial(autoencoder.autoencoder_init, input_dim=width, **sizes)
    jax.eval_shape(senses_init, jax.random.key(0))  # raises on incompatible sizes

    def init(key: Key) -> State:
        agent_key, mixer_key, senses_key = jax.random.split(key, 3)
        agent = actors.actor_init(
            agent_key, spec, hyper.hidden, hyper.sharing, width, backbones.attended_init, init=hyper.init
        )
        senses = senses_init(senses_key)
        counters = (jnp.zeros((), jnp.int32) for _ in range(2))
        errors = jnp.full(MEAN_OF, jnp.inf, jnp.float32)
        tutor = Tutor(autoencoder_optimiser.init(senses), errors, jnp.array(hyper.pretrain > 0), *counters)
        return qmix.begin(hyper, spec, optimiser, agent, mixer_key)._replace(senses=senses, tutor=tutor)

    def memory(num_envs: int) -> Memory:
        team, steps = (num_envs, spec.num_agents), (num_envs, hyper.window, spec.num_agents)
        window = Window(jnp.zeros((*steps, width)), jnp.zeros(steps), jnp.zeros(num_envs, jnp.int32))
        return Memory(jnp.zeros((*team, hyper.hidden)), jnp.zeros((*team, spec.num_actions)), window)

    return Algorithm(
        init=init,
        memory=memory,
        act=partial(decide, hyper),
        update=partial(learn, hyper, optimiser, autoencoder_optimiser),
        acting=("agent", "senses", "env_steps"),
        judging=("mixer",),
        evaluated=partial(exploration.annealed, hyper),
        replays=hyper.buffer,
    )


def decide(
    hyper: Ma2e, state: State, memory: Memory, observation: Observation, key: Key, greedy: bool | Bool[Array, " B"]
) -> Decision:
    """QMIX's choice, from the perceived inputs. Pretraining does not count steps, so ε is 1."""
    obs = observation.obs * observation.alive[..., None]
    window = perception.present(memory.window, inputs.of_agents(hyper, obs, memory.last_action))
    seen = perception.perceive(state.senses, hyper.mode, window)
    hidden, features = actors.step(state.agent.backbone, hyper.sharing, memory.agent, seen)
    q = actors.logits(state.agent.head, hyper.sharing, features)
    action = exploration.act(hyper, q, observation.avail, state.env_steps, key, greedy)
    num_actions = q.shape[-1]
    window = perception.passed(window, action / num_actions)
    memory = Memory(hidden, jax.nn.one_hot(action, num_actions), window)
    return Decision(action, memory, (), *exploration.judged(hyper, state.mixer, q, observation))


def see(hyper: Ma2e, senses: PyTree, key: Key, batch: Episodes) -> Float[Array, "H1 E N r"]:
    """The inputs of the agents' networks along episodes (time first). The released code learns with dropout on."""
    dropout_key = key if hyper.mode == "released" else None
    return perception.along(senses, hyper.mode, hyper.window, *lived(hyper, batch), batch.length.max() + 1, dropout_key)


def lived(hyper: Ma2e, batch: Episodes) -> tuple[Float[Array, "H1 E N i"], Float[Array, "H E N"]]:
    """Inputs and actions along episodes (time first) in the autoencoder's format: zeros beyond their ends."""
    seen = qmix.inputs_along(hyper, batch)
    played = jnp.arange(len(seen))[:, None] <= batch.length[None]
    return seen * played[..., None, None], batch.action / batch.avail.shape[-1]


def learn(
    hyper: Ma2e,
    optimiser: optax.GradientTransformation,
    autoencoder_optimiser: optax.GradientTransformation,
    state: State,
    trajectory: Trajectory,
    key: Key,
) -> tuple[State, Metrics]:
    """Store the rollout, train the autoencoder if due, and, once it is pretrained, learn as QMIX does."""
    fit_key, autoencoder_key = jax.random.split(key)
    before, steps_before, pretraining = state.replay.finished, state.env_steps, state.tutor.pretraining
    state = qmix.store(state, trajectory)
    state = state._replace(env_steps=jnp.where(pretraining, steps_before, state.env_steps))
    new_steps = jnp.array(trajectory.reward.size)
    state, autoencoder_metrics = train_due_rounds(hyper, autoencoder_optimiser, state, new_steps, autoencoder_key)
    since = jnp.where(pretraining, state.replay.finished, before)  # nothing is due while pretraining
    state, learned = qmix.fit(hyper, optimiser, partial(see, hyper), state, since, fit_key)
    return state, learned | autoencoder_metrics


def train_due_rounds(
    hyper: Ma2e, optimiser: optax.GradientTransformation, state: State, new_steps: Int[Array, ""], key: Key
) -> tuple[State, Metrics]:
    """Train the autoencoder for the rounds that are due: one while pretraining, else one per `fine_tune` steps."""
    tutor, pretraining = state.tutor, state.tutor.pretraining
    crossed = state.env_steps // hyper.fine_tune - (state.env_steps - new_steps) // hyper.fine_tune
    if hyper.mode == "released":
        crossed = jnp.where(tutor.rounds < RELEASED_ROUNDS, jnp.minimum(crossed, 1), 0)
    rounds = jnp.where(state.replay.finished > 0, jnp.where(pretraining, 1, crossed), 0)
    senses, opt, errors, skipped = train_rounds(hyper, optimiser, state, rounds, key)
    tutor = Tutor(
        opt=opt,
        errors=errors,
        pretraining=pretraining,
        played=tutor.played + jnp.where(pretraining, new_steps, 0),
        rounds=tutor.rounds + jnp.where(pretraining, 0, rounds),
    )
    enough = tutor.played >= hyper.pretrain
    if hyper.mode == "paper":  # in the released code the threshold has no effect
        enough |= errors.mean() < hyper.threshold
    metrics = {
        "autoencoder_error": jnp.mean(errors, where=jnp.isfinite(errors)),
        "autoencoder_rounds": rounds,
        "autoencoder_skipped": skipped,
        "pretraining": pretraining.astype(jnp.float32),
    }
    return state._replace(senses=senses, tutor=tutor._replace(pretraining=pretraining & ~enough)), metrics


def train_rounds(
    hyper: Ma2e, optimiser: optax.GradientTransformation, state: State, rounds: Int[Array, ""], key: Key
) -> tuple[PyTree, optax.OptState, Float[Array, " 100"], Float[Array, ""]]:
    """Train the autoencoder for so many rounds, each with a gradient step per episode and mask: first each agent
    visible alone, then random groups (none with two agents)."""
    episodes, pretraining = state.replay, state.tutor.pretraining
    num_agents = episodes.slots.action.shape[-1]
    groups = 0 if num_agents < 3 else jnp.where(pretraining, GROUPS, 1)
    masks = num_agents + groups
    steps = jnp.where(pretraining, EPISODES, NEWEST) * masks
    slope = jax.grad(partial(objective, hyper), has_aux=True)

    def one_round(index: Int[Array, ""], carry: tuple) -> tuple:
        pick_key, step_key = jax.random.split(jax.random.fold_in(key, index))
        chosen = replay_buffer.numbered(episodes, numbers(episodes, pretraining, pick_key))
        batch = replay_buffer.time_first(replay_buffer.ended(chosen))
        seen, done = lived(hyper, batch)

        def step(index: Int[Array, ""], carry: tuple) -> tuple:
            params, opt, errors, skipped = carry
            draw_key, mask_key, dropout_key = jax.random.split(jax.random.fold_in(step_key, index), 3)
            which, end = draw(hyper, batch, index // masks, draw_key)
            keep = mask(mask_key, index % masks, num_agents)
            gradient, error = slope(params, seen, done, batch.length, which, end, keep, dropout_key)
            params, opt, ascent = ascend(optimiser, params, opt, gradient)
            errors = jnp.where(jnp.isfinite(error), jnp.append(errors[1:], error), errors)
            return params, opt, errors, skipped + ascent[Metric.SKIPPED_STEPS]

        return jax.lax.fori_loop(0, steps, step, carry)

    carry = (state.senses, state.tutor.opt, state.tutor.errors, jnp.zeros(()))
    return jax.lax.fori_loop(0, rounds, one_round, carry)


def numbers(episodes: Replay, pretraining: Bool[Array, ""], key: Key) -> Int[Array, " K"]:
    """The episodes of a round: a random draw while pretraining, then the newest (repeated if there are too few)."""
    held = jnp.maximum(jnp.minimum(episodes.finished, episodes.ring.shape[0]), 1)
    back = jnp.where(pretraining, jax.random.randint(key, (EPISODES,), 0, held), jnp.arange(EPISODES) % NEWEST % held)
    return episodes.finished - 1 - back


def mask(key: Key, turn: Int[Array, ""], num_agents: int) -> Bool[Array, " N"]:
    """The visible agents: first each agent alone, in turn; then random groups."""
    alone = autoencoder.alone(num_agents, turn)
    return alone if num_agents < 3 else jnp.where(turn < num_agents, alone, autoencoder.group(key, num_agents))


def draw(hyper: Ma2e, batch: Episodes, turn: Int[Array, ""], key: Key) -> tuple[Int[Array, " W"], Int[Array, " W"]]:
    """Episodes and last steps of a gradient step's windows, within all episodes; in the released code within one
    episode after the other, padding included."""
    which_key, end_key = jax.random.split(key)
    if hyper.mode == "released":
        which = jnp.broadcast_to(turn, hyper.windows)
        return which, jax.random.randint(end_key, (hyper.windows,), 0, batch.reward.shape[0])
    which = jax.random.randint(which_key, (hyper.windows,), 0, batch.length.shape[0])
    return which, jax.random.randint(end_key, (hyper.windows,), 0, batch.length[which])


def objective(
    hyper: Ma2e,
    params: PyTree,
    seen: Float[Array, "H1 E N i"],
    done: Float[Array, "H E N"],
    length: Int[Array, " E"],
    which: Int[Array, " W"],
    end: Int[Array, " W"],
    keep: Bool[Array, " N"],
    dropout_key: Key,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The error over masked tokens, negated; in the released code over all of them, and over the episode's length."""
    step = end[:, None] + jnp.arange(1 - hyper.window, 1)[None]
    at = (jnp.maximum(step, 0), which[:, None])
    shown = jnp.broadcast_to(keep, (len(which), len(keep)))
    released = hyper.mode == "released"
    over, drop = ("all", dropout_key) if released else ("masked", None)
    loss, error = autoencoder.reconstruction_loss(params, seen[at], done[at], shown, step >= 0, hyper.mode, over, drop)
    return -loss / (length[which[0]] if released else 1.0), error
