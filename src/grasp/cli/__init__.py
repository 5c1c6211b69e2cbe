"""The command `grasp`.

`parser` turns words into options, `commands` carries them out, `listing`, `doctor` and `summary` print. Open `parser`
first. Imports every room; nothing imports this one.
"""

from grasp.cli.parser import main

__all__ = ["main"]
