"""The types that every room shares, and the order of their axes.

Arrays have one order of axes everywhere. The agent axis is created by the environment and never merged with another:

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

Functions of an environment are written for one copy (no `B`); the rollout adds `B` with `vmap`.
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
    """The `kind` of a record of the metrics log, or of a message about progress."""

    ITERATION = "iteration"
    EVALUATION = "evaluation"
    ABSOLUTE = "absolute"
    """The best evaluation's policy, evaluated again at the end of training."""
    NOTICE = "notice"
    """A message for the user, with its `text`; not in the metrics log."""
    BEGAN = "began"
    """A seed's process has started; not in the metrics log."""


class Metric:
    """The metrics that are read by name, in Python or in the page's JavaScript. `grasp.consensus` imports nothing of
    grasp and writes its own names; `tests/test_rooms.py` compares them with these."""

    EPISODES = "episodes"
    RETURN_MEAN = "return_mean"
    WIN_RATE = "win_rate"
    RETURNS = "returns"
    """One per episode, like `WINS`."""
    WINS = "wins"
    SAMPLED_RETURN_MEAN = "sampled_return_mean"
    """This and the next three: with sampled actions, where those above are of greedy ones."""
    SAMPLED_WIN_RATE = "sampled_win_rate"
    SAMPLED_RETURNS = "sampled_returns"
    SAMPLED_WINS = "sampled_wins"
    TIMEOUT_RATE = "timeout_rate"
    """The fraction of episodes that were ended by their time limit."""
    SAMPLED_TIMEOUT_RATE = "sampled_timeout_rate"
    DISTINCT = "distinct_episodes"
    """Number of different sequences of joint actions."""
    SAMPLED_DISTINCT = "sampled_distinct_episodes"
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
    WEIGHT_ENTROPY = "weight_entropy"
    COSINE_TO_MEAN = "cosine_to_mean"
    QP_STATUS = "qp_status"
    SKIPPED_STEPS = "skipped_steps"
    UNCERTIFIED_STEPS = "uncertified_steps"
    FROZEN_STEPS = "frozen_steps"
    CLIPPED_FACTORS = "clipped_factors"
    APPROX_KL = "approx_kl"
    APPROX_KL_LAST = "approx_kl_last"
    """Of the last of the update's steps."""
    TARGET_COPIES = "target_copies"


class GraspError(Exception):
    """A user error: one sentence that names it and what to type instead. The command line exits with code 2."""


