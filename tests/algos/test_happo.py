"""HAPPO and GRASP-HAPPO: the compound ratio, one agent, the order, and what the consensus adds."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mappo_cases import prepare, surrogate_gradients
from trees import assert_close, distance

from grasp.algos import happo, losses, mappo, ppo
from grasp.algos import minibatches as batches
from grasp.config.hyperparameters import Happo, Mappo
from grasp.consensus import consensus
from grasp.envs import base as envs
from grasp.nn import actor as actors
from grasp.training import rollout

SMALL = Happo(num_envs=6, rollout=10, chunk=5, epochs=3, hidden=8, lr=3e-3)
MASKED = "probe/mask_death"
SPREAD = "mpe/simple_spread"


@cache
def world(env_name, hyper, seed=0):
    """A fresh state and a trajectory it collected; heads are spread apart, so that agents differ."""
    env = envs.make(env_name)
    algorithm = happo.make(hyper, env.spec)
    init_key, noise_key, arena_key, collect_key = jax.random.split(jax.random.key(seed), 4)
    state = jax.jit(algorithm.init)(init_key)
    noise = jax.random.normal(noise_key, state.actor.head["weight"].shape)
    head = state.actor.head | {"weight": state.actor.head["weight"] + 0.3 * noise}
    state = state._replace(actor=state.actor._replace(head=head))
    arena = jax.jit(partial(rollout.open_arena, env, algorithm, hyper.num_envs))(arena_key)
    _, trajectory, _ = jax.jit(partial(rollout.collect, env, algorithm, num_steps=hyper.rollout))(
        state, arena, collect_key
    )
    return env, algorithm, state, trajectory


@jax.jit
def log_prob_of_what_was_done(actor, trajectory):
    """Step by step, as the agents act: an evaluation that shares no code with the update."""
    seen, memory, found = trajectory.observation, trajectory.memory.actor[0], []
    for t in range(trajectory.reward.shape[0]):
        memory = jnp.where(trajectory.first[t][:, None, None], 0.0, memory)
        obs = seen.obs[t] * seen.alive[t][..., None]
        memory, features = actors.step(actor.backbone, "separate", memory, obs)
        log_probs = losses.log_probabilities(actors.logits(actor.head, "separate", features), seen.avail[t])
        found.append(losses.chosen(log_probs, trajectory.action[t]))
    return jnp.stack(found)


REST = pytest.mark.full("every environment with every number of minibatches")


@pytest.mark.parametrize("env_name", [SPREAD, pytest.param(MASKED, marks=REST)])
def test_the_compound_ratio_is_the_joint_ratio_of_new_to_old(env_name):
    _, algorithm, state, trajectory = world(env_name, SMALL)
    after, metrics = jax.jit(algorithm.update)(state, trajectory, jax.random.key(1))
    alive = trajectory.observation.alive
    new, old = (log_prob_of_what_was_done(s.actor, trajectory) for s in (after, state))
    joint = jnp.exp(jnp.where(alive, new - old, 0.0).sum(-1))
    compound = jnp.ones_like(trajectory.reward)
    for agent in range(alive.shape[-1]):
        one = jax.tree.map(lambda x, i=agent: x[i : i + 1], after.actor)
        compound *= happo.ratio(SMALL, one, trajectory, ppo.inputs_along(SMALL, trajectory), jnp.asarray(agent))
    np.testing.assert_allclose(compound, joint, rtol=1e-4)
    np.testing.assert_allclose(metrics["compound_ratio_max"], joint.max(), rtol=1e-4)
    assert jnp.abs(joint - 1).max() > 0.01


def test_a_dead_agent_s_ratio_is_1():
    _, _, state, trajectory = world(MASKED, SMALL)
    alive = trajectory.observation.alive
    spoiled = trajectory._replace(
        record=trajectory.record._replace(log_prob=jnp.where(alive, trajectory.record.log_prob, -7.0))
    )
    for agent in range(alive.shape[-1]):
        one = jax.tree.map(lambda x, i=agent: x[i : i + 1], state.actor)
        found = happo.ratio(SMALL, one, spoiled, ppo.inputs_along(SMALL, spoiled), jnp.asarray(agent))
        np.testing.assert_allclose(found, 1.0, atol=1e-5)
    assert not alive.all()


def test_a_ratio_starts_from_the_memory_with_which_the_rollout_began():
    """The old policy's ratio is 1, also along a rollout that begins in the middle of an episode."""
    _, _, state, trajectory = world(SPREAD, SMALL)
    later = jax.tree.map(lambda x: x[3:], trajectory)
    assert not later.first[0].any()
    one = jax.tree.map(lambda x: x[1:2], state.actor)
    found = jax.jit(partial(happo.ratio, SMALL))(one, later, ppo.inputs_along(SMALL, later), jnp.asarray(1))
    np.testing.assert_allclose(found, 1.0, atol=1e-5)


