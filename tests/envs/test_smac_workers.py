"""SMAC's stand-in in worker processes: a game that crashes, hangs or loses its connection costs one episode."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from grasp.envs import make
from grasp.envs.host import SimulatorPool
from grasp.types import GraspError

EVERYONE = np.arange(2)


@pytest.fixture
def battle(starcraft, monkeypatch):
    """A function that opens a pool of the stand-in with a fault."""
    pools = []

    def opened(name="smac/3m", fault="", deadline=20.0):
        monkeypatch.setenv("STANDIN", fault)
        pools.append(SimulatorPool(make(name), 2, 1, deadline, 3))
        return pools[-1]

    yield opened
    for pool in pools:
        pool.close()


def play(pool: SimulatorPool, steps: int) -> list[list[bool]]:
    """Which copies lost their episode, at each command. Living agents stop (1), dead ones do nothing (0)."""
    lost = [run(pool, "reset")]
    for _ in range(steps):
        pool.records["action"] = np.where(pool.records["alive"], 1, 0)
        lost.append(run(pool, "step"))
        if any(lost[-1]):
            lost.append(run(pool, "reset"))
    return lost


def run(pool: SimulatorPool, command: str) -> list[bool]:
    pool.send(command, EVERYONE)
    return pool.wait(EVERYONE).tolist()


@pytest.mark.parametrize("name", ["smac/3m", "smacv2/10gen_terran?n_units=5"])
def test_a_battle_in_a_worker(battle, name):
    pool = battle(name)
    assert not np.any(play(pool, 0))
    assert pool.records["alive"].all()
    assert not np.any(play(pool, 2))
    assert (pool.records["avail"][..., 0] == ~pool.records["alive"]).all()  # no-op is legal only for dead agents
    assert pool.host.spec.package == name.partition("/")[0]
    assert pool.host.spec.num_agents == (3 if name == "smac/3m" else 5)


@pytest.mark.parametrize("fault", ["crash=2", "hang=2", "lost=2", "empty=2"])
def test_a_game_that_fails_is_replaced(battle, tmp_path, fault):
    pool = battle(fault=f"{fault} once={tmp_path}/once", deadline=5.0)
    lost = play(pool, 3)
    assert sum(map(any, lost)) == 1
    assert pool.restarts == 1
    assert not any(lost[-1])


def test_a_second_attempt_at_spawning_is_no_fault(battle):
    pool = battle("smacv2/10gen_zerg", "respawn=1")
    assert not np.any(play(pool, 1))
    assert pool.restarts == 0


def test_no_game_outlives_its_worker(battle, tmp_path):
    games = tmp_path / "games"
    pool = battle(fault=f"games={games}")
    play(pool, 1)
    pids = [int(line) for line in games.read_text().split()]
    assert len(pids) >= 2
    pool.close()
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/stat").exists() and alive(pid) for pid in pids):
        assert time.monotonic() < end, "a game is still running"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_missing_package_is_named_before_a_worker_starts(monkeypatch):
    monkeypatch.setenv("GRASP_SMAC_PYTHON", sys.executable)
    with pytest.raises(GraspError, match="environment 'smac/3m': the package smac is not installed"):
        make("smac/3m")
