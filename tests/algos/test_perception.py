"""The inputs of MA2E's agents: of which agents, in which order, of which steps, and equal in acting and learning."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.algos.ma2e import autoencoder, perception
from grasp.algos.ma2e.perception import Window

MODES = ["paper", "released"]
TINY = {"embed": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feedforward": 6}
STEPS, AGENTS, WIDTH = 3, 4, 5
AGES = (0, 1, 2, 7)
"""The first step of an episode, windows half full, and a full one."""

# Compiled once per shape for the whole file: compiling is most of what these tests cost.
along = jax.jit(perception.along, static_argnames=("mode", "length"))
reconstruct = jax.jit(autoencoder.reconstruct, static_argnames="mode")


@partial(jax.jit, static_argnames="mode")
def perceive(params, mode, given):
    """Window by window; whole episodes, below, take them together."""
    return jax.vmap(lambda one: perception.perceive(params, mode, one))(given)


def tiny(seed=0):
    """Tiny parameters with every bias and scale away from zero and one."""
    params = autoencoder.autoencoder_init(jax.random.key(seed), WIDTH, **TINY)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: np.asarray(leaf + 0.4 * rng.normal(size=leaf.shape), np.float32), params)


def window(ages=AGES, seed=1):
    """One window for each age, zeros before its episode's start."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(len(ages), STEPS, AGENTS, WIDTH)).astype(np.float32)
    done = rng.random((len(ages), STEPS, AGENTS)).astype(np.float32)
    back = STEPS - 1 - np.arange(STEPS)[None]
    age = np.array(ages, np.int32)
    of_this_episode, was_done = back <= age[:, None], back < age[:, None]
    return jax.tree.map(jnp.asarray, Window(seen * of_this_episode[..., None, None], done * was_done[..., None], age))


def rows(params, mode, given):
    """[E, N, rows, i]"""
    found = np.asarray(perceive(params, mode, given))
    assert found.shape == (len(given.age), AGENTS, AGENTS * WIDTH)
    return found.reshape(*found.shape[:-1], AGENTS, WIDTH)


def others(agent):
    return [m for m in range(AGENTS) if m != agent]


def changed(x, at):
    x = np.array(x)
    x[at] += 0.5
    return x


def edits(given, agent):
    """The windows with something changed that this agent holds: its present, its past, what it did."""
    return {
        "present": given._replace(seen=changed(given.seen, np.s_[:, -1, agent])),
        "past": given._replace(seen=changed(given.seen, np.s_[:, -2, agent, 0])),
        "done": given._replace(done=changed(given.done, np.s_[:, -1, agent])),
    }


# Whose observation reaches whom


@pytest.mark.parametrize("agent", range(AGENTS))
@pytest.mark.parametrize("mode", MODES)
def test_an_agent_s_own_window_moves_what_it_reconstructs_in_paper_and_only_agent_0_s_in_released(mode, agent):
    params, given = tiny(), window(ages=(7, 7, 7, 7))
    before = rows(params, mode, given)
    for name, edited in edits(given, agent).items():
        after = rows(params, mode, edited)
        reconstructed = np.abs(after - before)[:, agent, 1:].max(-1)
        if mode == "paper" or agent == 0:
            assert (reconstructed > 1e-5).all(), name
        else:
            np.testing.assert_array_equal(after[:, agent, 1:], before[:, agent, 1:])


@pytest.mark.parametrize("agent", range(AGENTS))
@pytest.mark.parametrize("mode", MODES)
def test_nothing_that_another_agent_holds_touches_an_agent_s_rows(mode, agent):
    params, given = tiny(), window()
    before = rows(params, mode, given)
    seen, done = np.array(given.seen), np.array(given.done)
    seen[..., others(agent), :], done[..., others(agent)] = np.nan, np.nan
    after = rows(params, mode, Window(seen, done, given.age))
    np.testing.assert_array_equal(after[:, agent], before[:, agent])
    assert np.isfinite(before).all()


def test_in_released_all_but_agent_0_reconstruct_a_constant_of_their_own():
    found = rows(tiny(), "released", window())
    for agent in range(1, AGENTS):
        np.testing.assert_allclose(found[1:, agent, 1:], found[:1, agent, 1:].repeat(3, 0), atol=1e-5)
    assert np.abs(found[0, 1, -1] - found[0, 2, -1]).max() > 1e-3
    assert np.abs(found[1:, 0, 1:] - found[:1, 0, 1:]).max() > 1e-2


# Rows


@pytest.mark.parametrize("mode", MODES)
def test_the_own_row_is_first_and_exactly_the_present_input(mode):
    given = window()
    np.testing.assert_array_equal(rows(tiny(), mode, given)[:, :, 0], given.seen[:, -1])


