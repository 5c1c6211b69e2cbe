"""Family `mpe`: the cooperative tasks of the Multi-Agent Particle Environment, simulated by jaxmarl.

- Reward: the sum of the agents' individual rewards (the paper's additive team reward). Where the task gives all agents
  one value (simple_speaker_listener), that value counts once per agent.
- State: the concatenation of all agents' padded observations.
- Time limit: every episode is truncated after exactly 25 steps. There are no terminations and no wins.
- simple_speaker_listener has a speaker (3 features, 3 actions) and a listener (11, 5): the speaker's observation is
  padded and its last two actions are never legal.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from grasp.envs import jaxmarl
from grasp.types import Bodies, Env, EnvSpec, Observation, PyTree

HORIZON = 25


class _Task(NamedTuple):
    simulator: str
    options: dict[str, int]


_TASKS = {
    "simple": _Task("SimpleMPE", {}),
    "simple_reference": _Task("SimpleReferenceMPE", {}),
    "simple_speaker_listener": _Task("SimpleSpeakerListenerMPE", {}),
    "simple_spread": _Task("SimpleSpreadMPE", {}),
    "simple_spread_5": _Task("SimpleSpreadMPE", {"num_agents": 5, "num_landmarks": 5}),
    "simple_spread_10": _Task("SimpleSpreadMPE", {"num_agents": 10, "num_landmarks": 10}),
}


def names() -> list[str]:
    """The cooperative tasks. Tasks with adversaries are not supported."""
    return list(_TASKS)


def make(task: str) -> Env:
    """The task as an `Env`."""
    simulator = jaxmarl.load("mpe", _TASKS[task].simulator)(max_steps=jaxmarl.NEVER, **_TASKS[task].options)
    agents: list[str] = simulator.agents
    num_actions = [simulator.action_spaces[agent].n for agent in agents]
    obs_dim = max(simulator.observation_spaces[agent].shape[0] for agent in agents)
    spec = EnvSpec(
        name=f"mpe/{task}",
        num_agents=len(agents),
        obs_dim=obs_dim,
        state_dim=len(agents) * obs_dim,
        num_actions=max(num_actions),
        horizon=HORIZON,
        package="jaxmarl",
    )
    avail = jnp.arange(spec.num_actions)[None, :] < jnp.array(num_actions)[:, None]

    def observe(obs: dict[str, Array], _: PyTree) -> Observation:
        rows = jaxmarl.stack(obs, agents, obs_dim)
        return Observation(rows, rows.reshape(-1), avail, jnp.ones(len(agents), bool))

    def judge(_: PyTree, rewards: dict[str, Array], __: dict[str, Array]) -> jaxmarl.Judgement:
        team = jnp.sum(jnp.stack([rewards[agent] for agent in agents]).astype(jnp.float32))
        return jaxmarl.Judgement(team, terminated=jnp.array(False), won=jnp.array(False))

    def scene(inner: PyTree) -> Bodies:
        body = jnp.arange(simulator.num_entities)
        landmarks = body >= len(agents)
        return Bodies(
            position=inner.p_pos,
            radius=simulator.rad,
            group=jnp.where(landmarks, 2, 0),
            shown=jnp.ones_like(landmarks),
            mark=jnp.where(landmarks, 0, ord("0") + body),
        )

    return jaxmarl.adapt(spec, simulator, observe, judge, scene)
