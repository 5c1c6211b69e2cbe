"""The configuration of a run: one frozen dataclass, made from names and options or from its JSON.

Open `run` first: it has `Config` and the options of every run. `hyperparameters` has those of every algorithm,
`presets` the settings of the paper and of reference code, `parsing` makes a `Config` of names, flags and `config.json`,
and `validation` refuses impossible ones. Imports types only.
"""

from grasp.config import presets
from grasp.config.hyperparameters import ALGORITHMS
from grasp.config.parsing import (
    FORMAT,
    LARGEST,
    configure,
    defaults,
    describe,
    from_json,
    header,
    parse,
    planned_steps,
    to_json,
)
from grasp.config.run import EVALUATIONS, RUN_FIELDS, Config
from grasp.config.validation import validate

__all__ = [
    "ALGORITHMS",
    "EVALUATIONS",
    "FORMAT",
    "LARGEST",
    "RUN_FIELDS",
    "Config",
    "configure",
    "defaults",
    "describe",
    "from_json",
    "header",
    "parse",
    "planned_steps",
    "presets",
    "to_json",
    "validate",
]
