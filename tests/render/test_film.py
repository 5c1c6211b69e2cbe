"""Films of episodes: recording, drawing, and `grasp play`."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from film_scenes import bodies, colour, near
from PIL import Image

import grasp
from grasp import cli
from grasp.envs import base
from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish.state import ATTACK, MOVE, SCRIPT, STOP
from grasp.render import draw, film
from grasp.types import Algorithm, Bodies, Decision, Env, GraspError

PAPER = colour(draw.GRASS)


def constant_policy(action) -> Algorithm:
    """A team that always takes the same joint action and counts steps in its memory."""

    def act(state, memory, observation, key, greedy):
        assert greedy
        return Decision(jnp.asarray(action)[None], memory + 1, ())

    nothing = lambda *_: ()  # noqa: E731
    return Algorithm(nothing, lambda num_envs: jnp.zeros(num_envs), act, nothing, ())


def at(picture: Image.Image, scene: Bodies, point) -> tuple[int, ...]:
    """The picture's colour at a point of the plane."""
    x, y = draw.window([scene]).pixel(np.asarray(point, np.float32))
    return picture.getpixel((int(x / draw.SUPERSAMPLING), int(y / draw.SUPERSAMPLING)))


def test_bodies_are_drawn_at_their_positions_in_the_colour_of_their_group():
    scene = bodies()
    (picture,) = draw.pictures([scene], ["header"])
    for point, name in zip(scene.position, [draw.GROUPS[g] for g in scene.group], strict=True):
        assert near(at(picture, scene, point), colour(name)), point
    assert near(at(picture, scene, (0.0, 3.0)), PAPER)
    header = np.asarray(picture)[: draw.HEADER]
    assert (header < 128).any(), "the header is not drawn"


def test_hidden_bodies_are_not_drawn_and_do_not_move_the_camera():
    hidden = bodies(shown=np.array([True, True, True, False]))
    far = hidden._replace(position=hidden.position + np.array([[0, 0], [0, 0], [0, 0], [500, 0]], np.float32))
    pictures = [draw.pictures([scene], [""])[0] for scene in (hidden, far)]
    assert np.array_equal(*(np.asarray(p) for p in pictures))
    assert near(at(pictures[0], hidden, (5.0, 1.0)), PAPER)


def test_things_are_drawn_over_agents_and_agents_over_enemies():
    same = np.zeros((3, 2), np.float32)
    radius = np.array([1.0, 1.0, 0.4], np.float32)
    scene = Bodies(same, radius, np.array([0, 1, 2]), np.ones(3, bool))
    (picture,) = draw.pictures([scene], [""])
    assert near(at(picture, scene, (0.0, 0.0)), colour(draw.GROUPS[2]))
    assert near(at(picture, scene, (0.7, 0.0)), colour(draw.GROUPS[0]))


def test_health_fills_a_body_from_below():
    half = bodies(health=np.array([0.5, 1.0, 0.0, 1.0], np.float32))
    (picture,) = draw.pictures([half], [""])
    full, faint = colour(draw.GROUPS[0]), colour(draw.tint(draw.GROUPS[0]))
    assert near(at(picture, half, (0.0, -0.25)), full)
    assert near(at(picture, half, (0.0, 0.25)), faint)
    assert near(at(picture, half, (10.0, 0.25)), full)
    assert near(at(picture, half, (5.0, -0.25)), colour(draw.tint(draw.GROUPS[1])))


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.013, 0.2, 0.5, 0.87, 0.9999, 1.0])
def test_the_filled_part_lies_inside_the_disc(level):
    points = np.array(draw.segment(3.0, 4.0, 2.0, level))
    assert np.hypot(*(points - [3.0, 4.0]).T).max() <= 2.0 + 1e-9
    assert points[:, 1].min() == pytest.approx(4.0 + 2.0 * (1 - 2 * level), abs=1e-6), "y points down in pictures"


