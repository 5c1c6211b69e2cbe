"""The consensus in PyTorch equals that of JAX for every operator, form of gradients and precision."""

import jax
import numpy as np
import pytest
from torch_cases import CASES, agent_lists, by_jax, flat

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'grasp-marl[torch]'")

from grasp.consensus import OPERATORS, Status, diagnose  # noqa: E402
from grasp.consensus import _torch_gradients as reading  # noqa: E402
from grasp.consensus.torch import Info, consensus  # noqa: E402

NAMES = sorted(OPERATORS)
SINGLE = ("min_norm", "nash_normalised", "upgrad", "pcgrad")
"""Operators also compared in float32: an exact one, one by Newton's method, one by projections, a random one."""


def compare(g: np.ndarray, operator: str, tolerance: float) -> None:
    expected, there = by_jax(g, operator)
    u, here = consensus(agent_lists(g), operator=operator)
    size = np.linalg.norm(g, axis=1).max() or 1.0
    reach = max(1.0, float(np.abs(there.weights).max()))
    np.testing.assert_allclose(flat(u), expected, rtol=0, atol=tolerance * size * reach)
    np.testing.assert_allclose(here.gram, there.gram, rtol=0, atol=tolerance)
    np.testing.assert_allclose(here.scale, there.scale, rtol=tolerance)
    if np.linalg.norm(expected) > 1e3 * tolerance * size:  # else u is noise, and so is its residual
        np.testing.assert_allclose(here.residual, there.residual, rtol=100 * tolerance, atol=10 * tolerance)
    assert here.iterations == int(there.iterations)
    assert here.status == Status(int(there.status))


NOISE = [("imtl_g", "scaled"), ("aligned_mtl", "scaled")]
"""These two divide by G's smallest eigenvalue. With norms from 1e-6 to 1e3 it is below float64's rounding of G."""


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("operator", "case"), [(n, c) for n in NAMES for c in CASES if (n, c) not in NOISE])
def test_the_same_numbers_in_float64(operator, case):
    compare(CASES[case], operator, 1e-10)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("operator", SINGLE)
def test_the_same_numbers_in_float32(operator, case):
    compare(CASES[case].astype(np.float32), operator, 3e-6)


PAIR = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
"""Two agents with u = (0.4, 0.8), weights (0.2, 0.8)."""
ROW = PAIR[0]


def test_known_values_and_types():
    (u,), info = consensus([PAIR])
    np.testing.assert_allclose(u.numpy(), [0.4, 0.8], rtol=1e-6)
    assert u.dtype == torch.float32
    assert isinstance(info, Info)
    assert isinstance(info.weights, np.ndarray)
    assert isinstance(info.gram, np.ndarray)
    np.testing.assert_allclose(info.weights, [0.2, 0.8], rtol=1e-6)
    np.testing.assert_allclose(info.gram, [[1, 0], [0, 0.25]], rtol=1e-6)
    assert (info.scale, info.iterations, info.status) == (2.0, 1, Status.CERTIFIED)
    assert type(info.scale) is type(info.residual) is float


def test_the_jax_diagnostics_take_its_info():
    _, info = consensus([torch.tensor([[1.0, 0.0], [-1.0, 1.0]])])
    found = diagnose(*(jax.numpy.asarray(part) for part in (info.gram, info.weights, info.scale)))
    assert float(found["conflict_rate"]) == 1.0
    np.testing.assert_allclose(found["norms"], [1, 2**0.5], rtol=1e-6)
    np.testing.assert_allclose(found["u_norm"], 0.2**0.5, rtol=1e-5)


def test_lists_stacked_tensors_and_losses_are_the_same_gradients():
    g = CASES["conflicting"].astype(np.float32)
    expected, _ = consensus(agent_lists(g))
    stacked, _ = consensus([torch.tensor(g[:, :18].reshape(4, 3, 6)), torch.tensor(g[:, 18:])])
    parameters = [torch.zeros(3, 6, requires_grad=True), torch.zeros(6, requires_grad=True)]
    losses = [sum((p * own).sum() for p, own in zip(parameters, agent, strict=True)) for agent in agent_lists(g)]
    from_losses, _ = consensus(losses, iter(parameters))
    together, _ = consensus(torch.stack(losses), parameters)
    lazy, _ = consensus((2 * loss / 2 for loss in losses), parameters)
    for u in (stacked, from_losses, together, lazy):
        np.testing.assert_allclose(flat(u), flat(expected), atol=1e-6)
        assert [leaf.shape for leaf in u] == [p.shape for p in parameters]
        assert not any(leaf.requires_grad for leaf in u)
    sum(losses).backward()  # the graphs are kept, and .grad is untouched
    np.testing.assert_allclose(parameters[1].grad.numpy(), g[:, 18:].sum(0), atol=1e-5)


