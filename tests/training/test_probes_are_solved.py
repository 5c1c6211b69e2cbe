"""Every algorithm solves every probe: the first that fails names what is broken."""

import jax
import jax.numpy as jnp
import pytest

from grasp.algos import value_norm
from grasp.config import configure
from grasp.config.hyperparameters import ALGORITHMS, Happo, Ma2e, Mappo, Qmix
from grasp.envs import probes
from grasp.nn import critic as critics
from grasp.training.runner import build

SMALL = {"num_envs": 16, "rollout": 20, "hidden": 16, "lr": 3e-3, "gamma": probes.DISCOUNT, "eval_episodes": 32}
QMIX = {"buffer": 1000, "interval": 4, "target_interval": 50, "anneal": 10_000}
FAMILY = {
    Mappo: {"chunk": 10, "epochs": 5, "critic_lr": 3e-3},
    Happo: {"chunk": 10, "epochs": 5, "critic_lr": 3e-3},
    Qmix: QMIX,
    Ma2e: QMIX
    | {
        "interval": 16,
        "pretrain": 640,
        "embed": 8,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "feedforward": 16,
    },
}
ITERATIONS = 100


@pytest.fixture(autouse=True)
def forget_each_program():
    """Every test compiles whole training programs, which no other test uses."""
    yield
    jax.clear_caches()


def trained(algo, probe, **options):
    """The state after training, and a scorer of greedy episodes."""
    steps = ITERATIONS * SMALL["num_envs"] * SMALL["rollout"]
    own = FAMILY[type(ALGORITHMS[algo])]
    config = configure(algo, f"probe/{probe}", {"steps": steps, **SMALL, **own, **options})
    runner = build(config, 1)
    run = runner.begin([0])
    for _ in range(config.iterations):
        run, _ = runner.advance(run)
    return config, runner, jax.tree.map(lambda x: x[0], run.state)


# A monotone mixer cannot represent `coordination`: whether Q-learners solve it depends on the seed
# (docs/algorithms/qmix.md). They have to solve `roles`.
ASKED = [
    (probe, algo)
    for probe in probes.SOLVED
    for algo, hyper in ALGORITHMS.items()
    if probe != "coordination" or not isinstance(hyper, Qmix)
]
QUICK = {
    ("memory", "mappo"),
    ("coordination", "grasp-mappo"),
    ("mask_death", "happo"),
    ("memory", "grasp-qmix"),
    ("truncation", "mlp"),
    ("discount", "gru"),
}


def tiered(pairs):
    """On every change, one probe per family of algorithms and per kind of mistake."""
    grid = pytest.mark.full("the whole grid of probes and algorithms")
    return [pytest.param(*pair, marks=() if pair in QUICK else grid) for pair in pairs]


@pytest.mark.parametrize(("probe", "algo"), tiered(ASKED))
def test_the_policy_solves_the_probe(probe, algo):
    _, runner, state = trained(algo, probe)
    batched = jax.tree.map(lambda x: x[None], state)
    scores = runner.score(batched, jax.random.split(jax.random.key(9), 1))
    assert scores.greedy.returned.mean() >= probes.SOLVED[probe]


@pytest.mark.full("the whole grid of probes and algorithms")
@pytest.mark.parametrize("sharing", ["shared", "separate"])
def test_other_parameter_sharing_solves_coordination(sharing):
    _, runner, state = trained("grasp-mappo", "coordination", sharing=sharing)
    scores = runner.score(jax.tree.map(lambda x: x[None], state), jax.random.split(jax.random.key(9), 1))
    assert scores.greedy.returned.mean() >= probes.SOLVED["coordination"]


# A recurrent critic is not asked about `truncation`: its episodes have two steps, so the third, from which a truncated
# one bootstraps, is a memory it never learns from. What it bootstraps with is tested in test_mappo.py.
@pytest.mark.parametrize(
    ("probe", "critic"),
    tiered([(p, "mlp") for p in probes.VALUES] + [(p, "gru") for p in probes.VALUES if p != "truncation"]),
)
def test_the_critic_learns_the_value_of_every_state(probe, critic):
    config, _, state = trained("mappo", probe, critic=critic)
    for seen, expected in values_along(probe, critic, config, state):
        assert seen == pytest.approx(expected, abs=0.1)


def values_along(probe, critic, config, state):
    """(estimate, truth) of every state, each as an episode's first; the second state of `discount` only follows."""
    states = probes.VALUES[probe]
    for sequence in [list(states)] if probe == "discount" else [[one] for one in states]:
        inputs = jnp.array(sequence)[:, None]
        first = jnp.arange(len(sequence))[:, None] == 0
        memory = jnp.zeros((1, config.hyper.hidden * (critic == "gru")))
        found = critics.values(state.critic, memory, inputs, first)[:, 0]
        yield from zip(value_norm.denormalise(state.value_norm, found).tolist(), map(states.get, sequence), strict=True)
