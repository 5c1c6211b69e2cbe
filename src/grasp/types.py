"""The nouns every room shares, and the law of their axes.

Arrays keep one order of axes everywhere, and the agent axis is created at the environment's edge and never merged away:

====  =======================================================
axis  meaning
====  =======================================================
T     time steps of a rollout
B     parallel copies of the environment (`num_envs`)
N     agents
o     features of one agent's observation
s     features of the global state
a     actions of one agent
====  =======================================================

Functions of an environment are written for one copy (no `B`); the collector adds `B` with `vmap`.
"""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

PyTree = Any
Key = PRNGKeyArray
Metrics = dict[str, Array]


class Kind:
    """What a record of the metrics log or a message about progress is: its `kind`."""

    ITERATION = "iteration"
    EVALUATION = "evaluation"
    ABSOLUTE = "absolute"
    """The best evaluation's policy, evaluated again at the end of training."""
    NOTICE = "notice"
    """A message for the user, with its `text`; not in the metrics log."""
    BEGAN = "began"
    """A seed's process has started; not in the metrics log."""


class Metric:
    """The metrics that are read by name anywhere. `grasp.consensus`, which imports nothing of grasp, writes its own."""

    EPISODES = "episodes"
    RETURN_MEAN = "return_mean"
    WIN_RATE = "win_rate"
    RETURNS = "returns"
    """Per episode, as the wins."""
    WINS = "wins"
    BEST_ENV_STEPS = "best_env_steps"
    TRAIN_RETURN = "train_return"
    TRAIN_WIN_RATE = "train_win_rate"
    CONFLICT_RATE = "conflict_rate"
    MEAN_COSINE = "mean_cosine"
    COSINES = "cosines"
    NORMS = "norms"
    WEIGHTS = "weights"
    FACTORS = "factors"
    U_NORM = "u_norm"
    U_RATIO = "u_ratio"
    NOISE_RATIO = "noise_ratio"
    SIGNAL = "signal"
    RESIDUAL = "residual"
    MIN_ALIGNMENT = "min_alignment"
    QP_STATUS = "qp_status"
    SKIPPED_STEPS = "skipped_steps"
    UNCERTIFIED_STEPS = "uncertified_steps"
    FROZEN_STEPS = "frozen_steps"
    CLIPPED_FACTORS = "clipped_factors"


class GraspError(Exception):
    """A user's mistake: one sentence that names it and says what to type instead. The command line exits with 2."""


