"""ValueNorm's debiased moments."""

import jax.numpy as jnp
import numpy as np
import pytest

from grasp.algos import value_norm


def test_before_any_update_the_mean_is_0_and_the_spread_a_tenth():
    mean, spread = value_norm.moments(value_norm.value_norm_init())
    assert mean == 0
    assert spread == pytest.approx(0.1)


def test_after_one_update_the_moments_are_the_batch_s():
    returns = jnp.asarray(np.random.default_rng(0).normal(-70, 20, size=(10, 32)), jnp.float32)
    mean, spread = value_norm.moments(value_norm.value_norm_update(value_norm.value_norm_init(), returns))
    assert mean == pytest.approx(float(returns.mean()), rel=1e-5)
    assert spread == pytest.approx(float(returns.std()), rel=1e-3)


def test_many_updates_average_all_batches_alike():
    norm = value_norm.value_norm_init()
    batches = np.random.default_rng(1).normal(5, 3, size=(200, 64)).astype(np.float32)
    for batch in batches:
        norm = value_norm.value_norm_update(norm, jnp.asarray(batch))
    mean, spread = value_norm.moments(norm)
    assert mean == pytest.approx(batches.mean(), rel=1e-2)
    assert spread == pytest.approx(batches.std(), rel=1e-2)


def test_denormalise_undoes_normalise():
    norm = value_norm.value_norm_update(value_norm.value_norm_init(), jnp.array([1.0, 5.0, 9.0]))
    values = jnp.array([-3.0, 0.0, 7.0])
    np.testing.assert_allclose(value_norm.denormalise(norm, value_norm.normalise(norm, values)), values, rtol=1e-5)
    assert value_norm.normalise(norm, jnp.array([5.0]))[0] == pytest.approx(0.0, abs=1e-5)


def test_the_spread_never_falls_below_its_floor():
    norm = value_norm.value_norm_update(value_norm.value_norm_init(), jnp.full(8, 3.0))
    assert value_norm.moments(norm)[1] == pytest.approx(0.1)


def test_older_batches_weigh_less_by_the_decay(monkeypatch):
    """With a decay that a few updates can show."""
    monkeypatch.setattr(value_norm, "DECAY", 0.8)
    batches = np.random.default_rng(2).normal(5, 3, size=(6, 10)).astype(np.float32)
    norm = value_norm.value_norm_init()
    for batch in batches:
        norm = value_norm.value_norm_update(norm, jnp.asarray(batch))
    weight = 0.8 ** np.arange(5, -1, -1)
    mean, square = (np.average((batches**power).mean(1), weights=weight) for power in (1, 2))
    assert value_norm.moments(norm)[0] == pytest.approx(mean, rel=1e-5)
    assert value_norm.moments(norm)[1] == pytest.approx(np.sqrt(square - mean**2), rel=1e-4)
