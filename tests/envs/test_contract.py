"""All registered environments keep the contract of `grasp.envs.base`."""

import pytest
from env_contract import check, check_carry

from grasp.envs import make, names
from grasp.envs.base import simulated

COMPILED = [name for name in names() if not simulated(name)]
QUICK = ("3m", "MMM2", "protoss_5_vs_5", "zerg_5_vs_5", "smacv2_5_units")
"""Of the battles, which take seconds to compile, one of each kind."""


def tiered(name: str):
    family, _, task = name.partition("/")
    is_full = family in ("skirmish", "smax") and task not in QUICK
    return pytest.param(name, marks=pytest.mark.full("every map")) if is_full else name


@pytest.mark.parametrize("name", COMPILED)
def test_a_step_returns_a_state_and_observations_of_the_specified_types(name: str) -> None:
    env = make(name)
    assert env.spec.name == name
    check_carry(env)


@pytest.mark.parametrize("name", [tiered(name) for name in COMPILED])
def test_an_episode_keeps_the_contract(name: str) -> None:
    check(make(name))
