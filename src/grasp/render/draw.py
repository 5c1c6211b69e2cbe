"""One moment of an environment as a picture.

What is drawn is said by the environment (`Env.scene`); how it is drawn is said here, once for all of them.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from PIL import Image, ImageDraw, ImageFont

from grasp.types import Bodies, GraspError, Table

SIZE, HEADER = 480, 28
FINER = 2
"""Everything is drawn so many times larger and then shrunk: that is what smooths edges."""
INK, PAINT, FAINT, PAPER, GRASS = "#333333", "#C4C4BC", "#DDDDDD", "#FFFFFF", "#F4F4F0"
# Okabe and Ito's colours: agents, enemies, things.
GROUPS = ("#0072B2", "#D55E00", "#8C8C8C")
DRAWN = (1, 0, 2)
"""When each group is drawn."""
SHIELD, HEALING = "#56B4E9", "#009E73"
MARGIN = 1.5
"""Radii of the largest body that are left free at the edges."""
FLATTEST = 0.4
"""The least height of a picture, as a share of its width."""


PANEL, NAMES = 200, 24
"""Width of what is shown beside a picture, and of the agents' names in it."""
LEGEND = ("a row an agent, a column an action:", "the darker the more it is for it,", "framed what it does")
NOTHING: Mapping[int, str] = MappingProxyType({})


class Thought(NamedTuple):
    """What the team makes of a moment: `grasp.types.Decision`, of one environment."""

    preference: Float[Array | np.ndarray, "*T N a"]
    avail: Bool[Array | np.ndarray, "*T N a"]
    action: Int[Array | np.ndarray, "*T N"]
    value: Float[Array | np.ndarray, "*V"]


class Window(NamedTuple):
    """The part of the plane that the picture shows."""

    left: float
    top: float
    scale: float
    """Pixels of the large picture a unit of the plane."""
    height: int
    """Of the picture, below its header."""

    def place(self, point: Float[Array | np.ndarray, " 2"]) -> tuple[float, float]:
        x, y = (float(v) for v in point)
        return (x - self.left) * self.scale, HEADER * FINER + (self.top - y) * self.scale


def window(scenes: list[Bodies]) -> Window:
    """The smallest that holds everything shown, in all of the moments: a camera that does not move."""
    where = np.concatenate(
        [np.asarray(scene.position)[np.asarray(scene.shown)] for scene in scenes]
        + [np.asarray(scene.lines).reshape(-1, 2) for scene in scenes if scene.lines is not None]
    )
    margin = MARGIN * max(float(scene.radius.max()) for scene in scenes)
    low, high = where.min(0) - margin, where.max(0) + margin
    (width, height), middle = high - low, (low + high) / 2
    width, height = max(width, height), max(height, width * FLATTEST)
    scale = SIZE * FINER / width
    return Window(
        float(middle[0] - width / 2), float(middle[1] + height / 2), float(scale), round(SIZE * height / width)
    )


