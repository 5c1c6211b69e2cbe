"""Fixed rollouts of a small team in which everything happens: deaths, masked actions, terminations and truncations."""

import jax
import numpy as np

from grasp.algos.ppo import Memory, Record
from grasp.types import EnvSpec, Observation, Trajectory

SPEC = EnvSpec(name="toy", num_agents=3, obs_dim=4, state_dim=5, num_actions=4, horizon=5)
LIVELY = (0.9, 0.7, 0.4)
"""How often each agent is alive. A dead agent may rise within the episode, so that what it saw when dead matters."""


def scene(spec=SPEC, steps=8, played=(0, 2, 0, 1), hidden=6, critic_hidden=0, seed=0, last_action=False):
    """A rollout of arbitrary numbers, its memories and records too, in environments that have `played` so many steps of
    their episodes."""
    rng = np.random.default_rng(seed)
    around = (steps, len(played))

    def see(rng, first):
        avail = rng.random((*around, spec.num_agents, spec.num_actions)) < 0.5
        avail |= np.arange(spec.num_actions) == rng.integers(spec.num_actions, size=(*avail.shape[:-1], 1))
        return Observation(
            obs=rng.normal(size=(*around, spec.num_agents, spec.obs_dim)),
            state=rng.normal(size=(*around, *spec.state_shape)),
            avail=avail,
            alive=(rng.random((*around, spec.num_agents)) < LIVELY) | first[..., None],
        )

    ending = rng.random(around)
    length, first = np.array(played), np.zeros(around, bool)
    first[0] = length == 0
    terminated, truncated = np.zeros(around, bool), np.zeros(around, bool)
    for t in range(steps):
        length += 1
        terminated[t] = ending[t] < 0.2
        truncated[t] = ((ending[t] > 0.8) | (length == spec.horizon)) & ~terminated[t]
        ended = terminated[t] | truncated[t]
        length[ended] = 0
        first[t + 1 : t + 2] = ended
    seen, final = see(rng, first), see(rng, np.zeros(around, bool))

    def next_of(now, last):
        following = np.concatenate([now[1:], last[-1:]])
        ended = (terminated | truncated).reshape(*around, *[1] * (now.ndim - 2))
        return np.where(ended, last, following)

    lottery = np.where(seen.avail, rng.random(seen.avail.shape), -1)
    each = (spec.num_agents,)
    states = each if spec.agent_states else ()
    return Trajectory(
        observation=seen,
        memory=Memory(
            rng.normal(size=(steps + 1, len(played), *each, hidden)),
            rng.normal(size=(steps + 1, len(played), *states, critic_hidden)),
            np.eye(spec.num_actions)[rng.integers(spec.num_actions, size=(steps + 1, len(played), *each))]
            if last_action
            else (),
        ),
        first=first,
        action=lottery.argmax(-1),
        record=Record(-rng.random((*around, *each)), rng.normal(size=(*around, *states))),
        reward=rng.normal(size=around) + 0.5,
        terminated=terminated,
        truncated=truncated,
        next_observation=jax.tree.map(next_of, seen, final),
    )


def acted(algorithm, state, trajectory):
    """The rollout with the actions, memories and records of the policy that sees it; it starts from its memory."""
    act = jax.jit(algorithm.act, static_argnums=4)
    memory = jax.tree.map(lambda m: m[0], trajectory.memory)
    decisions, memories = [], [memory]
    for t, first in enumerate(trajectory.first):
        memory = jax.tree.map(lambda m, first=first: np.where(first.reshape(-1, *[1] * (m.ndim - 1)), 0, m), memory)
        observation = jax.tree.map(lambda x, t=t: x[t], trajectory.observation)
        decisions.append(jax.device_get(act(state, memory, observation, jax.random.key(t), False)))
        memory = decisions[-1].memory
        memories.append(memory)
    together = lambda trees: jax.tree.map(lambda *x: np.stack(x), *trees)  # noqa: E731
    return trajectory._replace(
        action=together([d.action for d in decisions]),
        memory=together(memories),
        record=together([d.record for d in decisions]),
    )


def noised(tree, scale=0.3, seed=1):
    """Every number moved: agents are no copies of each other, and no bias is zero."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: np.asarray(x) + scale * rng.normal(size=x.shape), jax.device_get(tree))
