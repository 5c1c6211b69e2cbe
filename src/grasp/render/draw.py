"""Draw one state of an environment as a picture.

The environment describes the state as a scene (`Env.scene`): bodies on a plane, or a payoff table.
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
SUPERSAMPLING = 2
"""Everything is drawn this many times larger and then reduced, which smooths edges."""
INK, LINES, FAINT, PAPER, GRASS = "#333333", "#C4C4BC", "#DDDDDD", "#FFFFFF", "#F4F4F0"
# Okabe and Ito's colours: agents, enemies, objects.
GROUPS = ("#0072B2", "#D55E00", "#8C8C8C")
Z_ORDER = (1, 0, 2)
"""Order in which the groups are drawn: objects, which are small, over agents over enemies."""
SHIELD, HEALING = "#56B4E9", "#009E73"
MARGIN = 1.5
"""Free space at the edges, in radii of the largest body."""
FLATTEST = 0.4
"""Minimum ratio of a picture's height to its width."""


PANEL, NAMES = 200, 24
"""Width of the overlay's panel beside the picture, and of the agents' names in it."""
LEGEND = ("row: agent, column: action", "darker: more likely, or of higher value", "framed: the action taken")
NO_NUMBERS: Mapping[int, str] = MappingProxyType({})


class Overlay(NamedTuple):
    """The team's decision in one state, for the panel beside the picture (see `grasp.types.Decision`)."""

    preference: Float[Array | np.ndarray, "*T N a"]
    avail: Bool[Array | np.ndarray, "*T N a"]
    action: Int[Array | np.ndarray, "*T N"]
    value: Float[Array | np.ndarray, "*V"]


class Window(NamedTuple):
    """The part of the plane that the picture shows."""

    left: float
    top: float
    scale: float
    """Pixels of the supersampled picture per unit of the plane."""
    height: int
    """Of the picture, below its header."""

    def pixel(self, point: Float[Array | np.ndarray, " 2"]) -> tuple[float, float]:
        x, y = (float(v) for v in point)
        return (x - self.left) * self.scale, HEADER * SUPERSAMPLING + (self.top - y) * self.scale


def window(scenes: list[Bodies]) -> Window:
    """The smallest window that holds everything shown in any of the scenes, so that the camera does not move."""
    points = np.concatenate(
        [np.asarray(scene.position)[np.asarray(scene.shown)] for scene in scenes]
        + [np.asarray(scene.lines).reshape(-1, 2) for scene in scenes if scene.lines is not None]
    )
    margin = MARGIN * max(float(scene.radius.max()) for scene in scenes)
    low, high = points.min(0) - margin, points.max(0) + margin
    (width, height), middle = high - low, (low + high) / 2
    width, height = max(width, height), max(height, width * FLATTEST)
    scale = SIZE * SUPERSAMPLING / width
    return Window(
        float(middle[0] - width / 2), float(middle[1] + height / 2), float(scale), round(SIZE * height / width)
    )


