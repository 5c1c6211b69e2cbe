"""MAPPO in plain PyTorch on MPE's simple_spread, with GRASP as one import and four lines (marked "# GRASP").

    python examples/pytorch_mappo.py --iterations 100
    python examples/pytorch_mappo.py --iterations 100 --grasp

The script uses the bridge as any trainer would, and nothing else of the library. The actor has a trunk that agents
share and a head per agent, the critic sees all observations, and the reward is the mean over the team.
It needs mpe2 and the extra `torch`: pip install mpe2 'grasp-marl[torch]'.
"""

import argparse
import time
from typing import NamedTuple

import numpy as np
import torch
from mpe2 import simple_spread_v3
from torch import Tensor, nn
from torch.distributions import Categorical

from grasp.consensus.torch import consensus, realign_  # GRASP

REWARD_SCALE = 0.1
"""Scales returns to the order of 1, for a critic without value normalisation."""


class Rollout(NamedTuple):
    """Axes: time, then environments, then agents."""

    observations: Tensor  # [T, E, N, D]
    next_observations: Tensor  # before any reset
    actions: Tensor  # [T, E, N]
    log_probs: Tensor  # [T, E, N]
    rewards: Tensor  # [T, E]
    terminated: Tensor  # [T, E]
    done: Tensor  # [T, E], terminated or truncated


class Actor(nn.Module):
    """A trunk that agents share, and a head per agent."""

    def __init__(self, num_inputs: int, num_actions: int, num_agents: int, hidden: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(linear(num_inputs, hidden), nn.ReLU(), linear(hidden, hidden), nn.ReLU())
        self.heads = nn.ModuleList([linear(hidden, num_actions, gain=0.01) for _ in range(num_agents)])
        # The consensus compares coordinates of different heads, which is meaningful only from a common start.
        for head in self.heads:
            head.load_state_dict(self.heads[0].state_dict())

    def forward(self, observations: Tensor) -> Categorical:
        features = self.trunk(observations)
        logits = [head(features[..., agent, :]) for agent, head in enumerate(self.heads)]
        return Categorical(logits=torch.stack(logits, dim=-2))


class Critic(nn.Module):
    """The value of the team, from all agents' observations."""

    def __init__(self, num_inputs: int, hidden: int) -> None:
        super().__init__()
        layers = [linear(num_inputs, hidden), nn.ReLU(), linear(hidden, hidden), nn.ReLU(), linear(hidden, 1, gain=1.0)]
        self.layers = nn.Sequential(*layers)

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations.flatten(-2)).squeeze(-1)


