"""Family `grf`: Google Research Football, `grf/<academy scenario>`, with the real engine in worker processes.

`grasp.envs.workers.football` defines observations, rewards and wins, and which agent controls which player. The engine
needs an interpreter of its own: `make football` builds it, GRASP_FOOTBALL_PYTHON names another.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from grasp.envs.host import WORKERS, from_adapter, interpreter
from grasp.envs.workers import football as adapter
from grasp.types import Bodies, Host

METRES = np.array([adapter.METRES[0], -adapter.METRES[1]], np.float32)
"""Metres per unit of the engine along and across the pitch; the engine's y axis points down."""
RADIUS = 1.4
"""The radius of a drawn player, in metres: twice the true one, which would be too small to see."""


def _pitch() -> Float[np.ndarray, "L 2 2"]:
    """The lines of the pitch: edges, half-way line, centre circle, penalty areas and goals."""
    along, across = adapter.METRES[0], 0.42 * adapter.METRES[1]
    turn = np.linspace(0, 2 * np.pi, 33)
    circle = 9.15 * np.stack([np.cos(turn), np.sin(turn)], axis=-1)
    strokes = [_box(-along, along, across), np.array([[0, -across], [0, across]]), circle]
    for side in (-1, 1):
        strokes += [_box(side * along, side * (along - 16.5), 20.15), _box(side * along, side * (along + 2), GOAL)]
    return np.concatenate([np.stack([stroke[:-1], stroke[1:]], axis=1) for stroke in strokes]).astype(np.float32)


def _box(left: float, right: float, half: float) -> Float[np.ndarray, "5 2"]:
    return np.array([[left, -half], [right, -half], [right, half], [left, half], [left, -half]])


GOAL = 0.044 * adapter.METRES[1]
PITCH = _pitch()


class Options(NamedTuple):
    """The options of a scenario."""

    agents: int = 0
    """The number of agents. 0: the default, which is four in counterattacks and otherwise all players but the
    keeper."""
    rewards: Literal["scoring", "scoring+checkpoints"] = "scoring+checkpoints"
    """As in gfootball, with a plus for its comma, which separates options in a name."""
    pinned: bool = False
    """Whether agent i always controls the same player. By default the engine reassigns players."""


def names() -> list[str]:
    """The scenarios of gfootball's academy. The paper uses the first three, and the corner also with `?agents=11`."""
    return [
        "academy_counterattack_hard",
        "academy_3_vs_1_with_keeper",
        "academy_corner",
        "academy_counterattack_easy",
        "academy_empty_goal",
        "academy_empty_goal_close",
        "academy_pass_and_shoot_with_keeper",
        "academy_run_pass_and_shoot_with_keeper",
        "academy_run_to_score",
        "academy_run_to_score_with_keeper",
        "academy_single_goal_versus_lazy",
    ]


def make(task: str, **chosen: Any) -> Host:
    """A scenario as a `Host`, with the fields of `Options`."""
    options = Options(**chosen)._asdict()
    return from_adapter(f"grf/{task}", interpreter("football"), WORKERS / "football.py", task, options)._replace(
        scene=scene
    )


def scene(state: Float[np.ndarray, " s"]) -> Bodies:
    """The pitch in metres with both teams and the ball. Players of the built-in AI are drawn hollow."""
    players = adapter.PLAYERS
    ours, theirs = (state[4 * players * side :][: 2 * players].reshape(players, 2) for side in (0, 1))
    positions = np.concatenate([ours, theirs, state[None, adapter.BALL :][:, :2]]).astype(np.float32)
    controlled = state[adapter.ACTIVE :][:players] > 0
    return Bodies(
        position=positions * METRES,
        radius=np.array([RADIUS] * 2 * players + [RADIUS / 2], np.float32),
        group=np.repeat([0, 1, 2], [players, players, 1]),
        shown=np.any(positions != -1, axis=-1),  # missing players are at (-1, -1)
        health=np.concatenate([controlled, np.ones(players + 1)]).astype(np.float32),
        lines=PITCH,
    )
