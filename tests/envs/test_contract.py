"""All registered environments keep the contract of `grasp.envs.base`."""

import pytest
from env_contract import check

from grasp.envs import make, names
from grasp.envs.base import simulated

# a battle takes 10 s to compile; the fast tests have one Skirmish map of each kind
QUICK = ("3m", "2s3z", "MMM2", "terran_5_vs_5", "protoss_5_vs_5", "zerg_5_vs_5")


def listed(name: str):
    family, _, task = name.partition("/")
    return pytest.param(name, marks=pytest.mark.slow) if family == "skirmish" and task not in QUICK else name


@pytest.mark.parametrize("name", [listed(name) for name in names() if not simulated(name)])
def test_contract(name: str) -> None:
    env = make(name)
    assert env.spec.name == name
    check(env)