def test_the_others_follow_in_increasing_order(monkeypatch):
    """Agent n's reconstruction of agent m is held at 10 n + m."""

    def imagine(params, mode, given, agent, dropout_key):
        whom = 10.0 * agent + jnp.arange(AGENTS)
        return jnp.broadcast_to(whom[:, None], (*given.age.shape, AGENTS, WIDTH))

    monkeypatch.setattr(perception, "imagine", imagine)
    found = perception.perceive({}, "paper", window()).reshape(len(AGES), AGENTS, AGENTS, WIDTH)
    for agent in range(AGENTS):
        expected = np.array([10.0 * agent + m for m in others(agent)])
        np.testing.assert_array_equal(found[:, agent, 1:], np.broadcast_to(expected[:, None], (4, 3, WIDTH)))


@pytest.mark.parametrize("agent", range(AGENTS))
def test_in_paper_an_agent_reconstructs_the_others_from_its_own_window_in_its_own_place(agent):
    """What was done stands beside what was seen then; the present action, and what was before the episode, nowhere."""
    params, given = tiny(), window()
    found = rows(params, "paper", given)
    for e, age in enumerate(AGES):
        obs, action = np.full((STEPS, AGENTS, WIDTH), np.nan), np.full((STEPS, AGENTS), np.nan)
        known = np.zeros((STEPS, 2), bool)
        for back in range(min(age + 1, STEPS)):
            at = STEPS - 1 - back
            obs[at, agent], known[at, 0] = given.seen[e, at, agent], True
            if back > 0:  # `done` ends one step before `seen`
                action[at, agent], known[at, 1] = given.done[e, at + 1, agent], True
        whole, _ = reconstruct(
            params,
            obs.astype(np.float32),
            action.astype(np.float32),
            np.arange(AGENTS) == agent,
            mode="paper",
            known=known,
        )
        np.testing.assert_allclose(found[e, agent, 1:], whole[-1, np.array(others(agent))], atol=2e-5)


@pytest.mark.parametrize("agent", range(AGENTS))
def test_in_released_an_agent_s_window_stands_in_agent_0_s_place_with_actions_one_step_late(agent):
    params, given = tiny(), window()
    found = rows(params, "released", given)
    for e in range(len(AGES)):
        obs, action = np.zeros((STEPS, AGENTS, WIDTH), np.float32), np.zeros((STEPS, AGENTS), np.float32)
        obs[:, 0], action[:, 0] = given.seen[e, :, agent], given.done[e, :, agent]
        whole, _ = reconstruct(params, obs, action, np.arange(AGENTS) == agent, mode="released")
        np.testing.assert_allclose(found[e, agent, 1:], whole[-1, np.array(others(agent))], atol=2e-5)


def test_in_paper_what_stands_before_the_episode_s_start_changes_nothing():
    params, given = tiny(), window()
    seen, done = np.array(given.seen), np.array(given.done)
    for e, age in enumerate(AGES[:3]):
        seen[e, : STEPS - 1 - age] = np.nan
        done[e, : STEPS - age] = np.nan
    done[3, 0] = np.nan  # what was done before the oldest step that is seen
    np.testing.assert_array_equal(rows(params, "paper", Window(seen, done, given.age)), rows(params, "paper", given))


@pytest.mark.parametrize(("tokens", "pieces"), [(1, 4), (4 * 24 - 1, 4), (2 * 96, 2), (3 * 96, 2), (4 * 96, 1)])
def test_agents_reconstructed_piece_by_piece_perceive_the_same(monkeypatch, tokens, pieces):
    """Four windows of three steps and four agents are 96 tokens for each who looks; a piece is one, two or all four."""
    calls, real = [], jax.lax.map

    def counting(function, xs, *, batch_size):
        calls.append(len(xs) // batch_size)
        return real(function, xs, batch_size=batch_size)

    given = window()
    monkeypatch.setattr(perception, "TOKENS", tokens)
    monkeypatch.setattr(perception.jax.lax, "map", counting)
    monkeypatch.setattr(autoencoder, "imagine", lambda params, obs, *rest: jnp.repeat(obs[..., -1:, :], AGENTS, -2))
    found = perception.perceive({}, "paper", given).reshape(4, AGENTS, AGENTS, WIDTH)
    assert calls == [pieces]
    np.testing.assert_array_equal(found, np.repeat(given.seen[:, -1, :, None], AGENTS, 2))


# The window


def test_a_memory_of_zeros_is_the_start_of_an_episode():
    nothing = jax.tree.map(jnp.zeros_like, window())
    np.testing.assert_array_equal(perception.filled(nothing), [[False, False, True]] * 4)


def test_the_steps_of_this_episode_are_the_newest():
    found = perception.filled(window())
    np.testing.assert_array_equal(
        found, [[False, False, True], [False, True, True], [True, True, True], [True, True, True]]
    )


def test_a_window_moves_by_a_step_when_one_comes_and_when_it_is_over():
    given = window()
    seen, action = jnp.full((4, AGENTS, WIDTH), 9.0), jnp.full((4, AGENTS), 8.0)
    came = perception.present(given, seen)
    np.testing.assert_array_equal(came.seen, np.concatenate([given.seen[:, 1:], seen[:, None]], 1))
    np.testing.assert_array_equal(came.done, given.done)
    np.testing.assert_array_equal(came.age, given.age)
    over = perception.passed(came, action)
    np.testing.assert_array_equal(over.seen, came.seen)
    np.testing.assert_array_equal(over.done, np.concatenate([given.done[:, 1:], action[:, None]], 1))
    np.testing.assert_array_equal(over.age, given.age + 1)


# Along episodes

HORIZON, EPISODES = 5, 4


def episodes(seed=2):
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(HORIZON + 1, EPISODES, AGENTS, WIDTH)).astype(np.float32)
    return seen, rng.random((HORIZON, EPISODES, AGENTS)).astype(np.float32)


