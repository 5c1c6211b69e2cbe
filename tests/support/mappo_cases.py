"""Small MAPPO problems: an environment, an algorithm, and a trajectory that it collected; and the parts of an iteration
as compiled functions. Outside of a compiled function every operation is a program of its own, and each is compiled."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp

from grasp.algos import ablations, grasp, mappo, ppo
from grasp.algos import minibatches as batches
from grasp.config.hyperparameters import Mappo
from grasp.envs import base as envs
from grasp.training import rollout

SMALL = Mappo(num_envs=6, rollout=10, chunk=5, epochs=3, hidden=8, lr=3e-3)
GRASP = replace(SMALL, operator="min_norm")
MASKED, SPREAD = "probe/mask_death", "mpe/simple_spread"

prepare = jax.jit(ppo.prepare, static_argnums=0, static_argnames="per_agent")
policy_gradient = jax.jit(ppo.policy_gradient, static_argnums=0)
agent_gradients = jax.jit(grasp.agent_gradients, static_argnums=0)
surrogate_gradients = jax.jit(grasp.surrogate_gradients, static_argnums=(0, 2))
solve = jax.jit(grasp.solve, static_argnums=0)
find_consensus = jax.jit(ablations.find_consensus, static_argnums=0)
unit_feature_gradients = jax.jit(ablations.unit_feature_gradients, static_argnums=0)
input_gradients = jax.jit(ablations.input_gradients, static_argnums=0)


@cache
def world(env_name, hyper, seed=0):
    """An environment, the algorithm, a fresh state and a trajectory it collected."""
    env = envs.make(env_name)
    algorithm = mappo.make(hyper, env.spec)
    init_key, arena_key, collect_key = jax.random.split(jax.random.key(seed), 3)
    state = jax.jit(algorithm.init)(init_key)
    arena = jax.jit(partial(rollout.open_arena, env, algorithm, hyper.num_envs))(arena_key)
    arena, trajectory, _ = jax.jit(partial(rollout.collect, env, algorithm, num_steps=hyper.rollout))(
        state, arena, collect_key
    )
    return env, algorithm, state, arena, trajectory


@cache
def iterate(env_name, hyper, iterations=3, seed=0):
    """The state after a few whole iterations, and the last metrics."""
    env, algorithm, state, arena, _ = world(env_name, hyper, seed)

    @jax.jit
    def advance(state, arena, key):
        arena, trajectory, _ = rollout.collect(env, algorithm, state, arena, key, hyper.rollout)
        state, metrics = algorithm.update(state, trajectory, jax.random.fold_in(key, 1))
        return state, arena, metrics

    metrics = {}
    for i in range(iterations):
        state, arena, metrics = advance(state, arena, jax.random.key(100 + i))
    return state, metrics


@partial(jax.jit, static_argnums=0)
def tiles_of(hyper, state, trajectory):
    batch = ppo.prepare(hyper, state, trajectory)
    return batches.tiled(batch, jnp.arange(batch.steps.first.shape[1]))
