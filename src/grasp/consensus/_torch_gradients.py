"""Per-agent gradients in PyTorch: the forms they are passed in, their Gram matrix and their combinations.

Gradients are read in blocks [N, columns] that fit a cache and are never copied as a whole.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

BLOCK = 2**18
"""Elements per block."""


class Column(NamedTuple):
    """One parameter: a tensor of its shape, and its gradient per agent."""

    like: Tensor
    rows: list[Tensor | None]


def lists_of(parameters: Any, grouped: bool = True) -> tuple[list[list[Tensor]], bool]:
    """Lists of parameters, and whether there is one per agent. With `grouped`, an optimiser's groups are such lists."""
    groups = [group["params"] for group in getattr(parameters, "param_groups", [])]
    if groups:
        parameters = groups if grouped and len(groups) > 1 else [one for group in groups for one in group]
    given = list(parameters)
    if given and all(isinstance(one, Tensor) for one in given):
        return [given], False
    if any(isinstance(one, Tensor) for one in given):
        raise ValueError("parameters mix tensors with lists; give either tensors or one list per agent")
    return [list(own) for own in given], True


def columns_of(gradients: Iterable[Any], lists: list[list[Tensor]]) -> list[Column]:
    """N losses, N lists of gradients, or tensors stacked over agents, as one column per parameter."""
    with torch.enable_grad():  # an iterator may compute its losses only here
        given: list[Any] = list(gradients)
    if given and all(isinstance(one, Tensor) and one.ndim == 0 for one in given):
        given = _differentiate(given, lists)
    if given and all(isinstance(one, Tensor) for one in given):
        rows = [list(one.unbind(0)) for one in given]
    else:
        rows = _transpose([list(own) for own in given])
    if not rows or not rows[0]:
        raise ValueError("there are no gradients; give losses, one list of gradients per agent, or stacked tensors")
    if lists and len(rows) != len(lists[0]):
        raise ValueError(
            f"there are {len(rows)} gradients per agent for {len(lists[0])} parameters; give one gradient per parameter"
        )
    return [_column(index, own, lists[0][index] if lists else None) for index, own in enumerate(rows)]


def _differentiate(losses: list[Tensor], lists: list[list[Tensor]]) -> list[Any]:
    if not lists:
        raise ValueError("losses are differentiated with respect to parameters; pass parameters too")
    each = lists * len(losses) if len(lists) == 1 else lists
    if len(each) != len(losses):
        raise ValueError(
            f"there are {len(losses)} losses and {len(lists)} lists of parameters; give one list per agent"
        )
    pairs = zip(losses, each, strict=True)
    return [torch.autograd.grad(loss, own, retain_graph=True, allow_unused=True) for loss, own in pairs]


def _transpose(agents: list[list[Tensor | None]]) -> list[list[Tensor | None]]:
    sizes = sorted({len(own) for own in agents})
    if len(sizes) > 1:
        raise ValueError(f"agents have {sizes} gradients; give all agents the same number, None for a missing gradient")
    return [list(rows) for rows in zip(*agents, strict=True)]


def _column(index: int, rows: list[Tensor | None], parameter: Tensor | None) -> Column:
    present = [row for row in [parameter, *rows] if row is not None]
    if not present:
        raise ValueError(f"gradient {index} is None for every agent; pass parameters too, for its shape")
    shapes = sorted({tuple(row.shape) for row in present})
    if len(shapes) > 1:
        raise ValueError(f"the gradients of parameter {index} have shapes {shapes}; give all agents the same shape")
    if len({row.device for row in present}) > 1 or any(row.layout != torch.strided for row in present):
        raise ValueError(
            f"the gradients of parameter {index} are sparse or on several devices; give dense ones on one device"
        )
    return Column(present[0].detach(), rows)


def peak_of(columns: list[Column]) -> Tensor:
    """The largest absolute entry (1 where all are 0), in the dtype to compute in, on the device to reduce on."""
    rows = [row for column in columns for row in column.rows if row is not None and row.numel()]
    # Where the user allows reduced-precision float32 products, compute in float64.
    double = any(row.dtype == torch.float64 for row in rows) or torch.get_float32_matmul_precision() != "highest"
    dtype, device = torch.float64 if double else torch.float32, columns[0].like.device
    peak = torch.zeros((), dtype=dtype, device=device)
    for row in rows:
        peak = torch.maximum(peak, largest(row).to(device, dtype))
    return torch.where(peak == 0, 1, peak)


def largest(tensor: Tensor) -> Tensor:
    """The largest absolute value, without the copy that abs() makes; NaN if there is one."""
    low, high = torch.aminmax(tensor)
    return torch.maximum(-low, high)


def gram(columns: list[Column], peak: Tensor) -> tuple[Tensor, Tensor]:
    """G of the gradients divided by the largest norm, and that norm in units of `peak`, so that no square overflows."""
    num = len(columns[0].rows)
    G = torch.zeros(num, num, dtype=peak.dtype, device=peak.device)
    # Under automatic mixed precision, products would be rounded to half precision.
    with torch.autocast(peak.device.type, enabled=False):
        for column in columns:
            for _, block in _blocks(column, peak):
                G += (block @ block.T).to(G.device)
    longest = G.diagonal().max().sqrt()
    longest = torch.where(longest == 0, 1, longest)
    return G / longest**2, longest


def combine(columns: list[Column], peak: Tensor, w: np.ndarray) -> tuple[list[Tensor], np.ndarray, float]:
    """u = Σ w_i g_i, and g_i·u and ‖u‖² in units of peak², in one pass over the gradients."""
    weights = torch.as_tensor(w, dtype=peak.dtype, device=peak.device)
    inner, squared, u = torch.zeros_like(weights), torch.zeros_like(peak), []
    for like, rows in columns:
        order = _order(Column(like, rows))
        flat = like.new_zeros(like.numel(), dtype=torch.promote_types(like.dtype, torch.float32))
        with torch.autocast(peak.device.type, enabled=False):
            for span, block in _blocks(Column(like, rows), peak):
                direction = weights.to(block.device) @ block
                inner += (block @ direction).to(inner.device)
                squared += direction.square().sum().to(squared.device)
                flat[span] = direction * peak.to(block.device)
        back = sorted(range(like.ndim), key=order.__getitem__)
        u.append(flat.reshape([like.shape[axis] for axis in order]).permute(*back))
    return u, inner.cpu().numpy(), squared.item()


def _blocks(column: Column, peak: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """One parameter's gradients [N, columns] divided by `peak`, block by block; the next block overwrites the last."""
    order, size, width = _order(column), column.like.numel(), max(1, BLOCK // len(column.rows))
    if all(row is None for row in column.rows):
        return
    absent = column.like.new_zeros(()).expand(size)
    flat = [absent if row is None else row.permute(order).reshape(-1) for row in column.rows]
    block = column.like.new_empty(len(flat), min(size, width), dtype=peak.dtype)
    for start in range(0, size, width):
        span = slice(start, min(start + width, size))
        piece = block[:, : span.stop - start]
        torch.stack([row[span] for row in flat], out=piece)
        yield span, piece.div_(peak.to(block.device))


def _order(column: Column) -> list[int]:
    """The axes by falling stride: permuted to this order, a dense tensor flattens without a copy."""
    strides = next((row for row in column.rows if row is not None), column.like).stride()
    return sorted(range(len(strides)), key=lambda axis: -strides[axis])
