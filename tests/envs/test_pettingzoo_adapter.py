"""The adapter of PettingZoo, compared with the environments it adapts, and on small ones with rare behaviour."""

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import grasp
from grasp.types import suggest

SOURCE = Path(grasp.__file__).parent / "envs" / "workers" / "pettingzoo.py"
ZOMBIES = "pettingzoo.butterfly.knights_archers_zombies_v11"
TASKS = {
    "mpe2.simple_spread_v3": {},
    "mpe2.simple_reference_v3": {},
    "mpe2.simple_speaker_listener_v4": {},
    ZOMBIES: {"max_cycles": 40, "spawn_delay": 2},
}
ALONE = f"""
import importlib.util, sys
found = importlib.util.spec_from_file_location("adapter", {str(SOURCE)!r})
adapter = importlib.util.module_from_spec(found)
found.loader.exec_module(adapter)
assert not {{"gymnasium", "pettingzoo"}} & set(sys.modules)
adapter.make("mpe2.simple_spread_v3").close()
assert not {{"grasp", "jax"}} & set(sys.modules)
"""

pytestmark = pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")


def load():
    found = importlib.util.spec_from_file_location("pettingzoo_adapter", SOURCE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


adapter = load()


class Team(ParallelEnv):
    """Three agents. The arguments set when and how each ends, and its observations, infos, spaces and masks."""

    possible_agents = ("a", "b", "c")

    def __init__(self, ends=None, observe=None, info=None, views=None, actions=None, max_cycles=5):
        self.max_cycles = max_cycles
        self.ends = ends or {}
        self.observe = observe or (lambda agent, clock: np.array([clock + 1.0, ord(agent)], np.float32))
        self.info = info or (lambda agent, clock: {})
        self.views = views or {}
        self.actions = actions or {}
        self.received = []

    def observation_space(self, agent):
        return self.views.get(agent, spaces.Box(-np.inf, np.inf, (2,), np.float32))

    def action_space(self, agent):
        return self.actions.get(agent, spaces.Discrete(3))

    def observe_all(self, agents):
        return {a: self.observe(a, self.clock) for a in agents}, {a: self.info(a, self.clock) for a in agents}

    def reset(self, seed=None, options=None):
        self.clock, self.agents = 0, list(self.possible_agents)
        return self.observe_all(self.agents)

    def step(self, actions):
        self.clock += 1
        self.received.append(actions)
        acting = self.agents
        ends = {agent: how for agent, (when, how) in self.ends.items() if when == self.clock}
        terminations = {agent: ends.get(agent) in ("terminated", "both") for agent in acting}
        truncations = {agent: ends.get(agent) in ("truncated", "both") for agent in acting}
        self.agents = [agent for agent in acting if agent not in ends]
        observations, infos = self.observe_all(acting)
        rewards = {agent: 10.0 ** self.possible_agents.index(agent) for agent in acting}
        return observations, rewards, terminations, truncations, infos


def play(simulator, steps, action=(0, 0, 0)):
    """The results of repeating one joint action."""
    simulator.reset(0)
    return [simulator.step(np.array(action, np.int32)) for _ in range(steps)]


def at(mask, when):
    """A mask for agent b at one time step; all else is legal."""
    return lambda agent, clock: {"action_mask": mask} if (agent, clock) == ("b", when) else {}


def random_action(rng, avail):
    return np.array([rng.choice(np.flatnonzero(row)) for row in avail], np.int32)


def episode(simulator, seed):
    """One whole episode of legal random actions: the first observation, and the result of every step."""
    rng = np.random.default_rng(7)
    seen, results, over = simulator.reset(seed), [], False
    first = seen
    while not over:
        seen, *rest = simulator.step(random_action(rng, seen[2]))
        results.append((seen, *rest))
        over = rest[1] or rest[2]
    return first, results


@pytest.mark.parametrize(
    ("task", "options", "sizes"),
    [
        ("mpe2.simple_spread_v3", {}, (3, 18, 54, 5, 25, "mpe2")),
        ("mpe2.simple_spread_v3", {"N": 5, "max_cycles": 30}, (5, 30, 150, 5, 30, "mpe2")),
        ("mpe2.simple_reference_v3", {}, (2, 21, 42, 50, 25, "mpe2")),
        ("mpe2.simple_speaker_listener_v4", {}, (2, 11, 14, 5, 25, "mpe2")),
        (ZOMBIES, {"num_archers": 1}, (3, 26 * 5, 25 * 4, 6, 900, "pettingzoo")),
        ("pettingzoo.sisl.pursuit_v5", {"max_cycles": 7}, (8, 147, 768, 5, 7, "pettingzoo")),
    ],
)
def test_the_spec_and_the_arrays_have_the_sizes_of_the_environment(task, options, sizes):
    simulator = adapter.make(task, **options)
    spec = simulator.spec
    names = ("num_agents", "obs_dim", "state_dim", "num_actions", "horizon", "package")
    assert tuple(spec[name] for name in names) == sizes
    assert spec["has_wins"] is False
    obs, state, avail, alive = simulator.reset(1)
    assert (obs.shape, obs.dtype) == (sizes[:2], np.float32)
    assert (state.shape, state.dtype) == (sizes[2:3], np.float32)
    assert (avail.shape, avail.dtype) == ((sizes[0], sizes[3]), np.bool_)
    assert (alive.shape, alive.dtype) == (sizes[:1], np.bool_)
    simulator.close()


def compare(seen, observations, state, agents, survivors):
    """The adapter returns the environment's own observations, and zeros for absent agents."""
    obs, ours, avail, alive = seen
    assert alive.tolist() == [agent in survivors for agent in agents]
    for row, agent in enumerate(agents):
        expected = observations[agent].ravel().astype(np.float32) if agent in survivors else np.zeros(0)
        np.testing.assert_array_equal(obs[row], np.pad(expected, (0, obs.shape[1] - expected.size)))
        if agent not in survivors:
            assert np.flatnonzero(avail[row]).tolist() == [0]
    np.testing.assert_array_equal(ours, np.asarray(state, np.float32).ravel())


@pytest.mark.parametrize("task", TASKS)
def test_every_step_equals_the_adapted_environments(task):
    simulator = adapter.make(task, **TASKS[task])
    bare = importlib.import_module(task).parallel_env(**TASKS[task])
    agents, rng, over = bare.possible_agents, np.random.default_rng(3), False
    seen, (observations, _) = simulator.reset(11), bare.reset(seed=11)
    compare(seen, observations, bare.state(), agents, agents)
    while not over:
        action, acting = random_action(rng, seen[2]), list(bare.agents)
        result = bare.step({agent: int(action[agents.index(agent)]) for agent in acting})
        observations, rewards, terminations, _, _ = result
        seen, reward, terminated, truncated, won = simulator.step(action)
        over = not bare.agents
        assert reward == pytest.approx(sum(rewards.values()))
        assert terminated == (over and all(terminations.values()))
        assert truncated == (over and not terminated)
        assert won is False
        last = [agent for agent in acting if not terminations[agent]]
        compare(seen, observations, bare.state(), agents, last if over else bare.agents)
    assert bare.unwrapped.max_cycles == simulator.clock


@pytest.mark.parametrize("task", TASKS)
def test_the_same_seed_gives_the_same_episode(task):
    (first, results), (again, repeated) = (episode(adapter.make(task, **TASKS[task]), seed=5) for _ in range(2))
    other, _ = episode(adapter.make(task, **TASKS[task]), seed=6)
    assert len(results) == len(repeated)
    for one, two in zip([(first,), *results], [(again,), *repeated], strict=True):
        for mine, theirs in zip(one[0], two[0], strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert one[1:] == two[1:]
    # knights always start at the same positions; their seed affects later steps
    assert task == ZOMBIES or not np.array_equal(first[0], other[0])


def test_an_episode_does_not_depend_on_the_one_before():
    simulator = adapter.make("mpe2.simple_spread_v3")
    first, results = episode(simulator, seed=5)
    again, repeated = episode(simulator, seed=5)
    np.testing.assert_array_equal(first[0], again[0])
    assert [result[1:] for result in results] == [result[1:] for result in repeated]
    assert len(results) == 25


def test_the_speaker_is_padded_and_masked():
    simulator = adapter.make("mpe2.simple_speaker_listener_v4")
    obs, _, avail, alive = simulator.reset(0)
    assert avail.tolist() == [[True, True, True, False, False], [True] * 5]
    assert obs[0, :3].any()
    assert not obs[0, 3:].any()
    assert alive.all()
    with pytest.raises(ValueError, match="agent 'speaker_0' has 3 actions but received action 3 at step 1"):
        simulator.step(np.array([3, 0], np.int32))


def test_agents_that_die_while_others_continue():
    simulator = adapter.make(ZOMBIES, line_death=True, max_cycles=300, num_archers=1, num_knights=1, spawn_delay=300)
    simulator.reset(0)
    # action 0 walks over the line, on which the knight dies; action 5 stands still
    alive = [simulator.step(np.array([5, 0], np.int32))[0][3].tolist() for _ in range(100)]
    assert alive[0] == [True, True]
    assert alive[-1] == [True, False]
    seen, reward, terminated, truncated, _ = simulator.step(np.array([5, 0], np.int32))
    assert not seen[0][1].any()
    assert seen[0][0].any()
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_an_absent_agent_keeps_its_row():
    simulator = adapter.wrap(Team({"b": (2, "terminated")}))
    steps = play(simulator, 3, action=(1, 0, 2))
    assert [seen[3].tolist() for seen, *_ in steps] == [[True] * 3, [True, False, True], [True, False, True]]
    assert steps[1][0][0].tolist() == [[3.0, 97.0], [0.0, 0.0], [3.0, 99.0]]
    assert steps[1][0][2].tolist() == [[True] * 3, [True, False, False], [True] * 3]
    assert [reward for _, reward, *_ in steps] == [111.0, 111.0, 101.0], (
        "its last reward counts, and no reward after it"
    )
    assert simulator.env.received == [{"a": 1, "b": 0, "c": 2}] * 2 + [{"a": 1, "c": 2}]
    assert not any(terminated or truncated for _, _, terminated, truncated, _ in steps)


def test_without_an_own_state_the_state_is_all_rows():
    simulator = adapter.wrap(Team({"b": (1, "terminated")}))
    assert simulator.spec["state_dim"] == 6
    ((seen, *_),) = play(simulator, 1)
    assert seen[1].tolist() == [2.0, 97.0, 0.0, 0.0, 2.0, 99.0]


def test_the_state_is_the_environments_own():
    env = Team()
    env.state = lambda: np.full((2, 2), env.clock)
    simulator = adapter.wrap(env)
    assert simulator.spec["state_dim"] == 4
    ((seen, *_),) = play(simulator, 1)
    assert (seen[1].tolist(), seen[1].dtype) == ([1.0] * 4, np.float32)


@pytest.mark.parametrize(
    ("ends", "terminated", "alive"),
    [
        (dict.fromkeys("abc", (2, "terminated")), True, "   "),
        (dict.fromkeys("abc", (2, "truncated")), False, "abc"),
        (dict.fromkeys("abc", (2, "both")), True, "   "),
        ({"a": (2, "truncated"), "b": (2, "terminated"), "c": (2, "both")}, False, "a"),
        ({"a": (1, "truncated"), "b": (2, "terminated"), "c": (2, "terminated")}, True, ""),
        ({"a": (1, "terminated"), "b": (2, "truncated"), "c": (2, "truncated")}, False, "bc"),
    ],
    ids=["terminated", "truncated", "both", "mixed", "truncated early", "terminated early"],
)
def test_how_an_episode_ends(ends, terminated, alive):
    """Among agents truncation takes precedence, within an agent termination. Truncated agents are alive at the end."""
    before, last = play(adapter.wrap(Team(ends)), 2)
    assert before[2:4] == (False, False)
    assert before[0][3].tolist() == [ends[agent][0] > 1 for agent in "abc"]
    assert last[2:4] == (terminated, not terminated)
    assert last[0][3].tolist() == [agent in alive for agent in "abc"]
    assert [row.any() for row in last[0][0]] == [agent in alive for agent in "abc"]


def test_an_environment_that_lists_finished_agents():
    class Keeps(Team):
        def step(self, actions):
            observations, rewards, _, _, infos = super().step(actions)
            self.agents = list("abc")
            ended = {agent: self.ends[agent][0] <= self.clock for agent in "abc"}
            return observations, rewards, ended, dict.fromkeys("abc", False), infos

    steps = play(adapter.wrap(Keeps({"a": (1, "terminated"), "b": (2, "terminated"), "c": (3, "terminated")})), 3)
    assert [seen[3].tolist() for seen, *_ in steps] == [[False, True, True], [False, False, True], [False] * 3]
    assert [step[2:4] for step in steps] == [(False, False), (False, False), (True, False)]


def test_an_agent_that_appears_later():
    class Late(Team):
        def reset(self, seed=None, options=None):
            self.clock, self.agents = 0, ["a", "b"]
            return self.observe_all(self.agents)

        def step(self, actions):
            result = super().step(actions)
            self.agents = list("abc")
            return self.observe_all("abc")[0], *result[1:]

    simulator = adapter.wrap(Late())
    obs, _, avail, alive = simulator.reset(0)
    assert alive.tolist() == [True, True, False]
    assert obs[2].tolist() == [0.0, 0.0]
    assert avail[2].tolist() == [True, False, False]
    obs, _, avail, alive = simulator.step(np.zeros(3, np.int32))[0]
    assert alive.all()
    assert obs[2].tolist() == [2.0, 99.0]
    simulator.step(np.array([0, 1, 2], np.int32))
    assert simulator.env.received == [{"a": 0, "b": 0}, {"a": 0, "b": 1, "c": 2}]


def test_the_option_horizon_truncates():
    simulator = adapter.wrap(Team(max_cycles=None), horizon=3)
    steps = play(simulator, 3)
    assert [step[2:4] for step in steps] == [(False, False), (False, False), (False, True)]
    assert steps[-1][0][3].all()
    assert steps[-1][0][0][0].tolist() == [4.0, 97.0]
    simulator.reset(0)
    assert simulator.step(np.zeros(3, np.int32))[2:4] == (False, False), "a reset starts the clock again"


def test_a_termination_at_the_horizon_is_no_truncation():
    assert play(adapter.wrap(Team(dict.fromkeys("abc", (3, "terminated"))), horizon=3), 3)[-1][2:4] == (True, False)


@pytest.mark.parametrize("when", [0, 1])
@pytest.mark.parametrize("name", ["action_mask", "avail_actions", "available_actions"])
def test_a_mask_in_the_info(name, when):
    mask = np.array([0, 1, 0], np.int8)
    simulator = adapter.wrap(Team(info=lambda agent, clock: {name: mask} if (agent, clock) == ("b", when) else {}))
    seen = [simulator.reset(0), simulator.step(np.array([0, 1, 0], np.int32))[0]]
    assert seen[when][2].tolist() == [[True] * 3, [False, True, False], [True] * 3]
    assert seen[1 - when][2].all()


@pytest.mark.parametrize("declared", [True, False])
def test_a_mask_in_the_observation_is_no_part_of_the_row(declared):
    """PettingZoo's tutorial does not declare the mask in the observation space."""
    box = spaces.Box(-9, 9, (2,), np.float32)
    view = spaces.Dict({"action_mask": spaces.MultiBinary(3), "observation": box}) if declared else box
    masked = {"observation": np.array([5.0, 6.0], np.float32), "action_mask": [1, 0, 0]}
    usual = np.zeros(2, np.float32)
    env = Team(
        observe=lambda agent, clock: masked if agent == "c" else usual,
        views={"c": view},
        info=lambda agent, clock: {"action_mask": [0, 0, 1]},
    )
    obs, _, avail, _ = adapter.wrap(env).reset(0)
    assert obs.tolist() == [[0.0, 0.0], [0.0, 0.0], [5.0, 6.0]]
    assert avail.tolist() == [[False, False, True], [False, False, True], [True, False, False]]


def test_a_mask_of_zeros_is_accepted_only_at_the_end():
    zeros = {"action_mask": [0, 0, 0]}
    ends = dict.fromkeys("abc", (2, "truncated"))
    last = play(adapter.wrap(Team(ends, info=lambda agent, clock: zeros if clock == 2 else {})), 2)[-1]
    assert last[0][2].tolist() == [[True, False, False]] * 3
    with pytest.raises(ValueError, match="the mask of agent 'a' leaves no legal action at step 2"):
        play(adapter.wrap(Team(info=lambda agent, clock: zeros if clock == 2 else {})), 2)


def test_actions_of_different_number_and_start():
    env = Team(actions={"a": spaces.Discrete(2, start=1), "c": spaces.Discrete(4, start=-1)})
    simulator = adapter.wrap(env)
    avail = simulator.reset(0)[2]
    assert avail.sum(axis=1).tolist() == [2, 3, 4]
    assert np.flatnonzero(avail[0]).tolist() == [0, 1]
    simulator.step(np.array([1, 2, 0], np.int32))
    assert env.received == [{"a": 2, "b": 2, "c": -1}]
    assert all(env.action_space(agent).contains(action) for agent, action in env.received[0].items())


def test_observations_of_all_spaces_are_flattened_and_padded():
    views = {
        "a": spaces.Dict(grid=spaces.Box(0, 255, (2, 2), np.uint8), turn=spaces.Discrete(3, start=1)),
        "b": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
        "c": spaces.Discrete(2),
    }
    values = {
        "a": {"turn": 3, "grid": np.array([[1, 2], [3, 255]], np.uint8)},
        "b": (np.array([1, 0], np.int8), np.array([1, 2])),
        "c": 1,
    }
    obs = adapter.wrap(Team(views=views, observe=lambda agent, clock: values[agent])).reset(0)[0]
    assert obs.tolist() == [[1, 2, 3, 255, 0, 0, 1], [1, 0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("key", ["won", "battle_won", "is_success"])
def test_wins_are_read_with_the_option_wins(key):
    def team(how):
        return Team(
            dict.fromkeys("abc", (2, how)),
            info=lambda agent, clock: {key: True} if agent == "b" else {},
        )

    simulator = adapter.wrap(team("terminated"), wins=True)
    assert simulator.spec["has_wins"] is True
    assert [step[4] for step in play(simulator, 2)] == [False, True]
    assert play(adapter.wrap(team("truncated"), wins=True), 2)[-1][4] is False
    assert play(adapter.wrap(team("terminated")), 2)[-1][4] is False


@pytest.mark.parametrize("name", ["max_cycles", "max_steps", "max_episode_steps", "episode_limit"])
@pytest.mark.parametrize("where", ["attribute", "metadata"])
def test_the_time_limit_is_read_from_the_environment(name, where):
    env = Team(max_cycles=-1)  # means no limit
    if where == "attribute":
        setattr(env, name, np.int64(9))
    else:
        env.metadata = {name: 9}
    assert adapter.wrap(env).spec["horizon"] == 9
    assert adapter.wrap(env, horizon=4).spec["horizon"] == 4


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (Team(max_cycles=None), "Team has no time limit; add ?horizon=N"),
        (
            Team(actions={"b": spaces.Box(0, 1, (2,))}),
            "agent 'b' has the action space Box(0.0, 1.0, (2,), float32); only Discrete is supported",
        ),
        (
            Team(actions={"a": spaces.MultiDiscrete([2, 2])}),
            "agent 'a' has the action space MultiDiscrete([2 2]); only Discrete is supported",
        ),
        (
            Team(views={"c": spaces.Sequence(spaces.Discrete(2))}),
            "the observation space Sequence(Discrete(2), stack=False) of agent 'c' cannot be flattened to a fixed size",
        ),
        (object(), "object has no possible_agents, so it is not a PettingZoo parallel environment"),
        (Team(info=at([1, 1], 0)), "the mask of agent 'b' is [1, 1] at reset, not 3 zeros and ones"),
        (Team(info=at([0, -9, 0], 0)), "the mask of agent 'b' is [0, -9, 0] at reset, not 3 zeros and ones"),
    ],
)
def test_unsupported_environments_are_refused(env, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence) + "$"):
        adapter.wrap(env)


def test_an_aec_environment_is_refused():
    from mpe2 import simple_spread_v3

    with pytest.raises(
        ValueError, match="OrderEnforcingWrapper is an AEC environment; convert it with pettingzoo.utils.aec_to_par"
    ):
        adapter.wrap(simple_spread_v3.env())


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (spaces.Box(-9, 9, (2,)), np.zeros(3), "does not fit Box"),
        (spaces.Box(-9, 9, (2,)), np.array([0.0, np.nan]), "contains a number that is not finite"),
        (spaces.Box(-np.inf, np.inf, (1,), np.float64), np.array([1e300]), "contains a number that is not finite"),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0.1, 0.9]), "does not fit Box"),
        (spaces.MultiDiscrete([2, 2]), np.array([2, 0]), "does not fit MultiDiscrete"),
        (spaces.Discrete(2), -1, "does not fit Discrete"),
        (spaces.Discrete(2), 0.5, "does not fit Discrete"),
        (spaces.Dict(x=spaces.Discrete(2)), {"y": 1}, "does not fit Dict"),
        (spaces.Tuple([spaces.Discrete(2)]), (1, 1), "does not fit Tuple"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_an_observation_outside_its_space_is_named_with_agent_and_step(space, value, message):
    good = space.sample()
    usual = np.zeros(2, np.float32)
    bad = {("b", 2): value, ("b", 1): good, ("b", 0): good}
    env = Team(views={"b": space}, observe=lambda agent, clock: bad.get((agent, clock), usual))
    with pytest.raises(ValueError, match=f"the observation of agent 'b' at step 2 {message}"):
        play(adapter.wrap(env), 2)


RESULTS = ("observations", "rewards", "terminations", "truncations", "infos")


@pytest.mark.parametrize(
    ("field", "agent", "value", "sentence"),
    [
        ("observations", "b", None, "agent 'b' has no observation at step 1"),
        ("rewards", "b", None, "agent 'b' has no reward at step 1"),
        ("terminations", "c", None, "agent 'c' has no termination at step 1"),
        ("truncations", "c", None, "agent 'c' has no truncation at step 1"),
        ("rewards", "a", np.inf, "agent 'a' has the reward inf at step 1; it must be one finite number"),
        ("rewards", "a", np.ones(1), "agent 'a' has the reward [1.] at step 1; it must be one finite number"),
        ("rewards", "a", "much", "agent 'a' has the reward much at step 1; it must be one finite number"),
        (
            "terminations",
            "__all__",
            False,
            "the terminations contain '__all__' at step 1, which is not in possible_agents ['a', 'b', 'c']",
        ),
        (
            "observations",
            "d",
            np.zeros(2),
            "the observations contain 'd' at step 1, which is not in possible_agents ['a', 'b', 'c']",
        ),
    ],
)
def test_a_wrong_result_is_named_with_agent_and_step(field, agent, value, sentence):
    class Wrong(Team):
        def step(self, actions):
            result = dict(zip(RESULTS, super().step(actions), strict=True))
            if value is None:
                del result[field][agent]
            else:
                result[field][agent] = value
            return tuple(result.values())

    with pytest.raises(ValueError, match=re.escape(sentence) + "$"):
        play(adapter.wrap(Wrong()), 1)


def changed(**methods):
    """A team with these methods replaced."""
    return type("Changed", (Team,), methods)()


def step_then(change):
    def step(self, actions):
        result = Team.step(self, actions)
        change(self)
        return result

    return step


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            changed(reset=lambda self, seed: {}),
            "reset must return (observations, infos), as PettingZoo does since 1.23",
        ),
        (changed(step=lambda self, actions: (1, 2, 3, 4)), "step must return (observations, rewards, terminations, "),
        (
            changed(step=step_then(lambda env: env.agents.remove("b"))),
            "agent 'b' disappeared without termination or trunc",
        ),
        (
            changed(step=step_then(lambda env: env.agents.append("z"))),
            "env.agents contain 'z' at step 1, which is not in ",
        ),
        (changed(state=lambda self: np.zeros(self.clock + 1)), "the size of env.state() changed to 2 at step 1"),
        (
            changed(state=lambda self: np.full(2, [0.0, np.nan][self.clock])),
            "env.state() contains a number that is not f",
        ),
        (changed(state=lambda self: {"a": 1}), "env.state() did not return an array of numbers at reset: "),
    ],
)
def test_a_broken_interface_is_named_in_a_sentence(env, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        play(adapter.wrap(env), 1)


def test_an_error_inside_state_is_raised():
    with pytest.raises(AttributeError, match="no attribute 'mistake'"):
        adapter.wrap(changed(state=lambda self: self.mistake))


def test_a_reset_without_agents_is_refused():
    class Empty(Team):
        def reset(self, seed=None, options=None):
            self.clock, self.agents = 0, []
            return {}, {}

    with pytest.raises(ValueError, match="env.agents is empty after reset"):
        adapter.wrap(Empty())


@pytest.mark.parametrize(
    ("task", "options", "kind", "sentence"),
    [
        (
            "no_such_zoo.task",
            {},
            ModuleNotFoundError,
            "there is no package 'no_such_zoo'; type: pip install no_such_zoo (for a module of yours, set PYTHONPATH)",
        ),
        ("mpe2", {}, ValueError, "the module mpe2 has no function parallel_env that makes a parallel environment"),
        (
            "pettingzoo.sisl.pursuit_v5",
            {},
            ValueError,
            "raw_env has no time limit; add ?horizon=N",
        ),
        ("mpe2.simple_spread_v3", {"horizon": 0}, ValueError, "horizon must be a whole number above 0, not 0"),
        (
            "mpe2.simple_spread_v3",
            {"horizon": 2.5},
            ValueError,
            "horizon must be a whole number above 0, not 2.5",
        ),
    ],
)
def test_the_error_of_a_task_that_cannot_be_made_names_the_fix(task, options, kind, sentence):
    with pytest.raises(kind) as error:
        adapter.make(task, **options)
    assert str(error.value) == sentence


def test_an_unknown_module_is_reported_with_those_beside_it():
    with pytest.raises(LookupError) as error:
        adapter.make("mpe2.simple_spread_v9")
    mistake, name, known, prefix = error.value.args
    assert mistake == "mpe2 has no module 'simple_spread_v9'"
    assert suggest(name, known, prefix=prefix) == "did you mean 'mpe2.simple_spread_v3'?"


def test_an_unknown_option_is_named():
    with pytest.raises(ValueError, match="mpe2.simple_spread_v3.parallel_env cannot be called with .'n': 4.: .*'n'"):
        adapter.make("mpe2.simple_spread_v3", n=4)


def test_a_package_missing_inside_the_module_is_named(tmp_path, monkeypatch):
    (tmp_path / "half_a_zoo.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError) as error:
        adapter.make("half_a_zoo")
    assert str(error.value) == (
        "half_a_zoo needs the package a_package_nobody_has; type: pip install a_package_nobody_has"
    )


def test_a_users_own_factory(tmp_path, monkeypatch):
    own = "from mpe2 import simple_spread_v3\ndef small(N=2): return simple_spread_v3.parallel_env(N=N, max_cycles=8)\n"
    (tmp_path / "own_zoo.py").write_text(own)
    monkeypatch.syspath_prepend(tmp_path)
    spec = adapter.make("own_zoo:small", horizon=6, N=4).spec
    assert (spec["num_agents"], spec["horizon"], spec["package"]) == (4, 6, "mpe2")


def test_the_package_is_the_installed_distribution():
    assert adapter.wrap(Team()).spec["package"] == __name__.partition(".")[0], "no distribution installed this module"
    image = type("Image", (Team,), {"__module__": "PIL.Image"})
    assert adapter.wrap(image()).spec["package"] == "pillow"


def test_the_adapter_imports_neither_grasp_nor_jax():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
