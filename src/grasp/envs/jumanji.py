"""Family `jumanji`: the cooperative tasks of jumanji.

- LevelBasedForaging-v0: 2 foragers; won when all food is eaten. RobotWarehouse-v0: 4 robots; a collision terminates the
  episode. Connector-v3: 10 wires on one board; won when all are connected.
- Observations: jumanji's view of each agent. Connector has one board for all agents: each agent observes it as five
  planes (its own wire, head and target; the others' wires and heads; their targets).
- State: the concatenated views; of Connector, the positions of all heads and targets, and the occupied cells.
- Reward: the sum over agents where jumanji returns one reward per agent.
- Time limit: jumanji's `time_limit`, a truncation unless the task itself ends on that step. RobotWarehouse calls its
  limit a termination, so its collisions are read from the grid.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.envs.jaxmarl import Timed, strong
from grasp.types import Env, EnvSpec, Key, Observation, PyTree, Step


class Seen(NamedTuple):
    """The agents' observations and the global state of a task."""

    obs: Float[Array, "N o"]
    state: Float[Array, " s"]


def views(_: PyTree, observation: Any) -> Seen:
    rows = observation.agents_view.astype(jnp.float32)
    return Seen(rows, rows.reshape(-1))


def board(inner: PyTree, observation: Any) -> Seen:
    """Of Connector. Its grid holds 3k + 1, 3k + 2 and 3k + 3 for the wire, the head and the target of agent k."""
    grid, size = observation.grid, observation.grid.shape[0]
    agents = jnp.arange(inner.agents.position.shape[0])[:, None, None]
    owner, part = (grid - 1) // 3, (grid - 1) % 3
    own, taken = owner[None] == agents, (grid > 0)[None]
    part = jnp.broadcast_to(part[None], own.shape)
    others = taken & ~own
    planes = [own & taken & (part == k) for k in range(3)] + [others & (part < 2), others & (part == 2)]
    rows = jnp.stack(planes, 1).reshape(len(agents), -1).astype(jnp.float32)
    positions = jnp.concatenate([inner.agents.position, inner.agents.target], 1) / size
    return Seen(rows, jnp.concatenate([positions.reshape(-1), (grid > 0).reshape(-1)]).astype(jnp.float32))


def no_future(_: PyTree, after: Any) -> Bool[Array, ""]:
    """The end of LevelBasedForaging and Connector: no agent's discount is left."""
    return after.last() & (after.discount == 0).all()


def collided(inner: PyTree, _: Any) -> Bool[Array, ""]:
    """The end of RobotWarehouse: a robot is not the one that the grid holds at its position."""
    is_collision = importlib.import_module("jumanji.environments.routing.robot_warehouse.utils").is_collision
    robots = jnp.arange(len(inner.agents.direction))
    return jax.vmap(is_collision, in_axes=(None, 0, 0))(inner.grid, inner.agents, robots).any()


class TaskRules(NamedTuple):
    view: Callable[[PyTree, Any], Seen]
    ended: Callable[[PyTree, Any], Bool[Array, ""]]
    """Whether the task, not the clock, ended the episode."""
    won: Callable[[PyTree], Bool[Array, ""]] | None = None


TASKS = {
    "LevelBasedForaging-v0": TaskRules(views, no_future, lambda inner: inner.food_items.eaten.all()),
    "RobotWarehouse-v0": TaskRules(views, collided),
    "Connector-v3": TaskRules(board, no_future, lambda inner: (inner.agents.position == inner.agents.target).all()),
}


def names() -> list[str]:
    return list(TASKS)


def make(task: str) -> Env:
    """The task as an `Env`."""
    simulator, (view, ended, won) = importlib.import_module("jumanji").make(task), TASKS[task]
    num_actions = int(simulator.action_spec.num_values.max())

    def observe(inner: PyTree, observation: Any) -> Observation:
        seen = view(inner, observation)
        return Observation(seen.obs, seen.state, observation.action_mask, jnp.ones(len(seen.obs), bool))

    def reset(key: Key) -> tuple[Timed, Observation]:
        with jax.numpy_rank_promotion("allow"):
            inner, start = simulator.reset(jax.random.key_data(key))
            return Timed(strong(inner), jnp.zeros((), jnp.int32)), observe(inner, start.observation)

    sizes = jax.eval_shape(reset, jax.random.key(0))[1]
    spec = EnvSpec(
        name=f"jumanji/{task}",
        num_agents=sizes.obs.shape[0],
        obs_dim=sizes.obs.shape[1],
        state_dim=sizes.state.shape[0],
        num_actions=num_actions,
        horizon=int(simulator.time_limit),
        has_wins=won is not None,
        package="jumanji",
    )

    def step(env_state: Timed, action: Int[Array, " N"], key: Key) -> tuple[Timed, Step]:
        with jax.numpy_rank_promotion("allow"):
            inner, after = simulator.step(env_state.inner, action)
            seen, terminated = observe(inner, after.observation), ended(inner, after)
        clock = env_state.clock + 1
        truncated = (clock >= spec.horizon) & ~terminated
        reward = jnp.sum(after.reward).astype(jnp.float32)
        is_won = won(inner) & (terminated | truncated) if won else jnp.array(False)
        return Timed(strong(inner), clock), Step(seen, reward, terminated, truncated, is_won)

    return Env(spec, reset, step)
