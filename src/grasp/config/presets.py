"""Presets: our defaults by environment, the paper's hyper-parameters, and the reference repositories' algorithms.

`grasp train ALGO ENV --preset tuned` uses them instead of the defaults; options given explicitly win. A scenario is the
part of the environment's name after the slash (SMACv2's maps: `terran_N_units`, or `smacv2_N_units` for any race); a
family's name applies to its other scenarios, "battle" to those of smax, skirmish, smac and smacv2, "" to everything
else.

`default` changes the defaults where other settings are known to learn faster; it applies by itself and is printed.
`paper` names every option but the operator, so that no later default changes it. `tuned` is the reference's algorithm
as a whole: networks, inputs, parameter sharing, time limits, sizes. With a consensus it keeps hybrid actors and a
common start, which the consensus of heads needs (`WITH_CONSENSUS`). The algorithms' pages in docs/algorithms list what
still differs.
"""

import re
from typing import Any

from grasp.config.hyperparameters import ALGORITHMS, Happo, Hyper, Ma2e, Mappo, Qmix
from grasp.types import GraspError

Settings = dict[str, dict[str, Any]]
"""Options by scenario."""

PAPER_ON_POLICY = {
    "num_envs": 32,
    "rollout": 100,
    "chunk": 10,
    "epochs": 5,
    "minibatches": 1,
    "lr": 5e-4,
    "critic_lr": 5e-4,
    "decay": 0,
    "adam_eps": 1e-5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "time_limit": "bootstrap",
    "entropy": 0.01,
    "max_grad_norm": 10.0,
    "huber": 10.0,
    "value_norm": True,
    "hidden": 64,
    "layout": "paper",
    "blocks": 2,
    "actor": "gru",
    "critic": "mlp",
    "gain": 0.01,
    "init": "common",
    "agent_id": False,
    "last_action": False,
    "sharing": "hybrid",
    "denominator": "agent",
    "scope": "heads",
    "weight": 1.0,
    "refresh": "iteration",
    "gram": "batch",
    "folds": 4,
    "control": "none",
    "trust": "clip",
    "kl": 0.02,
}
PAPER_REPLAY = {
    "num_envs": 8,
    "rollout": 50,
    "buffer": 5000,
    "batch": 32,
    "interval": 8,
    "target_interval": 200,
    "lr": 1e-3,
    "decay": 0,
    "adam_eps": 1e-8,
    "max_grad_norm": 10.0,
    "gamma": 0.99,
    "td_lambda": 0.6,
    "time_limit": "terminal",
    "reward_scale": 1.0,
    "epsilon": 0.05,
    "anneal": 100_000,
    "hidden": 64,
    "layout": "paper",
    "init": "common",
    "agent_id": True,
    "last_action": True,
    "mixer_embed": 32,
    "mixer_hidden": 64,
    "sharing": "hybrid",
    "scope": "heads",
    "gamma_on": "gradient",
    "gram": "batch",
    "folds": 4,
    "control": "none",
}
PAPER_MA2E = PAPER_REPLAY | {
    "hidden": 128,
    "mode": "paper",
    "window": 5,
    "embed": 24,
    "heads": 4,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "feedforward": 2048,
    "windows": 16,
    "autoencoder_lr": 5e-4,
    "pretrain": 5000,
    "threshold": 0.015,
    "fine_tune": 500,
    "pretraining_counts": True,
}

STATE = "state"
"""An option of the environment, not of the algorithm: agent-specific states for the critic."""
SHARED = {"layout": "reference", "sharing": "shared", "denominator": "common", "critic": "gru"}
ONPOLICY = SHARED | {
    "time_limit": "terminal", "agent_id": True, "last_action": True, "num_envs": 8, "rollout": 400, "epochs": 15,
    STATE: "agent",
}  # fmt: skip
"""on-policy's scripts for SMAC; 15 epochs on the easy maps, which have no row."""
ONPOLICY_SMACV2 = ONPOLICY | {"epochs": 5, "last_action": False, "agent_id": False}
ONPOLICY_MLP = {"actor": "mlp", "critic": "mlp"}
HARL = {"layout": "reference", "init": "separate"}
"""HARL's networks are MLPs unless a row says otherwise. The critic's states are the team's, or agent-specific (FP)."""
HARL_MLP = HARL | {"actor": "mlp", "critic": "mlp"}
HARL_GRU = HARL | {"actor": "gru", "critic": "gru"}
HARL_SIZES = {"num_envs": 20, "rollout": 160, "epochs": 5, "gamma": 0.95, "clip": 0.05, "blocks": 3}
HARL_SMACV2 = HARL_GRU | HARL_SIZES | {"gamma": 0.99, "blocks": 1}
FP = {STATE: "agent"}
PYMARL = {"layout": "reference", "init": "common", "sharing": "shared", "batch": 128}
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
ONPOLICY_FOOTBALL = SHARED | FOOTBALL | {"time_limit": "terminal", "agent_id": False}
HARL_FOOTBALL = HARL_MLP | FOOTBALL

