"""`grasp list`: the names that the command line knows."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from grasp.config import presets
from grasp.config.hyperparameters import ALGORITHMS
from grasp.consensus import CONDITIONS, OPERATORS
from grasp.envs import base as envs
from grasp.reproduction.suites import SUITES
from grasp.types import GraspError


def catalogue() -> dict[str, Any]:
    """Algorithms, environments with their sizes, operators with the paper's three conditions."""
    return {
        "algorithms": {name: asdict(hyper) for name, hyper in ALGORITHMS.items()},
        "environments": {name: sizes(name) for name in envs.names()},
        "presets": presets.PRESETS,
        "operators": {name: CONDITIONS[name]._asdict() for name in OPERATORS},
        "suites": {name: {"shows": suite.shows, "environments": suite.envs} for name, suite in SUITES.items()},
    }


def sizes(name: str) -> dict[str, Any]:
    """An environment's spec, or what is missing to make it. No simulator is started."""
    if envs.simulated(name):
        return {"name": name, "missing": f"sizes are known once the simulator runs; type: grasp check-env {name}"}
    try:
        return asdict(envs.make(name).spec)
    except GraspError as missing:
        return {"name": name, "missing": str(missing)}


def show(console: Console) -> None:
    """The catalogue as tables."""
    found = catalogue()
    algorithms = Table("algorithm", "operator", title="algorithms", title_justify="left")
    for name, hyper in found["algorithms"].items():
        algorithms.add_row(name, hyper["operator"])
    environments = Table(title="environments", title_justify="left")
    environments.add_column("environment", overflow="fold")  # a truncated name cannot be copied
    for column in ("agents", "obs", "state", "actions", "time limit", "wins"):
        environments.add_column(column, justify="right")
    for name, spec in found["environments"].items():
        if "missing" in spec:
            environments.add_row(name, "simulator" if envs.simulated(name) else "needs a package")
            continue
        numbers = [spec[k] for k in ("num_agents", "obs_dim", "state_dim", "num_actions", "horizon")]
        environments.add_row(name, *map(str, numbers), "yes" if spec["has_wins"] else "")
    operators = Table("operator", "Pareto", "continuous", "in the hull", title="operators", title_justify="left")
    for name, conditions in found["operators"].items():
        operators.add_row(name, *(str(value).replace("_", " ") for value in conditions.values()))
    settings = Table("preset", "family", "scenario", "options", title="presets", title_justify="left")
    for preset, families in found["presets"].items():
        for family, scenarios in families.items():
            for scenario, options in scenarios.items():
                words = ", ".join(f"{name} {value}" for name, value in options.items())
                settings.add_row(
                    preset,
                    family,
                    "any" if not scenario else "other battles" if scenario == "battle" else scenario,
                    words or "defaults",
                )
    suites = Table("suite", "shows", title="suites of grasp reproduce", title_justify="left")
    for name, suite in found["suites"].items():
        suites.add_row(name, suite["shows"])
    console.print(algorithms, environments, operators, settings, suites)
