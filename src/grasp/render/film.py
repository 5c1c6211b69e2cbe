"""Play episodes of a policy and save them as a film."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from PIL import Image

from grasp.render import draw
from grasp.render.draw import Overlay
from grasp.types import Algorithm, Bodies, Decision, Env, EnvSpec, GraspError, Key, Observation, PyTree

STEP_MS, LAST_MS = 120, 1600
"""Duration of a frame, and of an episode's last one."""
SHORTEST_MS = 1200
"""Minimum duration of an episode before its last frame: a matrix game has one step."""
MOST_LAST_FRAMES = 8
"""Last frames of episodes that contribute to a GIF's palette."""
COLOURS = 64
"""In a GIF: few, so that the file is small."""
RESULT_COLOURS = {"WON": draw.HEALING, "LOST": draw.GROUPS[1], "TIME LIMIT": draw.GROUPS[2]}
"""Background of an episode's last header, by result."""


class Episode(NamedTuple):
    """One episode of T steps and T + 1 scenes."""

    scenes: list[Any]
    reward: Float[np.ndarray, " T"]
    won: bool
    truncated: bool
    overlays: list[Overlay]
    """Of every scene but the last; empty unless requested."""

    @property
    def thoughts(self) -> list[Overlay]:
        """`overlays`, by its name in version 0.1."""
        return self.overlays


class Frame(NamedTuple):
    picture: Image.Image
    milliseconds: int


class _Steps(NamedTuple):
    scene: PyTree
    overlay: Overlay
    reward: Float[jax.Array, " T"]
    terminated: Bool[jax.Array, " T"]
    truncated: Bool[jax.Array, " T"]
    won: Bool[jax.Array, " T"]


def record(
    env: Env, algorithm: Algorithm, state: PyTree, key: Key, episodes: int = 1, overlay: bool = False
) -> list[Episode]:
    """Greedy episodes. One compiled program plays each up to the time limit; steps after its end are dropped."""
    if env.scene is None:
        raise cannot_draw(env.spec)
    scene = env.scene

    def step(carry: Any, step_key: Key) -> tuple[Any, _Steps]:
        env_state, observation, memory = carry
        act_key, env_key = jax.random.split(step_key)
        decision = algorithm.act(state, memory, jax.tree.map(lambda v: v[None], observation), act_key, True)
        env_state, after = env.step(env_state, decision.action[0], env_key)
        seen = overlay_of(jax.tree.map(lambda v: v[0], decision), observation)
        result = _Steps(scene(env_state), seen, after.reward, after.terminated, after.truncated, after.won)
        return (env_state, after.observation, decision.memory), result

    @jax.jit
    def play(key: Key) -> tuple[PyTree, _Steps]:
        reset_key, play_key = jax.random.split(key)
        env_state, observation = env.reset(reset_key)
        keys = jax.random.split(play_key, env.spec.horizon)
        return scene(env_state), jax.lax.scan(step, (env_state, observation, algorithm.memory(1)), keys)[1]

    played = [jax.device_get(play(episode_key)) for episode_key in jax.random.split(key, episodes)]
    return [_episode(first, steps, overlay) for first, steps in played]


def cannot_draw(spec: EnvSpec) -> GraspError:
    return GraspError(f"{spec.name} cannot be drawn; give its environment a `scene` (see grasp.types.Bodies)")


def overlay_of(decision: Decision, observation: Observation) -> Overlay:
    """The part of a decision that the overlay shows."""
    return Overlay(decision.preference, observation.avail & observation.alive[:, None], decision.action, decision.value)


def _episode(first: PyTree, steps: _Steps, overlay: bool) -> Episode:
    """The steps up to the first that terminated or was truncated."""
    length = int(np.argmax(steps.terminated | steps.truncated)) + 1
    at = lambda tree, t: jax.tree.map(lambda v: v[t], tree)  # noqa: E731
    scenes = [first, *(at(steps.scene, t) for t in range(length))]
    overlays = [at(steps.overlay, t) for t in range(length)] if overlay else []
    last = length - 1
    return Episode(
        scenes, np.asarray(steps.reward[:length]), bool(steps.won[last]), bool(steps.truncated[last]), overlays
    )


