"""Presets: the paper's hyper-parameters, and those of the reference repositories per scenario.

`grasp train ALGO ENV --preset tuned` uses them instead of the defaults; options given explicitly win. A scenario is the
part of the environment's name after the slash (SMACv2's maps: `terran_N_units`, or `smacv2_N_units` for any race);
"battle" applies to the other scenarios of smax, skirmish, smac and smacv2, "" for everything else.
Rollouts are whole chunks of 10 steps (on-policy's 25 of simple_spread become 30). Three kinds of settings are left out:
those that this library lacks (deeper or feed-forward networks, stacked frames, on-policy's logit gain of 1 on MMM2 and
tanh on simple_spread), those that are separate choices here (one shared actor, a recurrent critic, agent-specific
states: `--sharing`, `--critic`, `--env.state`), and those that depend on a run's length (steps; HARL's decay in
football).
"""

import re
from typing import Any

from grasp.config.hyperparameters import Happo, Hyper, Ma2e, Mappo, Qmix
from grasp.types import GraspError

Settings = dict[str, dict[str, Any]]
"""Options by scenario."""

ONPOLICY = {"num_envs": 8, "rollout": 400, "epochs": 15}
"""on-policy's scripts for SMAC; 15 epochs on the easy maps, which have no row."""
HARL = {"num_envs": 20, "rollout": 160, "epochs": 5, "gamma": 0.95, "clip": 0.05}
PYMARL = {"batch": 128}
PYMARL_BATTLES: Settings = {
    "battle": PYMARL,
    "3s5z_vs_3s6z": PYMARL | {"hidden": 256, "mixer_embed": 64, "mixer_hidden": 256},
    "6h_vs_8z": PYMARL | {"td_lambda": 0.3, "anneal": 500_000},
    "smacv2_5_units": PYMARL | {"td_lambda": 0.4},
    "smacv2_10_units": PYMARL | {"td_lambda": 0.4},
    "smacv2_20_units": PYMARL | {"td_lambda": 0.4},
}
PYMARL_FOOTBALL = PYMARL | {
    "num_envs": 16, "buffer": 2000, "hidden": 256, "lr": 5e-4, "td_lambda": 1.0, "gamma": 0.999, "target_interval": 1
}  # fmt: skip
"""For VDN alone: QMIX has no settings for football there."""
FOOTBALL = {"num_envs": 50, "rollout": 200, "epochs": 15, "minibatches": 2}
"""on-policy's and HARL's for 3_vs_1; the larger scenarios have rollouts of 1,000 steps there."""

PRESETS: dict[str, dict[str, Settings]] = {
    "paper": {
        "mappo": {"": {"epochs": 5}, "5m_vs_6m": {"epochs": 10}, "MMM2": {"epochs": 5, "minibatches": 2}},
        "happo": {"": {"epochs": 5}},
        "qmix": {"": {}},
        "vdn": {"": {}},
        "ma2e": {"": {"feedforward": 2048}},
    },
    "tuned": {
        "mappo": {
            "battle": ONPOLICY,
            "5m_vs_6m": ONPOLICY | {"epochs": 10, "clip": 0.05},
            "8m_vs_9m": ONPOLICY | {"clip": 0.05},
            "10m_vs_11m": ONPOLICY | {"epochs": 10},
            "25m": ONPOLICY | {"epochs": 10},
            "27m_vs_30m": ONPOLICY | {"epochs": 5},
            "MMM2": ONPOLICY | {"epochs": 5, "minibatches": 2},
            "3s5z": ONPOLICY | {"epochs": 5},
            "3s5z_vs_3s6z": ONPOLICY | {"epochs": 5},
            "2c_vs_64zg": ONPOLICY | {"epochs": 5},
            "6h_vs_8z": ONPOLICY | {"epochs": 5},
            "corridor": ONPOLICY | {"epochs": 5},
            "3s_vs_5z": ONPOLICY | {"clip": 0.05},
            "smacv2_5_units": ONPOLICY | {"epochs": 5},
            "smacv2_10_units": ONPOLICY | {"epochs": 5},
            "smacv2_20_units": ONPOLICY | {"epochs": 5},
            "academy_3_vs_1_with_keeper": FOOTBALL,
            "academy_counterattack_hard": FOOTBALL | {"rollout": 1000},
            "academy_corner": FOOTBALL | {"rollout": 1000},
            "simple_spread": {"num_envs": 128, "rollout": 30, "epochs": 10, "lr": 7e-4, "critic_lr": 7e-4},
        },
        "happo": {
            "battle": {"num_envs": 20, "rollout": 200, "epochs": 5, "hidden": 128},
            "5m_vs_6m": HARL,
            "8m_vs_9m": HARL,
            "27m_vs_30m": HARL,
            "3s5z_vs_3s6z": HARL | {"clip": 0.1, "minibatches": 2},
            "MMM2": HARL | {"clip": 0.2},
            "6h_vs_8z": HARL | {"epochs": 10, "minibatches": 2},
            "corridor": HARL | {"gamma": 0.99, "clip": 0.2},
            "terran_5_units": HARL | {"gamma": 0.99, "minibatches": 2},
            "smacv2_5_units": HARL | {"gamma": 0.99},
            "smacv2_10_units": HARL | {"gamma": 0.99},
            "academy_3_vs_1_with_keeper": FOOTBALL,
            "academy_counterattack_hard": FOOTBALL | {"rollout": 1000},
            "simple_spread": {"num_envs": 20, "rollout": 200, "epochs": 5, "hidden": 128},
        },
        "qmix": PYMARL_BATTLES,
        "vdn": PYMARL_BATTLES | {"football": PYMARL_FOOTBALL},
        "ma2e": {"battle": PYMARL | {"buffer": 1000, "feedforward": 2048}},
    },
}
GROUPS = {"smax": "battle", "skirmish": "battle", "smac": "battle", "smacv2": "battle", "grf": "football"}
"""The row of a family's scenarios that have none of their own."""
FAMILIES: dict[type, str] = {Mappo: "mappo", Happo: "happo", Qmix: "qmix", Ma2e: "ma2e"}


def settings(preset: str, hyper: Hyper, env: str) -> dict[str, Any]:
    """The options a preset sets for an algorithm in an environment."""
    if preset == "default":
        return {}
    algo = family(hyper)
    rows = PRESETS[preset][algo]
    for name in scenarios(env):
        if name in rows:
            return rows[name]
    raise GraspError(f"{algo} has no {preset} settings for {env}; leave --preset out, or see `grasp list`")


def family(hyper: Hyper) -> str:
    """The name of an algorithm's rows, which are the same with and without a consensus."""
    return "vdn" if isinstance(hyper, Qmix) and hyper.mixer == "sum" else FAMILIES[type(hyper)]


def scenarios(env: str) -> list[str]:
    """The rows that may apply to an environment, most specific first."""
    plain, _, options = env.partition("?")
    group, _, scenario = plain.partition("/")
    return [*closest(scenario, options), *([GROUPS[group]] if group in GROUPS else []), ""]


def closest(scenario: str, options: str) -> list[str]:
    """A scenario's own row; for SMACv2's maps, in the game or in Skirmish, the rows by race and size, then by size."""
    drawn = re.fullmatch(r"(?:10gen_)?(terran|protoss|zerg)(?:_(\d+)_vs_\d+)?", scenario)
    if not drawn:
        return [scenario]
    units = re.search(r"\bn_units=(\d+)", options)
    number = drawn[2] or (units[1] if units else "10")
    return [f"{drawn[1]}_{number}_units", f"smacv2_{number}_units"]
