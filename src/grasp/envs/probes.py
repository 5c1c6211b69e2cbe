"""Family `probe`: tiny tasks, each of which needs one more part of a learner to work.

Run them in order: the first that fails names the broken part. Probes of the policy are in `SOLVED`, with the mean
undiscounted return of greedy episodes that counts as solved. Probes of the critic pay the same for all actions; they
are in `VALUES`, with the true value of each state.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grasp.types import Env, EnvSpec, Key, Observation, Step

DISCOUNT = 0.99
"""The discount that `VALUES` assumes."""

SOLVED: dict[str, float] = dict.fromkeys(("action", "memory", "mask_death", "roles", "coordination"), 0.95)
"""The greedy return that counts as solved. The optimum is 1."""

VALUES: dict[str, dict[tuple[float, ...], float]] = {
    "value": {(1.0,): 1.0},
    "observation": {(1.0,): 1.0, (-1.0,): -1.0},
    "discount": {(1.0, 0.0): DISCOUNT, (0.0, 1.0): 1.0},
    "truncation": {
        tuple(sign * float(position == at) for position in range(4)): sign * DISCOUNT ** (3 - at)
        for sign in (1.0, -1.0)
        for at in range(4)
    },
}
"""The true values, by state vector."""


class State(NamedTuple):
    """The state of a probe: the random draw of the reset, and the steps since."""

    draw: Int[Array, ""]
    clock: Int[Array, ""]


class _Rules(NamedTuple):
    """A probe, with defaults for what it does not test. `see` returns the observations of all agents."""

    num_agents: int
    num_actions: int
    horizon: int
    see: Callable[[State], Float[Array, "N o"]]
    state: Callable[[State], Float[Array, " s"]]
    reward: Callable[[State, Int[Array, " N"]], Float[Array, ""]]
    """From the state before the step."""
    terminated: Callable[[State], Bool[Array, ""]]
    """From the state after the step."""
    draws: int = 1  # equally likely start states
    avail: Callable[[State], Bool[Array, "N a"]] | None = None
    alive: Callable[[State], Bool[Array, " N"]] | None = None


def names() -> list[str]:
    """The probes, each after those it depends on."""
    return list(_PROBES)


def make(task: str) -> Env:
    """The probe as an `Env`."""
    rules = _PROBES[task]()

    def observe(state: State) -> Observation:
        return Observation(
            obs=rules.see(state).astype(jnp.float32),
            state=rules.state(state).astype(jnp.float32),
            avail=rules.avail(state) if rules.avail else jnp.ones((rules.num_agents, rules.num_actions), bool),
            alive=rules.alive(state) if rules.alive else jnp.ones(rules.num_agents, bool),
        )

    def reset(key: Key) -> tuple[State, Observation]:
        state = State(jax.random.randint(key, (), 0, rules.draws, jnp.int32), jnp.zeros((), jnp.int32))
        return state, observe(state)

    def step(env_state: State, action: Int[Array, " N"], key: Key) -> tuple[State, Step]:
        after = env_state._replace(clock=env_state.clock + 1)
        terminated = rules.terminated(after)
        truncated = (after.clock >= rules.horizon) & ~terminated
        reward = rules.reward(env_state, action).astype(jnp.float32)
        return after, Step(observe(after), reward, terminated, truncated, won=jnp.array(False))

    view = jax.eval_shape(lambda: observe(State(jnp.int32(0), jnp.int32(0))))
    spec = EnvSpec(
        name=f"probe/{task}",
        num_agents=rules.num_agents,
        obs_dim=view.obs.shape[1],
        state_dim=view.state.shape[0],
        num_actions=rules.num_actions,
        horizon=rules.horizon,
    )
    return Env(spec, reset, step)


def _value() -> _Rules:
    """One step that pays 1. A critic must learn a constant."""
    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=1,
        see=lambda state: jnp.ones((2, 1)),
        state=lambda state: jnp.ones(1),
        reward=lambda state, action: jnp.ones(()),
        terminated=lambda state: state.clock >= 1,
    )


def _observation() -> _Rules:
    """One step that pays the +1 or -1 written in the state. A critic must read its input."""

    def sign(state: State) -> Float[Array, ""]:
        return 2.0 * state.draw - 1.0

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=1,
        draws=2,
        see=lambda state: jnp.full((2, 1), sign(state)),
        state=lambda state: jnp.full(1, sign(state)),
        reward=lambda state, action: sign(state),
        terminated=lambda state: state.clock >= 1,
    )


def _discount() -> _Rules:
    """Two steps that pay 0 and 1. The first state is worth the discount: values must be bootstrapped over a step."""

    def when(state: State) -> Float[Array, " 2"]:
        return _one_hot(state.clock, 2)

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=2,
        see=lambda state: _same(when(state), 2),
        state=when,
        reward=lambda state, action: when(state)[1],
        terminated=lambda state: state.clock >= 2,
    )


def _truncation() -> _Rules:
    """A walk over four positions that pays its sign, +1 or -1, at the end, but is truncated after two steps.

    The walk starts at any position with either sign and moves independently of actions. From the first two positions
    the end is never reached within an episode, so only a bootstrap from the true last state gives their value. A
    learner that treats truncation as termination learns 0 there, and so, on average, does one that bootstraps from the
    first state of the next episode, whose sign is independent. The end of the walk terminates, so a learner that always
    bootstraps is wrong too.
    """

    def position(state: State) -> Int[Array, ""]:
        return state.draw // 2 + state.clock

    def signed(state: State) -> Float[Array, " 4"]:
        return (2.0 * (state.draw % 2) - 1.0) * _one_hot(position(state), 4)

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=2,
        draws=8,
        see=lambda state: _same(signed(state), 2),
        state=signed,
        reward=lambda state, action: signed(state)[3],
        terminated=lambda state: position(state) >= 4,
    )


def _action() -> _Rules:
    """One step that pays the fraction of agents with action 1 of three. A policy must follow its advantage."""
    return _Rules(
        num_agents=2,
        num_actions=3,
        horizon=1,
        see=lambda state: jnp.ones((2, 1)),
        state=lambda state: jnp.ones(1),
        reward=lambda state, action: jnp.mean(action == 1),
        terminated=lambda state: state.clock >= 1,
    )


def _memory() -> _Rules:
    """A cue is observed only at the first of four steps; the last pays the fraction of agents that choose it.

    Without memory the optimum is 0.5. The state, which only a critic receives, always contains the cue.
    """

    def see(state: State) -> Float[Array, "N o"]:
        cue = _one_hot(state.draw, 2) * (state.clock == 0)
        return _same(jnp.concatenate([cue, jnp.atleast_1d(state.clock == 3).astype(cue.dtype)]), 2)

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=4,
        draws=2,
        see=see,
        state=lambda state: jnp.concatenate([_one_hot(state.draw, 2), _one_hot(state.clock, 4)]),
        reward=lambda state, action: jnp.mean(action == state.draw) * (state.clock == 3),
        terminated=lambda state: state.clock >= 4,
    )


def _mask_death() -> _Rules:
    """Four steps, each of which pays a quarter of the fraction of living agents with its right action, 0 or 2 in turn.

    The other one of 0 and 2 is illegal, and costs the team 10 if a living agent plays it: masks must hold at every
    step. Agent 1 dies after two steps. Then its row of `obs` is large noise and its only legal action, 1, has no
    effect. Solving this probe does not prove that the loss masks dead agents: a single legal action has no gradient,
    and REINFORCE without that mask solves it too. The mask in a loss needs a test of its own.
    """

    def right(state: State) -> Int[Array, ""]:
        return 2 * (state.clock % 2)

    def alive(state: State) -> Bool[Array, " N"]:
        return jnp.stack([jnp.array(True), state.clock < 2])

    def avail(state: State) -> Bool[Array, "N a"]:
        living = _one_hot(right(state), 3) + _one_hot(jnp.array(1), 3) > 0
        dead = _one_hot(jnp.array(1), 3) > 0
        return jnp.where(alive(state)[:, None], living[None, :], dead[None, :])

    def see(state: State) -> Float[Array, "N o"]:
        noise = 1e3 * (2.0 * (state.draw // 4) - 1.0) * _one_hot(state.draw % 4, 4)
        return jnp.where(alive(state)[:, None], _one_hot(state.clock, 4)[None, :], noise[None, :])

    def reward(state: State, action: Int[Array, " N"]) -> Float[Array, ""]:
        living = alive(state)
        fraction = jnp.sum((action == right(state)) & living) / jnp.sum(living)
        illegal = jnp.any(living & ~avail(state)[jnp.arange(2), action])
        return jnp.where(illegal, -10.0, fraction / 4)

    return _Rules(
        num_agents=2,
        num_actions=3,
        horizon=4,
        draws=8,
        see=see,
        state=lambda state: jnp.concatenate([_one_hot(state.clock, 4), alive(state).astype(jnp.float32)]),
        reward=reward,
        terminated=lambda state: state.clock >= 4,
        avail=avail,
        alive=alive,
    )


def _roles() -> _Rules:
    """Like `coordination`, but only (0, 0) pays under cue 0 and (0, 1) under cue 1, which a monotone mixer
    represents."""
    return _coordination()._replace(reward=lambda state, action: (action == jnp.arange(2) * state.draw).all())


def _coordination() -> _Rules:
    """One step that pays 1 for equal actions under cue 0 and for different actions under cue 1.

    Each agent observes the cue and its own index. A shared policy that ignores the index earns at most 0.75 in
    expectation, 0.5 if greedy: the agents must take different roles.
    """

    def see(state: State) -> Float[Array, "N o"]:
        return jnp.concatenate([_same(_one_hot(state.draw, 2), 2), jnp.eye(2)], axis=1)

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=1,
        draws=2,
        see=see,
        state=lambda state: _one_hot(state.draw, 2),
        reward=lambda state, action: (action[0] != action[1]) == (state.draw == 1),
        terminated=lambda state: state.clock >= 1,
    )


def _one_hot(index: Int[Array, ""], size: int) -> Float[Array, " size"]:
    """One at `index`; all zeros if the index is out of range, as after the end of an episode."""
    return jax.nn.one_hot(index, size, dtype=jnp.float32)


def _same(row: Float[Array, " o"], num_agents: int) -> Float[Array, "N o"]:
    return jnp.broadcast_to(row, (num_agents, *row.shape))


_PROBES = {
    "value": _value,
    "observation": _observation,
    "discount": _discount,
    "action": _action,
    "truncation": _truncation,
    "memory": _memory,
    "mask_death": _mask_death,
    "roles": _roles,
    "coordination": _coordination,
}
