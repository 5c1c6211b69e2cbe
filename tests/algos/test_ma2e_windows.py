"""Which episodes MA2E's autoencoder is trained on, and which windows of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ma2e_cases import HYPER, MODES, SMALL, TEAM, episodes, trace

from grasp.algos import replay_buffer
from grasp.algos.ma2e import algorithm as ma2e
from grasp.algos.ma2e import autoencoder


@pytest.mark.parametrize("pretraining", [True, False])
def test_paper_draws_windows_of_any_episode_that_end_where_it_was_played(pretraining):
    found = trace("paper", TEAM, pretraining, rounds=2)
    assert (found.end >= 0).all()
    assert (found.end < found.length).all()
    assert (found.length == found.number % 4 + 1).all()
    assert (np.ptp(found.which, axis=1) > 0).mean() > 0.9  # not one episode a step
    ends = {(int(n) % 4 + 1, int(e)) for n, e in zip(found.number.ravel(), found.end.ravel(), strict=True)}
    assert ends == {(length, end) for length in range(1, 5) for end in range(length)}


def test_beyond_an_episode_s_end_nothing_is_seen_and_nothing_was_done():
    batch = replay_buffer.time_first(replay_buffer.ended(jax.tree.map(jnp.asarray, episodes(TEAM, 4))))
    seen, done = ma2e.lived(SMALL, batch)
    for place, length in enumerate(batch.length.tolist()):
        assert (seen[length + 1 :, place] == 0).all()
        assert (done[length:, place] == 0).all()
        assert (seen[: length + 1, place, :, -4:] == jnp.eye(4)[None]).all()  # which agent it is


@pytest.mark.parametrize("pretraining", [True, False])
def test_released_draws_windows_of_one_episode_after_the_other_padding_included(pretraining):
    found = trace("released", TEAM, pretraining)
    masks = 13 if pretraining else 5
    turn = np.arange(len(found.which)) // masks
    np.testing.assert_array_equal(found.which, np.broadcast_to(turn[:, None], found.which.shape))
    for length in range(1, 5):
        assert set(found.end[found.length == length].tolist()) == {0, 1, 2, 3}
    assert found.clean.all()  # not what the slots held before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("finished", [3, 16, 21])
def test_fine_tuning_takes_the_newest_episodes_and_pretraining_any_that_are_there(mode, finished):
    """Episode n is in slot n mod 16; where fewer than eight are there, some come again."""
    newest = [n % 16 for n in range(max(0, finished - 8), finished)]
    tuned = trace(mode, TEAM, False, rounds=2, finished=finished)
    assert set(tuned.number.ravel().tolist()) == set(newest)
    if mode == "released":
        each = tuned.number[: 8 * 5 : 5, 0]
        np.testing.assert_array_equal(each, [(finished - 1 - k % min(finished, 8)) % 16 for k in range(8)])
    trained = trace(mode, TEAM, True, rounds=2, finished=finished)
    assert set(trained.number.ravel().tolist()) <= set(range(min(finished, 16)))
    assert len(set(trained.number.ravel().tolist())) >= min(finished, 13)


@pytest.mark.parametrize("mode", MODES)
def test_a_window_is_cut_from_its_episode_and_padded_before_its_start(mode, monkeypatch):
    given = []

    def loss(params, obs, action, keep, filled, mode, over, dropout_key):
        given.append((obs, action, keep, filled, mode, over, dropout_key))
        return jnp.array(6.0), jnp.array(5.0)

    monkeypatch.setattr(autoencoder, "reconstruction_loss", loss)
    stored = episodes(TEAM, 16)
    batch = replay_buffer.time_first(replay_buffer.ended(jax.tree.map(jnp.asarray, stored)))
    which, end = jnp.array([3, 6, 3, 2]), jnp.array([3, 1, 0, 2])
    keep, key = jnp.array([True, False, True, False]), jax.random.key(5)
    found = ma2e.objective(HYPER[mode], {}, *ma2e.lived(HYPER[mode], batch), batch.length, which, end, keep, key)
    assert found == ((-6.0, 5.0) if mode == "paper" else (-6.0 / 4, 5.0))  # episode 3 has four steps
    obs, action, shown, filled, *rest = given[0]
    assert rest[:2] == [mode, "masked" if mode == "paper" else "all"]
    assert (rest[2] is None) == (mode == "paper")
    np.testing.assert_array_equal(shown, np.broadcast_to(keep, (4, 4)))
    for w, (e, last) in enumerate(zip([3, 6, 3, 2], [3, 1, 0, 2], strict=True)):
        for back in range(3):
            step, at = last - back, 2 - back
            assert filled[w, at] == (step >= 0)
            if step >= 0:
                done = np.eye(3)[stored.action[e, step - 1]] if step else np.zeros((4, 3))
                expected = np.concatenate([stored.obs[e, step], done, np.eye(4)], -1)
                np.testing.assert_allclose(obs[w, at], expected, rtol=1e-6)
                np.testing.assert_allclose(action[w, at], stored.action[e, step] / 3, rtol=1e-6)