def test_a_line_leads_to_the_target_green_within_a_team():
    aims = bodies(position=np.array([[0, 0], [10, 0], [10, 6], [0, 6]], np.float32), target=np.array([2, 0, -1, -1]))
    (picture,) = draw.pictures([aims], [""])
    plain = draw.pictures([aims._replace(target=None)], [""])[0]
    assert near(at(plain, aims, (5.0, 3.0)), PAPER)
    assert not near(at(picture, aims, (5.0, 3.0)), PAPER)
    assert near(at(picture, aims, (5.0, 0.0)), colour(draw.HEALING))
    assert near(at(picture, aims, (5.0, 6.0)), PAPER)


def test_an_episode_has_one_scene_more_than_steps():
    env = base.make("matrix/climbing")
    (episode,) = film.record(env, constant_policy([1, 2]), (), jax.random.key(0))
    assert [tuple(scene.action) for scene in episode.scenes] == [(-1, -1), (1, 2)]
    np.testing.assert_array_equal(episode.reward, [6.0])
    before, after = (frame.picture for frame in film.frames(env.spec, [episode]))
    assert [frame.milliseconds for frame in film.frames(env.spec, [episode])] == [
        film.SHORTEST_MS, film.LAST_MS,
    ], "a single step is shown long enough"  # fmt: skip
    framed = np.any(np.asarray(before) != np.asarray(after), axis=-1)[draw.HEADER :]
    rows, columns = np.nonzero(framed)
    cell = draw.SIZE / 5
    assert rows.mean() == pytest.approx(3 * cell, abs=4), "the frame is around row 1"
    assert columns.mean() == pytest.approx(4 * cell, abs=4), "the frame is around column 2"


def battle(shown, won=False, truncated=False) -> film.Episode:
    """An episode of `bodies`; those not in `shown` die in its last step."""
    start = bodies(health=np.ones(4, np.float32))
    end = start._replace(position=start.position + 1, shown=np.array(shown))
    return film.Episode([start, end], np.zeros(1), won, truncated, [])


def test_a_cross_marks_the_last_position_of_a_dead_body():
    env = base.make("skirmish/3m")
    fallen, all_there = battle([True, False, True, True]), battle([True] * 4)
    pictures = [film.frames(env.spec, [fallen, episode])[1].picture for episode in (fallen, all_there)]
    scene = fallen.scenes[0]._replace(lines=np.array([[[0, 0], [11, 7]]], np.float32))  # the same view
    assert near(at(pictures[1], scene, [10.0, 0.0]), colour(draw.tint(draw.GROUPS[0], 0.45)))
    assert not film.with_fallen(all_there.scenes)[1].fallen.any()
    assert film.with_fallen(fallen.scenes)[1].fallen.tolist() == [False, True, False, False]
    fresh = film.with_fallen([fallen.scenes[1], fallen.scenes[1]])
    assert not fresh[1].fallen.any(), "a body never shown is not dead"