def walked(params, mode, seen, done):
    """`perceive` step by step, as acting does."""
    shape = (EPISODES, STEPS, AGENTS)
    given = Window(jnp.zeros((*shape, WIDTH)), jnp.zeros(shape), jnp.zeros(EPISODES, jnp.int32))
    found = []
    for t in range(HORIZON + 1):
        given = perception.present(given, jnp.asarray(seen[t]))
        found.append(perceive(params, mode, given))
        if t < HORIZON:
            given = perception.passed(given, jnp.asarray(done[t]))
    return np.stack(found)


def at_once(params, mode, seen, done, steps=HORIZON + 1, key=None):
    return np.asarray(along(params, mode, STEPS, seen, done, jnp.array(steps), key))


def test_in_paper_whole_episodes_are_perceived_as_step_by_step():
    params, (seen, done) = tiny(), episodes()
    stepwise = walked(params, "paper", seen, done)
    np.testing.assert_allclose(at_once(params, "paper", seen, done), stepwise, atol=2e-5)
    assert np.abs(stepwise[1:] - stepwise[:-1])[..., WIDTH:].max((1, 2, 3)).min() > 1e-2


def test_in_released_they_are_too_but_for_the_leak_to_agent_0_at_the_first_step():
    params, (seen, done) = tiny(), episodes()
    stepwise, whole = walked(params, "released", seen, done), at_once(params, "released", seen, done)
    np.testing.assert_allclose(whole[1:], stepwise[1:], atol=2e-5)
    np.testing.assert_allclose(whole[0, :, 1:], stepwise[0, :, 1:], atol=2e-5)
    assert (np.abs(whole - stepwise)[0, :, 0, WIDTH:].max(-1) > 1e-4).all()
    shape = (EPISODES, STEPS, AGENTS)
    leaky = Window(np.zeros((*shape, WIDTH), np.float32), np.zeros(shape, np.float32), np.zeros(EPISODES, np.int32))
    leaky.seen[:, -1], leaky.done[:, -1] = seen[0], done[0]
    np.testing.assert_allclose(whole[0], perceive(params, "released", leaky), atol=2e-5)


@pytest.mark.parametrize("mode", MODES)
def test_reconstructions_do_not_depend_on_later_steps(mode):
    params, (seen, done), now = tiny(), episodes(), 2
    future = np.array(seen), np.array(done)
    future[0][now + 1 :], future[1][now:] = np.nan, np.nan
    before, after = at_once(params, mode, seen, done), at_once(params, mode, *future)
    np.testing.assert_array_equal(after[: now + 1], before[: now + 1])
    assert np.isnan(after[now + 1]).any()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_perceived_after_the_last_step_asked_for(mode):
    params, (seen, done) = tiny(), episodes()
    whole, some = at_once(params, mode, seen, done), at_once(params, mode, seen, done, steps=3)
    np.testing.assert_array_equal(some[:3], whole[:3])
    assert (some[3:] == 0).all()
    assert np.abs(whole[3:]).max((1, 2, 3)).min() > 0.1


def test_every_step_drops_units_of_its_own_with_a_key_and_none_without():
    """The same thing seen and done at every step: from the third on, all windows are full and alike."""
    params = tiny()
    seen, done = (np.repeat(x[:1], x.shape[0], 0) for x in episodes())
    without = at_once(params, "released", seen, done)[STEPS:]
    np.testing.assert_allclose(without, without[:1].repeat(len(without), 0), atol=2e-5)
    first, again, other = (at_once(params, "released", seen, done, key=jax.random.key(k))[STEPS:] for k in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    for one, another in [(first, other), (first, without), (first[0], first[1])]:
        assert np.abs(one - another)[..., 0, WIDTH:].max() > 1e-2
    np.testing.assert_array_equal(first[..., :WIDTH], without[..., :WIDTH])


@pytest.mark.parametrize("mode", MODES)
def test_no_gradient_reaches_the_autoencoder_through_what_is_perceived(mode):
    given = window()

    def total(params):
        return jnp.square(perceive(params, mode, given)).sum()

    slopes = jax.jit(jax.grad(total))(tiny())
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(slopes))
    moved = jax.tree.map(partial(np.multiply, np.float32(1.1)), tiny())
    assert np.abs(rows(moved, mode, given) - rows(tiny(), mode, given)).max() > 1e-3
