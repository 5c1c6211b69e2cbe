"""`realign_` and `realign_off_policy_` against values worked out by hand, and with non-finite gradients.

Two agents with g_1 = (2, 0), g_2 = (0, 1) have u = (0.4, 0.8), ‖u‖² = g_i·u = 0.8, Γ = (1.6/4.8, 1.6/1.8) = (1/3, 8/9).
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'grasp-marl[torch]'")

from grasp.consensus import Status  # noqa: E402
from grasp.consensus.torch import consensus, realign_, realign_off_policy_  # noqa: E402

G = [[2.0, 0.0], [0.0, 1.0]]
U = np.array([0.4, 0.8])
ADDED = np.array(G) + U
SCALED = np.array([[1 / 3], [8 / 9]]) * ADDED
NAN = float("nan")


def parameter(grad, dtype=torch.float32):
    """A parameter with that gradient."""
    one = torch.nn.Parameter(torch.ones(np.shape(grad), dtype=dtype))
    one.grad = torch.tensor(grad, dtype=dtype)
    return one


def separate(dtype=torch.float32):
    """Two agents with two parameters each, a matrix [1, 1] and a vector [1]."""
    return [[parameter([[row[0]]], dtype), parameter([row[1]], dtype)] for row in G]


def grads(lists):
    return np.array([[one.grad.double().item() for one in own] for own in lists])


def close(found, expected, rtol=1e-6):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-7)


def test_agents_with_lists_of_their_own():
    lists = separate()
    done = realign_([iter(own) for own in lists])
    close(grads(lists), ADDED)
    close([one.item() for one in done.u], U)
    assert done.info.status == Status.CERTIFIED
    assert (done.skipped, done.clipped) == (False, 0)
    assert all(float(one.detach().sum()) == 1.0 for own in lists for one in own)


def test_weight_scales_u():
    lists = separate()
    realign_(lists, weight=0.5)
    close(grads(lists), np.array(G) + 0.5 * U)


def test_another_operator_adds_its_own_direction():
    lists = separate()
    realign_(lists, operator="mean")
    close(grads(lists), np.array(G) + [1.0, 0.5])


def test_an_optimiser_with_one_group_per_agent():
    lists = separate()
    realign_(torch.optim.Adam([{"params": own} for own in lists], lr=1.0))
    close(grads(lists), ADDED)


def test_parameters_stacked_over_agents():
    matrix, vector = parameter([[[2.0]], [[0.0]]]), parameter([[0.0], [1.0]])
    done = realign_([matrix, vector])
    close(np.hstack([matrix.grad[:, :, 0].numpy(), vector.grad.numpy()]), ADDED)
    assert [tuple(one.shape) for one in done.u] == [(1, 1), (1,)]
    whole = parameter(G)
    realign_(torch.optim.SGD([whole], lr=1.0))
    close(whole.grad.numpy(), ADDED)


def test_shared_parameters_keep_the_scale_of_a_mean():
    """mean(g_i + u) = mean g + u."""
    shared = parameter(np.mean(G, 0).tolist())
    done = realign_([shared], [[torch.tensor(row)] for row in G])
    close(shared.grad.numpy(), ADDED.mean(0))
    assert tuple(done.u[0].shape) == (2,)


def test_shared_parameters_of_a_summed_loss_take_weight_n():
    """Σ(g_i + u) = Σ g_i + N u."""
    shared = torch.nn.Parameter(torch.ones(2))
    losses = [(torch.tensor(row) * shared).sum() for row in G]
    sum(losses).backward(retain_graph=True)
    realign_([shared], losses, weight=2.0)
    close(shared.grad.numpy(), ADDED.sum(0))


def test_shared_parameters_may_be_realigned_before_the_backward_pass():
    shared = torch.nn.Parameter(torch.ones(2))
    losses = [(torch.tensor(row) * shared).sum() for row in G]
    realign_([shared], losses)
    close(shared.grad.numpy(), U)
    (sum(losses) / 2).backward()
    close(shared.grad.numpy(), ADDED.mean(0))


def test_an_optimiser_of_shared_parameters_with_unrelated_groups():
    first, second = parameter([1.0]), parameter([0.5])
    optimiser = torch.optim.SGD([{"params": [first]}, {"params": [second], "weight_decay": 0.1}], lr=1.0)
    realign_(optimiser, [[torch.tensor([row[0]]), torch.tensor([row[1]])] for row in G])
    close([first.grad.item(), second.grad.item()], ADDED.mean(0))


def test_own_parameters_with_gradients_from_elsewhere():
    """.grad may hold more than g_i, such as the gradient of an entropy bonus; u is that of the g_i and is added."""
    lists = [[parameter([9.0, 9.0])], [parameter([7.0, 7.0])]]
    realign_(lists, [[torch.tensor(row)] for row in G])
    close(np.array([own[0].grad.numpy() for own in lists]), np.array([[9, 9], [7, 7]]) + U)


@pytest.mark.parametrize("shape", ["own", "stacked", "shared"])
def test_a_given_u_is_held(shape):
    u = [torch.tensor([10.0, 20.0])]
    if shape == "own":
        given = [[parameter(G[0])], [parameter(G[1])]]
        done, found = realign_(given, u=u, weight=0.5), [own[0].grad.numpy() for own in given]
    else:
        given = [parameter(G if shape == "stacked" else G[0])]
        done, found = realign_(given, u=iter(u), weight=0.5), given[0].grad.numpy()
    close(found, (np.array(G) if shape != "shared" else np.array(G[0])) + [5, 10])
    assert done.info is None


def test_off_policy_with_lists_of_their_own():
    lists = separate()
    done = realign_off_policy_(lists)
    close(grads(lists), SCALED)
    close([one.item() for one in done.u], U)
    assert (done.skipped, done.clipped) == (False, 0)


def test_off_policy_stacked_and_by_an_optimiser():
    whole = parameter(G)
    realign_off_policy_([whole])
    close(whole.grad.numpy(), SCALED)
    lists = separate()
    realign_off_policy_(torch.optim.SGD([{"params": own} for own in lists], lr=1.0))
    close(grads(lists), SCALED)


def test_off_policy_shared_is_the_sum():
    shared = parameter([5.0, 5.0])  # replaced, not added to
    realign_off_policy_([shared], [[torch.tensor(row)] for row in G])
    close(shared.grad.numpy(), SCALED.sum(0))


def test_off_policy_factors_are_clipped_and_counted_for_the_mean():
    # The mean is (2, 0): the agent at 1 has Γ = (4 + 2)/(1 + 4) = 1.2.
    g = np.array([[5.0, 0], [1.0, 0], [-0.6, 0], [2.6, 0]])
    raw = (4 + 2 * g[:, 0]) / (g[:, 0] ** 2 + 4)
    whole = parameter(g.tolist())
    assert realign_off_policy_([whole], operator="mean").clipped == 1
    close(whole.grad.numpy(), np.clip(raw, 0, 1)[:, None] * (g + [2, 0]), rtol=1e-5)
    opposed = parameter([[5.0, 0], [-2.5, 0], [5.0, 0], [-2.5, 0]])
    assert realign_off_policy_([opposed], operator="mean").clipped == 2
    np.testing.assert_array_equal(opposed.grad.numpy()[1::2], 0)


def test_off_policy_gives_zero_where_zero_is_in_the_hull():
    whole = parameter([[1.0, 0.0], [-1.0, 0.0]])
    done = realign_off_policy_([whole])
    assert done.info.status == Status.STATIONARY
    np.testing.assert_array_equal(whole.grad.numpy(), 0)
    plain = parameter([[1.0, 0.0], [-1.0, 0.0]])
    realign_([plain])
    np.testing.assert_array_equal(plain.grad.numpy(), [[1, 0], [-1, 0]])


def test_a_missing_grad_is_created_only_where_u_is_not_zero():
    lists = [
        [parameter([size]), torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))] for size in (1, -1)
    ]
    assert realign_(lists).info.status == Status.STATIONARY
    assert all(one.grad is None for own in lists for one in own[1:])
    lists[0][0].grad, lists[0][1].grad, lists[1][0].grad = torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([0.0])
    lists[1][1].grad = torch.tensor([1.0])
    lists[0][1].grad = None
    realign_(lists)
    close(grads([own[:2] for own in lists]), ADDED)
    assert lists[0][2].grad is lists[1][2].grad is None
    lists[0][1].grad = lists[1][1].grad = None
    realign_off_policy_(lists, [[torch.tensor([a]), torch.tensor([b]), None] for a, b in G])
    close([own[1].grad.item() for own in lists], [0.8 / 3, 0.8 * 8 / 9])
    assert lists[0][2].grad is lists[1][2].grad is None
    stacked = [parameter(G), torch.nn.Parameter(torch.ones(2, 3))]
    realign_(stacked)
    close(stacked[0].grad.numpy(), ADDED)
    assert stacked[1].grad is None


def test_half_precision_stays_half():
    lists = separate(torch.bfloat16)
    done = realign_(lists)
    assert all(one.grad.dtype == torch.bfloat16 for own in lists for one in own)
    np.testing.assert_allclose(grads(lists), ADDED, rtol=2**-8)
    assert all(one.dtype == torch.float32 for one in done.u)
    mixed = [[parameter([row[0]], torch.float16), parameter([row[1]], torch.float64)] for row in G]
    realign_off_policy_(mixed)
    np.testing.assert_allclose(grads(mixed), SCALED, rtol=2**-10)
    assert [one.grad.dtype for one in mixed[0]] == [torch.float16, torch.float64]


def test_a_sum_beyond_the_range_of_half_precision_is_skipped():
    lists = [[parameter([60000.0, 1.0], torch.float16)] for _ in G]
    done = realign_(lists)
    assert done.skipped
    assert done.info.status == Status.CERTIFIED
    assert not any(own[0].grad.any() for own in lists)


@pytest.mark.parametrize("rule", [realign_, realign_off_policy_])
@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("shape", ["own", "stacked", "shared"])
def test_a_non_finite_gradient_skips_the_step(rule, bad, shape):
    values = [[2.0, bad], [0.0, 1.0]]
    if shape == "own":
        every = [parameter(row) for row in values]
        done = rule([[one] for one in every])
    elif shape == "stacked":
        every = [parameter(values)]
        done = rule(every)
    else:
        every = [parameter([1.0, 1.0])]
        done = rule(every, [[torch.tensor(row)] for row in values])
    assert done.skipped
    assert done.info.status == Status.NON_FINITE
    before = [one.detach().clone() for one in every]
    torch.optim.Adam(every, lr=1.0).step()
    for one, old in zip(every, before, strict=True):
        np.testing.assert_array_equal(one.grad.numpy(), 0)
        np.testing.assert_array_equal(one.detach().numpy(), old.numpy())


def test_a_non_finite_grad_or_given_u_skips_the_step():
    shared = parameter([1.0, NAN])
    assert realign_([shared], [[torch.tensor(row)] for row in G]).skipped
    np.testing.assert_array_equal(shared.grad.numpy(), 0)
    for bad in (NAN, -float("inf")):
        lists = separate()
        assert realign_(lists, u=[torch.tensor([[bad]]), torch.tensor([1.0])]).skipped
        np.testing.assert_array_equal(grads(lists), 0)
    lists = separate()
    assert not realign_(lists, u=[torch.tensor([[1.0]]), torch.tensor([1.0])]).skipped


def test_after_a_step_adam_has_moved_by_the_realigned_gradient():
    lists, same = separate(), separate()
    realign_(lists)
    for own, other in zip(lists, same, strict=True):
        for one, twin in zip(own, other, strict=True):
            torch.optim.SGD([one], lr=0.1).step()
            assert one.item() != twin.item() - 0.1 * twin.grad.item()
    close([[one.item() for one in own] for own in lists], 1 - 0.1 * ADDED)


@pytest.mark.parametrize("rule", [realign_, realign_off_policy_])
def test_errors_are_one_sentence_and_change_nothing(rule):
    flat = [torch.nn.Parameter(torch.ones(4, 3)), torch.nn.Parameter(torch.ones(5))]
    sentence = (
        "the leading agent axes of the parameters are [4, 5]; they must be equal and above 0 "
        "(for parameters that agents share, pass gradients or losses per agent too)"
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        rule(flat)
    assert str(caught.value) == sentence
    first, second, trunk = parameter(G[0]), parameter(G[1]), parameter(G[0])
    with pytest.raises(ValueError, match=r"^a parameter is in two lists; pass shared parameters in a separate call"):
        rule([[first, trunk], [second, trunk]])
    close(first.grad.numpy(), G[0])


def test_a_u_that_does_not_fit_is_one_sentence_and_changes_nothing():
    lists = [[parameter(G[0])], [parameter([1.0, 2.0, 3.0])]]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        realign_(lists, u=[torch.ones(2)])
    assert str(caught.value) == "u has shapes [(2,)] and the parameters [(3,)]"
    close(lists[0][0].grad.numpy(), G[0])


def test_the_direction_is_that_of_consensus():
    rows = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    whole = parameter(rows.tolist())
    done = realign_([whole], operator="random", seed=4)
    (u,), info = consensus([rows], operator="random", seed=4)
    close(done.u[0].numpy(), u.numpy())
    np.testing.assert_array_equal(done.info.weights, info.weights)
