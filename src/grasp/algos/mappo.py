"""MAPPO; and GRASP-MAPPO, which is MAPPO with a consensus operator.

`learn` is Algorithm 1 of the paper from line 7 on, in the paper's order; lines 4–6 are the training loop and the
rollout. `docs/paper_map.md` has a row per line, and `docs/algorithms/mappo.md` the departures. Gradients are ascent
directions, as in the paper; the sign is flipped once, in `optimiser.ascend`.

Variants: `ablations.learn` (`--refresh`, `--gram representation | inputs`, `--trust kl_stop`),
`trust_region.learn` (`--trust trcco`).
"""

from collections.abc import Callable
from functools import partial

import jax
from jaxtyping import Array

from grasp.algos import ablations, grasp, ppo, trust_region
from grasp.algos import minibatches as batches
from grasp.algos.ppo import Optimisers, State
from grasp.config.hyperparameters import Mappo
from grasp.types import Algorithm, EnvSpec, Key, Metrics, Trajectory


def make(hyper: Mappo, spec: EnvSpec) -> Algorithm:
    """The algorithm for an environment of these sizes."""
    if hyper.operator != "none":
        grasp.check_operator(hyper.operator, spec.num_agents)
    optimisers = grasp.optimisers(hyper)
    return Algorithm(
        init=partial(ppo.init, hyper, spec, optimisers),
        memory=partial(ppo.memory, hyper, spec),
        act=partial(ppo.decide, hyper),
        update=partial(variant(hyper), hyper, optimisers),
        acting=("actor",),
        judging=ppo.JUDGING,
    )


def variant(hyper: Mappo) -> Callable:
    """`learn`, or the variant of it that the options ask for."""
    return trust_region.variant(hyper) or ablations.variant(hyper) or learn


def learn(
    hyper: Mappo, optimisers: Optimisers, state: State, trajectory: Trajectory, key: Key
) -> tuple[State, Metrics]:
    """One iteration on one trajectory."""
    consensus_key, shuffle_key = jax.random.split(key)
    batch = ppo.prepare(hyper, state, trajectory)  # Alg. 1 l. 7
    whole = batches.whole(batch)
    consensus = None
    if hyper.operator != "none":
        gradients = grasp.agent_gradients(hyper, state.actor, grasp.basis(hyper, batch, whole))  # Alg. 1 l. 9–11
        first_key = jax.random.fold_in(consensus_key, 0)  # `ablations.learn` takes a key per step
        consensus = grasp.solve(hyper, state.actor, gradients, first_key)  # Alg. 1 l. 13–14
    schedule = ppo.shuffled(hyper, batch, shuffle_key)  # Alg. 1 l. 16–17

    def minibatch(state: State, chunks: Array) -> tuple[State, Metrics]:
        tiles = whole if hyper.minibatches == 1 else batches.tiled(batch, chunks)  # Alg. 1 l. 18
        state, critic_stats = ppo.critic_step(hyper, optimisers.critic, state, tiles)  # Alg. 1 l. 20–21
        gradient, policy_stats = ppo.policy_gradient(hyper, state.actor, tiles)  # Alg. 1 l. 24
        if consensus is not None:
            gradient = grasp.realign(hyper, gradient, consensus.u, hyper.weight)  # Alg. 1 l. 25
        state, actor_stats = ppo.actor_step(optimisers.actor, state, gradient)  # Alg. 1 l. 26
        return state, policy_stats | critic_stats | actor_stats

    state, stats = jax.lax.scan(minibatch, state, schedule)
    return state, ppo.summary(stats) | ({} if consensus is None else consensus.diagnostics)
