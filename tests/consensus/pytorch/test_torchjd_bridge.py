"""The operators in TorchJD: its engines accept them, results equal JAX's, and its aggregators' properties hold.

Properties in TorchJD's own test suite that do not apply here:
- linearity under scaling of single rows: min-norm is not linear there (UPGrad is);
- equality of weights: with duplicate gradients they are not unique. u is, so u is compared;
- strong stationarity (u ≠ 0 unless positive weights cancel): min-norm is 0 wherever 0 is in the hull, by design.
"""

import numpy as np
import pytest
from torch_cases import CASES, by_jax

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'grasp-marl[torch]'")
pytest.importorskip("torchjd", reason="TorchJD is not installed: pip install 'grasp-marl[torch]'")

from torchjd.aggregation import MGDA, GramianWeightedAggregator, Mean, Weighting  # noqa: E402
from torchjd.autogram import Engine  # noqa: E402
from torchjd.autojac import backward, jac_to_grad  # noqa: E402

from grasp.consensus import CONDITIONS, OPERATORS  # noqa: E402
from grasp.consensus.torchjd import Consensus, ConsensusWeighting  # noqa: E402

NAMES = sorted(OPERATORS)
DRAW = ("pcgrad", "random")
FOUR = [name for name, g in CASES.items() if len(g) == 4]
REGULAR = ("near_orthogonal", "conflicting", "duplicate")


def jacobian(case: str, dtype=torch.float64):
    return torch.tensor(CASES[case], dtype=dtype)


@pytest.fixture(autouse=True)
def _double(x64):
    """Float64 throughout: the properties are tested apart from rounding in float32."""


@pytest.mark.parametrize("case", FOUR)
@pytest.mark.parametrize("operator", NAMES)
def test_results_equal_those_of_jax(operator, case):
    if case == "scaled" and operator in ("imtl_g", "aligned_mtl"):
        case = "conflicting"  # they divide by G's smallest eigenvalue, which there is rounding error
    u = Consensus(operator)(jacobian(case))
    expected, info = by_jax(CASES[case], operator)
    size = np.linalg.norm(CASES[case], axis=1).max() * max(1.0, np.abs(info.weights).max())
    np.testing.assert_allclose(u.numpy(), expected, rtol=0, atol=1e-10 * size)
    assert u.dtype == torch.float64


@pytest.mark.parametrize("operator", NAMES)
def test_an_operator_is_an_aggregator_of_torchjd_that_keeps_shape_and_dtype(operator):
    aggregator = Consensus(operator)
    assert isinstance(aggregator, GramianWeightedAggregator)
    assert isinstance(aggregator.gramian_weighting, Weighting)
    for case in FOUR:
        u = aggregator(jacobian(case, torch.float32))
        assert u.shape == (24,)
        assert u.dtype == torch.float32
        assert u.isfinite().all()
    assert repr(aggregator) == f"Consensus({operator!r})"


@pytest.mark.parametrize("operator", [name for name in NAMES if CONDITIONS[name].pareto == "yes"])
@pytest.mark.parametrize("case", FOUR)
def test_no_agent_is_in_conflict(operator, case):
    g = jacobian(case)
    projections = g @ Consensus(operator)(g)
    assert projections.min() >= -1e-9 * g.norm(dim=1).max() ** 2


@pytest.mark.parametrize("case", FOUR)
def test_certificate_of_min_norm(case):
    g = jacobian(case)
    u = Consensus()(g)
    norms = g.norm(dim=1).clamp(min=1e-30)
    assert ((u @ u - g @ u) / norms).max() <= 1e-10 * max(u.norm().item(), 1e-30)


def test_an_average_violates_the_certificate():
    g = jacobian("conflicting")
    u = Mean()(g)
    assert (u @ u - g @ u).max() > 1e-3


@pytest.mark.parametrize("operator", [name for name in NAMES if CONDITIONS[name].hull == "yes"])
@pytest.mark.parametrize("case", REGULAR)
def test_weights_are_on_the_simplex(operator, case):
    g = jacobian(case)
    w = ConsensusWeighting(operator)(g @ g.T)
    assert w.shape == (4,)
    assert w.min() >= 0
    np.testing.assert_allclose(w.sum().item(), 1, atol=1e-12)


