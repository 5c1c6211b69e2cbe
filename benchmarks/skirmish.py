"""Scripted teams in Skirmish: wins, return and length, to set beside the reference tables of docs/skirmish.md.

python benchmarks/skirmish.py --maps 3m 8m --scripts nearest focus --options start_jitter=0.5
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from grasp.envs import base, skirmish
from grasp.envs.skirmish import scripts
from grasp.types import Env, Key


def play(env: Env, field: skirmish.Field, script: str, episodes: int, key: Key) -> tuple[Array, Array, Array]:
    """Return, length and whether it was won, of every episode."""
    keys = jax.random.split(key, episodes)

    def act(state: skirmish.State, avail: Array, key: Key) -> Array:
        return scripts.SCRIPTS[script](field.rules, skirmish.stats(field, state.kind), state.battle, avail, key)

    def step(time: Array, carry: tuple) -> tuple:
        state, avail, running, returned, length, won = carry
        now = jax.vmap(lambda key: jax.random.fold_in(key, time))(keys)
        state, after = jax.vmap(env.step)(state, jax.vmap(act)(state, avail, now), now)
        returned, length = returned + jnp.where(running, after.reward, 0.0), length + running
        won |= running & after.won
        return state, after.observation.avail, running & ~(after.terminated | after.truncated), returned, length, won

    state, seen = jax.vmap(env.reset)(keys)
    nothing = jnp.zeros(episodes), jnp.zeros(episodes, jnp.int32), jnp.zeros(episodes, bool)
    carry = (state, seen.avail, jnp.ones(episodes, bool), *nothing)
    return jax.lax.fori_loop(0, env.spec.horizon, step, carry)[3:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", nargs="+", default=skirmish.names())
    parser.add_argument("--scripts", nargs="+", default=list(scripts.SCRIPTS))
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--options", nargs="*", default=["start_jitter=0.5"], metavar="OPTION=VALUE")
    given = parser.parse_args()
    words = ",".join(given.options)
    print("| map | script | wins | return | length |\n|---|---|---|---|---|")
    for name in given.maps:
        chosen = base.chosen(f"skirmish/{name}", words)
        env, field = skirmish.make(name, **chosen), skirmish.field_of(name, **chosen)
        for script in given.scripts:
            run = jax.jit(partial(play, env, field, script, given.episodes))
            returned, length, won = run(jax.random.key(0))
            spread = f"{returned.mean():.2f} ± {returned.std():.2f}"
            print(f"| {name} | {script} | {won.mean():.2f} | {spread} | {length.mean():.1f} |", flush=True)


if __name__ == "__main__":
    main()
