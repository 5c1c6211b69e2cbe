"""What a team of random, legal actions is worth: the score that learning must beat.

python benchmarks/chance.py matrix/climbing mpe/simple_spread smax/3m
"""

import argparse

import jax
import numpy as np

from grasp.bench.envs import at_random
from grasp.envs import base
from grasp.evaluation import Scores, evaluate


def measure(name: str, episodes: int, seed: int) -> Scores:
    env = base.compiled(name)
    play = jax.jit(lambda key: evaluate(env, at_random(), (), key, episodes))
    return jax.device_get(play(jax.random.key(seed)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("envs", nargs="+", metavar="ENV")
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"random legal actions, {options.episodes} episodes, mean ± standard error")
    for name in options.envs:
        scores = measure(name, options.episodes, options.seed)
        error = np.std(scores.returned) / np.sqrt(options.episodes)
        wins = f"  wins {np.mean(scores.won):.3f}" if base.make(name).spec.has_wins else ""
        print(f"{name}  return {np.mean(scores.returned):.2f} ± {error:.2f}{wins}")


if __name__ == "__main__":
    main()