@pytest.mark.parametrize("operator", [name for name in NAMES if name not in DRAW])
@pytest.mark.parametrize("case", REGULAR)
def test_the_order_of_agents_does_not_matter(operator, case):
    g, aggregator = jacobian(case), Consensus(operator)
    u = aggregator(g)
    for order in ([3, 1, 0, 2], [1, 2, 3, 0]):
        np.testing.assert_allclose(aggregator(g[order]).numpy(), u.numpy(), atol=1e-7)


@pytest.mark.parametrize("operator", NAMES)
@pytest.mark.parametrize("factor", [1e-5, 1e4])
def test_u_scales_with_the_gradients(operator, factor):
    g = jacobian("conflicting")
    u, scaled = Consensus(operator)(g), Consensus(operator)(factor * g)
    assert u.norm() > 1e-3
    np.testing.assert_allclose(scaled.numpy(), factor * u.numpy(), rtol=1e-6, atol=factor * 1e-7)


@pytest.mark.parametrize("case", ["zero_in_hull", "one_zero", "all_zero"])
def test_zero_in_the_hull_gives_exactly_zero(case):
    for dtype in (torch.float32, torch.float64):
        u = Consensus()(jacobian(case, dtype))
        np.testing.assert_array_equal(u.numpy(), 0)
    assert not ConsensusWeighting()(torch.zeros(4, 4)).any()


def test_a_gramian_that_is_not_finite_gives_weights_zero():
    gramian = torch.eye(4)
    gramian[0, 1] = gramian[1, 0] = float("nan")
    for operator in ("min_norm", "mean"):
        np.testing.assert_array_equal(ConsensusWeighting(operator)(gramian).numpy(), 0)


def test_random_weights_change_from_call_to_call_and_repeat_with_the_seed():
    weigh, again = ConsensusWeighting("random"), ConsensusWeighting("random", seed=1)
    first, second = weigh(torch.eye(4)), weigh(torch.eye(4))
    assert (first - second).abs().max() > 1e-3
    np.testing.assert_array_equal(again(torch.eye(4)).numpy(), second.numpy())


def test_an_unknown_operator_fails_when_built():
    with pytest.raises(ValueError, match=r"^unknown operator 'meen'; give one of min_norm, "):
        Consensus("meen")


def model():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    return net, (net(torch.randn(16, 3)) ** 2).mean(0)


def expected_gradient(operator: str):
    net, losses = model()
    rows = [
        torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, net.parameters(), retain_graph=True)])
        for loss in losses
    ]
    return by_operator(torch.stack(rows).numpy(), operator)


def by_operator(g: np.ndarray, operator: str) -> np.ndarray:
    import jax.numpy as jnp

    from grasp.consensus import consensus

    return np.asarray(consensus(jnp.asarray(g), operator)[0])


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("operator", ["min_norm", "upgrad"])
def test_autojac_accepts_it(operator, lean):
    net, losses = model()
    backward(losses)
    weights = jac_to_grad(net.parameters(), Consensus(operator), optimize_gramian_computation=lean)
    found = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    np.testing.assert_allclose(found.numpy(), expected_gradient(operator), atol=1e-6)
    assert weights.shape == (4,)


@pytest.mark.parametrize("operator", ["min_norm", "upgrad"])
def test_autogram_accepts_it(operator):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    engine = Engine(net, batch_dim=None)
    losses = (net(torch.randn(16, 3)) ** 2).mean(0)
    losses.backward(ConsensusWeighting(operator)(engine.compute_gramian(losses)))
    found = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    np.testing.assert_allclose(found.numpy(), expected_gradient(operator), atol=1e-6)


def test_closer_to_the_optimum_than_frank_wolfe():
    """TorchJD's MGDA violates the optimality conditions by as much as its duality gap."""
    g = jacobian("many")
    ours, theirs = Consensus()(g), MGDA()(g)
    gap = [(((u @ u) - g @ u) / g.norm(dim=1)).max().item() / u.norm().item() for u in (ours, theirs)]
    assert gap[0] < 1e-10 < 1e-3 < gap[1]
