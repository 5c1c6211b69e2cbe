"""The paper's tables and figures, and controls that it does not have, each as a list of runs. Data only.

The paper's scores are means ± standard deviations of three seeds, in the real game, with settings that it reports only
in part. Figures whose numbers are not in the text have no scores here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Entry(NamedTuple):
    """A run that a suite has in each of its environments."""

    label: str
    """Its label in the report, and the name of its folder."""
    algo: str
    options: Mapping[str, Any] = NOTHING
    size: Mapping[str, int] = NOTHING
    """Its own steps and seeds for the budget `results`."""
    decays: bool = False
    """Whether learning rates are annealed to zero over the run, whatever its length."""


class Suite(NamedTuple):
    shows: str
    envs: tuple[str, ...]
    entries: tuple[Entry, ...]
    preset: str = "paper"
    paper_scores: Mapping[str, Mapping[str, str]] = NOTHING
    """The paper's scores, by environment and label."""
    note: str = ""
    """A caveat, printed with the report."""


class Budget(NamedTuple):
    """The length of every run of a suite."""

    steps: int
    seeds: int
    options: Mapping[str, Any] = NOTHING
    help: str = ""
    sized: bool = False
    """Whether an entry's own `size` replaces steps and seeds."""


BUDGETS = {
    "smoke": Budget(
        20_000, 2, MappingProxyType({"eval_interval": 5000, "eval_episodes": 8, "final_episodes": 32}),
        "minutes: checks that everything runs, too short to learn",
    ),
    "short": Budget(1_000_000, 3, help="a million steps: hours on two cores, days with MA2E or football"),
    "paper": Budget(10_000_000, 3, help="the paper's ten million steps and three seeds: days on two cores"),
    "results": Budget(1_000_000, 5, help="the runs of docs/results.md, at their lengths", sized=True),
}  # fmt: skip

COUNTERPARTS = {
    "smac/5m_vs_6m": "skirmish/5m_vs_6m",
    "smac/8m_vs_9m": "skirmish/8m_vs_9m",
    "smac/27m_vs_30m": "skirmish/27m_vs_30m",
    "smac/MMM2": "skirmish/MMM2",
    "smac/3s5z_vs_3s6z": "skirmish/3s5z_vs_3s6z",
    "smacv2/10gen_terran": "skirmish/terran_10_vs_10",
    "smacv2/10gen_protoss": "skirmish/protoss_10_vs_10",
    "smacv2/10gen_zerg?n_units=5": "skirmish/zerg_5_vs_5",
}
"""Our simulations of scenarios of the real game, for use where it is not installed. Scores are not comparable."""


def plain(*algos: str) -> tuple[Entry, ...]:
    return tuple(Entry(algo, algo) for algo in algos)


def grasp(label: str, **options: Any) -> Entry:
    return Entry(label, "grasp-mappo", MappingProxyType(options))


def reported(*cells: str) -> dict[str, str]:
    """A row of the paper's Table 1."""
    return dict(zip(("grasp-mappo", "mappo", "happo", "ma2e"), cells, strict=True))


ON_POLICY, OFF_POLICY = ("mappo", "grasp-mappo", "happo", "grasp-happo"), ("qmix", "vdn", "grasp-qmix", "ma2e")

OURS: Mapping[str, dict[str, Any]] = {algo: {"epochs": 10} for algo in ON_POLICY} | {"ma2e": {"feedforward": 96}}
"""Where the runs of docs/results.md differ from the paper's preset, unless their suite has a setting of its own."""


def tuned(*runs: str | Entry, steps: int, seeds: int = 5, decays: bool = False, **options: Any) -> tuple[Entry, ...]:
    """Entries with common settings, at the lengths of the runs in docs/results.md."""
    size = MappingProxyType({"steps": steps, "seeds": seeds})
    entries = (Entry(run, run) if isinstance(run, str) else run for run in runs)
    return tuple(
        Entry(
            entry.label,
            entry.algo,
            MappingProxyType(OURS.get(entry.algo, {}) | options | dict(entry.options)),
            size,
            decays,
        )
        for entry in entries
    )


def sized(*entries: Entry, steps: int, seeds: int) -> tuple[Entry, ...]:
    """Entries at the lengths of the runs in docs/results.md."""
    return tuple(entry._replace(size=MappingProxyType({"steps": steps, "seeds": seeds})) for entry in entries)