def pictures(
    scenes: Sequence[Bodies | Table],
    headers: Sequence[str],
    overlays: Sequence[Overlay | None] | None = None,
    backgrounds: Sequence[str] | None = None,
) -> list[Image.Image]:
    """A picture per scene with a header line above it, on that background colour, and the overlay beside it."""
    rows = max((len(overlay.preference) for overlay in overlays or () if overlay is not None), default=0)
    lines = list(zip(headers, backgrounds or [PAPER] * len(headers), strict=True))
    bodies = [scene for scene in scenes if isinstance(scene, Bodies)]
    tables = [scene for scene in scenes if isinstance(scene, Table)]
    if len(bodies) == len(scenes):
        view = window(bodies)
        numbers = agent_numbers(bodies[0], rows)
        drawn = [draw_bodies(scene, view, *line, numbers) for scene, line in zip(bodies, lines, strict=True)]
    elif len(tables) == len(scenes):
        drawn = [draw_table(scene, *line) for scene, line in zip(tables, lines, strict=True)]
    else:
        raise GraspError(f"a scene must be a grasp.types.Bodies or Table, not a {type(scenes[0]).__name__}")
    if overlays is not None:
        names = [row_names(scene, rows) for scene in scenes]
        drawn = [with_panel(*parts) for parts in zip(drawn, overlays, names, strict=True)]
    return [
        large.resize((large.width // SUPERSAMPLING, large.height // SUPERSAMPLING), Image.Resampling.BOX)
        for large in drawn
    ]


def agent_numbers(scene: Bodies, rows: int) -> dict[int, str]:
    """The row of the overlay for each agent's body. Empty where it is unknown: a football team of which only some
    players are agents."""
    agents = np.flatnonzero(np.asarray(scene.group) == 0)
    return {int(k): str(row) for row, k in enumerate(agents)} if rows == len(agents) else {}


def row_names(scene: Bodies | Table, rows: int) -> list[str]:
    """The names of the overlay's rows: the agent's number and, where bodies have one, the letter of its type."""
    names = [str(row) for row in range(rows)]
    if isinstance(scene, Bodies) and scene.mark is not None:
        for k, row in agent_numbers(scene, rows).items():
            letter = chr(int(scene.mark[k]))
            names[int(row)] += f" {letter}" if letter.isprintable() and not letter.isdigit() else ""
    return names


def with_panel(large: Image.Image, overlay: Overlay | None, names: Sequence[str]) -> Image.Image:
    """The picture with the overlay's panel beside it: a row of cells per agent and a cell per legal action, darker the
    more it is preferred, framed if it is taken; above them the value. Blank without an overlay."""
    wide = Image.new("RGB", (large.width + PANEL * SUPERSAMPLING, large.height), PAPER)
    wide.paste(large, (0, 0))
    if overlay is None:
        return wide
    pen = ImageDraw.Draw(wide)
    margin = large.width + 12 * SUPERSAMPLING
    left, top = margin + NAMES * SUPERSAMPLING, HEADER * SUPERSAMPLING
    value = float(np.mean(overlay.value))
    pen.text((margin, top / 2), f"value {value:.2f}", fill=INK, font=font(13), anchor="lm")
    rows, columns = overlay.preference.shape
    height = min((large.height - top - 8 * SUPERSAMPLING) / rows, 18 * SUPERSAMPLING)
    width = min((PANEL - NAMES - 20) * SUPERSAMPLING / columns, 18 * SUPERSAMPLING)
    letters = font(min(11, max(6, int(height / SUPERSAMPLING) - 3)))
    for i, name in enumerate(names):
        middle = top + (i + 0.5) * height - 1
        pen.text((margin, middle), name, fill=INK if overlay.avail[i].any() else FAINT, font=letters, anchor="lm")
    draw_legend(pen, margin, round(top + rows * height), large.height)
    for i, j in np.ndindex(rows, columns):
        if not overlay.avail[i, j]:
            continue
        box = (left + j * width, top + i * height, left + (j + 1) * width - 2, top + (i + 1) * height - 2)
        is_taken = int(overlay.action[i]) == j
        colour = tint(GROUPS[0], float(overlay.preference[i, j]))
        pen.rectangle(box, fill=colour, outline=INK if is_taken else FAINT, width=3 if is_taken else 1)
    return wide


def draw_legend(pen: ImageDraw.ImageDraw, left: int, top: int, bottom: int) -> None:
    """The meaning of the cells, if there is room below them."""
    step = 14 * SUPERSAMPLING
    if top + (len(LEGEND) + 0.5) * step > bottom:
        return
    for k, line in enumerate(LEGEND):
        pen.text((left, top + (k + 1) * step), line, fill=GROUPS[2], font=font(10), anchor="lm")


def canvas(header: str, height: int, background: str = PAPER) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """An empty picture with its header line."""
    large = Image.new("RGB", (SIZE * SUPERSAMPLING, (height + HEADER) * SUPERSAMPLING), GRASS)
    pen = ImageDraw.Draw(large)
    pen.rectangle((0, 0, SIZE * SUPERSAMPLING, HEADER * SUPERSAMPLING), fill=background)
    ink = INK if background == PAPER else PAPER
    pen.text((8 * SUPERSAMPLING, HEADER * SUPERSAMPLING / 2), header, fill=ink, font=font(13), anchor="lm")
    return large, pen


def draw_bodies(
    scene: Bodies, view: Window, header: str, background: str = PAPER, numbers: Mapping[int, str] = NO_NUMBERS
) -> Image.Image:
    """From back to front: lines on the ground, fallen bodies, lines to targets, bodies."""
    large, pen = canvas(header, view.height, background)
    for line in () if scene.lines is None else scene.lines:
        pen.line([view.pixel(end) for end in line], fill=LINES, width=2)
    for k in () if scene.fallen is None else np.flatnonzero(scene.fallen):
        draw_fallen(pen, scene, view, int(k))
    order = [k for k in np.argsort(np.array(Z_ORDER)[np.asarray(scene.group)], kind="stable") if scene.shown[k]]
    if scene.target is not None:
        for k in order:
            draw_aim(pen, scene, view, int(k))
    for k in order:
        draw_body(pen, scene, view, int(k), numbers.get(int(k), ""))
    return large


def draw_fallen(pen: ImageDraw.ImageDraw, scene: Bodies, view: Window, k: int) -> None:
    """A pale cross where a body died."""
    x, y = view.pixel(scene.position[k])
    arm = max(float(scene.radius[k]) * view.scale * 0.6, 6.0)
    for slope in (1, -1):
        ends = (x - arm, y - slope * arm, x + arm, y + slope * arm)
        pen.line(ends, fill=tint(GROUPS[int(scene.group[k])], 0.45), width=5)


def draw_aim(pen: ImageDraw.ImageDraw, scene: Bodies, view: Window, k: int) -> None:
    """A thin line to the target; green within a team, where it heals."""
    target = int(scene.target[k])  # pyright: ignore[reportOptionalSubscript]
    if target < 0 or not scene.shown[target]:
        return
    is_friend = scene.group[k] == scene.group[target]
    ends = [view.pixel(scene.position[end]) for end in (k, target)]
    pen.line(ends, fill=HEALING if is_friend else tint(GROUPS[int(scene.group[k])], 0.6), width=3)


def draw_body(pen: ImageDraw.ImageDraw, scene: Bodies, view: Window, k: int, number: str = "") -> None:
    """A disc filled up to its health, and an arc as long as its shield."""
    x, y = view.pixel(scene.position[k])
    radius = max(float(scene.radius[k]) * view.scale, 3.0)
    colour = GROUPS[int(scene.group[k])]
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=tint(colour), outline=colour, width=2)
    pen.polygon(segment(x, y, radius, 1.0 if scene.health is None else float(scene.health[k])), fill=colour)
    if scene.shield is not None and scene.shield[k] > 0:
        ring = radius + 4
        pen.arc((x - ring, y - ring, x + ring, y + ring), -90, -90 + 360 * float(scene.shield[k]), fill=SHIELD, width=4)
    mark = number or (chr(int(scene.mark[k])) if scene.mark is not None and scene.mark[k] else "")
    if mark and radius > 7 * SUPERSAMPLING:
        pen.text((x, y), mark, fill=PAPER, font=font(11), anchor="mm", stroke_width=1, stroke_fill=INK)


def segment(x: float, y: float, radius: float, level: float) -> list[tuple[float, float]]:
    """The part of a disc below a level from 0 to 1, as a polygon: Pillow's chord draws flat ones across the picture."""
    half = float(np.arccos(np.clip(1 - 2 * level, -1, 1)))
    angles = np.linspace(np.pi / 2 - half, np.pi / 2 + half, 48)
    return [(x + radius * float(np.cos(angle)), y + radius * float(np.sin(angle))) for angle in angles]


def draw_table(scene: Table, header: str, background: str = PAPER) -> Image.Image:
    """The payoffs, agent 0 in rows and agent 1 in columns, with the joint action framed."""
    large, pen = canvas(header, SIZE, background)
    rows, columns = scene.payoff.shape
    cell = SIZE * SUPERSAMPLING / (max(rows, columns) + 2)
    left, top = cell * 1.5, HEADER * SUPERSAMPLING + cell * 1.5
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
    """Pillow's built-in font, which needs no installed fonts."""
    return ImageFont.load_default(size * SUPERSAMPLING)
