"""Settings by name: the paper's, and those of the reference repositories for a scenario.

`grasp train ALGO ENV --preset tuned` starts from these instead of the defaults; options given by hand win. A scenario
is the part of the environment's name after the slash (SMACv2's maps, whatever the race: `smacv2_N_units`); "battle"
holds for the others of smax and skirmish, "" for everything else.
Rollouts are whole chunks of 10 steps (on-policy's 25 of simple_spread become 30). What a reference has and we have not
(deeper or feed-forward networks, stacked frames, agent-specific states, on-policy's logit gain of 1 on MMM2 and tanh on
simple_spread) is not set.
"""

import re
from typing import Any

from grasp.hyper import Happo, Hyper, Ma2e, Mappo, Qmix
from grasp.types import GraspError

Settings = dict[str, dict[str, Any]]
"""Options by scenario."""

ONPOLICY = {"num_envs": 8, "rollout": 400, "epochs": 15}
"""on-policy's scripts for SMAC; 15 epochs on the easy maps, which have no row."""
HARL = {"num_envs": 20, "rollout": 160, "epochs": 5, "gamma": 0.95, "clip": 0.05}
PYMARL = {"batch": 128}

PRESETS: dict[str, dict[str, Settings]] = {
    "paper": {
        "mappo": {"": {"epochs": 5}, "5m_vs_6m": {"epochs": 10}, "MMM2": {"epochs": 5, "minibatches": 2}},
        "happo": {"": {"epochs": 5}},
        "qmix": {"": {}},
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
            "6h_vs_8z": ONPOLICY | {"epochs": 5},
            "3s_vs_5z": ONPOLICY | {"clip": 0.05},
            "smacv2_5_units": ONPOLICY | {"epochs": 5},
            "smacv2_10_units": ONPOLICY | {"epochs": 5},
            "smacv2_20_units": ONPOLICY | {"epochs": 5},
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
            "smacv2_5_units": HARL | {"gamma": 0.99},
            "smacv2_10_units": HARL | {"gamma": 0.99},
            "simple_spread": {"num_envs": 20, "rollout": 200, "epochs": 5, "hidden": 128},
        },
        "qmix": {
            "battle": PYMARL,
            "3s5z_vs_3s6z": PYMARL | {"hidden": 256, "mixer_embed": 64, "mixer_hidden": 256},
            "6h_vs_8z": PYMARL | {"td_lambda": 0.3, "anneal": 500_000},
            "smacv2_5_units": PYMARL | {"td_lambda": 0.4},
            "smacv2_10_units": PYMARL | {"td_lambda": 0.4},
            "smacv2_20_units": PYMARL | {"td_lambda": 0.4},
        },
        "ma2e": {"battle": PYMARL | {"buffer": 1000, "feedforward": 2048}},
    },
}
BATTLES = ("smax", "skirmish")
FAMILIES: dict[type, str] = {Mappo: "mappo", Happo: "happo", Qmix: "qmix", Ma2e: "ma2e"}


def settings(preset: str, hyper: Hyper, env: str) -> dict[str, Any]:
    """The options a preset sets for an algorithm in an environment."""
    if preset == "default":
        return {}
    algo = FAMILIES[type(hyper)]
    rows = PRESETS[preset][algo]
    for name in scenarios(env):
        if name in rows:
            return rows[name]
    raise GraspError(f"{algo} has no {preset} settings for {env}; leave --preset out, or see `grasp list`")


def scenarios(env: str) -> list[str]:
    """The names under which an environment's settings may stand, the closest first."""
    family, _, scenario = env.partition("?")[0].partition("/")
    drawn = re.fullmatch(r"(?:terran|protoss|zerg)_(\d+)_vs_\d+", scenario)
    named = f"smacv2_{drawn[1]}_units" if drawn else scenario
    return [named, "battle", ""] if family in BATTLES else [named, ""]