OPERATORS = (
    "min_norm", "min_norm_unit", "frank_wolfe", "mean", "pcgrad", "cagrad", "nash", "nash_normalised", "upgrad",
    "dualproj", "imtl_g", "aligned_mtl", "random",
)  # fmt: skip
"""The names in `grasp.consensus`, which is slow to import; a test compares them."""
MARINES = {
    "hidden": 128, "num_envs": 128, "epochs": 8, "minibatches": 4, "lr": 1e-3, "critic_lr": 1e-3
}  # fmt: skip
MARINES_REPLAYED = {
    "hidden": 128, "num_envs": 16, "batch": 64, "lr": 5e-4, "reward_scale": 10.0, "td_lambda": 0.9,
    "epsilon": 0.02,
}  # fmt: skip
SPREAD_REPLAYED = {"lr": 5e-4, "interval": 1, "reward_scale": 0.1, "anneal": 20_000}
BATTLES = {"num_envs": 32, "epochs": 8, "minibatches": 2, "lr": 1e-3, "critic_lr": 1e-3}
BATTLES_REPLAYED = {"td_lambda": 0.9, "anneal": 50_000}
FOOTBALL = {"num_envs": 16, "epochs": 15, "minibatches": 4, "lr": 1e-3, "critic_lr": 1e-3, "entropy": 0.001}
SHARED_ACTOR = Entry("mappo-shared", "mappo", MappingProxyType({"sharing": "shared"}))
BEFORE: Mapping[str, dict[str, Any]] = {
    "layout": {"layout": "paper"},
    "critic": {"critic": "mlp"},
    "width": {"hidden": 64},
    "rate": {"lr": 5e-4, "critic_lr": 5e-4},
    "entropy": {"entropy": 0.01},
    "batch": {"num_envs": 32, "rollout": 100, "minibatches": 1},
    "passes": {"epochs": 10, "minibatches": 1},
}
"""What MAPPO had before its defaults for battles, one setting at a time."""
JAXMARL_RATES = Entry(
    "jaxmarl-rates", "mappo", MappingProxyType({"lr": 2e-3, "critic_lr": 2e-3, "max_grad_norm": 0.25}), decays=True
)
TABLE_1 = plain("grasp-mappo", "mappo", "happo", "ma2e")
MEAN, STEP_SIZE = grasp("mean", operator="mean"), grasp("step-size", control="step_size")
UPDATE_SIZE = grasp("update-size", control="update_size")
CONTROLS = (
    SHARED_ACTOR,
    Entry("mappo", "mappo"),
    grasp("grasp-mappo"),
    MEAN,
    grasp("placebo", control="placebo"),
    grasp("permuted", control="permuted"),
    STEP_SIZE,
    UPDATE_SIZE,
    grasp("once", refresh="first"),
    grasp("every-minibatch", refresh="minibatch"),
    grasp("backbone", scope="backbone"),
    grasp("heads-and-backbone", scope="both"),
    grasp("grasp-mappo-shared", sharing="shared"),
    grasp("listing-1", sharing="shared", gram="inputs"),
    grasp("crossfit", gram="crossfit"),
    grasp("crossfit-8", gram="crossfit", folds=8),
    grasp("representation", gram="representation"),
    grasp("kl-stop", trust="kl_stop", kl=0.005),
    grasp("trcco", trust="trcco"),
)
BY_OPERATOR = (Entry("mappo", "mappo"), *(grasp(name, operator=name) for name in OPERATORS))
SUITES = {
    "table1-smac": Suite(
        "Table 1 and its figure, SMAC",
        ("smac/MMM2", "smac/3s5z_vs_3s6z", "smac/5m_vs_6m"),
        TABLE_1,
        paper_scores={
            "smac/MMM2": reported("0.967 ± 0.031", "0.717 ± 0.218", "0.509 ± 0.168", "0.839 ± 0.021"),
            "smac/3s5z_vs_3s6z": reported("0.783 ± 0.360", "0.619 ± 0.345", "0.461 ± 0.232", "0.027 ± 0.010"),
            "smac/5m_vs_6m": reported("0.909 ± 0.044", "0.815 ± 0.075", "0.350 ± 0.321", "0.372 ± 0.114"),
        },
    ),
    "table1-smacv2": Suite(
        "Table 1 and its figure, SMACv2",
        ("smacv2/10gen_terran", "smacv2/10gen_protoss", "smacv2/10gen_zerg?n_units=5"),
        TABLE_1,
        paper_scores={
            "smacv2/10gen_terran": reported("0.467 ± 0.103", "0.571 ± 0.000", "0.233 ± 0.074", "0.583 ± 0.057"),
            "smacv2/10gen_protoss": reported("0.563 ± 0.045", "0.491 ± 0.094", "0.250 ± 0.069", "0.391 ± 0.054"),
            "smacv2/10gen_zerg?n_units=5": reported("0.491 ± 0.084", "0.418 ± 0.083", "0.363 ± 0.020", "0.396 ± 0.065"),
        },
    ),
    "fig-grf": Suite(
        "the figure on Google Research Football",
        ("grf/academy_counterattack_hard", "grf/academy_3_vs_1_with_keeper", "grf/academy_corner"),
        plain("grasp-mappo", "mappo", "ma2e"),
        note="The paper's tables disagree on the agents of academy_corner (10 or 11); 10 here.",
    ),
    "fig-mpe": Suite("the figure on MPE simple_spread", ("mpe/simple_spread",), plain("grasp-mappo", "mappo")),
    "fig-27m": Suite(
        "the figure on 27m_vs_30m",
        ("smac/27m_vs_30m",),
        plain("grasp-mappo", "mappo"),
        paper_scores={"smac/27m_vs_30m": {"grasp-mappo": "0.970", "mappo": "0.947"}},
    ),
    "fig-qmix": Suite(
        "the figure on GRASP-QMIX",
        ("smac/5m_vs_6m", "smac/8m_vs_9m", "smac/MMM2"),
        plain("grasp-qmix", "qmix"),
        note="The paper does not name the three maps of this figure; these are our guess.",
    ),
    "controls": Suite(
        "controls: which part of GRASP-MAPPO has an effect",
        ("mpe/simple_spread", "skirmish/3m"),
        CONTROLS,
    ),
    "operators": Suite("every consensus operator", ("mpe/simple_spread",), BY_OPERATOR),
    "algorithms": Suite(
        "all algorithms on small tasks, with our own settings",
        ("matrix/climbing", "mpe/simple_spread", "smax/3m", "skirmish/3m"),
        plain(*ON_POLICY, *OFF_POLICY),
        preset="default",
    ),
    "results-climbing": Suite(
        "all algorithms on the climbing game",
        ("matrix/climbing",),
        (*tuned(*ON_POLICY, steps=100_000), *tuned(*OFF_POLICY, steps=20_000)),
    ),
    "results-penalty": Suite(
        "all algorithms on the penalty game",
        ("matrix/penalty",),
        (*tuned(*ON_POLICY, steps=100_000), *tuned(*OFF_POLICY, steps=20_000)),
    ),
    "results-simple_spread": Suite(
        "all algorithms on MPE simple_spread",
        ("mpe/simple_spread",),
        (
            *tuned(*ON_POLICY, steps=1_000_000, lr=1e-3, critic_lr=1e-3),
            *tuned("qmix", "vdn", "grasp-qmix", steps=100_000, **SPREAD_REPLAYED),
            *tuned("ma2e", steps=60_000, **SPREAD_REPLAYED),
        ),
    ),
    "results-3m": Suite(
        "MAPPO, GRASP-MAPPO, HAPPO and QMIX on SMAX 3m, long runs",
        ("smax/3m",),
        (
            *tuned("mappo", "grasp-mappo", steps=6_000_000, decays=True, **MARINES),
            *tuned("happo", steps=8_000_000, seeds=3, decays=True, **MARINES, entropy=0.001),
            *tuned("qmix", steps=2_000_000, seeds=3, decays=True, **MARINES_REPLAYED),
        ),
        note="The settings were tuned for MAPPO, HAPPO and QMIX.",
    ),
    "results-3m_early": Suite(
        "all algorithms on SMAX 3m, within 200,000 steps",
        ("smax/3m",),
        (
            *tuned(*ON_POLICY, steps=200_000, decays=True, **MARINES | {"num_envs": 32}),
            *tuned("qmix", "vdn", "grasp-qmix", steps=200_000, decays=True, **MARINES_REPLAYED),
            *tuned("ma2e", steps=100_000, decays=True, **MARINES_REPLAYED),
        ),
        note="MA2E has half of the steps.",
    ),
    "results-skirmish_3m": Suite(
        "all algorithms on Skirmish's 3m",
        ("skirmish/3m",),
        (
            *tuned(*ON_POLICY, MEAN, STEP_SIZE, UPDATE_SIZE, steps=200_000, decays=True, **BATTLES),
            *tuned("qmix", "vdn", "grasp-qmix", steps=200_000, decays=True, **BATTLES_REPLAYED),
            *tuned("ma2e", steps=100_000, decays=True, **BATTLES_REPLAYED),
        ),
    ),
    "results-skirmish_5m_vs_6m": Suite(
        "controls: which part of GRASP-MAPPO has an effect, on Skirmish's 5m_vs_6m",
        ("skirmish/5m_vs_6m",),
        tuned(*CONTROLS, steps=400_000, decays=True, **BATTLES),
    ),
    "results-operators_5m_vs_6m": Suite(
        "every consensus operator on Skirmish's 5m_vs_6m",
        ("skirmish/5m_vs_6m",),
        tuned(*BY_OPERATOR, steps=400_000, decays=True, **BATTLES),
    ),
    **{
        f"results-skirmish_{name}": Suite(
            f"MAPPO, GRASP-MAPPO, the gradients' mean and longer steps on Skirmish's {name}",
            (f"skirmish/{name}",),
            tuned("mappo", "grasp-mappo", MEAN, STEP_SIZE, UPDATE_SIZE, steps=steps, seeds=3, decays=True, **BATTLES),
        )
        for name, steps in (("8m", 300_000), ("terran_5_vs_5", 1_500_000))
    },
    "results-skirmish_MMM2": Suite(
        "MAPPO and GRASP-MAPPO on Skirmish's MMM2",
        ("skirmish/MMM2",),
        tuned("mappo", "grasp-mappo", steps=300_000, seeds=3, decays=True, **BATTLES),
    ),
    **{
        f"results-confirmation_{name}": Suite(
            f"confirmation of the results on Skirmish with new seeds, on {name}",
            (f"skirmish/{name}",),
            tuned("mappo", "grasp-mappo", MEAN, UPDATE_SIZE, steps=400_000, seeds=8, seed=200, decays=True, **BATTLES),
            note="Fixed before the first of these runs, whose seeds no earlier run had used: the score is the mean of "
            "all evaluations but that of the untrained team; GRASP-MAPPO is compared with MAPPO, with an equally long "
            "Adam step along the agent's own gradient, and with the mean of the gradients, on 5m_vs_6m and 8m_vs_9m "
            "together, by a permutation test that relabels scores within each map; a difference counts if p is below "
            "1.7 % (5 % over three questions).",
        )
        for name in ("5m_vs_6m", "8m_vs_9m")
    },
    **{
        f"results-baselines_{name}": Suite(
            f"the shortest commands on SMAX {name}, to be set beside JaxMARL's own MAPPO and QMIX",
            (f"smax/{name}",),
            sized(*plain("mappo", "grasp-mappo", "qmix"), SHARED_ACTOR, steps=1_500_000, seeds=3),
            preset="default",
        )
        for name in ("3m", "2s3z", "5m_vs_6m", "8m")
    },
    "results-baselines_settings": Suite(
        "MAPPO's defaults on SMAX 3m with one setting at a time as it was before",
        ("smax/3m",),
        sized(
            *(Entry(label, "mappo", MappingProxyType(options)) for label, options in BEFORE.items()),
            JAXMARL_RATES,
            steps=1_500_000,
            seeds=3,
        ),
        preset="default",
    ),
    "results-football": Suite(
        "MAPPO and GRASP-MAPPO on football's 3_vs_1_with_keeper",
        ("grf/academy_3_vs_1_with_keeper",),
        tuned("mappo", "grasp-mappo", steps=300_000, seeds=3, eval_interval=30_000, **FOOTBALL),
    ),
}