def suggest(name: str, known: Iterable[str], otherwise: str = "", prefix: str = "") -> str:
    """The end of an error message about an unknown name: the nearest known name, after `prefix`; if none is near,
    `otherwise`, or all of them."""
    # neither case nor leading dashes count: '--lr' is not close to '--on', and 'FIG-MPE' is 'fig-mpe'
    spelt = {other.lower().lstrip("-"): other for other in known}
    close = difflib.get_close_matches(name.lower().lstrip("-"), spelt, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{prefix}{spelt[close[0]]}'?"
    return otherwise or f"known: {', '.join(spelt.values())}"


@dataclass(frozen=True)
class EnvSpec:
    """The sizes of an environment: all that an algorithm knows before the first step."""

    name: str
    num_agents: int
    obs_dim: int
    state_dim: int
    num_actions: int
    horizon: int
    """Steps after which an unfinished episode is truncated."""
    agent_states: bool = False
    """Whether every agent has its own state, `state[N, s]`, for a critic with agent-specific states."""
    has_wins: bool = False
    """Whether an episode can be won; without it no win rate is reported."""
    package: str = "grasp"
    """The distribution whose version determines the dynamics; recorded with every run."""
    version: str = ""
    """Version of that distribution in another interpreter, or of the environment's own rules; else empty."""

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(s,), or (N, s) for agent-specific states."""
        return (self.num_agents, self.state_dim) if self.agent_states else (self.state_dim,)


class Observation(NamedTuple):
    """The observation of the team between two steps. A dead agent keeps its row and at least one available action."""

    obs: Float[Array, "*B N o"]
    state: Float[Array, "*B s"]
    """The team's; or every agent's, [N, s], with `EnvSpec.agent_states`."""
    avail: Bool[Array, "*B N a"]
    alive: Bool[Array, "*B N"]


class Step(NamedTuple):
    """The result of one joint action. `observation` is the next one before any reset, also at the end of an episode."""

    observation: Observation
    reward: Float[Array, "*B"]
    terminated: Bool[Array, "*B"]
    truncated: Bool[Array, "*B"]
    won: Bool[Array, "*B"]


class Bodies(NamedTuple):
    """A time step as K discs on a plane, for rendering (`grasp play`)."""

    position: Float[Array | np.ndarray, "K 2"]
    radius: Float[Array | np.ndarray, " K"]
    group: Int[Array | np.ndarray, " K"]
    """0 agents, 1 enemies, 2 objects."""
    shown: Bool[Array | np.ndarray, " K"]
    health: Float[Array | np.ndarray, " K"] | None = None
    """Fraction that is left; None where bodies have no health. `shield` likewise."""
    shield: Float[Array | np.ndarray, " K"] | None = None
    target: Int[Array | np.ndarray, " K"] | None = None
    """The index of the body that each aims at; -1 for none."""
    mark: Int[Array | np.ndarray, " K"] | None = None
    """The character code of the letter on each; 0 for none."""
    lines: Float[Array | np.ndarray, "L 2 2"] | None = None
    """Line segments on the ground."""
    fallen: Bool[Array | np.ndarray, " K"] | None = None
    """Bodies that died earlier, at their last position. Set by the film; None from an environment."""


class Table(NamedTuple):
    """A time step of a matrix game, for rendering."""

    payoff: Float[Array | np.ndarray, "a b"]
    action: Int[Array | np.ndarray, " 2"]
    """-1 before the first action."""


class Env(NamedTuple):
    """One environment as pure functions. `grasp.envs.base` documents the contract."""

    spec: EnvSpec
    reset: Callable[[Key], tuple[PyTree, Observation]]
    """key -> (env_state, observation)"""
    step: Callable[[PyTree, Int[Array, " N"], Key], tuple[PyTree, Step]]
    """(env_state, action, key) -> (env_state, step)"""
    scene: Callable[[PyTree], Bodies | Table] | None = None
    """env_state -> what to draw; None where the environment cannot be drawn"""


class Host(NamedTuple):
    """A simulator outside JAX, stepped by worker processes (`grasp.envs.host`)."""

    spec: EnvSpec
    command: tuple[str, ...]
    """Starts a worker: the interpreter, `grasp/envs/workers/serve.py`, the adapter, the task and its options."""
    scene: Callable[[Float[np.ndarray, "*s"]], Bodies] | None = None
    """state -> what to draw; None where the state does not suffice"""


class Decision(NamedTuple):
    """The result of acting on an observation."""

    action: Int[Array, "B N"]
    memory: PyTree
    record: PyTree
    """What the algorithm reads again in the trajectory (PPO: log-probabilities and values)."""
    preference: PyTree = ()
    """[B, N, a]: action probabilities, or values scaled to [0, 1]. Only for display, and computed only there, as is the
    value."""
    value: PyTree = ()
    """[B] (or [B, N]): the expected discounted return, as if episodes had no time limit."""


class Trajectory(NamedTuple):
    """A time-major record of T steps in B environments; team quantities have no agent axis."""

    observation: Observation
    memory: PyTree
    """[T+1, B, ...]: the memory before step t, not yet cleared where `first`; the last one is after step T-1."""
    first: Bool[Array, "T B"]
    """Whether step t is the first of an episode."""
    action: Int[Array, "T B N"]
    record: PyTree
    reward: Float[Array, "T B"]
    terminated: Bool[Array, "T B"]
    truncated: Bool[Array, "T B"]
    next_observation: Observation
    """The observation after step t, before any reset: a truncated step bootstraps from it."""


class Algorithm(NamedTuple):
    """An algorithm as pure functions of its state. Memory is zero at the start of an episode."""

    init: Callable[[Key], PyTree]
    """key -> state"""
    memory: Callable[[int], PyTree]
    """num_envs -> the memory [B, ...] at the start of an episode"""
    act: Callable[[PyTree, PyTree, Observation, Key, bool | Bool[Array, " B"]], Decision]
    """(state, memory, observation, key, greedy) -> decision; greedy or not in all copies, or in each"""
    update: Callable[[PyTree, Trajectory, Key], tuple[PyTree, Metrics]]
    """(state, trajectory, key) -> (state, metrics)"""
    acting: tuple[str, ...]
    """The fields of the state that acting needs."""
    judging: tuple[str, ...] = ()
    """The further fields that `Decision.value` needs. A snapshot has both."""
    evaluated: Callable[[PyTree], PyTree] = lambda state: state
    """state -> the state whose sampled actions are evaluated: a Q-learner's with the final ε"""
    replays: int = 0
    """Size in episodes of the state's `replay` (grasp.algos.replay_buffer); 0 where it has none. Finished episodes are
    stored beside checkpoints, not in them."""