BATTLES_ON_POLICY = {
    "layout": "reference", "critic": "gru", "hidden": 128, "num_envs": 128, "rollout": 120, "epochs": 4,
    "minibatches": 4, "lr": 1e-3, "critic_lr": 1e-3, "entropy": 0.0,
}  # fmt: skip
"""Our defaults for compiled battles; the suites `results-baselines_*` compare them with former ones."""

PRESETS: dict[str, dict[str, Settings]] = {
    "default": {
        "mappo": {"smax": BATTLES_ON_POLICY, "skirmish": BATTLES_ON_POLICY},
    },
    "paper": {
        "mappo": {
            "": PAPER_ON_POLICY,
            "5m_vs_6m": PAPER_ON_POLICY | {"epochs": 10},
            "MMM2": PAPER_ON_POLICY | {"minibatches": 2},
        },
        "happo": {"": PAPER_ON_POLICY | {"sharing": "separate", "scope": "both"}},
        "qmix": {"": PAPER_REPLAY | {"mixer": "monotone"}},
        "vdn": {"": PAPER_REPLAY | {"mixer": "sum"}},
        "ma2e": {"": PAPER_MA2E | {"mixer": "monotone"}},
    },
    "tuned": {
        "mappo": {
            "battle": ONPOLICY,
            "5m_vs_6m": ONPOLICY | {"epochs": 10, "clip": 0.05},
            "8m_vs_9m": ONPOLICY | {"clip": 0.05},
            "10m_vs_11m": ONPOLICY | {"epochs": 10},
            "25m": ONPOLICY | {"epochs": 10},
            "27m_vs_30m": ONPOLICY | {"epochs": 5},
            "MMM2": ONPOLICY | {"epochs": 5, "minibatches": 2, "gain": 1.0},
            "3s5z": ONPOLICY | {"epochs": 5},
            "3s5z_vs_3s6z": ONPOLICY | {"epochs": 5},
            "2c_vs_64zg": ONPOLICY | {"epochs": 5},
            "6h_vs_8z": ONPOLICY | ONPOLICY_MLP | {"epochs": 5},
            "corridor": ONPOLICY | ONPOLICY_MLP | {"epochs": 5},
            "3s_vs_4z": ONPOLICY | ONPOLICY_MLP,
            "3s_vs_5z": ONPOLICY | ONPOLICY_MLP | {"clip": 0.05},
            "smacv2_5_units": ONPOLICY_SMACV2,
            "smacv2_10_units": ONPOLICY_SMACV2,
            "smacv2_20_units": ONPOLICY_SMACV2,
            "protoss_5_units": ONPOLICY_SMACV2 | ONPOLICY_MLP,
            "terran_10_units": ONPOLICY_SMACV2 | ONPOLICY_MLP,
            "academy_3_vs_1_with_keeper": ONPOLICY_FOOTBALL,
            "academy_counterattack_hard": ONPOLICY_FOOTBALL | {"rollout": 1000},
            "academy_corner": ONPOLICY_FOOTBALL | {"rollout": 1000},
            "simple_spread": SHARED | {
                "time_limit": "terminal", "agent_id": False, "num_envs": 128, "rollout": 25, "chunk": 5, "epochs": 10,
                "lr": 7e-4, "critic_lr": 7e-4,
            },
        },
        "happo": {
            "battle": HARL_MLP | {"num_envs": 20, "rollout": 200, "epochs": 5, "hidden": 128},
            "5m_vs_6m": HARL_GRU | HARL_SIZES | FP,
            "8m_vs_9m": HARL_GRU | HARL_SIZES,
            "27m_vs_30m": HARL_GRU | HARL_SIZES | FP,
            "3s5z_vs_3s6z": HARL_GRU | HARL_SIZES | FP | {"clip": 0.1, "minibatches": 2},
            "MMM2": HARL_MLP | HARL_SIZES | {"clip": 0.2},
            "6h_vs_8z": HARL_MLP | HARL_SIZES | FP | {"epochs": 10, "minibatches": 2},
            "corridor": HARL_MLP | HARL_SIZES | FP | {"gamma": 0.99, "clip": 0.2},
            "terran_5_units": HARL_SMACV2 | {"minibatches": 2},
            "smacv2_5_units": HARL_SMACV2,
            "smacv2_10_units": HARL_SMACV2,
            "academy_3_vs_1_with_keeper": HARL_FOOTBALL,
            "academy_counterattack_hard": HARL_FOOTBALL | {"rollout": 1000},
            "simple_spread": HARL_MLP | {"num_envs": 20, "rollout": 200, "epochs": 5, "hidden": 128},
        },
        "qmix": PYMARL_BATTLES,
        "vdn": PYMARL_BATTLES | {"football": PYMARL_FOOTBALL},
        "ma2e": {"battle": {"sharing": "shared", "batch": 128, "buffer": 1000, "feedforward": 2048}},
    },
}  # fmt: skip
WITH_CONSENSUS = {"sharing": "hybrid", "init": "common", "denominator": "agent"}
"""What a consensus needs of the tuned settings: heads of the agents' own, from a common start."""
GROUPS = {"smax": "battle", "skirmish": "battle", "smac": "battle", "smacv2": "battle", "grf": "football"}
"""The row of a family's scenarios that have none of their own."""
FAMILIES: dict[type, str] = {Mappo: "mappo", Happo: "happo", Qmix: "qmix", Ma2e: "ma2e"}


