"""The overlay of `grasp play`: action preferences and values, from the algorithm to the picture."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from film_scenes import bodies, colour, near
from PIL import Image
from tiny import TINY

import grasp
from grasp import algos, cli
from grasp.algos import exploration
from grasp.algos import value_norm as normalise
from grasp.config import configure
from grasp.config.hyperparameters import Qmix
from grasp.envs import base
from grasp.nn import critic as critics
from grasp.nn import mixer as mixers
from grasp.render import draw, film
from grasp.render.draw import Overlay
from grasp.types import Observation


def overlay(**changes) -> Overlay:
    """Two agents, three actions: the first prefers and takes action 1; action 2 of the second is illegal."""
    given = Overlay(
        preference=np.array([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]),
        avail=np.array([[True, True, True], [True, True, False]]),
        action=np.array([1, 0]),
        value=np.array(3.25),
    )
    return given._replace(**changes)


def cell(picture: Image.Image, agent: int, action: int) -> tuple[int, ...]:
    """The colour at the centre of an agent's cell for an action."""
    side = 18
    x = picture.width - draw.PANEL + 12 + draw.NAMES + (action + 0.5) * side
    return picture.getpixel((int(x), int(draw.HEADER + (agent + 0.5) * side)))


def test_cells_are_darker_for_preferred_actions_and_missing_for_illegal_ones():
    (picture,) = draw.pictures([bodies()], ["header"], [overlay()])
    (bare,) = draw.pictures([bodies()], ["header"])
    assert picture.width == bare.width + draw.PANEL
    full = colour(draw.GROUPS[0])
    assert near(cell(picture, 0, 1), full)
    assert near(cell(picture, 1, 0), cell(picture, 1, 1))
    assert sum(full) < sum(cell(picture, 1, 0)) < sum(cell(picture, 0, 0))
    assert near(cell(picture, 1, 2), colour(draw.PAPER)), "an illegal action has no cell"
    ground = np.asarray(bare) == np.array(colour(draw.GRASS))
    assert ground.any()
    assert np.array_equal(np.asarray(picture)[:, : bare.width][ground], np.asarray(bare)[ground]), (
        "the picture itself is unchanged"
    )


def test_the_action_taken_is_framed_and_the_panel_is_blank_without_an_overlay():
    framed, other, blank = draw.pictures([bodies()] * 3, [""] * 3, [overlay(), overlay(action=np.array([2, 0])), None])
    changed = np.argwhere((np.asarray(framed) != np.asarray(other)).any(-1))
    side, left = 18, framed.width - draw.PANEL + 12 + draw.NAMES
    assert len(changed)
    assert changed[:, 0].min() >= draw.HEADER - 1
    assert changed[:, 0].max() <= draw.HEADER + side, "only the first agent's row"
    assert changed[:, 1].min() >= left + side - 2, "only its actions 1 and 2"
    beside = np.asarray(blank)[:, -draw.PANEL :]
    assert (beside == np.array(colour(draw.PAPER))).all()


def test_bodies_are_numbered_like_rows_if_the_whole_team_are_agents():
    scene = bodies(mark=np.array([ord("s"), ord("z"), ord("z"), 0]))
    assert draw.agent_numbers(scene, 2) == {0: "0", 1: "1"}
    assert draw.row_names(scene, 2) == ["0 s", "1 z"]
    assert draw.agent_numbers(scene, 1) == {}, "a football team of two with one agent: its body is unknown"
    assert draw.row_names(scene, 1) == ["0"]
    lettered, numbered = draw.pictures([scene], [""])[0], draw.pictures([scene], [""], [overlay()])[0]
    assert not np.array_equal(np.asarray(lettered), np.asarray(numbered)[:, : draw.SIZE])


