"""Configuration: complete, exact, and refused in one sentence where it is impossible."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from paths import REPOSITORY

from grasp import config
from grasp.config import parsing, presets
from grasp.config.hyperparameters import ALGORITHMS
from grasp.types import GraspError


def test_grasp_mappo_is_mappo_with_one_option_changed():
    plain, grasp = config.ALGORITHMS["mappo"], config.ALGORITHMS["grasp-mappo"]
    changed = [f.name for f in fields(plain) if getattr(plain, f.name) != getattr(grasp, f.name)]
    assert changed == ["operator"]


def test_a_configuration_is_read_back_as_it_was_written():
    chosen = config.configure("grasp-mappo", "probe/value", {"steps": 64_000, "lr": 1e-3, "sharing": "shared"})
    assert config.from_json(config.to_json(chosen), "config.json") == chosen
    assert chosen.eval_interval == 3_200


def older(algo: str, lacking: list[str] | None = None) -> dict[str, Any]:
    """A configuration of format 1, without the options that were added later, or without those given."""
    stored = json.loads(config.to_json(config.configure(algo, "probe/value", {}))) | {"format": 1}
    for name in parsing.missing(1, ALGORITHMS[algo]) if lacking is None else lacking:
        del (stored if name in stored else stored["hyper"])[name]
    return stored


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_options_that_an_older_file_lacks_have_the_values_that_its_runs_had(algo):
    """Time-outs became terminal for Q-learners when `time_limit` was added; every other option kept its effect."""
    found = config.from_json(json.dumps(older(algo)), "config.json")
    today = config.configure(algo, "probe/value", {"parallel": "auto"})
    assert found.hyper.time_limit == "bootstrap"
    assert found == replace(today, hyper=replace(today.hyper, time_limit="bootstrap"))


def test_a_file_of_format_2_lacks_only_the_options_of_networks_and_inputs():
    stored = json.loads(config.to_json(config.configure("happo", "probe/value", {"blocks": 5}))) | {"format": 2}
    for name in parsing.missing(2, ALGORITHMS["happo"]):
        del stored["hyper"][name]
    assert config.from_json(json.dumps(stored), "config.json") == config.configure("happo", "probe/value", {})
    del stored["hyper"]["folds"]
    with pytest.raises(GraspError, match="lacks 'folds', which every run of format 2 has"):
        config.from_json(json.dumps(stored), "config.json")


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_report_on_an_older_file_has_the_options_that_its_runs_had(algo):
    stored = older(algo)
    stored["hyper"] |= {"unknown": "end"} | ({"time_limit": "cut"} if "qmix" in algo else {})
    complete = json.loads(config.to_json(config.from_json(json.dumps(older(algo)), "config.json")))
    del complete["format"]
    complete["hyper"] |= {"unknown": "end"}
    assert config.header(json.dumps(stored), "config.json") == complete


def test_the_old_words_for_time_limits_are_still_read():
    for old, new in (("end", "terminal"), ("cut", "bootstrap")):
        assert config.configure("qmix", "probe/value", {"time_limit": old}).hyper.time_limit == new
    with pytest.raises(GraspError, match="time_limit must be one of bootstrap, terminal, not 'ends'"):
        config.configure("qmix", "probe/value", {"time_limit": "ends"})


def test_a_fully_shared_actor_of_the_reference_layout_tells_agents_apart_unless_told_otherwise():
    shared = {"layout": "reference", "sharing": "shared"}
    assert config.configure("mappo", "probe/value", shared).hyper.agent_id
    assert not config.configure("mappo", "probe/value", shared | {"agent_id": False}).hyper.agent_id
    for other in ({"layout": "reference"}, {"sharing": "shared"}):
        assert not config.configure("mappo", "probe/value", other).hyper.agent_id


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_changed_defaults_do_not_change_what_an_older_file_means(algo, monkeypatch):
    text, before = json.dumps(older(algo)), config.from_json(json.dumps(older(algo)), "config.json")
    changed = replace(ALGORITHMS[algo], folds=8, decay=10**9, control="placebo", operator="mean", hidden=2)
    monkeypatch.setitem(ALGORITHMS, algo, changed)
    monkeypatch.setattr(presets, "settings", lambda *_: {"decay": 10**8})
    assert config.from_json(text, "config.json") == before


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_option_that_no_format_explains_is_one_error(algo):
    for name in ("lr", "steps", "gamma"):
        with pytest.raises(GraspError) as mistake:
            config.from_json(json.dumps(older(algo, [name])), "DIR/config.json")
        assert (
            str(mistake.value) == f"DIR/config.json lacks '{name}', which every run of format 1 has; restore the file"
        )
    for name in ("folds", "devices"):
        newest = older(algo, [name]) | {"format": config.FORMAT}
        with pytest.raises(GraspError, match=f"lacks '{name}', which every run of format {config.FORMAT} has"):
            config.from_json(json.dumps(newest), "DIR/config.json")


def test_an_option_that_does_not_exist_is_one_error_that_names_the_file():
    stored = older("mappo", []) | {"stepps": 3}
    with pytest.raises(GraspError, match="^DIR/config.json: unknown option 'stepps'; did you mean 'steps'"):
        config.from_json(json.dumps(stored), "DIR/config.json")


def test_the_committed_runs_mean_what_they_meant():
    """Some of them were made before the options of format 1 were complete."""
    paths = sorted((REPOSITORY / "results").glob("*/runs/*/config.json"))
    assert len(paths) > 50
    short = 0
    for path in paths:
        stored = json.loads(path.read_text())
        found = json.loads(config.to_json(config.from_json(path.read_text(), str(path))))
        added = {name: value for name, value in found.items() if name not in stored}
        added |= {name: value for name, value in found["hyper"].items() if name not in stored["hyper"]}
        before = parsing.missing(stored["format"], ALGORITHMS[stored["algo"]])
        assert added == {name: before[name] for name in added}, path
        assert all(found[name] == value for name, value in stored.items() if name not in ("format", "hyper")), path
        words = {"end": "terminal", "cut": "bootstrap"}
        assert all(found["hyper"][name] == words.get(value, value) for name, value in stored["hyper"].items()), path
        short += not added.keys() <= parsing.missing(2, ALGORITHMS[stored["algo"]]).keys()
    assert short == 2


def test_evaluations_are_evenly_spaced_and_include_both_ends():
    chosen = config.configure("mappo", "probe/value", {"steps": 32_000 * 10, "num_envs": 10, "rollout": 100})
    points = [i for i in range(chosen.iterations + 1) if chosen.is_evaluation(i)]
    assert points[0] == 0
    assert points[-1] == chosen.iterations == 320
    assert len(points) == config.EVALUATIONS + 1
    assert len({b - a for a, b in zip(points, points[1:], strict=False)}) == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"chunk": 7}, "chunk 7 does not divide rollout 100; the nearest that does is 5"),
        ({"steps": 100}, "does not reach one iteration of num_envs × rollout = 3200"),
        ({"minibatches": 7}, "minibatches 7 does not divide the 320 chunks"),
        ({"num_envs": 0}, "num_envs must be at least 1, not 0"),
        ({"num_envs": -3}, "num_envs must be at least 1, not -3"),
        ({"lr": 0.0}, "lr must be positive"),
        ({"gamma": 1.5}, "gamma must lie between 0 and 1"),
        ({"weight": -1.0}, "weight must not be negative"),
        ({"seed": -1}, "seed must not be negative"),
        ({"lr": "fast"}, "lr must be a number, not 'fast'"),
        ({"num_envs": 2.5}, "num_envs must be a whole number, not 2.5"),
        ({"actor": "mlp"}, "actor mlp needs layout reference"),
        ({"sharing": "some"}, "sharing must be one of shared, hybrid, separate"),
        ({"learning_rte": 1}, "unknown option 'learning_rte'"),
        ({"num_env": 1}, "did you mean 'num_envs'?"),
    ],
)
def test_an_impossible_choice_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(GraspError) as mistake:
        config.configure("mappo", "probe/value", options)
    assert sentence in str(mistake.value)
    assert "\n" not in str(mistake.value)


def test_the_nearest_algorithm_is_suggested():
    with pytest.raises(GraspError, match="unknown algorithm 'grasp-mapo'; did you mean 'grasp-mappo'?"):
        config.defaults("grasp-mapo")


def test_a_newer_directory_is_refused_and_a_foreign_file_named():
    text = config.to_json(config.configure("mappo", "probe/value", {}))
    newer = json.dumps(json.loads(text) | {"format": config.FORMAT + 1})
    with pytest.raises(GraspError, match="newer grasp"):
        config.from_json(newer, "DIR/config.json")
    for foreign in ("{}", "[1]", "not json", "3"):
        with pytest.raises(GraspError, match="DIR/config.json is not a configuration"):
            config.from_json(foreign, "DIR/config.json")


@pytest.mark.parametrize(
    ("text", "kind", "value"), [("1e6", int, 1_000_000), ("-3", int, -3), ("0.5", float, 0.5), ("true", bool, True)]
)
def test_flags_are_read_as_their_type(text, kind, value):
    assert config.parse(text, kind) == value


@pytest.mark.parametrize(("text", "kind"), [("1.5", int), ("x", int), ("x", float), ("yes", bool), ("nan?", float)])
def test_flags_that_are_not_their_type_are_refused(text, kind):
    with pytest.raises(ValueError):  # noqa: PT011
        config.parse(text, kind)


def test_a_preset_is_the_scenario_s_settings_and_given_options_win():
    tuned = config.configure("grasp-mappo", "smax/5m_vs_6m", {"preset": "tuned", "lr": 1e-3})
    assert (tuned.hyper.num_envs, tuned.hyper.rollout, tuned.hyper.epochs, tuned.hyper.clip) == (8, 400, 10, 0.05)
    assert (tuned.hyper.lr, tuned.hyper.operator) == (1e-3, "min_norm")
    other = config.configure("mappo", "smax/3m", {"preset": "tuned"})
    assert (other.hyper.epochs, other.hyper.clip) == (15, 0.2)
    again = config.from_json(config.to_json(tuned), "config.json")
    assert again == tuned


@pytest.mark.parametrize("preset", presets.PRESETS)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_preset_is_a_possible_configuration(preset, algo):
    for scenario, options in presets.PRESETS[preset].get(presets.family(ALGORITHMS[algo]), {}).items():
        env = "grf/academy_pass_and_shoot_with_keeper" if scenario == "football" else f"smax/{scenario}"
        of_family = {"": "smax/3m", "battle": "smax/3m", "smax": "smax/3m", "skirmish": "skirmish/3m"}
        made = config.configure(algo, of_family.get(scenario, env), {"preset": preset})
        with_consensus = preset == "tuned" and ALGORITHMS[algo].operator != "none"
        own = {name: value for name, value in options.items() if name != presets.STATE}
        own |= {n: v for n, v in presets.WITH_CONSENSUS.items() if with_consensus and n in own}
        assert made.hyper == replace(ALGORITHMS[algo], **own)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_paper_s_preset_names_every_option_but_the_operator(algo):
    for options in presets.PRESETS["paper"][presets.family(ALGORITHMS[algo])].values():
        assert options.keys() == {f.name for f in fields(ALGORITHMS[algo])} - {"operator"}


def test_the_tuned_baseline_is_the_reference_s_and_its_grasp_variant_keeps_heads_from_a_common_start():
    plain, with_grasp = (
        config.configure(algo, "smax/3m", {"preset": "tuned"}).hyper for algo in ("mappo", "grasp-mappo")
    )
    assert (plain.layout, plain.sharing, plain.critic, plain.agent_id) == ("reference", "shared", "gru", True)
    assert (plain.time_limit, plain.denominator) == ("terminal", "common")
    changed = {f.name for f in fields(plain) if getattr(plain, f.name) != getattr(with_grasp, f.name)}
    assert changed == {"operator", "sharing", "denominator"}
    assert (with_grasp.sharing, with_grasp.denominator) == ("hybrid", "agent")
    by_name = config.configure("mappo", "smax/3m", {"preset": "tuned", "operator": "min_norm"}).hyper
    assert by_name == with_grasp
    harl = [config.configure(algo, "smax/5m_vs_6m", {"preset": "tuned"}).hyper for algo in ("happo", "grasp-happo")]
    assert [h.init for h in harl] == ["separate", "common"]
    assert [(h.actor, h.blocks, h.gamma, h.time_limit) for h in harl] == [("gru", 3, 0.95, "bootstrap")] * 2
    q = [config.configure(algo, "smax/3m", {"preset": "tuned"}).hyper for algo in ("qmix", "grasp-qmix")]
    assert [(h.layout, h.sharing) for h in q] == [("reference", "shared"), ("reference", "hybrid")]


def test_tuned_on_policy_learners_have_agent_specific_states_where_skirmish_leaves_the_choice():
    def env_of(algo, env, preset="tuned"):
        return config.configure(algo, env, {"preset": preset}).env

    assert env_of("mappo", "skirmish/3m") == "skirmish/3m?state=agent"
    assert env_of("mappo", "skirmish/3m?start_jitter=0.5") == "skirmish/3m?start_jitter=0.5,state=agent"
    assert env_of("mappo", "skirmish/3m?state=team") == "skirmish/3m?state=team"
    for algo, env in (("qmix", "skirmish/3m"), ("happo", "skirmish/MMM2"), ("mappo", "smax/3m")):
        assert env_of(algo, env) == env
    assert env_of("mappo", "skirmish/3m", "paper") == "skirmish/3m"


SIZES = ("num_envs", "rollout", "epochs", "minibatches", "clip", "gamma")


@pytest.mark.parametrize(
    ("algo", "env", "sizes"),
    [
        ("mappo", "smac/3m", (8, 400, 15, 1, 0.2, 0.99)),
        ("mappo", "smax/8m_vs_9m", (8, 400, 15, 1, 0.05, 0.99)),
        ("mappo", "skirmish/10m_vs_11m", (8, 400, 10, 1, 0.2, 0.99)),
        ("mappo", "smac/27m_vs_30m", (8, 400, 5, 1, 0.2, 0.99)),
        ("grasp-mappo", "smac/MMM2", (8, 400, 5, 2, 0.2, 0.99)),
        ("mappo", "smac/3s_vs_5z", (8, 400, 15, 1, 0.05, 0.99)),
        ("mappo", "smac/corridor", (8, 400, 5, 1, 0.2, 0.99)),
        ("mappo", "smacv2/10gen_zerg?n_units=5", (8, 400, 5, 1, 0.2, 0.99)),
        ("mappo", "grf/academy_3_vs_1_with_keeper", (50, 200, 15, 2, 0.2, 0.99)),
        ("grasp-mappo", "grf/academy_corner?agents=11", (50, 1000, 15, 2, 0.2, 0.99)),
        ("mappo", "mpe/simple_spread", (128, 25, 10, 1, 0.2, 0.99)),
        ("happo", "smax/5m_vs_6m", (20, 160, 5, 1, 0.05, 0.95)),
        ("grasp-happo", "smac/3s5z_vs_3s6z", (20, 160, 5, 2, 0.1, 0.95)),
        ("happo", "skirmish/MMM2", (20, 160, 5, 1, 0.2, 0.95)),
        ("happo", "smac/6h_vs_8z", (20, 160, 10, 2, 0.05, 0.95)),
        ("happo", "smac/corridor", (20, 160, 5, 1, 0.2, 0.99)),
        ("happo", "skirmish/terran_5_vs_5", (20, 160, 5, 2, 0.05, 0.99)),
        ("happo", "smacv2/10gen_terran?n_enemies=5,n_units=5", (20, 160, 5, 2, 0.05, 0.99)),
        ("happo", "smacv2/10gen_zerg", (20, 160, 5, 1, 0.05, 0.99)),
        ("happo", "grf/academy_counterattack_hard", (50, 1000, 15, 2, 0.2, 0.99)),
        ("happo", "mpe/simple_spread", (20, 200, 5, 1, 0.2, 0.99)),
    ],
)
def test_tuned_sizes_are_those_of_the_reference_code(algo, env, sizes):
    """Copied from on-policy's and HARL's scripts."""
    hyper = config.configure(algo, env, {"preset": "tuned"}).hyper
    assert tuple(getattr(hyper, name) for name in SIZES) == sizes
    if env == "mpe/simple_spread" and algo == "mappo":
        assert (hyper.lr, hyper.critic_lr) == (7e-4, 7e-4)


REPLAYED = (
    "num_envs",
    "buffer",
    "batch",
    "lr",
    "td_lambda",
    "anneal",
    "hidden",
    "mixer_embed",
    "mixer_hidden",
    "gamma",
)


@pytest.mark.parametrize(
    ("algo", "env", "sizes"),
    [
        ("qmix", "smac/MMM2", (8, 5000, 128, 1e-3, 0.6, 100_000, 64, 32, 64, 0.99)),
        ("vdn", "smax/3m", (8, 5000, 128, 1e-3, 0.6, 100_000, 64, 32, 64, 0.99)),
        ("grasp-qmix", "smac/3s5z_vs_3s6z", (8, 5000, 128, 1e-3, 0.6, 100_000, 256, 64, 256, 0.99)),
        ("qmix", "smac/6h_vs_8z", (8, 5000, 128, 1e-3, 0.3, 500_000, 64, 32, 64, 0.99)),
        ("qmix", "smacv2/10gen_protoss", (8, 5000, 128, 1e-3, 0.4, 100_000, 64, 32, 64, 0.99)),
        ("qmix", "skirmish/zerg_20_vs_20", (8, 5000, 128, 1e-3, 0.4, 100_000, 64, 32, 64, 0.99)),
        ("vdn", "grf/academy_counterattack_hard", (16, 2000, 128, 5e-4, 1.0, 100_000, 256, 32, 64, 0.999)),
    ],
)
def test_tuned_replay_buffers_are_those_of_the_reference_code(algo, env, sizes):
    """Copied from PyMARL2's and MA2E's configurations."""
    hyper = config.configure(algo, env, {"preset": "tuned"}).hyper
    assert tuple(getattr(hyper, name) for name in REPLAYED) == sizes
    assert hyper.target_interval == (1 if env.startswith("grf") else 200)


def test_a_scenario_without_reference_settings_is_refused():
    with pytest.raises(GraspError, match="mappo has no tuned settings for matrix/climbing"):
        config.configure("grasp-mappo", "matrix/climbing", {"preset": "tuned"})
    with pytest.raises(GraspError, match="qmix has no tuned settings for grf/academy_corner"):
        config.configure("grasp-qmix", "grf/academy_corner", {"preset": "tuned"})
    assert config.configure("qmix", "smax/25m", {"preset": "tuned"}).hyper.batch == 128


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_decay_that_ends_before_the_run_is_refused(algo):
    with pytest.raises(GraspError, match="decay 5000 anneals the learning rate to 0 before step 10000"):
        config.configure(algo, "probe/value", {"steps": 10_000, "decay": 5000})


def test_pretraining_that_does_not_count_adds_whole_iterations():
    options = {"steps": 10_000, "num_envs": 8, "rollout": 50, "pretrain": 5000}
    counting = config.configure("ma2e", "probe/roles", options)
    beside = config.configure("ma2e", "probe/roles", options | {"pretraining_counts": False})
    assert (counting.uncounted_steps, counting.iterations) == (0, 25)
    assert (beside.uncounted_steps, beside.iterations) == (13 * 400, 25 + 13)  # 5000 steps are 12.5 iterations
    exact = config.configure("ma2e", "probe/roles", options | {"pretraining_counts": False, "pretrain": 4800})
    assert (exact.uncounted_steps, exact.iterations) == (12 * 400, 25 + 12)
    none = config.configure("ma2e", "probe/roles", options | {"pretraining_counts": False, "pretrain": 0})
    assert (none.uncounted_steps, none.iterations) == (0, 25)
    assert config.configure("qmix", "probe/roles", {"steps": 10_000}).uncounted_steps == 0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("skirmish/5m_vs_6m", "smax/5m_vs_6m"),
        ("skirmish/3m?start_jitter=0.5", "smax/3m"),
        ("skirmish/zerg_10_vs_11", "smax/smacv2_10_units"),
        ("skirmish/zerg_5_vs_5", "smax/smacv2_5_units"),
    ],
)
@pytest.mark.parametrize("algo", ["mappo", "happo", "qmix", "ma2e"])
def test_skirmish_has_the_settings_of_its_map_in_smac(algo, ours, theirs):
    made = [config.configure(algo, env, {"preset": "tuned"}).hyper for env in (ours, theirs)]
    assert made[0] == made[1] != ALGORITHMS[algo]


@pytest.mark.parametrize("preset", ["paper", "tuned"])
def test_the_presets_of_ma2e_have_the_reference_s_sizes(preset):
    hyper = config.configure("ma2e", "smax/3m", {"preset": preset}).hyper
    assert (hyper.feedforward, hyper.embed, hyper.heads, hyper.encoder_layers, hyper.decoder_layers) == (
        2048,
        24,
        4,
        3,
        2,
    )
    assert (hyper.window, hyper.hidden, hyper.autoencoder_lr, hyper.threshold, hyper.fine_tune) == (
        5,
        128,
        5e-4,
        0.015,
        500,
    )
    assert (hyper.buffer, hyper.batch) == {"paper": (5000, 32), "tuned": (1000, 128)}[preset]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": 7}, "hidden must be even and at least 2, not 7"),
        ({"hidden": 0}, "hidden must be even and at least 2, not 0"),
        ({"mode": "figure"}, "mode must be one of paper, released"),
        ({"fine_tune": 0}, "fine_tune must be at least 1, not 0"),
        ({"pretrain": -1}, "pretrain must not be negative, not -1"),
        ({"steps": 5000}, "pretrain 5000 leaves none of the 5000 steps for learning; give a smaller pretrain"),
        ({"steps": 399, "pretraining_counts": False}, "steps 399 does not reach one iteration"),
        ({"pretraining_counts": 1}, "pretraining_counts must be true or false, not 1"),
    ],
)
def test_an_impossible_choice_for_ma2e_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(GraspError) as mistake:
        config.configure("ma2e", "probe/roles", options)
    assert sentence in str(mistake.value)


@pytest.mark.parametrize("algo", ["mappo", "grasp-mappo"])
def test_compiled_battles_have_defaults_of_their_own_with_and_without_a_consensus_and_other_environments_have_not(algo):
    battle = config.configure(algo, "skirmish/5m_vs_6m?start_jitter=0.5", {"lr": 2e-3})
    assert battle.hyper == replace(ALGORITHMS[algo], **presets.BATTLES_ON_POLICY | {"lr": 2e-3})
    assert battle.preset == "default"
    for env in ("mpe/simple_spread", "smac/5m_vs_6m", "probe/value"):
        assert config.configure(algo, env, {}).hyper == ALGORITHMS[algo]


def test_the_line_about_settings_names_what_the_environment_changed_and_is_in_effect():
    chosen = config.configure("mappo", "smax/3m", {"lr": 2e-3, "hidden": 64})
    line = presets.applied(chosen.preset, chosen.hyper, chosen.env)
    assert line.startswith("default settings of smax/3m: layout reference, critic gru, num_envs 128,")
    assert "lr 0.002" in line
    assert "hidden" not in line
    plain = config.configure("mappo", "mpe/simple_spread", {})
    assert presets.applied(plain.preset, plain.hyper, plain.env) == ""


def test_the_start_of_a_q_learner_s_run_says_its_replay_ratio():
    chosen = config.configure("qmix", "probe/value", {"batch": 64, "interval": 16})
    (line,) = presets.notes(chosen.preset, chosen.hyper, chosen.env)
    assert line == "replay ratio 4: 64 sampled episodes for every 16 finished (--batch, --interval)"
    assert presets.notes("default", ALGORITHMS["mappo"], "probe/value") == []