def pictures(
    scenes: Sequence[Bodies | Table],
    headers: Sequence[str],
    thoughts: Sequence[Thought | None] | None = None,
    strips: Sequence[str] | None = None,
) -> list[Image.Image]:
    """A picture of every moment with a line above it, on a strip of that colour, and, where there are any, the team's
    thoughts beside it."""
    rows = max((len(thought.preference) for thought in thoughts or () if thought is not None), default=0)
    lines = list(zip(headers, strips or [PAPER] * len(headers), strict=True))
    bodies = [scene for scene in scenes if isinstance(scene, Bodies)]
    tables = [scene for scene in scenes if isinstance(scene, Table)]
    if len(bodies) == len(scenes):
        view = window(bodies)
        written = numbers(bodies[0], rows)
        drawn = [draw_bodies(scene, view, *line, written) for scene, line in zip(bodies, lines, strict=True)]
    elif len(tables) == len(scenes):
        drawn = [draw_table(scene, *line) for scene, line in zip(tables, lines, strict=True)]
    else:
        raise GraspError(f"a scene is a grasp.types.Bodies or Table, not a {type(scenes[0]).__name__}")
    if thoughts is not None:
        names = [names_of(scene, rows) for scene in scenes]
        drawn = [beside(*three) for three in zip(drawn, thoughts, names, strict=True)]
    return [large.resize((large.width // FINER, large.height // FINER), Image.Resampling.BOX) for large in drawn]


def numbers(scene: Bodies, rows: int) -> dict[int, str]:
    """What is written on the agents whose thoughts are shown: their row. Empty where it is not known, as with a
    football team of which only some are agents."""
    agents = np.flatnonzero(np.asarray(scene.group) == 0)
    return {int(k): str(row) for row, k in enumerate(agents)} if rows == len(agents) else {}


def names_of(scene: Bodies | Table, rows: int) -> list[str]:
    """The rows' names: the agent's number and, where bodies have one, the letter of its kind."""
    names = [str(row) for row in range(rows)]
    if isinstance(scene, Bodies) and scene.mark is not None:
        for k, row in numbers(scene, rows).items():
            letter = chr(int(scene.mark[k]))
            names[int(row)] += f" {letter}" if letter.isprintable() and not letter.isdigit() else ""
    return names


def beside(large: Image.Image, thought: Thought | None, names: Sequence[str]) -> Image.Image:
    """The picture with a row of cells for every agent, a cell an action: the more the agent is for it the darker, what
    it does framed, what it may not do left out. Above them the value of the moment."""
    wide = Image.new("RGB", (large.width + PANEL * FINER, large.height), PAPER)
    wide.paste(large, (0, 0))
    if thought is None:
        return wide
    pen = ImageDraw.Draw(wide)
    left, top = large.width + (12 + NAMES) * FINER, HEADER * FINER
    value = float(np.mean(thought.value))
    pen.text((large.width + 12 * FINER, top / 2), f"value {value:.2f}", fill=INK, font=font(13), anchor="lm")
    rows, columns = thought.preference.shape
    height = min((large.height - top - 8 * FINER) / rows, 18 * FINER)
    width = min((PANEL - NAMES - 20) * FINER / columns, 18 * FINER)
    letters = font(min(11, max(6, int(height / FINER) - 3)))
    for i, name in enumerate(names):
        where = (large.width + 12 * FINER, top + (i + 0.5) * height - 1)
        pen.text(where, name, fill=INK if thought.avail[i].any() else FAINT, font=letters, anchor="lm")
    explain(pen, large, float(top + rows * height))
    for i, j in np.ndindex(rows, columns):
        if not thought.avail[i, j]:
            continue
        box = (left + j * width, top + i * height, left + (j + 1) * width - 2, top + (i + 1) * height - 2)
        chosen = int(thought.action[i]) == j
        colour = tint(GROUPS[0], float(thought.preference[i, j]))
        pen.rectangle(box, fill=colour, outline=INK if chosen else FAINT, width=3 if chosen else 1)
    return wide


def explain(pen: ImageDraw.ImageDraw, large: Image.Image, top: float) -> None:
    """What the cells are, where there is room below them."""
    step = 14 * FINER
    if top + (len(LEGEND) + 0.5) * step > large.height:
        return
    for k, words in enumerate(LEGEND):
        pen.text((large.width + 12 * FINER, top + (k + 1) * step), words, fill=GROUPS[2], font=font(10), anchor="lm")


def canvas(header: str, height: int, strip: str = PAPER) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    large = Image.new("RGB", (SIZE * FINER, (height + HEADER) * FINER), GRASS)
    pen = ImageDraw.Draw(large)
    pen.rectangle((0, 0, SIZE * FINER, HEADER * FINER), fill=strip)
    ink = INK if strip == PAPER else PAPER
    pen.text((8 * FINER, HEADER * FINER / 2), header, fill=ink, font=font(13), anchor="lm")
    return large, pen


def draw_bodies(
    scene: Bodies, view: Window, header: str, strip: str = PAPER, written: Mapping[int, str] = NOTHING
) -> Image.Image:
    """The ground, who fell on it, who aims at whom, then the bodies: agents over enemies, and things, which are small,
    over both."""
    large, pen = canvas(header, view.height, strip)
    for line in () if scene.lines is None else scene.lines:
        pen.line([view.place(end) for end in line], fill=PAINT, width=2)
    for k in () if scene.fallen is None else np.flatnonzero(scene.fallen):
        draw_fallen(pen, scene, view, int(k))
    order = [k for k in np.argsort(np.array(DRAWN)[np.asarray(scene.group)], kind="stable") if scene.shown[k]]
    if scene.target is not None:
        for k in order:
            draw_aim(pen, scene, view, int(k))
    for k in order:
        draw_body(pen, scene, view, int(k), written.get(int(k), ""))
    return large


def draw_fallen(pen: ImageDraw.ImageDraw, scene: Bodies, view: Window, k: int) -> None:
    """A pale cross where a body died."""
    x, y = view.place(scene.position[k])
    arm = max(float(scene.radius[k]) * view.scale * 0.6, 6.0)
    for slope in (1, -1):
        ends = (x - arm, y - slope * arm, x + arm, y + slope * arm)
        pen.line(ends, fill=tint(GROUPS[int(scene.group[k])], 0.45), width=5)


def draw_aim(pen: ImageDraw.ImageDraw, scene: Bodies, view: Window, k: int) -> None:
    """A thin line to the target. Between friends it heals."""
    target = int(scene.target[k])  # pyright: ignore[reportOptionalSubscript]
    if target < 0 or not scene.shown[target]:
        return
    friends = scene.group[k] == scene.group[target]
    ends = [view.place(scene.position[end]) for end in (k, target)]
    pen.line(ends, fill=HEALING if friends else tint(GROUPS[int(scene.group[k])], 0.6), width=3)


def draw_body(pen: ImageDraw.ImageDraw, scene: Bodies, view: Window, k: int, written: str = "") -> None:
    """A disc, full up to its health, in a ring as long as its shield."""
    x, y = view.place(scene.position[k])
    radius = max(float(scene.radius[k]) * view.scale, 3.0)
    colour = GROUPS[int(scene.group[k])]
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=tint(colour), outline=colour, width=2)
    pen.polygon(segment(x, y, radius, 1.0 if scene.health is None else float(scene.health[k])), fill=colour)
    if scene.shield is not None and scene.shield[k] > 0:
        ring = radius + 4
        pen.arc((x - ring, y - ring, x + ring, y + ring), -90, -90 + 360 * float(scene.shield[k]), fill=SHIELD, width=4)
    mark = written or (chr(int(scene.mark[k])) if scene.mark is not None and scene.mark[k] else "")
    if mark and radius > 7 * FINER:
        pen.text((x, y), mark, fill=PAPER, font=font(11), anchor="mm", stroke_width=1, stroke_fill=INK)


def segment(x: float, y: float, radius: float, share: float) -> list[tuple[float, float]]:
    """The part of a disc below a level, as a polygon: Pillow's own chord draws flat ones across the whole picture."""
    half = float(np.arccos(np.clip(1 - 2 * share, -1, 1)))
    angles = np.linspace(np.pi / 2 - half, np.pi / 2 + half, 48)
    return [(x + radius * float(np.cos(angle)), y + radius * float(np.sin(angle))) for angle in angles]


def draw_table(scene: Table, header: str, strip: str = PAPER) -> Image.Image:
    """The payoffs, agent 0 down and agent 1 across, with the joint action framed."""
    large, pen = canvas(header, SIZE, strip)
    rows, columns = scene.payoff.shape
    cell = SIZE * FINER / (max(rows, columns) + 2)
    left, top = cell * 1.5, HEADER * FINER + cell * 1.5
    best = float(np.abs(scene.payoff).max())
    for i in range(rows):
        for j in range(columns):
            value = float(scene.payoff[i, j])
            box = (left + j * cell, top + i * cell, left + (j + 1) * cell, top + (i + 1) * cell)
            pen.rectangle(box, fill=tint(GROUPS[0] if value >= 0 else GROUPS[1], abs(value) / best), outline=FAINT)
            pen.text((box[0] + cell / 2, box[1] + cell / 2), f"{value:g}", fill=INK, font=font(16), anchor="mm")
    for k in range(rows):
        pen.text((left - cell / 4, top + (k + 0.5) * cell), str(k), fill=INK, font=font(12), anchor="rm")
    for k in range(columns):
        pen.text((left + (k + 0.5) * cell, top - cell / 4), str(k), fill=INK, font=font(12), anchor="mb")
    pen.text((left - cell * 0.75, top - cell * 0.4), "0 \\ 1", fill=INK, font=font(12), anchor="mm")
    i, j = (int(v) for v in scene.action)
    if i >= 0:
        pen.rectangle(
            (left + j * cell, top + i * cell, left + (j + 1) * cell, top + (i + 1) * cell), outline=INK, width=8
        )
    return large


def tint(colour: str, strength: float = 0.3) -> str:
    """A colour mixed with paper."""
    parts = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(255 + (part - 255) * strength):02x}" for part in parts)


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font: no machine lacks it."""
    return ImageFont.load_default(size * FINER)