def suggest(name: str, known: Iterable[str], otherwise: str = "", prefix: str = "") -> str:
    """The end of an error message about an unknown name: the nearest known name, behind `prefix`; where none is near,
    `otherwise`, or all of them."""
    # neither case nor leading dashes make names alike: '--lr' is not close to '--on', and 'FIG-MPE' is 'fig-mpe'
    spelt = {other.lower().lstrip("-"): other for other in known}
    close = difflib.get_close_matches(name.lower().lstrip("-"), spelt, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{prefix}{spelt[close[0]]}'?"
    return otherwise or f"known: {', '.join(spelt.values())}"


@dataclass(frozen=True)
class EnvSpec:
    """The sizes of an environment: everything an algorithm may know before the first step."""

    name: str
    num_agents: int
    obs_dim: int
    state_dim: int
    num_actions: int
    horizon: int
    """Steps after which an unfinished episode is truncated."""
    agent_states: bool = False
    """Whether every agent has a state of its own, `state[N, s]`, for a critic that values each agent's situation."""
    has_wins: bool = False
    """Whether an episode can be won; without it no win rate is reported."""
    package: str = "grasp"
    """The distribution whose version decides the dynamics; recorded with every run."""
    version: str = ""
    """Of that distribution, where another interpreter has it; or of the environment's rules, where they are counted."""

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(s,), or (N, s) where agents have states of their own."""
        return (self.num_agents, self.state_dim) if self.agent_states else (self.state_dim,)


class Observation(NamedTuple):
    """What the team sees between two steps. A dead agent keeps its row and at least one legal action."""

    obs: Float[Array, "*B N o"]
    state: Float[Array, "*B s"]
    """The team's; or every agent's, [N, s], where `EnvSpec.agent_states` says so."""
    avail: Bool[Array, "*B N a"]
    alive: Bool[Array, "*B N"]


class Step(NamedTuple):
    """The answer to one joint action. `observation` is the true next one, also when the episode has just ended."""

    observation: Observation
    reward: Float[Array, "*B"]
    terminated: Bool[Array, "*B"]
    truncated: Bool[Array, "*B"]
    won: Bool[Array, "*B"]


class Bodies(NamedTuple):
    """A moment as K round bodies on a plane: what a picture of it shows (`grasp play`)."""

    position: Float[Array | np.ndarray, "K 2"]
    radius: Float[Array | np.ndarray, " K"]
    group: Int[Array | np.ndarray, " K"]
    """0 agents, 1 enemies, 2 things."""
    shown: Bool[Array | np.ndarray, " K"]
    health: Float[Array | np.ndarray, " K"] | None = None
    """The share that is left; None where bodies have none. So with the shield."""
    shield: Float[Array | np.ndarray, " K"] | None = None
    target: Int[Array | np.ndarray, " K"] | None = None
    """Whom each aims at, -1 for nobody."""
    mark: Int[Array | np.ndarray, " K"] | None = None
    """The letter written on each, by its code; 0 for none."""
    lines: Float[Array | np.ndarray, "L 2 2"] | None = None
    """What is painted on the ground, from point to point."""
    fallen: Bool[Array | np.ndarray, " K"] | None = None
    """Who died earlier, at its last position. A film knows; an environment leaves it out."""


class Table(NamedTuple):
    """A moment of a game with a payoff table."""

    payoff: Float[Array | np.ndarray, "a b"]
    action: Int[Array | np.ndarray, " 2"]
    """-1 before the first."""


class Env(NamedTuple):
    """One environment as pure functions. The contract in prose stands in `grasp.envs.base`."""

    spec: EnvSpec
    reset: Callable[[Key], tuple[PyTree, Observation]]
    """key -> (env_state, observation)"""
    step: Callable[[PyTree, Int[Array, " N"], Key], tuple[PyTree, Step]]
    """(env_state, action, key) -> (env_state, step)"""
    scene: Callable[[PyTree], Bodies | Table] | None = None
    """env_state -> what a picture of it shows; None where nobody has said how to draw it"""


class Host(NamedTuple):
    """An environment that is a program of its own, stepped by worker processes (`grasp.envs.host`)."""

    spec: EnvSpec
    command: tuple[str, ...]
    """What starts a worker: the interpreter, `grasp/envs/workers/serve.py`, the adapter, the task and its options."""
    scene: Callable[[Float[np.ndarray, "*s"]], Bodies] | None = None
    """state -> what a picture of it shows; None where its state does not tell"""


class Decision(NamedTuple):
    """What an algorithm answers to an observation."""

    action: Int[Array, "B N"]
    memory: PyTree
    record: PyTree
    """What the algorithm wants to find again in the trajectory (PPO: log-probabilities and values)."""
    preference: PyTree = ()
    """[B, N, a]: how much each agent is for each action, from 0 to 1. Nothing learns from it; programs that do not show
    it do not compute it. So with the value."""
    value: PyTree = ()
    """[B] (or [B, N]): the discounted return that the team expects, as if no limit cut the episode."""


class Trajectory(NamedTuple):
    """A time-major record of T steps in B environments; team quantities have no agent axis."""

    observation: Observation
    memory: PyTree
    """[T+1, B, ...]: the memory as step t found it, not yet cleared where `first`; the last came out of step T-1."""
    first: Bool[Array, "T B"]
    """Step t opens an episode."""
    action: Int[Array, "T B N"]
    record: PyTree
    reward: Float[Array, "T B"]
    terminated: Bool[Array, "T B"]
    truncated: Bool[Array, "T B"]
    next_observation: Observation
    """What followed step t, before any reset: what a truncated step bootstraps from."""


class Algorithm(NamedTuple):
    """An algorithm is pure functions over a visible `State`. Memory is all zeros at the start of an episode."""

    init: Callable[[Key], PyTree]
    """key -> state"""
    memory: Callable[[int], PyTree]
    """num_envs -> the memory [B, ...] of an episode's start"""
    act: Callable[[PyTree, PyTree, Observation, Key, bool], Decision]
    """(state, memory, observation, key, greedy) -> decision"""
    update: Callable[[PyTree, Trajectory, Key], tuple[PyTree, Metrics]]
    """(state, trajectory, key) -> (state, metrics)"""
    acting: tuple[str, ...]
    """The fields of `State` that acting needs."""
    judging: tuple[str, ...] = ()
    """Those that `Decision.value` needs beside them. A snapshot keeps both."""
    replays: int = 0
    """Episodes that the field `replay` of `State` can hold (grasp.algos.replay_buffer), 0 where there is none.
    Finished ones are stored beside checkpoints, not in them."""
