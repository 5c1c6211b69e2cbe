"""The user's own environment, `package.module:factory`: a `grasp.types.Env`, a PettingZoo parallel environment, or one
written like jaxmarl's. No file of ours is edited for it.

Of a jaxmarl-style environment we use `reset`, `step_env`, `agents`, the spaces, and `get_avail_actions` where there is
one. Its team reward is the sum over agents, its state `obs["world_state"]` or else all observations in a row. The task
has ended where `dones["__all__"]` says so before the limit; at the limit, `max_steps` or the option `horizon`, the
episode is cut, whatever `dones` says, since its own clock speaks there too. All agents are taken to be alive.
"""

import importlib
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from grasp.envs import jaxmarl, pettingzoo
from grasp.types import Env, EnvSpec, GraspError, Host, Key, Observation, PyTree, Step, suggest

OURS = ("horizon", "wins")
"""Options that are not the factory's."""


def load(name: str, plain: str, options: dict[str, Any]) -> Env | Host:
    """The environment that `package.module:factory` makes of the options behind its name."""
    made = call(plain, {key: value for key, value in options.items() if key not in OURS})
    if isinstance(made, Env):
        extra = [option for option in OURS if option in options]
        if extra:
            raise GraspError(f"environment {plain!r} is a grasp.types.Env, whose spec says all; leave out {extra[0]}")
        return made
    if hasattr(made, "possible_agents"):
        made.close()  # workers make their own
        return pettingzoo.own(name, plain, **options)
    if hasattr(made, "step_env"):
        return like_jaxmarl(name, made, limit(name, made, options.get("horizon")))
    raise GraspError(
        f"environment {plain!r} is a {type(made).__name__}; it must be a PettingZoo parallel environment, one in the "
        f"style of jaxmarl, or a grasp.types.Env"
    )


def call(name: str, options: dict[str, Any]) -> Any:
    """What the factory gives."""
    path, _, attribute = name.partition(":")
    if not path or path.startswith(".") or not attribute:
        raise GraspError(f"environment {name!r} is not of the form 'package.module:factory'")
    module = _import(path, name)
    if not hasattr(module, attribute):
        hint = suggest(attribute, dir(module), "give a callable that returns an environment", prefix=f"{path}:")
        raise GraspError(f"environment {name!r}: the module {path} has no {attribute!r}; {hint}")
    found = getattr(module, attribute)
    try:
        return found(**options) if callable(found) else found
    except TypeError as error:
        words = f"with {options}" if options else "without arguments"
        raise GraspError(f"environment {name!r} cannot be made {words}: {error}") from error


def _import(path: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        # Only the path itself is a spelling mistake; a package missing inside the module is the user's to see whole.
        if not f"{path}.".startswith(f"{error.name}."):
            raise
        raise GraspError(
            f"environment {name!r}: there is no module {path!r}; run where it can be imported, or set PYTHONPATH"
        ) from error


def limit(name: str, simulator: Any, horizon: int | None) -> int | None:
    """The option, where it is not above the simulator's own: what ends there would be taken for an end of the task."""
    most = getattr(simulator, "max_steps", None)
    if horizon and most and horizon > most:
        raise GraspError(f"environment {name!r} stops itself after {most} steps; give a horizon of {most} at most")
    return horizon or most


def like_jaxmarl(name: str, simulator: Any, horizon: int | None) -> Env:
    """An environment in the style of jaxmarl."""
    if not horizon:
        raise GraspError(f"environment {name!r} does not say its limit (max_steps); type: '{name}?horizon=N'")
    agents: list[str] = list(simulator.agents)
    num_actions = [_discrete(name, agent, simulator.action_space(agent)) for agent in agents]
    with jax.numpy_rank_promotion("allow"):  # as in `adapt`
        seen, inner = jax.eval_shape(simulator.reset, jax.random.key(0))
        masked = _has_masks(simulator, inner)
    obs_dim = max(seen[agent].shape[0] for agent in agents)
    whole = "world_state" in seen and len(seen["world_state"].shape) == 1
    spec = EnvSpec(
        name=name,
        num_agents=len(agents),
        obs_dim=obs_dim,
        state_dim=seen["world_state"].shape[0] if whole else len(agents) * obs_dim,
        num_actions=max(num_actions),
        horizon=int(horizon),
        package=type(simulator).__module__.partition(".")[0],
    )
    every = jnp.arange(spec.num_actions)[None, :] < jnp.array(num_actions)[:, None]

    def observe(obs: dict[str, Array], inner: PyTree) -> Observation:
        rows = jaxmarl.stack(obs, agents, obs_dim)
        state = obs["world_state"].astype(jnp.float32) if whole else rows.reshape(-1)
        avail = every
        if masked:
            legal = simulator.get_avail_actions(inner)
            avail = jaxmarl.stack(legal, agents, spec.num_actions) > 0
        return Observation(rows, state, avail, jnp.ones(len(agents), bool))

    def judge(_: PyTree, rewards: dict[str, Array], dones: dict[str, Array]) -> jaxmarl.Verdict:
        team = jnp.sum(jnp.stack([rewards[agent] for agent in agents]).astype(jnp.float32))
        return jaxmarl.Verdict(team, terminated=dones["__all__"].astype(bool), won=jnp.array(False))

    adapted = jaxmarl.adapt(spec, simulator, observe, judge, None)

    def step(env_state: jaxmarl.Timed, action: Int[Array, " N"], key: Key) -> tuple[jaxmarl.Timed, Step]:
        env_state, after = adapted.step(env_state, action, key)
        cut = env_state.clock >= spec.horizon
        return env_state, after._replace(terminated=after.terminated & ~cut, truncated=cut)

    return adapted._replace(step=step)


def _discrete(name: str, agent: str, space: Any) -> int:
    if not hasattr(space, "n"):
        kind = type(space).__name__
        raise GraspError(f"environment {name!r}: agent {agent!r} acts in a {kind}; actions must be Discrete")
    return int(space.n)


def _has_masks(simulator: Any, inner: PyTree) -> bool:
    """Whether it says which actions are legal; jaxmarl's base class raises instead."""
    try:
        jax.eval_shape(simulator.get_avail_actions, inner)
    except (AttributeError, NotImplementedError):
        return False
    return True
