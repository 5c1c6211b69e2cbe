"""The adapter of SMAC and SMACv2, on a stand-in with the packages' pitfalls. The game itself is not run."""

import ast
import importlib
import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from absl import flags
from paths import REPOSITORY

from grasp.types import suggest

ADAPTER = REPOSITORY / "src" / "grasp" / "envs" / "workers" / "smac.py"
STOP, ATTACK = 1, 6
CASES = {"smac": ("3m", {}), "smacv2": ("10gen_terran", {"game": "smacv2", "n_units": 5})}


def forget():
    for name in [name for name in sys.modules if name.split(".")[0] in ("smac", "smacv2", "standin_battle")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """The adapter without the packages and the game."""
    monkeypatch.delenv("SC2PATH", raising=False)
    monkeypatch.delenv("STANDIN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    forget()
    spec = importlib.util.spec_from_file_location("adapter", ADAPTER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    forget()


@pytest.fixture
def adapter(bare, starcraft):
    """The adapter with the stand-in installed."""
    return bare


@pytest.fixture(params=list(CASES))
def made(request, adapter):
    task, options = CASES[request.param]
    return adapter.make(task, **options)


def everyone(simulator, action):
    return np.full(simulator.spec["num_agents"], action, np.int32)


def attack(avail):
    """The first target of each agent, or stop where there is none."""
    return np.where(avail[:, ATTACK:].any(1), ATTACK + avail[:, ATTACK:].argmax(1), STOP).astype(np.int32)


def fight(simulator, seen, most=1000):
    """Attack until the battle ends. Returns the rewards and the last result."""
    rewards = []
    for _ in range(most):
        result = simulator.step(attack(seen[2]))
        seen = result[0]
        rewards.append(result[1])
        if result[2] or result[3]:
            return rewards, result
    raise AssertionError("the battle does not end")


def wait(simulator, steps):
    for _ in range(steps):
        result = simulator.step(everyone(simulator, STOP))
    return result


@pytest.mark.parametrize(
    ("task", "options", "sizes"),
    [
        ("3m", {}, (3, 30, 48, 9, 60)),
        ("2s3z", {}, (5, 80, 120, 11, 120)),
        ("MMM2", {}, (10, 176, 322, 18, 180)),
        ("10gen_terran", {"game": "smacv2"}, (10, 162, 290, 16, 200)),
        ("10gen_protoss", {"game": "smacv2", "n_units": 10, "n_enemies": 11}, (10, 191, 327, 17, 200)),
        ("10gen_zerg", {"game": "smacv2", "n_units": 5}, (5, 82, 120, 11, 200)),
    ],
)
def test_sizes_are_the_published_ones(adapter, task, options, sizes):
    spec = adapter.make(task, **options).spec
    names = ("num_agents", "obs_dim", "state_dim", "num_actions", "horizon")
    assert tuple(spec[name] for name in names) == sizes
    assert spec["has_wins"] is True
    assert spec["package"] == options.get("game", "smac")


def test_observations_have_the_sizes_and_types_of_the_contract(made):
    spec = made.spec
    for obs, state, avail, alive in [made.reset(0), made.step(everyone(made, STOP))[0]]:
        assert (obs.shape, obs.dtype) == ((spec["num_agents"], spec["obs_dim"]), np.float32)
        assert (state.shape, state.dtype) == ((spec["state_dim"],), np.float32)
        assert (avail.shape, avail.dtype) == ((spec["num_agents"], spec["num_actions"]), np.bool_)
        assert (alive.shape, alive.dtype) == ((spec["num_agents"],), np.bool_)
        assert alive.all()
        assert state.any()


def test_a_win_is_a_termination_and_returns_twenty(made):
    rewards, (seen, _, terminated, truncated, won) = fight(made, made.reset(0))
    assert (terminated, truncated, won) == (True, False, True)
    assert np.isclose(sum(rewards), 20.0)
    assert seen[0].any(), "the last observation is of the end of the battle"
    assert made.reset(1)[3].all(), "all agents are alive in the next battle"


def test_a_defeat_is_a_termination_that_is_not_won(adapter):
    simulator = adapter.make("3m")
    simulator.reset(0)
    for _ in range(simulator.spec["horizon"]):
        seen, reward, terminated, truncated, won = simulator.step(everyone(simulator, STOP))
        assert reward == 0.0
        if terminated:
            break
    assert (terminated, truncated, won) == (True, False, False)
    assert not seen[3].any()
    assert not seen[0].any(), "the last observation is of the end of the battle, not of the next one"


def test_actions_of_dead_agents_are_replaced_by_no_op(adapter):
    simulator = adapter.make("3m")
    _, _, avail, alive = simulator.reset(0)
    while alive.all():
        avail, alive = simulator.step(everyone(simulator, STOP))[0][2:]
    assert alive.tolist() == [False, True, True]
    assert avail[0].tolist() == [True] + [False] * 8
    assert not avail[1, 0]
    state = simulator.step(everyone(simulator, ATTACK))[0][1]
    assert state[-27:].reshape(3, 9).argmax(1).tolist() == [0, ATTACK, ATTACK]


@pytest.mark.parametrize("action", [0, 99])
def test_an_illegal_action_of_a_living_agent_raises(made, action):
    made.reset(0)
    with pytest.raises((AssertionError, IndexError)):
        made.step(everyone(made, action))


def test_alive_is_read_from_health_not_from_the_mask(made, monkeypatch):
    made.reset(0)
    everything = np.ones((made.spec["num_agents"], made.spec["num_actions"])).tolist()
    monkeypatch.setattr(getattr(made._env, "env", made._env), "get_avail_actions", lambda: everything)
    for _ in range(20):
        alive = made.step(everyone(made, STOP))[0][3]
        assert alive.tolist() == [unit.health > 0 for unit in made._env.agents.values()]
        if not alive.all():
            return
    raise AssertionError("no agent died")


@pytest.mark.parametrize("reset", [1, 2])
def test_the_result_none_of_reset_is_not_used(adapter, monkeypatch, reset):
    monkeypatch.setenv("STANDIN", f"respawn={reset}")
    simulator = adapter.make("10gen_zerg", game="smacv2", n_units=5)
    results, original = [], type(simulator._env).reset
    monkeypatch.setattr(type(simulator._env), "reset", lambda env: results.append(original(env)))
    for seed in range(reset):
        obs, state, avail, alive = simulator.reset(seed)
        assert obs.shape == (5, 82)
        assert state.shape == (120,)
        assert avail.any(1).all()
        assert alive.all()
    assert results[-1] is None


@pytest.mark.parametrize("game", list(CASES))
def test_a_second_attempt_at_spawning_does_not_count_the_enemies_twice(adapter, monkeypatch, game):
    monkeypatch.setenv("STANDIN", "respawn=1")
    task, options = CASES[game]
    simulator = adapter.make(task, **options)
    rewards, result = fight(simulator, simulator.reset(0))
    assert result[4]
    assert np.isclose(sum(rewards), 20.0)


def test_a_reset_before_the_first_battle_has_ended_changes_nothing(made, monkeypatch, tmp_path):
    monkeypatch.setenv("STANDIN", f"games={tmp_path / 'games'}")
    made.reset(0)
    made.step(everyone(made, STOP))
    rewards, result = fight(made, made.reset(0))
    made.close()
    assert result[4]
    assert np.isclose(sum(rewards), 20.0)
    assert len((tmp_path / "games").read_text().split()) == 1, "one game was started"


@pytest.mark.parametrize("fault", ["lost=3", "empty=3"])
def test_a_lost_connection_raises(made, monkeypatch, fault):
    monkeypatch.setenv("STANDIN", fault)
    made.reset(0)
    for _ in range(2):
        assert not any(made.step(everyone(made, STOP))[2:])
    with pytest.raises(ConnectionError, match="lost at step 3"):
        made.step(everyone(made, STOP))


def test_a_connection_lost_between_battles_raises(made, monkeypatch):
    monkeypatch.setenv("STANDIN", "lost_reset=2")
    fight(made, made.reset(0))
    with pytest.raises(ConnectionError, match="between two battles"):
        made.reset(1)


@pytest.mark.parametrize("fault", ["", "no_limit", "no_clock"])
def test_the_limit_truncates_after_exactly_the_horizon(made, monkeypatch, fault):
    monkeypatch.setenv("STANDIN", f"peace {fault}")
    for seed in range(2):
        made.reset(seed)
        result = wait(made, made.spec["horizon"] - 1)
        assert result[2:] == (False, False, False)
        result = wait(made, 1)
        assert result[2:] == (False, True, False)
        assert np.isclose(result[0][0][:, -4], 1.0).all(), "the last observation is of the end of the battle"


@pytest.mark.parametrize("fault", ["", "no_limit"])
def test_a_win_at_the_last_step_is_a_termination(adapter, monkeypatch, fault):
    monkeypatch.setenv("STANDIN", f"peace {fault}")
    simulator = adapter.make("3m")
    simulator.reset(0)
    seen = wait(simulator, simulator.spec["horizon"] - 3)[0]  # the three agents kill one enemy per step
    rewards, result = fight(simulator, seen)
    assert len(rewards) == 3
    assert result[2:] == (True, False, True)


@pytest.mark.parametrize(("task", "survivors"), [("3m", []), ("MMM2", []), ("MMM2", [9])])
def test_a_defeat_at_the_last_step_is_a_termination(adapter, monkeypatch, task, survivors):
    monkeypatch.setenv("STANDIN", "peace no_limit")
    simulator = adapter.make(task)
    simulator.reset(0)
    wait(simulator, simulator.spec["horizon"] - 1)
    for agent, unit in simulator._env.agents.items():  # the medivac is agent 9
        unit.health = 1.0 if agent in survivors else 0.0
    simulator._alive = np.array([unit.health > 0 for unit in simulator._env.agents.values()])
    result = wait(simulator, 1)
    assert result[2:] == (True, False, False)
    assert np.flatnonzero(result[0][3]).tolist() == survivors


def test_the_package_is_asked_to_mark_the_time_limit(made):
    assert made._env.continuing_episode is True


@pytest.mark.parametrize(
    ("task", "types", "weights", "exceptions"),
    [
        ("10gen_terran", ["marine", "marauder", "medivac"], [0.45, 0.45, 0.1], ["medivac"]),
        ("10gen_protoss", ["stalker", "zealot", "colossus"], [0.45, 0.45, 0.1], []),
        ("10gen_zerg", ["zergling", "baneling", "hydralisk"], [0.45, 0.1, 0.45], ["baneling"]),
    ],
)
def test_the_configuration_is_that_of_the_benchmark(adapter, task, types, weights, exceptions):
    env = adapter.make(task, game="smacv2", n_units=5, n_enemies=6)._env
    team, positions = env.capability_config["team_gen"], env.capability_config["start_positions"]
    assert (team["unit_types"], team["weights"], team["exception_unit_types"]) == (types, weights, exceptions)
    assert (team["dist_type"], team["observe"], team["n_units"], team["n_enemies"]) == ("weighted_teams", True, 5, 6)
    assert (positions["dist_type"], positions["p"], positions["map_x"], positions["map_y"]) == (
        "surrounded_and_reflect",
        0.5,
        32,
        32,
    )
    assert (env.use_unit_ranges, env.conic_fov) == (True, False)


def test_each_environment_has_its_own_copy_of_the_configuration(adapter):
    arguments = {"map_name": "10gen_zerg", "continuing_episode": True}
    arguments["capability_config"] = adapter._capabilities("10gen_zerg", 5, 5)
    simulator = adapter.Battle("smacv2", arguments)
    simulator.reset(0)
    assert "env_key" in simulator._env.capability_config["team_gen"], "the stand-in modifies its configuration"
    assert arguments["capability_config"] == adapter._capabilities("10gen_zerg", 5, 5)


def test_the_game_starts_once_with_the_first_seed(made):
    made.reset(2**32 + 5)
    env = made._env
    assert env.seed() == 5
    made.reset(6)
    assert made._env is env


def test_the_same_seeds_and_actions_from_the_start_give_the_same_battles(adapter):
    def battles(seeds):
        simulator = adapter.make("10gen_protoss", game="smacv2", n_units=5)
        return [fight(simulator, simulator.reset(seed))[0] for seed in seeds]

    assert battles([3, 4]) == battles([3, 4])
    assert battles([3, 4]) != battles([5, 4])


def test_teams_and_positions_follow_from_the_seed_of_their_reset(adapter):
    def start(*seeds):
        simulator = adapter.make("10gen_zerg", game="smacv2", n_units=8, n_enemies=9)
        for seed in seeds:
            simulator.reset(seed)
        units = [*simulator._env.agents.values(), *simulator._env.enemies.values()]
        return [(unit.unit_type, unit.pos.x, unit.pos.y) for unit in units]

    starts = [start(seed) for seed in range(4)]
    assert starts == [start(50 + seed, seed) for seed in range(4)]
    assert len({tuple(one) for one in starts}) == 4
    kinds = {tuple(kind for kind, _, _ in one) for one in starts}
    assert len(kinds) > 1, "teams differ"
    assert len({one[0][1:] for one in starts}) > 2, "start positions differ, except in surrounded starts"


def test_a_game_starts_without_parsed_absl_flags(made):
    parsed = flags.FLAGS.is_parsed()
    flags.FLAGS.unparse_flags()
    try:
        made.reset(0)
        assert flags.FLAGS.is_parsed()
    finally:
        if parsed:
            flags.FLAGS.mark_as_parsed()


def test_closing_ends_the_game(made, monkeypatch, tmp_path):
    monkeypatch.setenv("STANDIN", f"games={tmp_path / 'games'}")
    made.reset(0)
    pids = [int(line) for line in (tmp_path / "games").read_text().split()]
    assert len(pids) == 1
    os.kill(pids[0], 0)
    made.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def distribution(folder, name, version):
    (folder / f"{name}-{version}.dist-info").mkdir(parents=True)
    (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")


def game(folder, *files):
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return str(folder)


def refused(adapter, error, task="3m", **options):
    """The error message, which must be one line."""
    with pytest.raises(error) as raised:
        adapter.make(task, **options)
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("name", ["smac", "smacv2"])
def test_a_missing_package_is_named_with_its_project(bare, name):
    sentence = refused(bare, ModuleNotFoundError, "10gen_zerg", game=name)
    assert f"the package {name} is not installed" in sentence
    assert f"GitHub project oxwhirl/{name}" in sentence
    assert f".venv-smac/bin/python -m pip install ./{name} 'protobuf<3.21'" in sentence
    assert ("`pip install smac` installs an unrelated optimiser" in sentence) == (name == "smac")


def test_packages_are_not_installed_beside_jax(bare, monkeypatch):
    made = "python3.9 -m venv .venv-smac && export GRASP_SMAC_PYTHON=$PWD/.venv-smac/bin/python"
    assert made in refused(bare, ModuleNotFoundError)
    fixes = "".join(fix for _, _, fix in bare.diagnose())
    assert f"{sys.executable} -m pip" not in fixes
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jax" else find(name))
    sentence = refused(bare, ModuleNotFoundError)
    assert f"{sys.executable} -m pip install ./smac 'protobuf<3.21'" in sentence
    assert "venv-smac" not in sentence


def test_another_package_of_the_same_name_is_refused(bare, monkeypatch, tmp_path):
    game(tmp_path, "smac/__init__.py", "smac/facade/__init__.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert "is another project of that name" in refused(bare, ModuleNotFoundError)


@pytest.mark.parametrize(("version", "fine"), [("3.21.0", False), ("4.25.3", False), ("3.20.3", True), ("3.6.1", True)])
def test_a_protobuf_that_is_too_new_is_refused(adapter, monkeypatch, tmp_path, version, fine):
    distribution(tmp_path, "protobuf", version)
    monkeypatch.syspath_prepend(tmp_path)
    if fine:
        assert adapter.make("3m").spec["num_agents"] == 3
    else:
        sentence = refused(adapter, ValueError)
        assert f"protobuf {version} is too new" in sentence
        assert ".venv-smac/bin/python -m pip install 'protobuf<3.21'" in sentence


def test_a_missing_dependency_is_named(bare, monkeypatch, tmp_path):
    game(tmp_path, "smac/__init__.py", "smac/env/starcraft2/maps/__init__.py")
    (tmp_path / "smac/env/__init__.py").write_text("import pysc2\n")
    distribution(tmp_path, "protobuf", "3.20.3")
    monkeypatch.syspath_prepend(tmp_path)
    sentence = refused(bare, ModuleNotFoundError)
    assert "the package smac needs pysc2" in sentence
    assert "pip install pysc2" in sentence


def test_missing_parts_of_the_game_are_named(adapter, monkeypatch, tmp_path):
    monkeypatch.delenv("SC2PATH")
    assert f"SC2PATH is not set and there is no {tmp_path / 'StarCraftII'}" in refused(adapter, FileNotFoundError)
    for given in ["", str(tmp_path / "nowhere")]:
        monkeypatch.setenv("SC2PATH", given)
        sentence = refused(adapter, FileNotFoundError)
        assert f"SC2PATH is {given!r}, which is not a folder" in sentence
        assert "export SC2PATH=" in sentence
    monkeypatch.setenv("SC2PATH", game(tmp_path / "sc2", "Maps/SMAC_Maps/3m.SC2Map"))
    assert f"{tmp_path / 'sc2' / 'Versions'} has no version of the game" in refused(adapter, FileNotFoundError)
    game(tmp_path / "sc2", "Versions/Base69232/SC2_x64")
    assert adapter.make("3m").spec["num_agents"] == 3


def test_the_default_folder_of_the_game_is_found(adapter, monkeypatch, tmp_path):
    monkeypatch.delenv("SC2PATH")
    game(tmp_path / "StarCraftII", "Maps/SMAC_Maps/3m.SC2Map", "Versions/Base75689/SC2_x64")
    assert adapter.make("3m").spec["num_agents"] == 3


@pytest.mark.parametrize(
    ("task", "name", "file", "fix"),
    [
        ("3m", "smac", "3m", "cp -r smac/smac/env/starcraft2/maps/SMAC_Maps"),
        ("10gen_zerg", "smacv2", "32x32_flat", "unzip -o SMAC_Maps.zip -d"),
    ],
)
def test_a_missing_map_file_is_named(adapter, monkeypatch, tmp_path, task, name, file, fix):
    folder = game(tmp_path / "sc2", "Versions/Base75689/SC2_x64")
    monkeypatch.setenv("SC2PATH", folder)
    sentence = refused(adapter, FileNotFoundError, task, game=name)
    assert f"the map file {folder}/Maps/SMAC_Maps/{file}.SC2Map is missing" in sentence
    assert fix in sentence


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("3m", {"game": "smacv3"}, "game must be smac or smacv2, not 'smacv3'"),
        ("3m", {"n_units": 5}, "which need game=smacv2"),
        ("10gen_zerg", {"game": "smacv2", "n_units": 0}, "must be at least 1, not 0 and 0"),
    ],
)
def test_wrong_arguments_are_answered_with_valid_ones(adapter, task, options, message):
    assert message in refused(adapter, ValueError, task, **options)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("MMM3", {}, "smac has no map 'MMM3'; did you mean 'MMM2'?"),
        ("5gen_terran", {"game": "smacv2"}, "smacv2 has no map '5gen_terran'; did you mean '10gen_terran'?"),
        ("3m", {"game": "smacv2"}, "smacv2 has no map '3m'; known: 10gen_protoss, 10gen_terran, 10gen_zerg"),
    ],
)
def test_an_unknown_map_is_reported_with_those_of_the_game(adapter, task, options, message):
    with pytest.raises(LookupError) as error:
        adapter.make(task, **options)
    mistake, name, known, prefix = error.value.args
    assert f"{mistake}; {suggest(name, known, prefix=prefix)}" == message


def test_the_diagnosis_of_a_complete_installation(adapter):
    rows = adapter.diagnose()
    assert [fine for _, fine, _ in rows] == [True] * 7
    assert {fix for _, _, fix in rows} == {""}
    assert [what for what, _, _ in rows] == [
        "package smac", "package smacv2", "protobuf below 3.21", "SC2PATH", "StarCraft II 4.10",
        "maps of smac", "maps of smacv2",
    ]  # fmt: skip


def test_the_diagnosis_names_another_version_of_the_game(adapter, monkeypatch, tmp_path):
    files = ("Maps/SMAC_Maps/MMM2.SC2Map", "Versions/Base75689/SC2_x64", "Versions/Base100000/SC2_x64")
    monkeypatch.setenv("SC2PATH", game(tmp_path / "sc2", *files))
    wrong = {what: fix for what, fine, fix in adapter.diagnose() if not fine}
    assert sorted(wrong) == ["StarCraft II 4.10", "maps of smacv2"]
    assert "the newest version" in wrong["StarCraft II 4.10"]
    assert "Base100000" in wrong["StarCraft II 4.10"]


def test_the_diagnosis_runs_with_nothing_installed(tmp_path):
    code = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('adapter', sys.argv[1]); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); assert u.find_spec('numpy') is None; "
        "[print(fine, bool(fix)) for _, fine, fix in m.diagnose()]"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(ADAPTER)],
        capture_output=True, text=True, timeout=60, check=True, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["False True"] * 7


def test_an_old_interpreter_can_read_the_adapter():
    ast.parse(ADAPTER.read_text(), feature_version=(3, 8))
