"""The matrix games have the payoffs of Claus and Boutilier (1998)."""

import itertools

import jax
import jax.numpy as jnp
import pytest

from grasp.envs import make
from grasp.envs.matrix import PAYOFFS

# by (agent 0, agent 1), typed independently of the source
CLIMBING = {(0, 0): 11, (0, 1): -30, (0, 2): 0, (1, 0): -30, (1, 1): 7, (1, 2): 6, (2, 0): 0, (2, 1): 0, (2, 2): 5}
PENALTY = {(0, 0): 10, (0, 1): 0, (0, 2): -100, (1, 0): 0, (1, 1): 2, (1, 2): 0, (2, 0): -100, (2, 1): 0, (2, 2): 10}


@pytest.mark.parametrize(("task", "table"), [("climbing", CLIMBING), ("penalty", PENALTY)])
def test_every_joint_action_pays_its_cell_of_the_table_and_terminates(task, table):
    env = make(f"matrix/{task}")
    env_state, _ = env.reset(jax.random.key(0))
    for joint in itertools.product(range(3), repeat=2):
        _, step = env.step(env_state, jnp.array(joint), jax.random.key(1))
        assert float(step.reward) == table[joint] == PAYOFFS[task][joint]
        assert bool(step.terminated)
        assert not bool(step.truncated)
