"""Settings of every test: a CPU, float32, no implicit rank promotion, and little time spent compiling."""

import os
from pathlib import Path

# jax's LAPACK is OpenBLAS, whose threads spin against each other on few cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests run small programs once: compiling them costs far more than running them unoptimised. XLA's older code generator
# takes half the time of its newer one, and splitting programs among threads a tenth more. A flag named twice would be
# another key of the cache, and xdist's workers inherit the flags.
os.environ["XLA_FLAGS"] = " ".join(
    dict.fromkeys(
        [
            *os.environ.get("XLA_FLAGS", "").split(),
            "--xla_backend_optimization_level=0",
            "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters",
            "--xla_cpu_parallel_codegen_split_count=1",
        ]
    )
)

# Beside the cache of the command line, so that every checkout on a machine has it; half of a cold run is compiling. In
# the environment, so that the programs that tests start have it too.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grasp" / "tests"
)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import jax
import pytest
from tiny import TINY

pytest.register_assert_rewrite("env_contract", "mappo_cases", "qmix_cases")

jax.config.update("jax_numpy_rank_promotion", "raise")


SLOWEST = ("training", "launch", "algos", "reproduction")
"""Rooms whose tests come first, so that no long one begins when the other worker has nothing left."""


def pytest_collection_modifyitems(items):
    """One worker runs all tests of a file, which share runs and compiled programs, but for those that run alone."""
    for item in items:
        full = list(item.iter_markers("full"))
        for mark in full:
            assert mark.args, f"{item.nodeid}: say what this test adds to those of `make test`"
        if not full and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
    items.sort(key=lambda item: not set(SLOWEST) & set(item.path.parts))


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Compiled programs pile up to gigabytes over a whole run; the next module's are read from the cache on disk."""
    yield
    jax.clear_caches()


@pytest.fixture
def x64():
    """64-bit arithmetic for one test; the library itself never switches it on."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("grasp.training.compilation_cache.enable", lambda: None)
    return tmp_path


@pytest.fixture
def starcraft(monkeypatch):
    """A stand-in for SMAC, SMACv2 and the game. Nothing that it said is left in the cache for the next test."""
    from paths import STANDINS

    from grasp.envs import host

    monkeypatch.setenv("SC2PATH", str(STANDINS / "StarCraftII"))
    monkeypatch.syspath_prepend(str(STANDINS))
    host._sizes.cache_clear()
    yield
    host._sizes.cache_clear()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small finished run, made from Python."""
    import grasp

    path = tmp_path_factory.mktemp("runs") / "run"
    grasp.train("grasp-mappo", "matrix/climbing", out=path, seeds=2, **TINY)
    return path