def settings(preset: str, hyper: Hyper, env: str) -> dict[str, Any]:
    """The options a preset sets for an algorithm in an environment."""
    found = {name: value for name, value in row(preset, hyper, env).items() if name != STATE}
    if preset != "paper" and hyper.operator != "none":
        found |= {name: value for name, value in WITH_CONSENSUS.items() if name in found}
    return found


def applied(preset: str, hyper: Hyper, env: str) -> str:
    """A line about the options in effect because of the environment; empty if there are none."""
    own = {name: getattr(hyper, name) for name in settings(preset, hyper, env)}
    usual = ALGORITHMS[FAMILIES[type(hyper)]]
    words = [f"{name} {str(value).lower()}" for name, value in own.items() if value != getattr(usual, name)]
    return f"{preset} settings of {env.partition('?')[0]}: {', '.join(words)}" if words else ""


def notes(preset: str, hyper: Hyper, env: str) -> list[str]:
    """What the start of a run says about its settings."""
    lines = [applied(preset, hyper, env)]
    if isinstance(hyper, Qmix):
        ratio = f"replay ratio {hyper.batch / hyper.interval:g}"
        lines.append(
            f"{ratio}: {hyper.batch} sampled episodes for every {hyper.interval} finished (--batch, --interval)"
        )
    return list(filter(None, lines))


def with_states(preset: str, hyper: Hyper, env: str) -> str:
    """The environment with the states that a preset wants, where it can have them and is not given others."""
    plain, _, options = env.partition("?")
    if STATE not in row(preset, hyper, env) or not plain.startswith("skirmish/") or "state=" in options:
        return env
    return f"{plain}?{','.join(sorted([*filter(None, options.split(',')), 'state=agent']))}"


def row(preset: str, hyper: Hyper, env: str) -> dict[str, Any]:
    """A preset's row for an algorithm in an environment."""
    algo = family(hyper)
    rows = PRESETS[preset].get(algo, {})
    for name in scenarios(env):
        if name in rows:
            return rows[name]
    if preset == "default":
        return {}
    raise GraspError(f"{algo} has no {preset} settings for {env}; leave --preset out, or see `grasp list`")


def family(hyper: Hyper) -> str:
    """The name of an algorithm's rows, which are the same with and without a consensus."""
    return "vdn" if isinstance(hyper, Qmix) and hyper.mixer == "sum" else FAMILIES[type(hyper)]


def scenarios(env: str) -> list[str]:
    """The rows that may apply to an environment, most specific first."""
    plain, _, options = env.partition("?")
    group, _, scenario = plain.partition("/")
    return [*closest(scenario, options), group, *([GROUPS[group]] if group in GROUPS else []), ""]


def closest(scenario: str, options: str) -> list[str]:
    """A scenario's own row; for SMACv2's maps, in the game or in Skirmish, the rows by race and size, then by size."""
    drawn = re.fullmatch(r"(?:10gen_)?(terran|protoss|zerg)(?:_(\d+)_vs_\d+)?", scenario)
    if not drawn:
        return [scenario]
    units = re.search(r"\bn_units=(\d+)", options)
    number = drawn[2] or (units[1] if units else "10")
    return [f"{drawn[1]}_{number}_units", f"smacv2_{number}_units"]
