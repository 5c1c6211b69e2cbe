"""Checks that one environment keeps the contract of `grasp.envs.base`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grasp.types import Env, EnvSpec, Observation, PyTree, Step

# Skirmish compiles in 10 s with XLA's optimisations and in a third of that without; tests run only a few steps.
FAST_COMPILE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Episode(NamedTuple):
    """One horizon of random legal actions per copy. `first` has the axes [B, ...], the others [B, T, ...]."""

    first: Observation
    action: jax.Array
    steps: Step


def player(env: Env):
    """A compiled function keys[B] -> Episode."""

    def play(key: jax.Array) -> Episode:
        reset_key, steps_key = jax.random.split(key)
        env_state, first = env.reset(reset_key)

        def advance(carry: tuple[PyTree, Observation], key: jax.Array):
            act_key, step_key = jax.random.split(key)
            env_state, observation = carry
            action = jax.random.categorical(act_key, jnp.where(observation.avail, 0.0, -jnp.inf)).astype(jnp.int32)
            env_state, step = env.step(env_state, action, step_key)
            return (env_state, step.observation), (action, step)

        keys = jax.random.split(steps_key, env.spec.horizon)
        _, (action, steps) = jax.lax.scan(advance, (env_state, first), keys)
        return Episode(first, action, steps)

    return jax.jit(jax.vmap(play), compiler_options=FAST_COMPILE)


def check_sizes(spec: EnvSpec, observation: Observation, axes: tuple[int, ...]) -> None:
    expected = {
        "obs": ((spec.num_agents, spec.obs_dim), jnp.float32),
        "state": (spec.state_shape, jnp.float32),
        "avail": ((spec.num_agents, spec.num_actions), jnp.bool_),
        "alive": ((spec.num_agents,), jnp.bool_),
    }
    for field, (shape, dtype) in expected.items():
        array = getattr(observation, field)
        assert array.shape == axes + shape, field
        assert array.dtype == dtype, field


def check_observation(spec: EnvSpec, observation: Observation, axes: tuple[int, ...]) -> None:
    check_sizes(spec, observation, axes)
    assert jnp.isfinite(observation.obs).all()
    assert jnp.isfinite(observation.state).all()
    assert observation.avail.any(axis=-1).all(), "an agent without a legal action"


def check_steps(spec: EnvSpec, steps: Step) -> None:
    assert steps.reward.dtype == jnp.float32
    assert all(flag.dtype == jnp.bool_ for flag in (steps.terminated, steps.truncated, steps.won))
    assert steps.reward.ndim == 2
    assert jnp.isfinite(steps.reward).all()
    assert not (steps.terminated & steps.truncated).any()
    assert not (steps.won & ~(steps.terminated | steps.truncated)).any()
    assert spec.has_wins or not steps.won.any()


def check_ends(spec: EnvSpec, steps: Step) -> None:
    """Every episode ends, and is truncated only at the horizon."""
    ended = np.asarray(steps.terminated | steps.truncated)
    assert ended.any(axis=1).all()
    for copy, last in enumerate(ended.argmax(axis=1)):
        assert not steps.truncated[copy, last] or last == spec.horizon - 1


def check_carry(env: Env) -> None:
    """A step returns a state of the same types, without weak types, so that a scan over steps compiles once."""
    key = jax.random.key(0)
    action = jax.ShapeDtypeStruct((env.spec.num_agents,), jnp.int32)
    before, first = jax.eval_shape(env.reset, key)
    after, step = jax.eval_shape(env.step, before, action, key)
    check_sizes(env.spec, first, ())
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, False)
    assert step.reward.shape == step.terminated.shape == step.truncated.shape == step.won.shape == ()


def check(env: Env) -> None:
    """Check episodes of one environment against the contract."""
    key, other = jax.random.split(jax.random.key(0))
    episode = player(env)(jnp.stack([key, key, other]))
    copies, horizon = 3, env.spec.horizon
    check_observation(env.spec, episode.first, (copies,))
    check_observation(env.spec, episode.steps.observation, (copies, horizon))
    check_steps(env.spec, episode.steps)
    check_ends(env.spec, episode.steps)
    for leaf in jax.tree.leaves(episode):
        np.testing.assert_array_equal(leaf[0], leaf[1], err_msg="one key gave two episodes")
    simulated = env.spec.package == "jaxmarl"
    assert not simulated or (episode.first.state[0] != episode.first.state[2]).any(), "two keys gave one start"
