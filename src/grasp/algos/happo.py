"""HAPPO; and GRASP-HAPPO, which is HAPPO with a consensus operator.

Agents are updated one after the other, in a random order. Each ascends the clipped surrogate of its own policy with the
advantage times M, the ratio by which the agents before it have already changed the probability of the actions taken:

    J_i = E[ M · min(ρ_i A, clip(ρ_i, 1 − ε, 1 + ε) A) ],    M ← M · π_i(a_i|o_i) / π_i,old(a_i|o_i).

M is a constant to agent i and is not clipped. It is positive, so it may be inside the minimum: agent i's turn is
plain PPO of one agent with the advantage M·A. GRASP-HAPPO solves for u* before the first turn and adds it in every one.
`docs/algorithms/happo.md` has the departures.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from grasp.algos import grasp, losses, ppo
from grasp.algos import minibatches as batches
from grasp.algos.grasp import Consensus
from grasp.algos.minibatches import Batch
from grasp.algos.optimiser import ascend, taken_if
from grasp.algos.ppo import Optimisers, State
from grasp.config.hyperparameters import Happo
from grasp.nn import actor as actors
from grasp.nn.actor import Actor
from grasp.types import Algorithm, EnvSpec, Key, Metrics, PyTree, Trajectory


def make(hyper: Happo, spec: EnvSpec) -> Algorithm:
    """The algorithm for an environment of these sizes."""
    if hyper.operator != "none":
        grasp.check_operator(hyper.operator, spec.num_agents)
    optimisers = ppo.optimisers(hyper)

    def init(key: Key) -> State:
        state = ppo.init(hyper, spec, optimisers, key)
        return state._replace(actor_opt=jax.vmap(optimisers.actor.init)(state.actor))  # one per agent

    return Algorithm(
        init=init,
        memory=partial(ppo.memory, hyper, spec),
        act=partial(ppo.decide, hyper),
        update=partial(learn, hyper, optimisers),
        acting=("actor",),
        judging=ppo.JUDGING,
    )


def learn(
    hyper: Happo, optimisers: Optimisers, state: State, trajectory: Trajectory, key: Key
) -> tuple[State, Metrics]:
    """One iteration on one trajectory: every agent's turn, then the critic."""
    order_key, turn_key, consensus_key, critic_key = jax.random.split(key, 4)
    num_agents = trajectory.action.shape[-1]
    batch = ppo.prepare(hyper, state, trajectory, per_agent=True)
    consensus = find_consensus(hyper, state.actor, batch, consensus_key)

    def turn(carry: tuple[Actor, PyTree, Float[Array, "T B"]], agent_key: tuple[Array, Key]):
        team, team_opt, compound = carry
        agent, key = agent_key
        mine = reweighted(batches.of_agent(batch, agent), batches.cuts(compound, hyper.chunk, hyper.minibatches))
        actor, opt = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, agent, 1), (team, team_opt))
        after, stats = train_agent(hyper, optimisers, actor, opt, mine, consensus, key)
        team, team_opt = jax.tree.map(
            lambda all_, one: jax.lax.dynamic_update_slice_in_dim(all_, one, agent, 0), (team, team_opt), after
        )
        return (team, team_opt, compound * ratio(hyper, after[0], trajectory, seen, agent)), stats

    seen = ppo.inputs_along(hyper, trajectory)
    order = jax.random.permutation(order_key, num_agents)
    start = (state.actor, state.actor_opt, jnp.ones_like(trajectory.reward))
    (actor, actor_opt, compound), stats = jax.lax.scan(turn, start, (order, jax.random.split(turn_key, num_agents)))
    state, critic_stats = train_critic(hyper, optimisers, state, batch, critic_key)
    found = {} if consensus is None else consensus.diagnostics
    metrics = ppo.summary(stats | critic_stats) | {"compound_ratio_max": compound.max()} | found
    return state._replace(actor=actor, actor_opt=actor_opt), metrics


def find_consensus(hyper: Happo, actor: Actor, batch: Batch, key: Key) -> Consensus | None:
    """The consensus at θ_old, before the first agent's turn."""
    if hyper.operator == "none":
        return None
    gradients = grasp.agent_gradients(hyper, actor, grasp.basis(hyper, batch, batches.whole(batch)))
    return grasp.solve(hyper, actor, gradients, key)


def reweighted(mine: Batch, compound: Float[Array, "L C"]) -> Batch:
    """The batch with M·A in place of the advantage A."""
    return mine._replace(steps=mine.steps._replace(advantage=mine.steps.advantage * compound[..., None]))


def train_agent(
    hyper: Happo,
    optimisers: Optimisers,
    actor: Actor,
    actor_opt: PyTree,
    mine: Batch,
    consensus: Consensus | None,
    key: Key,
) -> tuple[tuple[Actor, PyTree], Metrics]:
    """One agent's turn: its epochs of PPO. An agent without a live step in the batch does not change."""
    schedule = ppo.shuffled(hyper, mine, key)

    def step(carry: tuple[Actor, PyTree], chunks: Array):
        actor, opt = carry
        tiles = batches.minibatch(mine, chunks, hyper.minibatches)
        gradient, policy_stats = ppo.policy_gradient(hyper, actor, tiles)
        if consensus is not None:
            gradient = grasp.realign(hyper, gradient, consensus.u, hyper.weight)
        *after, stats = ascend(optimisers.actor, *jax.tree.map(lambda x: x[0], (actor, opt, gradient)))
        return jax.tree.map(lambda x: x[None], tuple(after)), policy_stats | stats

    after, stats = jax.lax.scan(step, (actor, actor_opt), schedule)
    lived = (mine.steps.alive > 0).any()
    return taken_if(lived, after, (actor, actor_opt)), stats


def ratio(
    hyper: Happo, actor: Actor, trajectory: Trajectory, seen: Float[Array, "T B N i"], agent: Array
) -> Float[Array, "T B"]:
    """π_i(a_i|o_i) / π_i,old(a_i|o_i) along the rollout, and 1 where the agent was dead. `seen` are all agents' inputs,
    which are the same in every turn.

    The new policy runs through the whole rollout from its first memory, not chunk by chunk from stored memories, which
    are the old policy's: M is a ratio of policies, and chunks would mix the two.
    """

    def mine(x: Array, axis: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(x, agent, 1, axis)

    start, own = mine(trajectory.memory.actor[0], 1), mine(seen, 2)
    alive, avail = mine(trajectory.observation.alive, 2), mine(trajectory.observation.avail, 2)
    features = actors.features(actor.backbone, hyper.sharing, start, own, trajectory.first)
    log_probs = losses.log_probabilities(actors.logits(actor.head, hyper.sharing, features), avail)
    log_prob = losses.chosen(log_probs, mine(trajectory.action, 2))
    return jnp.where(alive, jnp.exp(log_prob - mine(trajectory.record.log_prob, 2)), 1.0)[..., 0]


def train_critic(hyper: Happo, optimisers: Optimisers, state: State, batch: Batch, key: Key) -> tuple[State, Metrics]:
    """The critic's epochs."""

    def step(state: State, chunks: Array) -> tuple[State, Metrics]:
        return ppo.critic_step(hyper, optimisers.critic, state, batches.minibatch(batch, chunks, hyper.minibatches))

    return jax.lax.scan(step, state, ppo.shuffled(hyper, batch, key))
