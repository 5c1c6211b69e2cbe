"""Google Research Football: `grf/<academy scenario>`, played by the real engine in worker processes.

What is observed, paid and counted as a goal, and who plays whom, is told in `grasp.envs.workers.football`. The engine
lives in an interpreter of its own, which `make football` builds; GRASP_FOOTBALL_PYTHON names another.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from grasp.envs.host import SIMULATORS, ask, interpreter
from grasp.envs.workers import football as adapter
from grasp.types import Bodies, Host

METRES = np.array([adapter.METRES[0], -adapter.METRES[1]], np.float32)
"""Of a unit along and across the pitch; the engine's y points down."""
RADIUS = 1.4
"""Of a drawn player: half of it would be true to life, and not to be seen."""


def _painted() -> Float[np.ndarray, "L 2 2"]:
    """Edges, half-way line, centre circle, penalty areas and goals."""
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
PITCH = _painted()


class Options(NamedTuple):
    """What can be chosen beside the scenario."""

    agents: int = 0
    """How many of the team we play; 0 for the usual: four in counterattacks, otherwise everyone but the keeper."""
    rewards: Literal["scoring", "scoring+checkpoints"] = "scoring+checkpoints"
    """gfootball's words; a plus stands for its comma, which parts options in a name."""
    pinned: bool = False
    """Whether agent i is always the same player. The engine, as it comes, hands players around."""


def names() -> list[str]:
    """gfootball's academy. The paper's are the first three; it also plays the corner with `?agents=11`."""
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
    """A scenario, with the fields of `Options`."""
    options = Options(**chosen)._asdict()
    return ask(f"grf/{task}", interpreter("football"), SIMULATORS / "football.py", task, options)._replace(scene=scene)


def scene(state: Float[np.ndarray, " s"]) -> Bodies:
    """The pitch in metres, our team, theirs and the ball. Players that the built-in AI has are hollow."""
    players = adapter.PLAYERS
    ours, theirs = (state[4 * players * side :][: 2 * players].reshape(players, 2) for side in (0, 1))
    places = np.concatenate([ours, theirs, state[None, adapter.BALL :][:, :2]]).astype(np.float32)
    own = state[adapter.ACTIVE :][:players] > 0
    return Bodies(
        position=places * METRES,
        radius=np.array([RADIUS] * 2 * players + [RADIUS / 2], np.float32),
        group=np.repeat([0, 1, 2], [players, players, 1]),
        shown=np.any(places != -1, axis=-1),  # a player who is not there is (-1, -1)
        health=np.concatenate([own, np.ones(players + 1)]).astype(np.float32),
        lines=PITCH,
    )
