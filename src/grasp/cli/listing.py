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


SCENARIOS = {"": "any", "battle": "other battles", "smax": "SMAX", "skirmish": "Skirmish"}


def changed(preset: str, algo: str, scenario: str) -> str:
    """The options of a preset's row that differ from the algorithm's plain defaults; a dash where it has no row."""
    options = presets.PRESETS[preset].get(algo, {}).get(scenario)
    if options is None:
        return "–"
    usual = asdict(ALGORITHMS[algo])
    words = [f"{name} {str(value).lower()}" for name, value in options.items() if usual.get(name) != value]
    return ", ".join(words) or "the plain defaults"


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
    settings = Table(
        "algorithm",
        "scenario",
        *presets.PRESETS,
        title="presets: what differs from the plain defaults",
        title_justify="left",
    )
    for algo in presets.PRESETS["tuned"]:
        for scenario in dict.fromkeys(row for families in presets.PRESETS.values() for row in families.get(algo, {})):
            columns = (changed(preset, algo, scenario) for preset in presets.PRESETS)
            settings.add_row(algo, SCENARIOS.get(scenario, scenario), *columns)
    suites = Table("suite", "shows", title="suites of grasp reproduce", title_justify="left")
    for name, suite in found["suites"].items():
        suites.add_row(name, suite["shows"])
    console.print(algorithms, environments, operators, settings, suites)
