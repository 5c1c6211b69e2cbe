"""The command `grasp`.

`parser` defines the commands and their options, `commands` runs them, and `listing`, `doctor` and `summary` print.
Open `parser` first. Imports every room; nothing imports this one.
"""

from grasp.cli.parser import main

__all__ = ["main"]