def linear(num_inputs: int, num_outputs: int, gain: float = 2**0.5) -> nn.Linear:
    layer = nn.Linear(num_inputs, num_outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Environments:
    """Parallel environments of simple_spread with automatic reset."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.envs = [simple_spread_v3.parallel_env(N=3, max_cycles=25) for _ in range(num_envs)]
        self.current = np.stack([self._pack(env, env.reset(seed=seed + i)[0]) for i, env in enumerate(self.envs)])
        self.returns, self.finished = np.zeros(num_envs), []

    @staticmethod
    def _pack(env, by_name: dict[str, np.ndarray]) -> np.ndarray:
        return np.stack([by_name[name] for name in env.possible_agents]).astype(np.float32)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The next observations before any reset, the team's rewards, and the flags terminated and done."""
        after, rewards, terminated, done = np.empty_like(self.current), *np.zeros((3, len(self.envs)), np.float32)
        for i, env in enumerate(self.envs):
            names = env.possible_agents
            observations, by_agent, terminations, truncations, _ = env.step(
                dict(zip(names, actions[i].tolist(), strict=True))
            )
            after[i] = self._pack(env, observations)
            rewards[i] = np.mean([by_agent[name] for name in names])
            terminated[i] = all(terminations.values())
            done[i] = terminated[i] or all(truncations.values())
            self.returns[i] += rewards[i]
            if done[i]:
                self.finished.append(self.returns[i])
                self.returns[i] = 0.0
                self.current[i] = self._pack(env, env.reset()[0])
            else:
                self.current[i] = after[i]
        return after, rewards * REWARD_SCALE, terminated, done


@torch.no_grad()
def collect(envs: Environments, actor: Actor, num_steps: int) -> Rollout:
    steps = []
    for _ in range(num_steps):
        before = torch.tensor(envs.current)
        choice = actor(before)
        actions = choice.sample()
        after, *numbers = envs.step(actions.numpy())
        steps.append((before, torch.tensor(after), actions, choice.log_prob(actions), *map(torch.tensor, numbers)))
    return Rollout(*(torch.stack(parts) for parts in zip(*steps, strict=True)))


@torch.no_grad()
def advantages_and_returns(critic: Critic, data: Rollout, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """GAE. A truncated step bootstraps from its next state before the reset; a terminated one does not bootstrap."""
    values, next_values = critic(data.observations), critic(data.next_observations)
    delta = data.rewards + gamma * (1 - data.terminated) * next_values - values
    advantages, running = torch.zeros_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        running = delta[t] + gamma * lam * (1 - data.done[t]) * running
        advantages[t] = running
    return advantages, advantages + values


def surrogates(choice: Categorical, data: Rollout, advantages: Tensor, clip: float) -> Tensor:
    """The clipped policy loss per agent [N], each the mean over the agent's own steps."""
    ratio = (choice.log_prob(data.actions) - data.log_probs).exp()
    advantages = advantages.unsqueeze(-1)
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).flatten(0, -2).mean(0)


class Learner:
    """Networks, their optimisers, and one iteration of MAPPO."""

    def __init__(self, options: argparse.Namespace, num_agents: int, num_inputs: int, num_actions: int) -> None:
        self.options = options
        self.actor = Actor(num_inputs, num_actions, num_agents, options.hidden)
        self.critic = Critic(num_agents * num_inputs, options.hidden)
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), lr=options.lr, eps=1e-5)
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters(), lr=options.lr, eps=1e-5)

    def update(self, data: Rollout) -> str:
        options, report = self.options, ""
        heads = [list(head.parameters()) for head in self.actor.heads]
        advantages, returns = advantages_and_returns(self.critic, data, options.gamma, options.lam)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)
        for epoch in range(options.epochs):
            choice = self.actor(data.observations)
            losses = surrogates(choice, data, advantages, options.clip)
            # A sum over agents, so that the gradient of a head is that of its agent's loss.
            loss = losses.sum() - options.entropy * choice.entropy().flatten(0, -2).mean(0).sum()
            if options.grasp and epoch == 0:  # GRASP: u at the parameters that collected the data
                u, info = consensus(losses, heads)  # GRASP
                report = f"  weights {np.round(info.weights, 2)}  {info.status.name.lower()}"
            self.actor_optimiser.zero_grad()
            loss.backward()
            if options.grasp:  # GRASP: u stays fixed for the iteration
                realign_(heads, u=u, weight=options.weight)  # GRASP
            self._step(self.actor, self.actor_optimiser)
            self.critic_optimiser.zero_grad()
            nn.functional.mse_loss(self.critic(data.observations), returns).backward()
            self._step(self.critic, self.critic_optimiser)
        return report

    def _step(self, net: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        nn.utils.clip_grad_norm_(net.parameters(), self.options.max_norm)
        optimiser.step()


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grasp", action="store_true", help="add the consensus to every head's gradient")
    parser.add_argument("--weight", type=float, default=1.0, help="weight of the consensus")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--rollout", type=int, default=100, help="steps per environment and iteration")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=7e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--lam", type=float, default=0.95)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--entropy", type=float, default=0.01)
    parser.add_argument("--max-norm", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> list[float]:
    """Train, print one line per iteration, and return the mean return of the episodes that ended in each."""
    options = parse(words)
    torch.manual_seed(options.seed)
    envs = Environments(options.num_envs, 1000 * options.seed)
    num_agents, num_inputs = envs.current.shape[1:]
    num_actions = int(envs.envs[0].action_space(envs.envs[0].possible_agents[0]).n)
    learner, history = Learner(options, num_agents, num_inputs, num_actions), []
    for iteration in range(1, options.iterations + 1):
        start, envs.finished = time.perf_counter(), []
        data = collect(envs, learner.actor, options.rollout)
        between = time.perf_counter()
        report = learner.update(data)
        history.append(float(np.mean(envs.finished)) if envs.finished else float("nan"))
        took = f"{between - start:.2f} + {time.perf_counter() - between:.2f} s"
        print(f"iteration {iteration}  return {history[-1]:.2f}  {took}{report}", flush=True)
    return history


if __name__ == "__main__":
    main()