def test_the_result_of_a_battle_has_a_coloured_background_in_the_gif_too(tmp_path):
    env = base.make("skirmish/3m")
    there = [True] * 4
    ends = {"WON": battle(there, won=True), "LOST": battle(there), "TIME LIMIT": battle(there, truncated=True)}
    frames = film.frames(env.spec, list(ends.values()))
    film.save_gif(frames, tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as saved:
        for k, result in enumerate(ends):
            saved.seek(2 * k + 1)
            for picture in (frames[2 * k + 1].picture, saved.convert("RGB")):
                assert near(picture.getpixel((draw.SIZE - 5, 5)), colour(film.RESULT_COLOURS[result]))
    assert frames[0].picture.getpixel((draw.SIZE - 5, 5)) == colour(draw.PAPER)


def test_the_film_of_a_battle_shows_the_states_of_the_environment():
    """The scenes equal those of stepping the environment directly with the same keys."""
    env = base.make("skirmish/3m?cooldown_noise=false")
    (episode,) = film.record(env, constant_policy([1, 1, 1]), (), jax.random.key(5))
    reset_key, _ = jax.random.split(jax.random.split(jax.random.key(5), 1)[0])
    env_state, _ = env.reset(reset_key)
    step = jax.jit(env.step)
    total = 0.0
    for scene in episode.scenes[1:]:
        env_state, after = step(env_state, jnp.ones(3, jnp.int32), jax.random.key(0))
        np.testing.assert_allclose(scene.position[:, 0], env_state.battle.x, atol=1e-4)
        np.testing.assert_allclose(scene.health * 45, env_state.battle.hp, atol=1e-3)
        np.testing.assert_array_equal(scene.shown, np.asarray(env_state.battle.hp) > 0)
        total += float(after.reward)
    assert bool(after.terminated), "the film ends with the battle"
    assert not episode.won
    assert sum(episode.reward) == pytest.approx(total)
    assert film._captions(env.spec, episode)[-1].endswith("LOST")
    assert film._captions(env.spec, episode._replace(won=True))[-1].endswith("WON")
    assert film._captions(env.spec, episode._replace(truncated=True))[-1].endswith("TIME LIMIT")
    assert "step 0 of" in film._captions(env.spec, episode)[0]


def test_skirmish_scenes_have_targets():
    scenario = skirmish.scenario_of("MMM")
    env_state, _ = skirmish.reset(scenario, jax.random.key(0))
    order = jnp.array([ATTACK, MOVE, STOP, *[ATTACK] * 7, *[SCRIPT] * 10])
    target = jnp.arange(20)[::-1]
    shown = skirmish.scene(scenario, env_state._replace(battle=env_state.battle._replace(order=order, target=target)))
    np.testing.assert_array_equal(shown.target, np.where(np.isin(np.arange(20), [1, 2]), -1, np.arange(20)[::-1]))
    np.testing.assert_array_equal(shown.group, [0] * 10 + [1] * 10)
    assert sorted(map(chr, np.asarray(shown.mark[:10]))) == sorted("mmmmmmmMM+")
    assert shown.shield is None


def test_smax_scenes_have_the_targets_that_jaxmarl_computes():
    env = base.make("smax/3m")
    env_state, _ = env.reset(jax.random.key(0))
    units = env_state.inner.state.replace(prev_attack_actions=jnp.array([5, 6, 0, 5, 7, 4]))
    inner = env_state.inner.replace(state=units)
    assert env.scene is not None
    shown = env.scene(env_state._replace(inner=inner))
    np.testing.assert_array_equal(shown.target, [3, 4, -1, 2, 0, -1])
    np.testing.assert_array_equal(shown.group, [0, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(shown.health, np.ones(6))


def test_mpe_scenes_have_numbered_agents_and_landmarks_as_things():
    env = base.make("mpe/simple_spread")
    assert env.scene is not None
    shown = env.scene(env.reset(jax.random.key(0))[0])
    np.testing.assert_array_equal(shown.group, [0, 0, 0, 2, 2, 2])
    assert [chr(mark) if mark else "" for mark in np.asarray(shown.mark)] == ["0", "1", "2", "", "", ""]


def test_a_saved_film_can_be_read(tmp_path):
    shown = [film.Frame(p, 40) for p in draw.pictures([bodies(), bodies(shown=np.array([1, 1, 0, 1], bool))], ["", ""])]
    film.save(shown, tmp_path / "deep" / "film.gif")
    with Image.open(tmp_path / "deep" / "film.gif") as read:
        assert (read.n_frames, read.size) == (2, shown[0].picture.size)  # pyright: ignore[reportAttributeAccessIssue]
        read.seek(1)
        assert near(at(read.convert("RGB"), bodies(), (5.0, 0.0)), PAPER)


def test_a_failed_save_keeps_the_existing_file(tmp_path, monkeypatch):
    def fails(shown, path):
        path.write_bytes(b"half")
        raise OSError("the disk is full")

    old = tmp_path / "film.gif"
    old.write_bytes(b"whole")
    monkeypatch.setattr(film, "save_gif", fails)
    with pytest.raises(OSError, match="the disk is full"):
        film.save([film.Frame(p, 40) for p in draw.pictures([bodies()], [""])], old)
    assert old.read_bytes() == b"whole"


def test_loading_an_unknown_seed_is_refused(finished):
    with pytest.raises(GraspError, match="has no seed 7; it has 0, 1"):
        grasp.load(finished, seed=7)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_an_mp4_is_written_where_ffmpeg_exists(tmp_path):
    film.save([film.Frame(p, 240) for p in draw.pictures([bodies()], [""])], tmp_path / "film.mp4")
    assert (tmp_path / "film.mp4").stat().st_size > 500


def test_the_command_writes_a_film_of_the_requested_policy(here, finished, capsys):
    assert (
        cli.main(["play", str(finished), "--out", "a/film.gif", "--seed", "1", "--checkpoint", "0", "--episodes", "3"])
        == 0
    )
    assert capsys.readouterr().out == "a/film.gif: 3 episodes, 3 steps\n"
    with Image.open(here / "a" / "film.gif") as read:
        assert read.n_frames >= 4  # pyright: ignore[reportAttributeAccessIssue]  # equal neighbours may be joined
    best, first = (grasp.play(finished, out=here / "b.gif", checkpoint=when) for when in (None, 0))
    assert len(best) == len(first) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--out", "film.avi"], "a film must be a .gif or an .mp4, not 'film.avi'; type: --out film.gif"),
        (["--seed", "7"], "has no seed 7; it has 0, 1"),
        (["--seed", "-1"], "seed must be at least 0, not -1"),
        (["--checkpoint", "77"], "has no snapshot at 77 steps; it has"),
        (["--episodes", "101"], "episodes must lie between 1 and 100, not 101"),
    ],
)
def test_errors_of_the_command_are_one_sentence(here, finished, capsys, options, sentence):
    assert cli.main(["play", str(finished), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_an_mp4_without_ffmpeg_is_refused_with_an_alternative(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(GraspError, match=r"an \.mp4 needs ffmpeg, which is not installed; type: --out film\.gif"):
        film.check_path(film.Path("film.mp4"))


def test_an_environment_without_a_scene_is_refused():
    env = base.make("matrix/climbing")
    with pytest.raises(GraspError, match="matrix/climbing cannot be drawn"):
        film.record(Env(*env[:3]), constant_policy([0, 0]), (), jax.random.key(0))


def test_lines_on_the_ground_are_drawn_below_the_bodies_and_widen_the_view():
    lines = np.array([[[-10.0, 3.0], [20.0, 3.0]], [[0.0, 0.0], [10.0, 0.0]]], np.float32)
    scene = bodies(lines=lines)
    (picture,) = draw.pictures([scene], [""])
    for point in ((-9.0, 3.0), (2.5, 0.0)):
        assert not near(at(picture, scene, point), PAPER)
        assert near(at(picture, scene, (point[0], point[1] + 1)), PAPER)
    assert near(at(picture, scene, (5.0, 0.0)), colour(draw.GROUPS[1])), "bodies are drawn over lines"


def test_football_scenes_are_in_metres_with_the_own_goal_left_and_y_up():
    from grasp.envs import football

    state = np.zeros(116, np.float32)
    state[:88] = -1
    state[0:4] = [-1.0, 0.0, 0.5, 0.42]
    state[44:46] = [1.0, -0.42]
    state[88:91] = [0.25, 0.1, 2.0]
    state[football.adapter.ACTIVE + 1] = 1
    shown = football.scene(state)
    there = np.nonzero(shown.shown)[0].tolist()
    assert there == [0, 1, 11, 22]
    expected = [[-54.4, 0.0], [27.2, -35.112], [54.4, 35.112], [13.6, -8.36]]
    np.testing.assert_allclose(np.asarray(shown.position)[there], expected, atol=1e-3)
    assert [int(shown.group[k]) for k in there] == [0, 0, 1, 2]
    assert shown.health is not None
    assert [float(shown.health[k]) for k in there] == [0.0, 1.0, 1.0, 1.0], "only players of agents are filled"
    assert shown.lines is not None
    np.testing.assert_allclose(np.abs(shown.lines).max((0, 1)), [56.4, 35.112], atol=1e-3)
