"""Google Research Football: `grf/<academy scenario>`, played by the real engine in worker processes.

What is observed, paid and counted as a goal, and who plays whom, is told in `grasp.simulators.football`. The engine
lives in an interpreter of its own, which `make football` builds; GRASP_FOOTBALL_PYTHON names another.
"""

from typing import Any, Literal, NamedTuple

from grasp.envs.host import SIMULATORS, ask, interpreter
from grasp.types import Host


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
    return ask(f"grf/{task}", interpreter("football"), SIMULATORS / "football.py", task, options)
