"""Scripted teams in Skirmish compared with a reference: wins, return and length, ours / reference, and agreement.

python scripts/skirmish.py --profile smaclite --maps 3m 2s3z

The reference is smaclite, for profile sc2 with that profile's numbers (skirmish_reference.csv: mean and standard
deviation over its episodes). Cells without a reference are shown without a check.
"""

import argparse
import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from grasp.analysis.statistics import wilson
from grasp.envs import base
from grasp.envs.skirmish import env as skirmish
from grasp.envs.skirmish import scripted_policies
from grasp.types import Env, Key

JITTERS = {"sc2": (0.5,), "smaclite": (0.0, 0.5)}
"""How far starting positions are shifted in the reference; without shift and noise all episodes are equal."""
FIXED = [name for name, battlefield in skirmish.MAPS.items() if not battlefield.generated]


class Cell(NamedTuple):
    """Win rate, mean return and mean length of one script on one map; for the reference also its spread."""

    wins: float
    returned: float
    length: float
    spread: float = 0.0
    """Standard deviation of the return."""
    episodes: int = 1
    length_spread: float = 0.0


def reference(profile: str, jitter: float) -> dict[tuple[str, str], Cell]:
    with Path(__file__).with_name("skirmish_reference.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["profile"] == profile and float(row["jitter"]) == jitter]
    return {
        (row["map"], row["script"]): Cell(
            wins=float(row["wins"]) / int(row["episodes"]),
            returned=float(row["return"]),
            length=float(row["length"]),
            spread=float(row["spread"]),
            episodes=int(row["episodes"]),
        )
        for row in rows
    }


def outside(script: str, jitter: float, here: Cell, there: Cell) -> list[str]:
    """The quantities that differ from the reference by more than the tolerance."""
    returned, length = abs(here.returned - there.returned), abs(here.length - there.length)
    if script == "stop":
        most_returned, most_length = 0.0, 1.0
    elif script == "random":
        most_returned, most_length = 0.5, 0.15 * there.length
    else:
        most_returned, most_length = max(1.5, 2 * there.spread / np.sqrt(there.episodes)), 0.1 * there.length
    low, high = wilson(round(there.wins * there.episodes), there.episodes) or (0.0, 1.0)
    wrong = ["return"] if returned > most_returned else []
    wrong += ["length"] if length > most_length else []
    fights = jitter > 0 and script in ("nearest", "focus", "hold")
    return wrong + (["wins"] if fights and not low - 0.1 <= here.wins <= high + 0.1 else [])


def play(
    env: Env, scenario: skirmish.Scenario, names: list[str], episodes: int, key: Key
) -> tuple[Array, Array, Array]:
    """Return, length and win of each episode of each script: [scripts, episodes]."""
    total = len(names) * episodes
    keys, script = jax.random.split(key, total), jnp.repeat(jnp.arange(len(names)), episodes)
    own = jax.vmap(jax.random.split)(keys)
    reset_keys, step_keys = own[:, 0], own[:, 1]

    def act(script: Array, state: skirmish.State, avail: Array, key: Key) -> Array:
        unit = skirmish.stats(scenario, state.kind)
        actions = [scripted_policies.SCRIPTS[name](scenario.rules, unit, state.battle, avail, key) for name in names]
        return jnp.stack(actions)[script]

    def step(carry: tuple) -> tuple:
        time, state, avail, running, returned, length, won = carry
        now = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time)))(step_keys)
        act_keys, env_keys = now[:, 0], now[:, 1]
        state, after = jax.vmap(env.step)(state, jax.vmap(act)(script, state, avail, act_keys), env_keys)
        returned, length = returned + jnp.where(running, after.reward, 0.0), length + running
        won |= running & after.won
        running &= ~(after.terminated | after.truncated)
        return time + 1, state, after.observation.avail, running, returned, length, won

    state, seen = jax.vmap(env.reset)(reset_keys)
    nothing = jnp.zeros(total), jnp.zeros(total, jnp.int32), jnp.zeros(total, bool)
    carry = (jnp.zeros((), jnp.int32), state, seen.avail, jnp.ones(total, bool), *nothing)
    after = jax.lax.while_loop(lambda carry: carry[3].any(), step, carry)
    returned, length, won = (v.reshape(len(names), episodes) for v in after[4:])
    return returned, length, won


def cells(name: str, names: list[str], episodes: int, options: str) -> Iterator[tuple[str, Cell]]:
    """Every script on one map."""
    chosen = base.parse_options(f"skirmish/{name}", options)
    env, scenario = skirmish.make(name, **chosen), skirmish.scenario_of(name, **chosen)
    found = jax.jit(partial(play, env, scenario, names, episodes))(jax.random.key(0))
    for script, returned, length, won in zip(names, *found, strict=True):
        wins, mean, steps = (float(values.mean()) for values in (won, returned, length))
        yield script, Cell(wins, mean, steps, float(returned.std()), episodes, float(length.std()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=JITTERS, default="sc2")
    parser.add_argument("--maps", nargs="+", default=FIXED, choices=skirmish.names(), metavar="MAP")
    parser.add_argument(
        "--scripts", nargs="+", default=list(scripted_policies.SCRIPTS), choices=scripted_policies.SCRIPTS
    )
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--jitter", type=float, nargs="+", help="largest shift of starting positions")
    given = parser.parse_args()
    for jitter in given.jitter or JITTERS[given.profile]:
        expected = reference(given.profile, jitter)
        print(f"\nprofile {given.profile}, starting positions shifted by up to {jitter}; ours / reference\n")
        print("| map | script | wins | return | length | spreads | outside |\n|---|---|---|---|---|---|---|")
        for name in given.maps:
            options = f"profile={given.profile},start_jitter={jitter}"
            for script, here in cells(name, given.scripts, given.episodes, options):
                there = expected.get((name, script))
                shown = [f"{v:.{d}f}" for v, d in zip(here[:3], (2, 1, 1), strict=True)]
                if there:
                    shown = [f"{ours} / {v:.{d}f}" for ours, v, d in zip(shown, there[:3], (2, 1, 1), strict=True)]
                wrong = ", ".join(outside(script, jitter, here, there)) if there else "no reference"
                spread = f"{here.spread:.2f}, {here.length_spread:.1f}"
                print(f"| {name} | {script} | {' | '.join(shown)} | {spread} | {wrong} |", flush=True)


if __name__ == "__main__":
    main()
