"""Family `probe`: tiny tasks, each solvable only if one more thing in a learner works.

Read them in order; the first that fails names the broken part. A probe of the policy stands in `SOLVED`, with the mean
undiscounted return of greedy episodes that counts as solved. A probe of the critic pays the same whatever is done, so
its return says nothing: it stands in `VALUES`, with the true value of its states.
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
"""The greedy return that counts as solved; the optimum is 1 in each."""

VALUES: dict[str, dict[tuple[float, ...], float]] = {
    "value": {(1.0,): 1.0},
    "observation": {(1.0,): 1.0, (-1.0,): -1.0},
    "discount": {(1.0, 0.0): DISCOUNT, (0.0, 1.0): 1.0},
    "truncation": {
        tuple(sign * float(place == at) for place in range(4)): sign * DISCOUNT ** (3 - at)
        for sign in (1.0, -1.0)
        for at in range(4)
    },
}
"""The true value of each state, by the state vector."""


class Scene(NamedTuple):
    """All a probe has to remember: what was drawn at reset, and the steps taken since."""

    draw: Int[Array, ""]
    clock: Int[Array, ""]


class _Rules(NamedTuple):
    """A probe, with a default for everything it does not test. `see` gives what all agents observe."""

    num_agents: int
    num_actions: int
    horizon: int
    see: Callable[[Scene], Float[Array, "N o"]]
    state: Callable[[Scene], Float[Array, " s"]]
    reward: Callable[[Scene, Int[Array, " N"]], Float[Array, ""]]
    """From the scene before the step."""
    ended: Callable[[Scene], Bool[Array, ""]]
    """Whether the task has ended, from the scene after the step."""
    draws: int = 1  # equally likely beginnings
    avail: Callable[[Scene], Bool[Array, "N a"]] | None = None
    alive: Callable[[Scene], Bool[Array, " N"]] | None = None


def names() -> list[str]:
    """The probes, each after what it presupposes."""
    return list(_PROBES)


def make(task: str) -> Env:
    """The probe as an `Env`."""
    rules = _PROBES[task]()

    def observe(scene: Scene) -> Observation:
        return Observation(
            obs=rules.see(scene).astype(jnp.float32),
            state=rules.state(scene).astype(jnp.float32),
            avail=rules.avail(scene) if rules.avail else jnp.ones((rules.num_agents, rules.num_actions), bool),
            alive=rules.alive(scene) if rules.alive else jnp.ones(rules.num_agents, bool),
        )

    def reset(key: Key) -> tuple[Scene, Observation]:
        scene = Scene(jax.random.randint(key, (), 0, rules.draws, jnp.int32), jnp.zeros((), jnp.int32))
        return scene, observe(scene)

    def step(env_state: Scene, action: Int[Array, " N"], key: Key) -> tuple[Scene, Step]:
        after = env_state._replace(clock=env_state.clock + 1)
        terminated = rules.ended(after)
        truncated = (after.clock >= rules.horizon) & ~terminated
        reward = rules.reward(env_state, action).astype(jnp.float32)
        return after, Step(observe(after), reward, terminated, truncated, won=jnp.array(False))

    view = jax.eval_shape(lambda: observe(Scene(jnp.int32(0), jnp.int32(0))))
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
    """Always 1, in one step. A critic must learn the constant 1."""
    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=1,
        see=lambda scene: jnp.ones((2, 1)),
        state=lambda scene: jnp.ones(1),
        reward=lambda scene, action: jnp.ones(()),
        ended=lambda scene: scene.clock >= 1,
    )


def _observation() -> _Rules:
    """One step that pays the +1 or -1 written in the state. A critic must read its input."""

    def sign(scene: Scene) -> Float[Array, ""]:
        return 2.0 * scene.draw - 1.0

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=1,
        draws=2,
        see=lambda scene: jnp.full((2, 1), sign(scene)),
        state=lambda scene: jnp.full(1, sign(scene)),
        reward=lambda scene, action: sign(scene),
        ended=lambda scene: scene.clock >= 1,
    )


def _discount() -> _Rules:
    """Nothing, then 1, then the end. The first state is worth the discount: values must flow back one step."""

    def when(scene: Scene) -> Float[Array, " 2"]:
        return _one_hot(scene.clock, 2)

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=2,
        see=lambda scene: _same(when(scene), 2),
        state=when,
        reward=lambda scene, action: when(scene)[1],
        ended=lambda scene: scene.clock >= 2,
    )


def _truncation() -> _Rules:
    """A walk of four places that pays its sign, +1 or -1, at the far end, but the clock cuts it after two steps.

    The walk starts anywhere with either sign and moves by itself; from the first two places the end is never reached.
    Only a bootstrap from the true last state values those: with the cut taken for the end they are worth 0, and so are
    they on average with a bootstrap from the next episode's first state, whose sign is another. The walk's own end
    terminates, so a learner that bootstraps always is wrong as well.
    """

    def place(scene: Scene) -> Int[Array, ""]:
        return scene.draw // 2 + scene.clock

    def signed(scene: Scene) -> Float[Array, " 4"]:
        return (2.0 * (scene.draw % 2) - 1.0) * _one_hot(place(scene), 4)

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=2,
        draws=8,
        see=lambda scene: _same(signed(scene), 2),
        state=signed,
        reward=lambda scene, action: signed(scene)[3],
        ended=lambda scene: place(scene) >= 4,
    )


def _action() -> _Rules:
    """One step that pays the share of agents who chose action 1 of three. A policy must follow its advantage."""
    return _Rules(
        num_agents=2,
        num_actions=3,
        horizon=1,
        see=lambda scene: jnp.ones((2, 1)),
        state=lambda scene: jnp.ones(1),
        reward=lambda scene, action: jnp.mean(action == 1),
        ended=lambda scene: scene.clock >= 1,
    )


def _memory() -> _Rules:
    """A cue is seen at the first step only; the last of four pays the share of agents who choose it.

    Without memory the best is 0.5. The state, which only a critic sees, keeps the cue.
    """

    def see(scene: Scene) -> Float[Array, "N o"]:
        cue = _one_hot(scene.draw, 2) * (scene.clock == 0)
        return _same(jnp.concatenate([cue, jnp.atleast_1d(scene.clock == 3).astype(cue.dtype)]), 2)

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=4,
        draws=2,
        see=see,
        state=lambda scene: jnp.concatenate([_one_hot(scene.draw, 2), _one_hot(scene.clock, 4)]),
        reward=lambda scene, action: jnp.mean(action == scene.draw) * (scene.clock == 3),
        ended=lambda scene: scene.clock >= 4,
    )


def _mask_death() -> _Rules:
    """Four steps, each pays a quarter of the share of the living who chose the step's right action, 0 or 2 in turn.

    Whichever of 0 and 2 is not right is illegal, and one living agent who plays it costs the team 10: masks must hold
    at every step. Agent 1 dies after two steps. From then on its row of `obs` is large nonsense and its one legal
    action, 1, changes nothing. Solving this does not prove that the loss masks the dead: a lone legal action has no
    gradient, and plain REINFORCE without that mask solves it too. The mask in a loss needs its own test.
    """

    def right(scene: Scene) -> Int[Array, ""]:
        return 2 * (scene.clock % 2)

    def alive(scene: Scene) -> Bool[Array, " N"]:
        return jnp.stack([jnp.array(True), scene.clock < 2])

    def avail(scene: Scene) -> Bool[Array, "N a"]:
        living = _one_hot(right(scene), 3) + _one_hot(jnp.array(1), 3) > 0
        dead = _one_hot(jnp.array(1), 3) > 0
        return jnp.where(alive(scene)[:, None], living[None, :], dead[None, :])

    def see(scene: Scene) -> Float[Array, "N o"]:
        nonsense = 1e3 * (2.0 * (scene.draw // 4) - 1.0) * _one_hot(scene.draw % 4, 4)
        return jnp.where(alive(scene)[:, None], _one_hot(scene.clock, 4)[None, :], nonsense[None, :])

    def reward(scene: Scene, action: Int[Array, " N"]) -> Float[Array, ""]:
        living = alive(scene)
        share = jnp.sum((action == right(scene)) & living) / jnp.sum(living)
        illegal = jnp.any(living & ~avail(scene)[jnp.arange(2), action])
        return jnp.where(illegal, -10.0, share / 4)

    return _Rules(
        num_agents=2,
        num_actions=3,
        horizon=4,
        draws=8,
        see=see,
        state=lambda scene: jnp.concatenate([_one_hot(scene.clock, 4), alive(scene).astype(jnp.float32)]),
        reward=reward,
        ended=lambda scene: scene.clock >= 4,
        avail=avail,
        alive=alive,
    )


def _roles() -> _Rules:
    """As `coordination`, but only (0, 0) pays under cue 0, (0, 1) under cue 1: what a monotone mixer can represent."""
    return _coordination()._replace(reward=lambda scene, action: (action == jnp.arange(2) * scene.draw).all())


def _coordination() -> _Rules:
    """One step that pays 1 if both agents choose alike under cue 0, and if they choose differently under cue 1.

    Each agent sees the cue and its own number. One policy that ignores the number earns at most 0.75 in expectation,
    0.5 when it is greedy: the agents have to split into roles.
    """

    def see(scene: Scene) -> Float[Array, "N o"]:
        return jnp.concatenate([_same(_one_hot(scene.draw, 2), 2), jnp.eye(2)], axis=1)

    return _Rules(
        num_agents=2,
        num_actions=2,
        horizon=1,
        draws=2,
        see=see,
        state=lambda scene: _one_hot(scene.draw, 2),
        reward=lambda scene, action: (action[0] != action[1]) == (scene.draw == 1),
        ended=lambda scene: scene.clock >= 1,
    )


def _one_hot(index: Int[Array, ""], size: int) -> Float[Array, " size"]:
    """One at `index`; all zeros where the index is out of range, as it is after an end."""
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