def frames(spec: EnvSpec, episodes: list[Episode]) -> list[Frame]:
    """The frames of all episodes, in one window."""
    scenes = [scene for episode in episodes for scene in with_fallen(episode.scenes)]
    captions = [caption for episode in episodes for caption in _captions(spec, episode)]
    has_overlays = any(episode.overlays for episode in episodes)
    overlays = [shown for episode in episodes for shown in (*episode.overlays, None)] if has_overlays else None
    backgrounds = [draw.PAPER] * len(scenes)
    for end, episode in zip(np.cumsum([len(e.scenes) for e in episodes]), episodes, strict=True):
        backgrounds[end - 1] = RESULT_COLOURS[_result(episode)] if spec.has_wins else draw.PAPER
    pictures = draw.pictures(scenes, captions, overlays, backgrounds)
    durations = [ms for e in episodes for ms in [_frame_ms(len(e.reward))] * len(e.reward) + [LAST_MS]]
    return [Frame(*pair) for pair in zip(pictures, durations, strict=True)]


def with_fallen(scenes: list[Any]) -> list[Any]:
    """Battles with `fallen` set: bodies that were shown before and are no longer, at their last position."""
    if not scenes or not isinstance(scenes[0], Bodies) or scenes[0].health is None:
        return scenes
    seen, position, marked = np.zeros_like(scenes[0].shown), np.asarray(scenes[0].position), []
    for scene in scenes:
        seen, position = seen | scene.shown, np.where(scene.shown[:, None], scene.position, position)
        marked.append(scene._replace(position=position, fallen=seen & ~scene.shown))
    return marked


def _frame_ms(steps: int) -> int:
    return max(STEP_MS, SHORTEST_MS // steps)


def _captions(spec: EnvSpec, episode: Episode) -> list[str]:
    total = np.concatenate([[0.0], np.cumsum(episode.reward)])
    steps = len(episode.reward)
    lines = [f"{spec.name}    step {t} of {steps}    return {total[t]:.2f}" for t in range(steps + 1)]
    if spec.has_wins:
        lines[-1] += f"    {_result(episode)}"
    return lines


def _result(episode: Episode) -> str:
    return "WON" if episode.won else "TIME LIMIT" if episode.truncated else "LOST"


def save(shown: list[Frame], path: Path) -> None:
    """Write a .gif, or an .mp4 where ffmpeg is installed. An existing file is replaced only by a complete one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}")
    (save_mp4 if path.suffix == ".mp4" else save_gif)(shown, part)
    part.replace(path)


def save_gif(shown: list[Frame], path: Path) -> None:
    """Write a GIF with one palette for all frames: similar frames differ in few pixels, and text does not flicker."""
    last = [k for k, frame in enumerate(shown) if frame.milliseconds == LAST_MS][-MOST_LAST_FRAMES:]
    typical = (0, len(shown) // 3, 2 * len(shown) // 3, -1, *last)
    palette = _side_by_side([shown[k].picture for k in typical]).quantize(COLOURS)
    flat = [frame.picture.quantize(palette=palette, dither=Image.Dither.NONE) for frame in shown]
    durations = [frame.milliseconds for frame in shown]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=False)


def _side_by_side(pictures: list[Image.Image]) -> Image.Image:
    """One picture of several that have the same size."""
    width, height = pictures[0].size
    joined = Image.new("RGB", (width * len(pictures), height))
    for k, picture in enumerate(pictures):
        joined.paste(picture, (k * width, 0))
    return joined


def save_mp4(shown: list[Frame], path: Path) -> None:
    """Write an MP4 at a constant rate, in which a frame is repeated for its duration."""
    width, height = shown[0].picture.size
    rate = f"{1000 / STEP_MS:.3f}"
    command = ["ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", rate, "-i", "-", "-vf", "crop=trunc(iw/2)*2:trunc(ih/2)*2", "-pix_fmt", "yuv420p", str(path)]
    pixels = b"".join(frame.picture.tobytes() * max(1, frame.milliseconds // STEP_MS) for frame in shown)
    if subprocess.run(command, input=pixels, check=False).returncode:
        raise GraspError("ffmpeg failed (its output is above); type: --out episode.gif")


def check_path(path: Path) -> None:
    """GraspError if the film cannot be written, before any episode is played."""
    if path.suffix not in (".gif", ".mp4"):
        raise GraspError(
            f"a film must be a .gif or an .mp4, not '{path.name}'; type: --out {path.stem or 'episode'}.gif"
        )
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise GraspError(f"an .mp4 needs ffmpeg, which is not installed; type: --out {path.with_suffix('.gif')}")
