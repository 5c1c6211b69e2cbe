"""Scenes and colours for the tests of films and overlays."""

import numpy as np

from grasp.types import Bodies


def colour(name: str) -> tuple[int, ...]:
    return tuple(int(name[k : k + 2], 16) for k in (1, 3, 5))


def bodies(**changes) -> Bodies:
    """Two agents on a line with an enemy between them, and a thing above."""
    given = Bodies(
        position=np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 0.0], [5.0, 6.0]], np.float32),
        radius=np.full(4, 0.5, np.float32),
        group=np.array([0, 0, 1, 2]),
        shown=np.ones(4, bool),
    )
    return given._replace(**changes)


def near(found, expected) -> bool:
    return max(abs(a - b) for a, b in zip(found, expected, strict=True)) < 12
