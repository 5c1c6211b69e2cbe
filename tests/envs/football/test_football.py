"""Google Research Football in worker processes, with the real engine."""

import importlib.util
import json
import os
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from grasp import algos
from grasp.config import configure
from grasp.envs import football
from grasp.envs.host import WORKERS, SimulatorPool, interpreter
from grasp.training import host_rollout
from grasp.types import GraspError

LEFT, RIGHT, DOWN, PASS, SHOT, RELEASE = 1, 5, 7, 11, 12, 14
BALL, ACTIVE, MODE, CLOCK = 88, 97, 108, 115
FIELDS = ("obs", "state", "avail", "alive", "reward", "terminated", "truncated", "won")
STOCK = """
import json, sys
import numpy as np
import gfootball.env
task, seed, file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
actions = np.load(file)
env = gfootball.env.create_environment(
    env_name=task, representation="simple115v2", rewards="scoring,checkpoints",
    number_of_left_players_agent_controls=actions.shape[1], other_config_options={"game_engine_random_seed": seed},
)
rows, rewards, done = [env.reset()], [], False
for action in actions:
    row, reward, done, info = env.step(action)
    rows.append(row)
    rewards.append(reward)
    if done:
        break
np.savez(file + ".npz", rows=rows, rewards=rewards, done=done)
"""
ACADEMY = """
import json
from gfootball.env import config, scenario_builder
ends = {}
for task in scenario_builder.all_scenarios():
    if task.startswith("academy_"):
        scenario = config.Config({"level": task}).ScenarioConfig()
        ends[task] = [scenario.end_episode_on_score, scenario.game_duration]
print(json.dumps(ends))
"""


@pytest.fixture(scope="module")
def engine():
    """The interpreter that has gfootball."""
    python = interpreter("football")
    check = "import importlib.util, sys; sys.exit(importlib.util.find_spec('gfootball') is None)"
    if subprocess.run([python, "-c", check], check=False).returncode:
        sentence = f"{python} has no gfootball; type: make football"
        pytest.fail(sentence) if "GRASP_FOOTBALL_PYTHON" in os.environ else pytest.skip(sentence)
    return python