def test_losses_by_agents_own_parameters():
    own = [[torch.ones(2, requires_grad=True)] for _ in range(2)]
    losses = [(row * p[0]).sum() + 0 * other[0].sum() for row, p, other in zip(PAIR, own, own[::-1], strict=True)]
    (u,), _ = consensus(losses, own)
    np.testing.assert_allclose(u.numpy(), [0.4, 0.8], rtol=1e-6)


def test_a_gradient_that_is_none_is_zero():
    a, b, c = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]), torch.tensor([1.0, 1.0])
    missing, info = consensus([[a, None, None], [None, b, None]], [c, c, torch.zeros(2, 2)])
    zeros, same = consensus([[a, 0 * b], [0 * a, b]])
    np.testing.assert_array_equal(flat(missing), [*flat(zeros), 0, 0, 0, 0])
    assert missing[2].shape == (2, 2)
    np.testing.assert_array_equal(info.weights, same.weights)
    assert np.abs(flat(zeros)).min() < 1e-12 < np.abs(flat(zeros)).max()
    unused = torch.zeros(2, requires_grad=True)
    used = torch.ones(2, requires_grad=True)
    u, _ = consensus([(row * used).sum() for row in PAIR], [unused, used])
    np.testing.assert_allclose(flat(u), [0, 0, 0.4, 0.8], rtol=1e-6)


@pytest.mark.parametrize("operator", ["min_norm", "nash"])
def test_blocks_and_memory_layouts_do_not_matter(operator, monkeypatch):
    g = CASES["conflicting"].astype(np.float32)
    expected, _ = consensus(agent_lists(g), operator=operator)
    turned = [[a.T.contiguous().T, b] for a, b in agent_lists(g)]
    mixed = [agent_lists(g)[0], *turned[1:]]
    monkeypatch.setattr(reading, "BLOCK", 4 * 5)
    for lists in (agent_lists(g), turned, mixed):
        u, _ = consensus(lists, operator=operator)
        np.testing.assert_allclose(flat(u), flat(expected), atol=2e-5)
    assert turned[0][0].stride() == (1, 3)
    deep = [torch.tensor(g[:, :18].reshape(4, 3, 2, 3)).permute(0, 3, 1, 2), torch.tensor(g[:, 18:])]
    u, _ = consensus(deep, operator=operator)
    np.testing.assert_allclose(u[0].permute(1, 2, 0).reshape(-1).numpy(), flat(expected)[:18], atol=2e-5)


def test_rows_are_read_without_a_copy(monkeypatch):
    """For any order of axes in memory that all agents' gradients have in common."""
    seen = []
    stack = torch.stack

    def spy(rows, **given):
        seen.extend(row.untyped_storage().data_ptr() for row in rows)
        return stack(rows, **given)

    rows = [torch.randn(5, 4, 3).permute(2, 0, 1) for _ in range(3)]
    monkeypatch.setattr(torch, "stack", spy)
    consensus([[row] for row in rows])
    assert set(seen) == {row.untyped_storage().data_ptr() for row in rows}


def test_half_precision_is_accumulated_in_single():
    g = torch.tensor(CASES["conflicting"], dtype=torch.bfloat16)
    expected, there = by_jax(g.float().numpy(), "min_norm")
    (a, b), here = consensus([g[:, :18], g[:, 18:]])
    assert a.dtype == b.dtype == torch.float32
    np.testing.assert_allclose(flat([a, b]), expected, atol=1e-5)
    np.testing.assert_allclose(here.weights, there.weights, atol=1e-5)
    assert here.status == Status.CERTIFIED


def test_precisions_mix_in_one_list():
    g = CASES["conflicting"]
    kinds = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    leaves = [torch.tensor(part).to(kind) for part, kind in zip(np.split(g, 4, axis=1), kinds, strict=True)]
    rounded = np.concatenate([leaf.double().numpy() for leaf in leaves], axis=1).astype(np.float32)
    expected, _ = by_jax(rounded, "min_norm")
    u, _ = consensus(leaves)
    assert [leaf.dtype for leaf in u] == [torch.float32, torch.float32, torch.float32, torch.float64]
    np.testing.assert_allclose(flat(u), expected, atol=1e-5)
    half, single = torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16), torch.tensor([[2.0, 1.0]])
    (u,), _ = consensus([[half], [single]])
    np.testing.assert_allclose(u.numpy(), [[1.5, 1.5]], rtol=1e-6)


def test_automatic_mixed_precision_does_not_reach_the_products():
    g = torch.tensor(CASES["near_orthogonal"], dtype=torch.float32)
    plain, info = consensus([g])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (g @ g.T).dtype == torch.bfloat16
        inside, same = consensus([g])
    np.testing.assert_array_equal(inside[0].numpy(), plain[0].numpy())
    np.testing.assert_array_equal(same.gram, info.gram)
    np.testing.assert_allclose(same.gram, (g.double() @ g.double().T).numpy() / info.scale**2, atol=1e-6)