def test_an_agent_that_does_not_move_leaves_the_compound_ratio_at_1():
    still = ppo.Optimisers(optax.sgd(0.0), optax.sgd(0.0))
    _, _, state, trajectory = world(SPREAD, SMALL)
    state = state._replace(
        actor_opt=jax.vmap(still.actor.init)(state.actor), critic_opt=still.critic.init(state.critic)
    )
    _, metrics = jax.jit(partial(happo.learn, SMALL, still))(state, trajectory, jax.random.key(0))
    np.testing.assert_allclose(metrics["compound_ratio_max"], 1.0, atol=1e-5)


def test_one_agent_is_ppo():
    """MAPPO of one agent is PPO (tested there); only the critic's place in the iteration may differ."""
    env = envs.make("mpe/simple")
    assert env.spec.num_agents == 1
    plain = Mappo(**{name: getattr(SMALL, name) for name in ("num_envs", "rollout", "chunk", "epochs", "hidden", "lr")})
    ppo_algorithm = mappo.make(replace(plain, sharing="separate"), env.spec)
    algorithm = happo.make(SMALL, env.spec)
    state = jax.jit(ppo_algorithm.init)(jax.random.key(0))
    arena = jax.jit(partial(rollout.open_arena, env, ppo_algorithm, SMALL.num_envs))(jax.random.key(1))
    collect = jax.jit(partial(rollout.collect, env, ppo_algorithm, num_steps=SMALL.rollout))
    _, trajectory, _ = collect(state, arena, jax.random.key(2))
    mine = jax.jit(algorithm.init)(jax.random.key(0))
    update, my_update = jax.jit(ppo_algorithm.update), jax.jit(algorithm.update)
    for i in range(3):
        state, _ = update(state, trajectory, jax.random.key(3 + i))
        mine, metrics = my_update(mine, trajectory, jax.random.key(3 + i))
    assert_close((mine.actor, mine.critic), (state.actor, state.critic), 1e-6)
    assert metrics["compound_ratio_max"] > 1.001


def by_hand(hyper, state, trajectory, order, lr, key):
    """The algorithm as its paper writes it, with the factor outside the minimum, no tiles and no slices: an SGD step
    an agent and minibatch, and the joint ratio of those before it."""
    batch = prepare(hyper, state, trajectory, per_agent=True)
    factor, actor = jnp.ones_like(trajectory.reward), state.actor
    for agent, agent_key in zip(order, jax.random.split(jax.random.split(key, 4)[1], len(order)), strict=True):

        def objective(actor, chunks, agent=agent, factor=factor):
            steps, start = jax.tree.map(lambda x: x[:, chunks], batch.steps), batch.start.actor[chunks]
            memory = actors.features(actor.backbone, "separate", start, steps.obs, steps.first)
            log_probs = losses.log_probabilities(actors.logits(actor.head, "separate", memory), steps.avail)
            ratio = jnp.exp(losses.chosen(log_probs, steps.action) - steps.log_prob)[..., agent]
            advantage, alive = steps.advantage[..., agent], steps.alive[..., agent]
            gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - hyper.clip, 1 + hyper.clip) * advantage)
            bonus = hyper.entropy * losses.entropy(log_probs)[..., agent]
            return (alive * (batches.cut(factor, hyper.chunk)[:, chunks] * gain + bonus)).sum() / alive.sum()

        moved = actor
        for chunks in ppo.shuffled(hyper, batch, agent_key):
            moved = jax.tree.map(lambda p, g: p + lr * g, moved, jax.grad(objective)(moved, chunks))
        change = log_prob_of_what_was_done(moved, trajectory) - log_prob_of_what_was_done(state.actor, trajectory)
        factor = factor * jnp.exp(jnp.where(trajectory.observation.alive, change, 0.0)[..., agent])
        actor = moved
    return actor


