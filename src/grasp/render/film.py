"""Episodes of a policy as a film."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from PIL import Image

from grasp.render import draw
from grasp.render.draw import Thought
from grasp.types import Algorithm, Bodies, Decision, Env, EnvSpec, GraspError, Key, Observation, PyTree

STEP_MS, LAST_MS = 120, 1600
"""How long a moment is shown, and the last one."""
SHORTEST_MS = 1200
"""How long the moments before the last take at least: a matrix game has one of them, and it is all there is to see."""
MOST_ENDS = 8
"""Ends of episodes whose colours a GIF is sure to have."""
COLOURS = 64
"""Of a GIF: few enough to keep it small."""
STRIPS = {"WON": draw.HEALING, "LOST": draw.GROUPS[1], "TIME IS UP": draw.GROUPS[2]}
"""The colour behind the last words of an episode."""


class Episode(NamedTuple):
    """What was seen from reset to end; T steps have T + 1 moments."""

    scenes: list[Any]
    reward: Float[np.ndarray, " T"]
    won: bool
    truncated: bool
    thoughts: list[Thought]
    """What the team made of every moment but the last; empty where nobody asked."""


class Frame(NamedTuple):
    picture: Image.Image
    milliseconds: int


class _Moments(NamedTuple):
    scene: PyTree
    thought: Thought
    reward: Float[jax.Array, " T"]
    terminated: Bool[jax.Array, " T"]
    truncated: Bool[jax.Array, " T"]
    won: Bool[jax.Array, " T"]


def record(
    env: Env, algorithm: Algorithm, state: PyTree, key: Key, episodes: int = 1, judging: bool = False
) -> list[Episode]:
    """Greedy episodes. Each is played to the limit in one program and cut where it ended."""
    if env.scene is None:
        raise not_drawn(env.spec)
    scene = env.scene

    def step(carry: Any, step_key: Key) -> tuple[Any, _Moments]:
        env_state, observation, memory = carry
        act_key, env_key = jax.random.split(step_key)
        decision = algorithm.act(state, memory, jax.tree.map(lambda v: v[None], observation), act_key, True)
        env_state, after = env.step(env_state, decision.action[0], env_key)
        thought = thought_of(jax.tree.map(lambda v: v[0], decision), observation)
        moment = _Moments(scene(env_state), thought, after.reward, after.terminated, after.truncated, after.won)
        return (env_state, after.observation, decision.memory), moment

    @jax.jit
    def play(key: Key) -> tuple[PyTree, _Moments]:
        reset_key, play_key = jax.random.split(key)
        env_state, observation = env.reset(reset_key)
        keys = jax.random.split(play_key, env.spec.horizon)
        return scene(env_state), jax.lax.scan(step, (env_state, observation, algorithm.memory(1)), keys)[1]

    played = [jax.device_get(play(episode_key)) for episode_key in jax.random.split(key, episodes)]
    return [_cut(first, moments, judging) for first, moments in played]


def not_drawn(spec: EnvSpec) -> GraspError:
    return GraspError(f"{spec.name} cannot be drawn: give its environment a `scene` (see grasp.types.Bodies)")


def thought_of(decision: Decision, observation: Observation) -> Thought:
    """A decision as it is shown."""
    return Thought(decision.preference, observation.avail & observation.alive[:, None], decision.action, decision.value)


def _cut(first: PyTree, moments: _Moments, judging: bool) -> Episode:
    length = int(np.argmax(moments.terminated | moments.truncated)) + 1
    later = [jax.tree.map(lambda v, t=t: v[t], moments.scene) for t in range(length)]
    reward, end = np.asarray(moments.reward[:length]), length - 1
    thoughts = [jax.tree.map(lambda v, t=t: v[t], moments.thought) for t in range(length)] if judging else []
    return Episode([first, *later], reward, bool(moments.won[end]), bool(moments.truncated[end]), thoughts)


def frames(spec: EnvSpec, episodes: list[Episode]) -> list[Frame]:
    """One episode after another, seen by one camera."""
    scenes = [scene for episode in episodes for scene in with_fallen(episode.scenes)]
    captions = [caption for episode in episodes for caption in _captions(spec, episode)]
    thoughts = [thought for episode in episodes for thought in (*episode.thoughts, None)] if _judged(episodes) else None
    strips = [draw.PAPER] * len(scenes)
    for end, episode in zip(np.cumsum([len(e.scenes) for e in episodes]), episodes, strict=True):
        strips[end - 1] = STRIPS[_verdict(episode)] if spec.has_wins else draw.PAPER
    pictures = draw.pictures(scenes, captions, thoughts, strips)
    lasting = [ms for e in episodes for ms in [_pace(len(e.reward))] * len(e.reward) + [LAST_MS]]
    return [Frame(*pair) for pair in zip(pictures, lasting, strict=True)]


def with_fallen(scenes: list[Any]) -> list[Any]:
    """Battles with those marked who were seen before and are no longer, where they were seen last."""
    if not scenes or not isinstance(scenes[0], Bodies) or scenes[0].health is None:
        return scenes
    seen, place, marked = np.zeros_like(scenes[0].shown), np.asarray(scenes[0].position), []
    for scene in scenes:
        seen, place = seen | scene.shown, np.where(scene.shown[:, None], scene.position, place)
        marked.append(scene._replace(position=place, fallen=seen & ~scene.shown))
    return marked


def _pace(steps: int) -> int:
    return max(STEP_MS, SHORTEST_MS // steps)


def _judged(episodes: list[Episode]) -> bool:
    return any(episode.thoughts for episode in episodes)


def _captions(spec: EnvSpec, episode: Episode) -> list[str]:
    total = np.concatenate([[0.0], np.cumsum(episode.reward)])
    steps = len(episode.reward)
    lines = [f"{spec.name}    step {t} of {steps}    return {total[t]:.2f}" for t in range(steps + 1)]
    if spec.has_wins:
        lines[-1] += f"    {_verdict(episode)}"
    return lines


def _verdict(episode: Episode) -> str:
    return "WON" if episode.won else "TIME IS UP" if episode.truncated else "LOST"


def save(shown: list[Frame], path: Path) -> None:
    """The film as a .gif, or as an .mp4 where ffmpeg exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}")  # so that a film that was there stays whole until the new one is
    (save_mp4 if path.suffix == ".mp4" else save_gif)(shown, part)
    part.replace(path)