def test_rounded_products_are_taken_in_double():
    columns = reading.columns_of([PAIR], [])
    assert reading.peak_of(columns).dtype == torch.float32
    torch.set_float32_matmul_precision("high")
    try:
        assert reading.peak_of(columns).dtype == torch.float64
        (u,), _ = consensus([PAIR])
    finally:
        torch.set_float32_matmul_precision("highest")
    assert u.dtype == torch.float32
    np.testing.assert_allclose(u.numpy(), [0.4, 0.8], rtol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e30, -1e-30, -1e30])
def test_no_scale_is_too_small_or_too_large(size):
    (u,), info = consensus([PAIR * size])
    np.testing.assert_allclose(u.numpy() / size, [0.4, 0.8], rtol=1e-5)
    np.testing.assert_allclose(info.scale, 2 * abs(size), rtol=1e-6)
    assert info.status == Status.CERTIFIED


def test_double_precision_leaves_jax_as_it_is():
    (u,), info = consensus([PAIR.double()])
    assert u.dtype == torch.float64
    assert info.weights.dtype == np.float32
    assert info.status == Status.CERTIFIED
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("operator", ["min_norm", "mean"])
def test_a_gradient_that_is_not_finite_gives_zero(operator, bad):
    g = PAIR.clone()
    g[1, 0] = bad
    (u,), info = consensus([g], operator=operator)
    np.testing.assert_array_equal(u.numpy(), [0, 0])
    np.testing.assert_array_equal(info.weights, [0, 0])
    assert (info.status, info.residual, info.scale) == (Status.NON_FINITE, float("inf"), 1.0)


def test_zero_in_the_hull_gives_exactly_zero():
    """Σ w_i g_i of the same weights would be rounding noise, which Adam would turn into a full step."""
    g = CASES["zero_in_hull"].astype(np.float32)
    u, info = consensus(agent_lists(g))
    np.testing.assert_array_equal(flat(u), 0)
    assert info.status == Status.STATIONARY
    assert np.abs(info.weights @ g).max() > 0


def test_an_indefinite_gram_matrix_is_reported(monkeypatch):
    nothing = np.zeros(2, np.float32), 0, Status.NOT_PSD
    monkeypatch.setattr("grasp.consensus.torch.weights_of", lambda G, operator, seed: nothing)
    (u,), info = consensus([PAIR])
    np.testing.assert_array_equal(u.numpy(), 0)
    assert info.status == Status.NOT_PSD


def test_random_operators_repeat_with_the_seed():
    first, again, other = (consensus([PAIR], operator="random", seed=seed)[1].weights for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    expected = OPERATORS["random"](jax.numpy.eye(2), jax.random.key(3))
    np.testing.assert_allclose(first, expected, rtol=1e-6)


def test_the_solver_is_compiled_once_per_number_of_agents():
    from grasp.consensus.torch import _solver

    consensus([torch.eye(5)], operator="mean")
    before = _solver("mean")._cache_size()
    for scale in (2, 3):
        consensus([torch.eye(5) * scale], operator="mean", seed=scale)
    assert _solver("mean")._cache_size() == before
    consensus([torch.eye(6)], operator="mean")
    assert _solver("mean")._cache_size() == before + 1


@pytest.mark.parametrize(
    ("gradients", "parameters", "sentence"),
    [
        ([], None, "there are no gradients; give losses, one list of gradients per agent, or stacked tensors"),
        (
            [[ROW], [ROW] * 2],
            None,
            "agents have [1, 2] gradients; give all agents the same number, None for a missing gradient",
        ),
        (
            [[PAIR], [ROW]],
            None,
            "the gradients of parameter 0 have shapes [(2,), (2, 2)]; give all agents the same shape",
        ),
        ([PAIR], [PAIR], "the gradients of parameter 0 have shapes [(2,), (2, 2)]; give all agents the same shape"),
        ([PAIR, PAIR], [ROW], "there are 2 gradients per agent for 1 parameters; give one gradient per parameter"),
        ([PAIR.sum()], None, "losses are differentiated with respect to parameters; pass parameters too"),
        ([PAIR.sum()] * 3, [[PAIR], [PAIR]], "there are 3 losses and 2 lists of parameters; give one list per agent"),
        ([[None], [None]], None, "gradient 0 is None for every agent; pass parameters too, for its shape"),
        ([PAIR], [ROW, [ROW]], "parameters mix tensors with lists; give either tensors or one list per agent"),
        (
            [[PAIR.to_sparse()]],
            None,
            "the gradients of parameter 0 are sparse or on several devices; give dense ones on one device",
        ),
    ],
)
def test_errors_are_one_sentence(gradients, parameters, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # compared as a whole
        consensus(gradients, parameters)
    assert str(caught.value) == sentence


def test_an_unknown_operator_is_one_sentence():
    with pytest.raises(ValueError, match=r"^unknown operator 'meen'; give one of min_norm, "):
        consensus([PAIR], operator="meen")
