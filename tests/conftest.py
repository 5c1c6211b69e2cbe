"""One posture for every test: a CPU, float32, silent broadcasting forbidden."""

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """64-bit arithmetic for one test; the library itself never switches it on."""
    with jax.enable_x64(True):
        yield