def save_gif(shown: list[Frame], path: Path) -> None:
    # One palette for all: pictures that differ little then differ in few pixels, and text does not flicker.
    ends = [k for k, frame in enumerate(shown) if frame.milliseconds == LAST_MS][-MOST_ENDS:]
    typical = (0, len(shown) // 3, 2 * len(shown) // 3, -1, *ends)
    palette = _strip([shown[k].picture for k in typical]).quantize(COLOURS)
    flat = [frame.picture.quantize(palette=palette, dither=Image.Dither.NONE) for frame in shown]
    lasting = [frame.milliseconds for frame in shown]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=lasting, loop=0, optimize=False)


def _strip(pictures: list[Image.Image]) -> Image.Image:
    """Pictures of one size side by side."""
    width, height = pictures[0].size
    strip = Image.new("RGB", (width * len(pictures), height))
    for k, picture in enumerate(pictures):
        strip.paste(picture, (k * width, 0))
    return strip


def save_mp4(shown: list[Frame], path: Path) -> None:
    """Every picture is repeated for as long as it lasts, at a steady rate."""
    width, height = shown[0].picture.size
    rate = f"{1000 / STEP_MS:.3f}"
    command = ["ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", rate, "-i", "-", "-vf", "crop=trunc(iw/2)*2:trunc(ih/2)*2", "-pix_fmt", "yuv420p", str(path)]
    pixels = b"".join(frame.picture.tobytes() * max(1, frame.milliseconds // STEP_MS) for frame in shown)
    if subprocess.run(command, input=pixels, check=False).returncode:
        raise GraspError("ffmpeg could not make the film (its words are above); write a .gif instead")


def check_path(path: Path) -> None:
    """Refuse what cannot be written before anything is played."""
    if path.suffix not in (".gif", ".mp4"):
        raise GraspError(f"a film is a .gif or an .mp4, not '{path.name}'; type: --out {path.stem or 'episode'}.gif")
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise GraspError(f"an .mp4 needs ffmpeg, which is not installed; type: --out {path.with_suffix('.gif')}")
