"""Where tests find the repository's files."""

from pathlib import Path

SUPPORT = Path(__file__).parent
REPOSITORY = SUPPORT.parents[1]
STANDINS = SUPPORT / "standins"
"""Small programs that stand in for simulators that are not on this machine."""
TOY = STANDINS / "toy.py"
PAPER = REPOSITORY.parent / "shared" / "paper"
"""The paper's text, beside the repository where the project is developed."""
