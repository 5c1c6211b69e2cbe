"""`Config`: one run, and the options that every run has."""

from dataclasses import dataclass, fields
from typing import Literal

from grasp.config.hyperparameters import COUNT, NOT_NEGATIVE, POSITIVE, Hyper, Ma2e, option


@dataclass(frozen=True)
class Config:
    """One run: an algorithm in an environment, for a number of steps, with some seeds."""

    algo: str
    env: str
    hyper: Hyper
    preset: Literal["default", "paper", "tuned"] = option(
        "default", "defaults of the options below: ours, the paper's, or the reference code's for this scenario"
    )
    steps: int = option(1_000_000, "environment steps per seed, summed over parallel copies", COUNT)
    seeds: int = option(1, "number of seeds", COUNT)
    seed: int = option(0, "first seed", NOT_NEGATIVE)
    eval_interval: int = option(0, "environment steps between evaluations; 0: a twentieth of --steps", NOT_NEGATIVE)
    eval_episodes: int = option(32, "greedy episodes per evaluation", COUNT)
    final_episodes: int = option(
        320, "greedy episodes of the final evaluation, of the best policy (absolute metric)", COUNT
    )
    parallel: Literal["auto", "processes", "vmap"] = option(
        "auto", "train seeds as one process per core, or vmapped in one program; auto: whichever is faster here"
    )
    devices: int = option(1, "devices over which each seed's environments are sharded (MAPPO and HAPPO only)", COUNT)
    workers: int = option(0, "simulator processes; 0: one per core", NOT_NEGATIVE)
    deadline: float = option(60.0, "seconds to wait for a simulator before it is restarted", POSITIVE)
    restarts: int = option(10, "simulator restarts in one iteration before the run stops", NOT_NEGATIVE)
    nodes: int = option(1, "nodes whose simulators collect for one learner; above 1 needs --on ray", COUNT)
    staleness: int = option(
        0, "maximum number of updates by which a collecting policy may be out of date; 0: collect synchronously",
        NOT_NEGATIVE,
    )  # fmt: skip

    @property
    def steps_per_iteration(self) -> int:
        return self.hyper.num_envs * self.hyper.rollout

    @property
    def envs_per_node(self) -> int:
        return self.hyper.num_envs // self.nodes

    @property
    def iterations(self) -> int:
        return (self.steps + self.uncounted_steps) // self.steps_per_iteration

    @property
    def total_steps(self) -> int:
        """Environment steps of a finished seed, in whole iterations."""
        return self.iterations * self.steps_per_iteration

    @property
    def uncounted_steps(self) -> int:
        """Steps taken in addition to `steps`: MA2E's pretraining, in whole iterations, unless it counts."""
        if not isinstance(self.hyper, Ma2e) or self.hyper.pretraining_counts:
            return 0
        return -(-self.hyper.pretrain // self.steps_per_iteration) * self.steps_per_iteration

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seed, self.seed + self.seeds))

    def is_evaluation(self, iteration: int) -> bool:
        """Whether the policy is evaluated after this many iterations: at multiples of the interval, and at the end."""
        interval = max(1, round(self.eval_interval / self.steps_per_iteration))
        return iteration % interval == 0 or iteration == self.iterations


RUN_FIELDS = [f for f in fields(Config) if f.name not in ("algo", "env", "hyper")]
EVALUATIONS = 20
"""Evaluations of a run, besides the one before training, unless `eval_interval` is given."""