def test_preferences_scale_q_values_from_the_worst_legal_action_to_the_best():
    q = jnp.array([[-3.0, 1.0, 9.0, 5.0], [2.0, 2.0, 2.0, 7.0]])
    avail = jnp.array([[True, True, False, True], [True, True, True, False]])
    np.testing.assert_allclose(exploration.preference(q, avail), [[0.0, 0.5, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])


def observation_of(spec, num_envs=2) -> Observation:
    keys = jax.random.split(jax.random.key(5), 2)
    avail = jnp.ones((num_envs, spec.num_agents, spec.num_actions), bool).at[0, 0, 1].set(False)
    return Observation(
        jax.random.normal(keys[0], (num_envs, spec.num_agents, spec.obs_dim)),
        jax.random.normal(keys[1], (num_envs, *spec.state_shape)),
        avail,
        jnp.ones((num_envs, spec.num_agents), bool),
    )


@pytest.mark.parametrize("kind", ["monotone", "sum"])
def test_the_value_of_a_q_learner_is_the_mixed_value_of_the_best_legal_actions_in_units_of_the_return(kind):
    spec = base.make("mpe/simple_spread").spec
    hyper = Qmix(mixer=kind, reward_scale=4.0)
    seen = observation_of(spec)
    q = jax.random.normal(jax.random.key(1), seen.avail.shape)
    mixer = mixers.mixer_init(jax.random.key(2), kind, spec, 8, 8)
    preference, value = exploration.judged(hyper, mixer, q, seen)
    best = np.where(seen.avail, q, -np.inf).max(-1)
    expected = mixers.mix(mixer, jnp.asarray(best), seen.state) if kind == "monotone" else best.sum(-1)
    np.testing.assert_allclose(value, np.asarray(expected) / 4.0, rtol=1e-5)
    np.testing.assert_array_equal(preference, exploration.preference(q, seen.avail))


@pytest.mark.parametrize("value_norm", [True, False])
def test_preferences_of_an_actor_are_probabilities_and_its_value_is_in_units_of_the_return(value_norm):
    env = base.make("mpe/simple_spread")
    config = configure("mappo", "mpe/simple_spread", {"hidden": 8, "value_norm": value_norm})
    algorithm = algos.make(config, env.spec)
    state = algorithm.init(jax.random.key(0))
    state = state._replace(value_norm=normalise.value_norm_update(state.value_norm, jnp.array([10.0, 30.0])))
    seen, memory = observation_of(env.spec), algorithm.memory(2)
    decision = algorithm.act(state, memory, seen, jax.random.key(1), True)
    np.testing.assert_allclose(decision.preference.sum(-1), 1.0, rtol=1e-5)
    assert float(decision.preference[0, 0, 1]) == 0.0, "an illegal action"
    np.testing.assert_array_equal(decision.preference.argmax(-1), decision.action)
    raw, _ = critics.value_step(state.critic, memory.critic, seen.state)
    expected = 20.0 + 10.0 * np.asarray(raw) if value_norm else np.asarray(raw)
    np.testing.assert_allclose(decision.value, expected, rtol=1e-4)


@pytest.mark.parametrize("algo", ["grasp-mappo", "qmix"])
def test_there_is_an_overlay_for_every_step_and_none_for_the_last_state(algo):
    env = base.make("matrix/climbing")
    config = configure(algo, "matrix/climbing", {"hidden": 8})
    algorithm = algos.make(config, env.spec)
    state = algorithm.init(jax.random.key(0))
    plain, with_overlays = (film.record(env, algorithm, state, jax.random.key(3), 2, overlay=j) for j in (False, True))
    for without, episode in zip(plain, with_overlays, strict=True):
        assert without.overlays == []
        assert len(episode.overlays) == len(episode.reward) == len(episode.scenes) - 1
        np.testing.assert_array_equal(episode.reward, without.reward)
        assert episode.overlays[0].preference.shape == (2, 3)
    frames = film.frames(env.spec, with_overlays)
    assert len({frame.picture.size for frame in frames}) == 1
    assert frames[0].picture.width == film.frames(env.spec, plain)[0].picture.width + draw.PANEL


def test_the_command_draws_overlays_of_the_best_and_of_any_checkpoint(here, finished, capsys):
    for options in ([], ["--checkpoint", "0"]):
        assert cli.main(["play", str(finished), "--overlay", *options]) == 0
        with Image.open(here / "episode.gif") as with_overlay:
            wide = with_overlay.size[0]
        assert cli.main(["play", str(finished), *options]) == 0
        with Image.open(here / "episode.gif") as without:
            assert wide == without.size[0] + draw.PANEL
    assert "1 episode" in capsys.readouterr().out


def test_overlays_of_snapshots_without_a_critic_are_refused_in_one_sentence(tmp_path):
    run = grasp.train("mappo", "matrix/climbing", out=tmp_path / "old", **TINY)
    from grasp.runs import checkpoint

    for path in checkpoint.stored(run.snapshots(0)):  # the format before overlays existed
        arrays, _ = checkpoint.read(path)
        kept = {name: array for name, array in arrays.items() if "actor" in name}
        path.write_bytes(checkpoint.serialise(kept, {"digest": checkpoint.digest(kept)}))
    with pytest.raises(grasp.GraspError, match=r"does not fit its run's configuration: .*critic.* is missing"):
        grasp.play(run.path, out=tmp_path / "film.gif", overlay=True)
    assert not (tmp_path / "film.gif").exists()


def test_100_states_of_the_largest_battle_are_drawn_in_five_seconds(tmp_path):
    env = base.make("skirmish/27m_vs_30m")
    assert env.scene is not None
    scene = jax.device_get(env.scene(env.reset(jax.random.key(0))[0]))
    moved = [scene._replace(position=scene.position + np.float32(0.02 * k)) for k in range(100)]
    began = time.process_time()
    film.save([film.Frame(p, 40) for p in draw.pictures(moved, [""] * 100)], tmp_path / "film.gif")
    assert time.process_time() - began < 5
