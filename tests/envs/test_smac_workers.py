"""SMAC's stand-in in real workers: the game that crashes, hangs or loses its connection costs an episode, no more."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from paths import STANDINS

from grasp.envs import host, make
from grasp.envs.host import SimulatorPool
from grasp.types import GraspError

EVERYONE = np.arange(2)


@pytest.fixture
def battle(monkeypatch):
    """A pool on the stand-in, which misbehaves as it is told."""
    monkeypatch.setenv("SC2PATH", str(STANDINS / "StarCraftII"))
    monkeypatch.syspath_prepend(str(STANDINS))
    pools = []

    def opened(name="smac/3m", misbehaviour="", deadline=20.0):
        monkeypatch.setenv("STANDIN", misbehaviour)
        pools.append(SimulatorPool(make(name), 2, 1, deadline, 3))
        return pools[-1]

    yield opened
    for pool in pools:
        pool.close()


def play(pool: SimulatorPool, steps: int) -> list[list[bool]]:
    """Who lost its episode at each step; stop is action 1, and 0 for the dead."""
    lost = [pool_answer(pool, "reset")]
    for _ in range(steps):
        pool.records["action"] = np.where(pool.records["alive"], 1, 0)
        lost.append(pool_answer(pool, "step"))
        if any(lost[-1]):
            lost.append(pool_answer(pool, "reset"))
    return lost


def pool_answer(pool: SimulatorPool, word: str) -> list[bool]:
    pool.send(word, EVERYONE)
    return pool.wait(EVERYONE).tolist()


@pytest.mark.parametrize("name", ["smac/3m", "smacv2/10gen_terran?n_units=5"])
def test_a_battle_in_a_worker(battle, name):
    pool = battle(name)
    assert not np.any(play(pool, 0))
    assert pool.records["alive"].all()
    assert not np.any(play(pool, 2))
    assert (pool.records["avail"][..., 0] == ~pool.records["alive"]).all()  # only the dead may do nothing
    assert pool.host.spec.package == name.partition("/")[0]
    assert pool.host.spec.num_agents == (3 if name == "smac/3m" else 5)


@pytest.mark.parametrize("misbehaviour", ["crash=2", "hang=2", "lost=2", "empty=2"])
def test_a_game_that_fails_is_replaced(battle, tmp_path, misbehaviour):
    pool = battle(misbehaviour=f"{misbehaviour} once={tmp_path}/once", deadline=5.0)
    lost = play(pool, 3)
    assert sum(map(any, lost)) == 1
    assert pool.restarts == 1
    assert not any(lost[-1])


def test_units_that_must_be_spawned_again_are_no_fault(battle):
    pool = battle("smacv2/10gen_zerg", "respawn=1")
    assert not np.any(play(pool, 1))
    assert pool.restarts == 0


def test_no_game_outlives_its_worker(battle, tmp_path):
    games = tmp_path / "games"
    pool = battle(misbehaviour=f"games={games}")
    play(pool, 1)
    pids = [int(line) for line in games.read_text().split()]
    assert len(pids) >= 2
    pool.close()
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/stat").exists() and alive(pid) for pid in pids):
        assert time.monotonic() < end, "a game is still there"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_what_is_missing_is_said_before_anything_starts(monkeypatch):
    host._sizes.cache_clear()  # the stand-in has answered for this name before
    monkeypatch.setenv("GRASP_SMAC_PYTHON", sys.executable)
    with pytest.raises(GraspError, match="environment 'smac/3m': the package smac is not installed"):
        make("smac/3m")