@pytest.mark.parametrize(
    ("env_name", "minibatches"),
    [(MASKED, 2), (SPREAD, 1), pytest.param(MASKED, 1, marks=REST), pytest.param(SPREAD, 2, marks=REST)],
)
def test_an_iteration_is_the_paper_s_sequence(env_name, minibatches):
    hyper, lr = replace(SMALL, epochs=1, minibatches=minibatches), 2.0
    sgd = ppo.Optimisers(optax.sgd(lr), optax.sgd(0.0))
    _, _, state, trajectory = world(env_name, hyper)
    state = state._replace(actor_opt=jax.vmap(sgd.actor.init)(state.actor), critic_opt=sgd.critic.init(state.critic))
    key = jax.random.key(5)
    order = [int(i) for i in jax.random.permutation(jax.random.split(key, 4)[0], trajectory.action.shape[-1])]
    after, _ = jax.jit(partial(happo.learn, hyper, sgd))(state, trajectory, key)
    expected = by_hand(hyper, state, trajectory, order, lr, key)
    other = by_hand(hyper, state, trajectory, order[::-1], lr, key)
    assert_close(after.actor, expected, 1e-5)
    assert distance(after.actor, other) > 1e-3


def test_all_actors_start_from_one_draw():
    """Or coordinates of different agents' gradients would be about different things."""
    actor = happo.make(SMALL, envs.make(SPREAD).spec).init(jax.random.key(0)).actor
    for leaf in jax.tree.leaves(actor):
        np.testing.assert_array_equal(leaf, jnp.broadcast_to(leaf[:1], leaf.shape))
    assert actor.backbone["gru"]["memory"]["weight"].shape[0] == 3


def test_the_order_is_drawn_anew_and_every_agent_gets_its_turn():
    _, algorithm, state, trajectory = world(SPREAD, SMALL)
    found = [jax.jit(algorithm.update)(state, trajectory, jax.random.key(i))[0].actor for i in range(3)]
    assert min(distance(found[0], other) for other in found[1:]) > 1e-5
    moved = jnp.abs(found[0].head["weight"] - state.actor.head["weight"]).max((1, 2))
    assert (moved > 1e-4).all()


def test_an_agent_that_never_lived_stays_as_it_is_and_so_does_its_optimiser():
    _, algorithm, state, trajectory = world(SPREAD, SMALL)
    state, _ = jax.jit(algorithm.update)(state, trajectory, jax.random.key(0))  # so that Adam has a momentum to move by
    dead = trajectory.observation.alive.at[..., 1].set(False)
    after, _ = jax.jit(algorithm.update)(
        state, trajectory._replace(observation=trajectory.observation._replace(alive=dead)), jax.random.key(1)
    )
    for part in ("actor", "actor_opt"):
        before, now = (jax.tree.map(lambda x: x[1], getattr(s, part)) for s in (state, after))
        assert_close(before, now)
    assert distance(jax.tree.map(lambda x: x[0], state.actor), jax.tree.map(lambda x: x[0], after.actor)) > 1e-4


def test_grasp_happo_adds_the_consensus_of_the_gradients_before_the_first_turn():
    hyper = replace(SMALL, epochs=1, operator="min_norm")
    sgd = ppo.Optimisers(optax.sgd(1e-3), optax.sgd(0.0))
    _, _, state, trajectory = world(SPREAD, hyper)
    state = state._replace(actor_opt=jax.vmap(sgd.actor.init)(state.actor), critic_opt=sgd.critic.init(state.critic))
    run = {
        weight: jax.jit(partial(happo.learn, replace(hyper, weight=weight), sgd))(state, trajectory, jax.random.key(0))
        for weight in (0.0, 1.0)
    }
    batch = prepare(hyper, state, trajectory, per_agent=True)
    whole = batches.tiled(batch, jnp.arange(batch.steps.first.shape[1]))
    u, _ = consensus(surrogate_gradients(hyper, state.actor, ("backbone", "head"), whole))
    first = int(jax.random.permutation(jax.random.split(jax.random.key(0), 4)[0], 3)[0])
    for part in (
        "backbone",
        "head",
    ):  # the first agent's surrogate does not depend on the weight, so u is the difference
        with_u, without = (jax.tree.map(lambda x: x[first], getattr(run[w][0].actor, part)) for w in (1.0, 0.0))
        for a, b, d in zip(*map(jax.tree.leaves, (with_u, without, u[part])), strict=True):
            np.testing.assert_allclose((a - b) / 1e-3, d, atol=2e-4)
    assert run[1.0][1]["u_norm"] > 1e-3


def test_grasp_happo_with_weight_0_is_happo():
    _, plain, state, trajectory = world(SPREAD, SMALL)
    env = envs.make(SPREAD)
    aligned = happo.make(replace(SMALL, operator="min_norm", weight=0.0), env.spec)
    found, expected = (jax.jit(a.update)(state, trajectory, jax.random.key(3))[0] for a in (aligned, plain))
    assert_close(found, expected, 1e-6)
