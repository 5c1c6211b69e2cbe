"""The consensus for gradients in PyTorch: `consensus` finds u, `realign_` adds it to `.grad` in place.

    loss.backward()
    realign_([head.parameters() for head in heads])     # agent i's .grad is g_i + u
    optimizer.step()

Gradients stay on their device. Only the N×N Gram matrix is copied to the CPU, where the JAX solver computes the N
weights. The only other memory needed is that of u.
Operators and `Info` are as in `grasp.consensus`. A gradient that is None counts as zero.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from grasp.consensus.min_norm import Status, certify, solve
from grasp.consensus.operators import weighting

try:
    import torch  # pyright: ignore[reportMissingImports]
    from torch import Tensor  # pyright: ignore[reportMissingImports]
    from torch.optim import Optimizer  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise ImportError("grasp.consensus.torch needs PyTorch; type: pip install 'grasp-marl[torch]'") from missing

from grasp.consensus._torch_gradients import Column, columns_of, combine, gram, largest, lists_of, peak_of

_certify = jax.jit(certify)


class Info(NamedTuple):
    """The fields of `grasp.consensus.Info`, as numpy and Python values."""

    weights: np.ndarray
    gram: np.ndarray
    """Gram matrix of the gradients divided by `scale`."""
    scale: float
    """The largest gradient norm."""
    residual: float
    """max_j (‖u‖² − g_j·u)/(‖g_j‖‖u‖), from the gradients and u themselves; above 0 off the min-norm point."""
    iterations: int
    """Factorisations by the exact solver; 0 for other operators."""
    status: Status


class Realigned(NamedTuple):
    """The result of one call."""

    u: list[Tensor]
    info: Info | None
    """None where u is passed in."""
    skipped: bool
    """A gradient, u or a result was not finite, and every `.grad` is now zero. Adam still moves by its momentum."""
    clipped: int
    """Factors Γ_i that lay outside [0, 1] and were clipped; always 0 for `realign_`."""


class _Found(NamedTuple):
    u: list[Tensor]
    info: Info
    inner: np.ndarray
    """g_i·u and ‖u‖² in units of scale²."""
    squared: float


class _Target(NamedTuple):
    """The parameters whose `.grad` changes: one list per agent, or one list, stacked over agents or shared by them."""

    lists: list[list[Tensor]]
    kind: Literal["own", "stacked", "shared"]
    columns: list[Column]


@torch.no_grad()
def consensus(
    gradients: Iterable[Any], parameters: Iterable[Any] | None = None, operator: str = "min_norm", seed: int = 0
) -> tuple[list[Tensor], Info]:
    """u = Σ w_i g_i, one tensor per parameter, and its `Info`; see `grasp.consensus.consensus`.

    `gradients` is one of: N scalar losses, which are differentiated here and keep their graphs for `backward()`; N
    lists of gradients; or tensors [N, ...] stacked over agents. `parameters` is the list that agents share, or N lists,
    one per agent; only losses need it. u is float32 for half precision. Random operators repeat their draw for an equal
    `seed`.
    """
    lists, _ = lists_of([] if parameters is None else parameters)
    found = _find(columns_of(gradients, lists), operator, seed)
    return found.u, found.info


@torch.no_grad()
def realign_(
    parameters: Optimizer | Iterable[Any],
    gradients: Iterable[Any] | None = None,
    operator: str = "min_norm",
    weight: float = 1.0,
    seed: int = 0,
    u: Iterable[Tensor] | None = None,
) -> Realigned:
    """Add weight·u to every `.grad`, before any clipping and before the optimiser's step. `parameters` is one of:

    - N lists, one per agent (or an optimiser with one group per agent): `.grad` is g_i and becomes g_i + weight·u;
    - tensors [N, ...] stacked over agents: the same, row by row;
    - with `gradients` (as for `consensus`), the list that agents share, or its optimiser: `.grad` is the mean of the
      g_i and becomes that mean + weight·u. If the loss is a sum over agents, use weight = N.

    If `u` is given, it is used as it is. A `.grad` that is None is created only where u is not zero.
    """
    if u is None:
        target = _target(parameters, gradients)
        lists, found = target.lists, _find(target.columns, operator, seed)
        directions, info = found.u, found.info
    else:
        lists, directions, info = lists_of(parameters)[0], list(u), None
    _check(lists, directions)
    for own in lists:
        for grad, direction in _grads_with(own, directions):
            grad.add_(direction, alpha=weight)
    return Realigned(directions, info, _zero_if_not_finite(lists, info), 0)


@torch.no_grad()
def realign_off_policy_(
    parameters: Optimizer | Iterable[Any],
    gradients: Iterable[Any] | None = None,
    operator: str = "min_norm",
    seed: int = 0,
) -> Realigned:
    """Γ_i (g_i + u), Γ_i = (‖u‖² + g_i·u)/(‖g_i‖² + ‖u‖²), and Γ_i = 0 where that is 0/0; arguments as for `realign_`.

    For parameters that agents share, the sum Σ Γ_i (g_i + u) replaces `.grad`. For operators other than min-norm, Γ is
    clipped to [0, 1] and the clipped factors are counted.
    """
    target = _target(parameters, gradients)
    found = _find(target.columns, operator, seed)
    _check(target.lists, found.u)
    raw = _factors(found)
    factors = raw if operator == "min_norm" else raw.clip(0, 1)
    if target.kind == "shared":
        # Σ Γ_i (g_i + u) is a combination of the g_i again.
        sums, _, _ = combine(target.columns, peak_of(target.columns), factors + factors.sum() * found.info.weights)
        for grad, moved in _grads_with(target.lists[0], sums):
            grad.copy_(moved)
    else:
        each = factors[:, None] if target.kind == "own" else [factors]
        for own, factor in zip(target.lists, each, strict=True):
            for grad, direction in _grads_with(own, found.u):
                gamma = torch.as_tensor(factor, dtype=direction.dtype, device=grad.device)
                grad.add_(direction).mul_(gamma.reshape(-1, *[1] * (grad.ndim - 1)))
    return Realigned(found.u, found.info, _zero_if_not_finite(target.lists, found.info), int((factors != raw).sum()))


def weights_of(G: np.ndarray, operator: str, seed: int) -> tuple[np.ndarray, int, Status]:
    """The operator's weights from JAX on the CPU, and for min-norm the exact solver's iterations and status.

    G is converted to float32, unless it is float64 and JAX's 64-bit mode is on.
    """
    w, iterations, found = _on_cpu(_solver(operator), G, seed)
    return np.array(w), int(iterations), Status(int(found))


@functools.cache
def _solver(operator: str) -> Any:
    weigh = weighting(operator)

    @jax.jit
    def run(G: Array, seed: Array) -> tuple[Array, Array | int, Array | int]:
        if operator != "min_norm":
            return weigh(G, jax.random.key(seed)), 0, Status.UNCERTIFIED
        solution = solve(G)
        return solution.weights, solution.iterations, solution.status

    return run


def _find(columns: list[Column], operator: str, seed: int) -> _Found:
    """The steps of `grasp.consensus.consensus`."""
    weighting(operator)  # an unknown name fails before anything is computed
    peak, num = peak_of(columns), len(columns[0].rows)
    matrix, longest = gram(columns, peak)
    scale, G = (peak * longest).item(), matrix.cpu().numpy()
    if not (math.isfinite(scale) and np.isfinite(G).all()):
        nothing = np.zeros(num, G.dtype)
        info = Info(nothing, np.zeros_like(G), 1.0, math.inf, 0, Status.NON_FINITE)
        return _Found([torch.zeros_like(column.like) for column in columns], info, nothing, 0.0)
    w, iterations, status = weights_of(G, operator, seed)
    u, inner, squared = combine(columns, peak, np.zeros_like(w) if status == Status.STATIONARY else w)
    inner, squared = inner / longest.item() ** 2, squared / longest.item() ** 2
    violation, checked = _on_cpu(_certify, G, w, inner, w.dtype.type(math.sqrt(squared)))
    # Only the solver can tell that 0 is in the hull or that G is indefinite; the rest is checked on the gradients.
    status = status if status in (Status.STATIONARY, Status.NOT_PSD) else Status(int(checked))
    return _Found(u, Info(w, G, scale, float(violation), iterations, status), inner, squared)


def _factors(found: _Found) -> np.ndarray:
    total = np.diagonal(found.info.gram) + found.squared
    return np.where(total > 0, (found.squared + found.inner) / np.where(total > 0, total, 1), 0)


def _target(parameters: Optimizer | Iterable[Any], gradients: Iterable[Any] | None) -> _Target:
    lists, own = lists_of(parameters, grouped=gradients is None)
    if gradients is not None:
        return _Target(lists, "own" if own else "shared", columns_of(gradients, lists))
    if own:
        return _Target(lists, "own", columns_of([[one.grad for one in agent] for agent in lists], lists))
    sizes = sorted({one.shape[0] if one.ndim else 0 for one in lists[0]})
    if len(sizes) > 1 or sizes[0] == 0:
        raise ValueError(
            f"the leading agent axes of the parameters are {sizes}; they must be equal and above 0 "
            "(for parameters that agents share, pass gradients or losses per agent too)"
        )
    stacked = [[None] * sizes[0] if one.grad is None else list(one.grad.unbind(0)) for one in lists[0]]
    return _Target(
        lists, "stacked", [Column(one.detach()[0], rows) for one, rows in zip(lists[0], stacked, strict=True)]
    )


def _check(lists: list[list[Tensor]], directions: list[Tensor]) -> None:
    """Check, before anything is changed, that u fits every list and that no parameter is in two lists."""
    shapes = [tuple(direction.shape) for direction in directions]
    for own in lists:
        stacked = [tuple(one.shape[1:]) for one in own]
        if shapes not in ([tuple(one.shape) for one in own], stacked):
            raise ValueError(f"u has shapes {shapes} and the parameters {[tuple(one.shape) for one in own]}")
    if len({id(one) for own in lists for one in own}) < sum(map(len, lists)):
        raise ValueError("a parameter is in two lists; pass shared parameters in a separate call, with gradients")


def _grads_with(own: list[Tensor], directions: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Every `.grad` with the tensor to combine it with. A missing one is created only for a tensor that is not zero."""
    for parameter, direction in zip(own, directions, strict=True):
        if parameter.grad is None and direction.any():
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad is not None:
            yield parameter.grad, direction


def _zero_if_not_finite(lists: list[list[Tensor]], info: Info | None) -> bool:
    """Zero every `.grad` if one is not finite. Checks results, so that an overflow in half precision is found too."""
    grads = [one.grad for own in lists for one in own if one.grad is not None and one.grad.numel()]
    bad = info is not None and info.status == Status.NON_FINITE
    if grads and not bad:
        finite = [largest(grad).isfinite().to(grads[0].device) for grad in grads]
        bad = not torch.stack(finite).all().item()  # synchronise with the device once, not once per parameter
    for grad in grads if bad else []:
        grad.zero_()
    return bad


def _on_cpu(program: Callable[..., Any], *arrays: np.ndarray | np.generic | int) -> Any:
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return program(*map(jnp.asarray, arrays))
