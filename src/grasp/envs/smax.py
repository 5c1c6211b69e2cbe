"""Family `smax`: StarCraft-like battles simulated by jaxmarl, against its scripted enemy.

- Reward: the mean fraction of enemy health removed in the step, and 1 more for a win. jaxmarl gives every ally the same
  value, dead ones too, so it is read from one agent and not summed.
- State: jaxmarl's `world_state`.
- Terminated: all units of one side are dead; read from the units, not from `done`. Won: an ally lives and no enemy
  does. If both sides die in one step the battle is a draw: terminated, not won, without the bonus for a win.
- Time limit: exactly 100 steps. jaxmarl's observations and rewards do not depend on the time or on `max_steps`.
- A dead ally observes zeros and has one legal action, 4 (stop).
- `8m_vs_9m` is not a map of jaxmarl: it is built here by the rules of its other marine maps.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from grasp.envs import jaxmarl
from grasp.types import Bodies, Env, EnvSpec, Observation, PyTree

HORIZON = 100
_TASKS = (
    "2s3z",
    "3m",
    "3s5z",
    "3s5z_vs_3s6z",
    "3s_vs_5z",
    "5m_vs_6m",
    "6h_vs_8z",
    "8m",
    "8m_vs_9m",
    "10m_vs_11m",
    "25m",
    "27m_vs_30m",
    "smacv2_5_units",
    "smacv2_10_units",
    "smacv2_20_units",
)


def names() -> list[str]:
    """Every map of jaxmarl 0.2, and `8m_vs_9m`."""
    return list(_TASKS)


def make(task: str) -> Env:
    """The battle as an `Env`."""
    simulator = jaxmarl.load("smax", "HeuristicEnemySMAX")(scenario=_scenario(task), max_steps=jaxmarl.NEVER)
    agents: list[str] = simulator.agents
    num_allies = len(agents)
    spec = EnvSpec(
        name=f"smax/{task}",
        num_agents=num_allies,
        obs_dim=simulator.obs_size,
        state_dim=simulator.state_size,
        num_actions=simulator.num_ally_actions,
        horizon=HORIZON,
        has_wins=True,
        package="jaxmarl",
    )

    def observe(obs: dict[str, Array], inner: PyTree) -> Observation:
        avail = simulator.get_avail_actions(inner)
        return Observation(
            obs=jaxmarl.stack(obs, agents, spec.obs_dim),
            state=obs["world_state"].astype(jnp.float32),
            avail=jnp.stack([avail[agent] for agent in agents]).astype(bool),
            alive=inner.state.unit_alive[:num_allies],
        )

    def judge(inner: PyTree, rewards: dict[str, Array], _: dict[str, Array]) -> jaxmarl.Judgement:
        terminated, won = outcome(inner.state.unit_alive[:num_allies], inner.state.unit_alive[num_allies:])
        return jaxmarl.Judgement(rewards[agents[0]].astype(jnp.float32), terminated, won)

    letters = jnp.array([ord(letter) for letter in simulator.unit_type_shorthands])

    def scene(inner: PyTree) -> Bodies:
        units = inner.state
        enemy = jnp.arange(units.unit_types.shape[0]) >= num_allies
        # jaxmarl numbers an enemy's targets backwards: its target 0 is the last ally
        aim = units.prev_attack_actions - simulator.num_movement_actions
        target = jnp.where(enemy, num_allies - 1 - aim, num_allies + aim)
        return Bodies(
            position=units.unit_positions,
            radius=simulator.unit_type_radiuses[units.unit_types],
            group=enemy.astype(jnp.int32),
            shown=units.unit_alive,
            health=units.unit_health / simulator.unit_type_health[units.unit_types],
            target=jnp.where(aim >= 0, target, -1),
            mark=letters[units.unit_types],
        )

    return jaxmarl.adapt(spec, simulator, observe, judge, scene)


def outcome(allies: Bool[Array, " N"], enemies: Bool[Array, " M"]) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    """(terminated, won), from which units live."""
    ally_lives, enemy_lives = allies.any(), enemies.any()
    return ~(ally_lives & enemy_lives), ally_lives & ~enemy_lives


def _scenario(task: str) -> PyTree:
    if task == "8m_vs_9m":
        marines = jnp.zeros(8 + 9, jnp.uint8)
        return jaxmarl.load("smax", "Scenario")(
            marines, 8, 9, smacv2_position_generation=False, smacv2_unit_type_generation=False
        )
    return jaxmarl.load("smax", "map_name_to_scenario")(task)
