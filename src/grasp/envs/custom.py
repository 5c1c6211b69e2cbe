"""A user's own environment, `package.module:factory`. The factory returns a `grasp.types.Env`, a PettingZoo parallel
environment, or one in the style of jaxmarl. It needs no registration.

In the style of jaxmarl means `reset`, `step_env`, `agents`, the spaces and, optionally, `get_avail_actions`. The team
reward is the sum over agents. The state is `obs["world_state"]`, else the concatenated observations. An episode is
terminated where `dones["__all__"]` is true before the time limit. At the limit (`max_steps`, or the option `horizon`)
it is truncated whatever `dones` holds, because `dones` includes the environment's own clock. All agents are alive.
"""

import importlib
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from grasp.envs import jaxmarl, pettingzoo
from grasp.types import Env, EnvSpec, GraspError, Host, Key, Observation, PyTree, Step, suggest

OWN_OPTIONS = ("horizon", "wins")
"""Options that grasp reads; all others are arguments of the factory."""


def load(name: str, plain: str, options: dict[str, Any]) -> Env | Host:
    """The environment that `package.module:factory` makes with the options in its name."""
    made = call(plain, {key: value for key, value in options.items() if key not in OWN_OPTIONS})
    if isinstance(made, Env):
        extra = [option for option in OWN_OPTIONS if option in options]
        if extra:
            raise GraspError(
                f"environment {plain!r} is a grasp.types.Env, which has its own spec; remove the option {extra[0]}"
            )
        return made
    if hasattr(made, "possible_agents"):
        made.close()  # workers create their own
        return pettingzoo.from_factory(name, plain, **options)
    if hasattr(made, "step_env"):
        return like_jaxmarl(name, made, time_limit(name, made, options.get("horizon")))
    raise GraspError(
        f"environment {plain!r} is a {type(made).__name__}; it must be a PettingZoo parallel environment, one in the "
        f"style of jaxmarl, or a grasp.types.Env"
    )


def call(name: str, options: dict[str, Any]) -> Any:
    """The object that the factory returns."""
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
        arguments = f"with {options}" if options else "without arguments"
        raise GraspError(f"environment {name!r} cannot be made {arguments}: {error}") from error


def _import(path: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        # Only a wrong path is the user's spelling mistake; an import that fails inside the module keeps its traceback.
        if not f"{path}.".startswith(f"{error.name}."):
            raise
        raise GraspError(
            f"environment {name!r}: there is no module {path!r}; run in its folder or set PYTHONPATH"
        ) from error


def time_limit(name: str, simulator: Any, horizon: int | None) -> int | None:
    """The option `horizon`, else `max_steps`. A horizon above `max_steps` is refused: the environment would end its
    episodes first, and they would count as terminated."""
    most = getattr(simulator, "max_steps", None)
    if horizon and most and horizon > most:
        raise GraspError(f"environment {name!r} ends its episodes after {most} steps; give a horizon of at most {most}")
    return horizon or most


def like_jaxmarl(name: str, simulator: Any, horizon: int | None) -> Env:
    """An environment in the style of jaxmarl."""
    if not horizon:
        raise GraspError(f"environment {name!r} has no time limit (max_steps); type: '{name}?horizon=N'")
    agents: list[str] = list(simulator.agents)
    num_actions = [_discrete(name, agent, simulator.action_space(agent)) for agent in agents]
    with jax.numpy_rank_promotion("allow"):  # as in `adapt`
        seen, inner = jax.eval_shape(simulator.reset, jax.random.key(0))
        masked = _has_masks(simulator, inner)
    obs_dim = max(seen[agent].shape[0] for agent in agents)
    has_state = "world_state" in seen and len(seen["world_state"].shape) == 1
    spec = EnvSpec(
        name=name,
        num_agents=len(agents),
        obs_dim=obs_dim,
        state_dim=seen["world_state"].shape[0] if has_state else len(agents) * obs_dim,
        num_actions=max(num_actions),
        horizon=int(horizon),
        package=type(simulator).__module__.partition(".")[0],
    )
    all_legal = jnp.arange(spec.num_actions)[None, :] < jnp.array(num_actions)[:, None]

    def observe(obs: dict[str, Array], inner: PyTree) -> Observation:
        rows = jaxmarl.stack(obs, agents, obs_dim)
        state = obs["world_state"].astype(jnp.float32) if has_state else rows.reshape(-1)
        avail = all_legal
        if masked:
            legal = simulator.get_avail_actions(inner)
            avail = jaxmarl.stack(legal, agents, spec.num_actions) > 0
        return Observation(rows, state, avail, jnp.ones(len(agents), bool))

    def judge(_: PyTree, rewards: dict[str, Array], dones: dict[str, Array]) -> jaxmarl.Judgement:
        team = jnp.sum(jnp.stack([rewards[agent] for agent in agents]).astype(jnp.float32))
        return jaxmarl.Judgement(team, terminated=dones["__all__"].astype(bool), won=jnp.array(False))

    adapted = jaxmarl.adapt(spec, simulator, observe, judge, None)

    def step(env_state: jaxmarl.Timed, action: Int[Array, " N"], key: Key) -> tuple[jaxmarl.Timed, Step]:
        env_state, after = adapted.step(env_state, action, key)
        truncated = env_state.clock >= spec.horizon
        return env_state, after._replace(terminated=after.terminated & ~truncated, truncated=truncated)

    return adapted._replace(step=step)


def _discrete(name: str, agent: str, space: Any) -> int:
    if not hasattr(space, "n"):
        kind = type(space).__name__
        raise GraspError(f"environment {name!r}: the actions of agent {agent!r} are a {kind}; they must be Discrete")
    return int(space.n)


def _has_masks(simulator: Any, inner: PyTree) -> bool:
    """Whether the environment returns masks; the method of jaxmarl's base class raises."""
    try:
        jax.eval_shape(simulator.get_avail_actions, inner)
    except (AttributeError, NotImplementedError):
        return False
    return True
