"""The example trainer: both modes, the baseline at weight 0, bootstrapping at the time limit."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from paths import REPOSITORY

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'grasp-marl[torch]'")
pytest.importorskip("mpe2", reason="mpe2 is not installed: pip install mpe2")

PATH = REPOSITORY / "examples" / "pytorch_mappo.py"
SMALL = ["--iterations", "2", "--num-envs", "2", "--rollout", "30", "--epochs", "2", "--hidden", "16"]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("pytorch_mappo", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("flags", [[], ["--grasp"]], ids=["mappo", "grasp"])
def test_it_runs_from_the_command_line(flags):
    done = subprocess.run(
        [sys.executable, str(PATH), *SMALL, *flags], capture_output=True, text=True, timeout=300, check=True
    )
    lines = done.stdout.strip().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["iteration 1", "iteration 2"]
    assert all(np.isfinite(float(line.split("return ")[1].split()[0])) for line in lines)
    assert all(("weights" in line and "certified" in line) == bool(flags) for line in lines)


def trained(example, *flags):
    """The actor's parameters after two iterations, by name."""
    kept = []

    class Keeping(example.Learner):
        def __init__(self, *given):
            super().__init__(*given)
            kept.append(self)

    original, example.Learner = example.Learner, Keeping
    try:
        example.main([*SMALL, *flags])
    finally:
        example.Learner = original
    return {name: value.detach().numpy() for name, value in kept[0].actor.named_parameters()}


def test_weight_zero_is_exactly_the_baseline_and_weight_one_is_not(example):
    plain, zero, one = trained(example), trained(example, "--grasp", "--weight", "0"), trained(example, "--grasp")
    for name, value in plain.items():
        np.testing.assert_array_equal(zero[name], value)
    heads = [name for name in plain if name.startswith("heads")]
    assert len(heads) == 6
    assert all(np.abs(one[name] - plain[name]).max() > 1e-6 for name in heads)


def test_heads_start_equal_and_are_per_agent(example):
    actor = example.Actor(4, 5, 3, 8)
    observations = torch.ones(2, 3, 4)
    probabilities = actor(observations).probs
    assert probabilities.shape == (2, 3, 5)
    np.testing.assert_array_equal(probabilities[:, 0].detach(), probabilities[:, 2].detach())
    with torch.no_grad():
        actor.heads[2].bias[0] += 1.0
    moved = actor(observations).probs
    np.testing.assert_array_equal(moved[:, :2].detach(), probabilities[:, :2].detach())
    assert (moved[:, 2, 0] > probabilities[:, 2, 0]).all()


def test_advantages_by_hand(example):
    """Three steps: the second is truncated (it bootstraps, but no advantage flows back), the third terminates."""
    seen, after = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([2.0, 8.0, 16.0])
    data = example.Rollout(
        observations=seen.reshape(3, 1, 1, 1),
        next_observations=after.reshape(3, 1, 1, 1),
        actions=torch.zeros(3, 1, 1),
        log_probs=torch.zeros(3, 1, 1),
        rewards=torch.ones(3, 1),
        terminated=torch.tensor([[0.0], [0.0], [1.0]]),
        done=torch.tensor([[0.0], [1.0], [1.0]]),
    )
    advantages, returns = example.advantages_and_returns(lambda x: x.flatten(-2).squeeze(-1), data, 0.5, 0.5)
    # δ = 1 + 0.5·2 − 1 = 1;  1 + 0.5·8 − 2 = 3;  1 − 4 = −3.  A_0 = 1 + 0.25·3.
    np.testing.assert_allclose(advantages[:, 0], [1.75, 3, -3])
    np.testing.assert_allclose(returns[:, 0], [2.75, 5, 1])


def test_a_truncated_step_returns_the_observation_before_the_reset(example):
    envs, twin = example.Environments(1, seed=3), example.simple_spread_v3.parallel_env(N=3, max_cycles=25)
    twin.reset(seed=3)
    for step in range(25):
        after, rewards, terminated, done = envs.step(np.ones((1, 3), int))
        observations = twin.step(dict.fromkeys(twin.possible_agents, 1))[0]
        np.testing.assert_array_equal(
            after[0], [observations[name].astype(np.float32) for name in twin.possible_agents]
        )
        assert (terminated[0], done[0]) == (0.0, float(step == 24))
        assert np.array_equal(after, envs.current) == (step < 24)
    assert rewards[0] < 0
    assert len(envs.finished) == 1


def test_the_loss_of_an_agent_is_the_clipped_surrogate_over_its_own_steps(example):
    data = example.Rollout(
        *[None] * 2, torch.zeros(2, 1, 2), torch.log(torch.tensor([[[0.5, 0.2]], [[0.5, 0.5]]])), *[None] * 3
    )
    choice = torch.distributions.Categorical(probs=torch.tensor([0.5, 0.5]).expand(2, 1, 2, 2))
    losses = example.surrogates(choice, data, torch.tensor([[2.0], [-1.0]]), clip=0.2)
    # ratios 1, 2.5 (clipped to 1.2 where the advantage is positive) in the first step, 1 and 1 in the second
    np.testing.assert_allclose(losses, [-(2 - 1) / 2, -(2.4 - 1) / 2], rtol=1e-6)
