"""The return and win rate of random legal actions, the baseline that learning must beat.

python scripts/chance.py matrix/climbing mpe/simple_spread smax/3m
"""

import argparse

import jax
import numpy as np

from grasp.analysis.statistics import wilson
from grasp.bench.envs import at_random
from grasp.envs import base
from grasp.envs.host import SimulatorPool
from grasp.training import host_rollout
from grasp.training.evaluation import Scores, evaluate
from grasp.types import Env, Host

COPIES, WORKERS, DEADLINE, RESTARTS = 16, 2, 60.0, 10


def measure(env: Env | Host, episodes: int, seed: int) -> Scores:
    """Scores of episodes at random, which are the same whether or not they are asked to be greedy."""
    key = jax.random.key(seed)
    if isinstance(env, Host):
        pool = SimulatorPool(env, COPIES, WORKERS, DEADLINE, RESTARTS)
        try:
            return host_rollout.play(host_rollout.HostEnvs(pool, at_random()), (), key, episodes, greedy=True)
        finally:
            pool.close()
    play = jax.jit(lambda key: evaluate(env, at_random(), (), key, episodes).greedy)
    return jax.device_get(play(key))


def wins(scores: Scores) -> str:
    low, high = wilson(int(np.sum(scores.won)), len(scores.won)) or (0.0, 1.0)
    return f"  wins {np.mean(scores.won):.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("envs", nargs="+", metavar="ENV")
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"random legal actions, {options.episodes} episodes, mean ± standard error, Wilson's 95 % interval of wins")
    for name in options.envs:
        env = base.make(name)
        scores = measure(env, options.episodes, options.seed)
        error = np.std(scores.returned) / np.sqrt(options.episodes)
        won = wins(scores) if env.spec.has_wins else ""
        length = f"  steps {np.mean(scores.length):.1f}"
        print(f"{name}  return {np.mean(scores.returned):.2f} ± {error:.2f}{length}{won}")


if __name__ == "__main__":
    main()