@pytest.fixture
def opened(engine):
    """A function that opens pools; they are closed when the test ends."""
    pools = []

    def make(task, num_envs=1, workers=1, **options):
        pools.append(SimulatorPool(football.make(task, **options), num_envs, workers, deadline=120.0, restarts=1))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def adapter():
    spec = importlib.util.spec_from_file_location("adapter", WORKERS / "football.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(pool, command, copies, values):
    """Reset these copies with seeds, or step them with actions. Returns their records."""
    pool.records["seed" if command == "reset" else "action"][copies] = values
    pool.send(command, copies)
    assert not pool.wait(copies).any()
    return pool.records[copies].copy()


def play(pool, seed, policy, most=1000):
    """The records of one episode, or of its first steps, in the first copy under policy(step, last record)."""
    only = np.array([0])
    records = [run(pool, "reset", only, seed)[0]]
    while len(records) <= most:
        records.append(run(pool, "step", only, policy(len(records) - 1, records[-1]))[0])
        if records[-1]["terminated"] or records[-1]["truncated"]:
            break
    return records


def scripted(actions):
    return lambda step, records: actions[step]


def at_random(num_steps, num_agents, seed=0):
    return np.random.default_rng(seed).integers(0, 19, (num_steps, num_agents)).astype(np.int32)


def players(records):
    """The player of each row."""
    marks = np.stack([one["obs"][:, ACTIVE:MODE] for one in records])
    assert (marks.sum(-1) == 1).all()
    return marks.argmax(-1)


def attack(step, records):
    """Run to the goal and shoot."""
    return [SHOT if records["obs"][0, BALL] > 0.85 else RIGHT] * len(records["obs"])


@pytest.mark.parametrize(
    ("task", "options", "num_agents"),
    [
        ("academy_counterattack_hard", {}, 4),
        ("academy_3_vs_1_with_keeper", {}, 3),
        ("academy_corner", {}, 10),
        ("academy_corner", {"agents": 11}, 11),
    ],
)
def test_sizes_of_the_papers_scenarios(engine, task, options, num_agents):
    spec = football.make(task, **options).spec
    assert (spec.num_agents, spec.obs_dim, spec.state_dim, spec.num_actions) == (num_agents, 115, 116, 19)
    assert (spec.horizon, spec.has_wins, spec.package, spec.version) == (400, True, "gfootball", "2.10.2")
    assert spec.name == f"grf/{task}"


def test_every_academy_scenario_is_listed_and_ends_with_a_goal(engine):
    output = subprocess.run([engine, "-c", ACADEMY], capture_output=True, text=True, check=True).stdout
    academy = json.loads(output.splitlines()[-1])
    assert sorted(academy) == sorted(football.names())
    assert all(ends for ends, _ in academy.values())
    assert {task: steps for task, (_, steps) in academy.items() if steps != 400} == {
        "academy_single_goal_versus_lazy": 3000
    }


@pytest.mark.parametrize(
    ("task", "seed", "num_agents"), [("academy_counterattack_hard", 5, 4), ("academy_3_vs_1_with_keeper", 1, 3)]
)
def test_observations_rewards_and_ends_equal_gfootballs(engine, opened, tmp_path, task, seed, num_agents):
    actions = at_random(60, num_agents)
    if task == "academy_3_vs_1_with_keeper":  # checkpoints for one agent
        actions[:30] = RELEASE
        actions[:30, 0] = RIGHT
    np.save(tmp_path / "actions.npy", actions)
    arguments = [task, str(seed), str(tmp_path / "actions.npy")]
    subprocess.run([engine, "-W", "ignore", "-c", STOCK, *arguments], check=True, capture_output=True)
    stock = np.load(tmp_path / "actions.npy.npz")
    records = play(opened(task), seed, scripted(actions), most=60)
    assert len(records) == len(stock["rows"]) > 10
    np.testing.assert_array_equal([one["obs"] for one in records], stock["rows"])
    rewards = [one["reward"] for one in records[1:]]
    np.testing.assert_allclose(rewards, stock["rewards"].mean(-1), atol=1e-6)
    assert records[-1]["terminated"] == stock["done"]
    if task == "academy_3_vs_1_with_keeper":
        assert np.ptp(stock["rewards"], axis=-1).max() > 0.05


def test_the_state_marks_all_controlled_players_and_has_the_elapsed_time(opened):
    for step, one in enumerate(play(opened("academy_counterattack_hard"), 2, scripted(at_random(12, 4)), most=12)):
        shared = np.delete(one["obs"], np.s_[ACTIVE:MODE], 1)
        np.testing.assert_array_equal(shared, np.tile(np.delete(one["state"], [*range(ACTIVE, MODE), CLOCK]), (4, 1)))
        np.testing.assert_array_equal(one["state"][ACTIVE:MODE], one["obs"][:, ACTIVE:MODE].max(0))
        assert one["state"][CLOCK] == np.float32(step / 400)
        assert one["avail"].all()
        assert one["alive"].all()


def test_a_seed_repeats_an_episode_in_every_engine(opened):
    pool = opened("academy_3_vs_1_with_keeper", num_envs=3, workers=2)  # the last two share a process
    everyone, actions = np.arange(3), at_random(30, 3)
    run(pool, "reset", everyone, [4, 5, 6])
    for action in at_random(5, 3, seed=1):
        run(pool, "step", everyone, action)

    def episodes(seeds):
        records = [run(pool, "reset", everyone, seeds)]
        records += [run(pool, "step", everyone, action) for action in actions[:12]]
        return np.stack(records)

    found = episodes([7, 7, 9])
    again = episodes([9, 8, 7])
    for name in FIELDS:
        np.testing.assert_array_equal(found[name][:, 0], found[name][:, 1])
        np.testing.assert_array_equal(found[name][:, 0], again[name][:, 2])
        np.testing.assert_array_equal(found[name][:, 2], again[name][:, 0])
    assert (found["obs"][-1, 0] != found["obs"][-1, 2]).any()
    assert (again["obs"][-1, 1] != again["obs"][-1, 2]).any()


def test_an_episode_is_truncated_after_exactly_400_steps(opened):
    pool = opened("academy_pass_and_shoot_with_keeper")
    records = play(pool, 0, lambda step, records: [0, 0])
    assert len(records) - 1 == 400
    assert not any(one["terminated"] or one["truncated"] for one in records[1:-1])
    assert (records[-1]["terminated"], records[-1]["truncated"], records[-1]["won"]) == (False, True, False)
    assert records[-1]["state"][CLOCK] == 1
    assert run(pool, "reset", np.array([0]), 0)[0]["state"][CLOCK] == 0


@pytest.mark.parametrize(("rewards", "returned"), [("scoring", 1.0), ("scoring+checkpoints", 2.0)])
def test_a_goal_terminates_and_wins_the_episode(opened, rewards, returned):
    pool = opened("academy_empty_goal", rewards=rewards)
    for seed in (3, 4):  # checkpoints are paid again in the second
        records = play(pool, seed, attack)[1:]
        assert (records[-1]["terminated"], records[-1]["truncated"], records[-1]["won"]) == (True, False, True)
        assert not any(one["won"] for one in records[:-1])
        paid = [float(one["reward"]) for one in records if one["reward"]]
        assert sum(paid) == pytest.approx(returned)
        assert paid[:-1] == pytest.approx([0.1] * (len(paid) - 1))
        assert len(paid) == (1 if rewards == "scoring" else 11)


def test_a_lost_episode_terminates_without_a_win(opened):
    last = play(opened("academy_empty_goal"), 0, lambda step, records: [0])[-1]
    assert (last["terminated"], last["truncated"], last["won"], last["reward"]) == (True, False, False, 0)


def test_pinned_agents_keep_their_players_and_others_do_not(opened):
    actions = at_random(60, 4)
    stock = players(play(opened("academy_counterattack_hard"), 5, scripted(actions), most=60))
    assert (stock != stock[0]).any()
    pinned = players(play(opened("academy_counterattack_hard", pinned=True), 5, scripted(actions), most=60))
    assert len(pinned) > 20
    assert (pinned == [7, 8, 9, 10]).all()


def test_pinned_players_are_nearest_to_the_ball_in_metres(opened):
    pool = opened("academy_corner", agents=2, pinned=True)  # in gfootball's units, 2 is nearer than 6
    assert players(run(pool, "reset", np.array([0]), 0)).tolist() == [[1, 6]]


def test_a_pass_to_an_uncontrolled_player_does_not_move_a_pin(opened):
    actions = [[DOWN]] * 4 + [[PASS]] + [[RELEASE]] * 25
    ends = {}
    for pinned in (False, True):
        records = play(opened("academy_3_vs_1_with_keeper", agents=1, pinned=pinned), 0, scripted(actions), most=30)
        ends[pinned] = players(records)[-1].item()
        ball, mates = records[-1]["state"][BALL : BALL + 2], records[-1]["state"][:8].reshape(4, 2)
        assert np.linalg.norm(mates - ball, axis=1).argmin() == 2  # the pass arrived
    assert ends == {False: 2, True: 1}


def test_a_pinned_agent_moves_its_own_player(opened):
    pool = opened("academy_3_vs_1_with_keeper", pinned=True)

    def positions(agent, action):
        actions = np.full((15, 3), RELEASE, np.int32)
        actions[:, agent] = action
        records = play(pool, 0, scripted(actions), most=15)
        assert (players(records) == [1, 2, 3]).all()
        return records[-1]["obs"][0, :8].reshape(4, 2)[:, 0]

    for agent in range(3):
        apart = positions(agent, RIGHT) - positions(agent, LEFT)
        assert apart.argmax() == agent + 1
        assert apart[agent + 1] > 0.1


def test_a_player_who_is_sent_off_is_not_alive():
    module = adapter()  # tested without the engine: a foul ends every academy episode
    simulator = module.Football.__new__(module.Football)
    simulator.spec, simulator.clock = {"num_agents": 3, "horizon": 400}, 0
    raw = {name: np.zeros((4, 2)) for name in module.TEAMS} | {
        "ball": np.zeros(3),
        "ball_direction": np.zeros(3),
        "ball_owned_team": -1,
        "game_mode": 0,
        "left_agent_controlled_player": [1, -1, 3],
        "left_team_active": [True, True, False, False],
    }
    obs, state, avail, alive = simulator._observe(raw)
    assert alive.tolist() == [True, False, False]
    assert avail.all()
    assert obs[:, ACTIVE:MODE].sum(1).tolist() == [1, 0, 1]
    assert state.shape == (116,)


def learner(algo, pool, **options):
    settings = {"num_envs": 2, "rollout": 8, "steps": 1000} | options
    made = algos.make(configure(algo, "matrix/climbing", settings), pool.host.spec)
    return made, made.init(jax.random.key(3))


@pytest.mark.parametrize(("algo", "options"), [("mappo", {"chunk": 4}), ("qmix", {"buffer": 16, "batch": 2})])
def test_algorithms_collect_in_the_engine(opened, algo, options):
    pool = opened("academy_3_vs_1_with_keeper", num_envs=2, workers=2)
    algorithm, state = learner(algo, pool, **options)
    stage = host_rollout.HostEnvs(pool, algorithm)
    stage.begin(lambda copy: copy)
    found, _, restarts = host_rollout.collect(stage, state, jax.random.key(0), 8)
    assert found.observation.obs.shape == (8, 2, 3, 115)
    assert found.next_observation.state.shape == (8, 2, 116)
    np.testing.assert_array_equal(found.observation.obs[1:], found.next_observation.obs[:-1])
    assert restarts == 0
    assert 0 < np.ptp(found.action) < 19


def test_the_episode_of_a_worker_killed_during_collection_is_not_in_the_batch(opened, monkeypatch):
    pool = opened("academy_3_vs_1_with_keeper", num_envs=2, workers=2)
    algorithm, state = learner("mappo", pool, chunk=4)
    stage = host_rollout.HostEnvs(pool, algorithm)
    seeds = [[], []]

    def seed(copy):
        seeds[copy].append(10 * copy + len(seeds[copy]))
        return seeds[copy][-1]

    stage.begin(seed)
    steps = []

    def send_and_kill(command, copies, send=pool.send):
        send(command, copies)
        steps.append(command)
        if len(steps) == 9:
            os.kill(pool.workers[0].process.pid, signal.SIGKILL)

    monkeypatch.setattr(pool, "send", send_and_kill)
    found, _, restarts = host_rollout.collect(stage, state, jax.random.key(0), 8)
    monkeypatch.undo()
    assert restarts == 1
    assert seeds == [[0, 1], [10]]
    assert found.first.tolist() == [[True, True]] + [[False, False]] * 7
    for copy in (0, 1):
        records = play(pool, seeds[copy][-1], scripted(found.action[:, copy]), most=8)
        np.testing.assert_array_equal([one["obs"] for one in records[:-1]], found.observation.obs[:, copy])
        np.testing.assert_array_equal([one["reward"] for one in records[1:]], found.reward[:, copy])


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        ("academy_corner", {"agents": 12}, "agents must be 1 to 11 in academy_corner, not 12"),
        ("academy_korner", {}, r"unknown academy scenario 'academy_korner'; did you mean 'academy_corner'\?"),
    ],
)
def test_wrong_arguments_are_named(engine, task, options, sentence):
    with pytest.raises(GraspError, match=sentence):
        football.make(task, **options)


def test_a_missing_engine_is_answered_with_the_command_that_builds_it(monkeypatch):
    monkeypatch.setenv("GRASP_FOOTBALL_PYTHON", sys.executable)
    sentence = (
        "environment 'grf/academy_corner': Google Research Football needs gfootball, which .* does not have; type: make"
    )
    with pytest.raises(GraspError, match=f"{sentence} football$"):
        football.make("academy_corner")
