"""Products over all pairs of nodes, where pairs without an edge are multiplied by 0.

What has no edge never arrives, forwards and backwards: but 0 times NaN, or times infinity, is NaN.
So such a product runs only if all that it multiplies is finite.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .index_checks import has_numbers
from .primitive import is_lean, is_plain
from .tiles import accumulator

Product = Callable[..., Tensor]


def can_look(*tensors: Tensor | None) -> bool:
    """Whether numbers can be looked at.

    They cannot under a compiler, a tracer or a mode, within ``torch.func``, in forward mode, where
    a batch is hidden, without memory (fake and meta tensors), and while CUDA records a graph.
    """
    if not (is_lean() and is_plain(*tensors) and has_numbers(*tensors)):
        return False
    on_cuda = any(x is not None and x.is_cuda for x in tensors)
    return not (on_cuda and torch.cuda.is_current_stream_capturing())


def are_finite(*tensors: Tensor | None) -> bool:
    """Whether all numbers can be looked at and are finite, as are their products and their sums.

    The sum of squares is, so that by the inequality of Cauchy and Schwarz no inner product of two
    tensors overflows.
    """
    return can_look(*tensors) and all(x is None or _is_finite(x.detach()) for x in tensors)


def _is_finite(x: Tensor) -> bool:
    if not x.is_floating_point():
        return True  # integers are, and what takes no integers refuses them itself
    return isfinite(float(torch.linalg.vector_norm(x, dtype=accumulator(x.dtype))))


def over_all_pairs(
    product: Product, by_edges: Product, *operands: Tensor | None, bias: Tensor | None = None
) -> Tensor:
    """``product(*operands)`` if the operands are finite, else ``by_edges(*operands)``.

    Backwards, numbers of the gradient that are not finite go by edges, others through the product.

    Args:
        product: a function of the operands with a result (N, *), which multiplies pairs without an
            edge by 0.
        by_edges: the same function, which does not touch such pairs.
        operands: tensors that may require gradients.
        bias: a last operand, whose numbers may be -inf, which says that a pair has no edge.
    """
    highest = None
    if bias is not None:
        operands = (*operands, bias)
        highest = bias.detach().amax() if bias.numel() and can_look(bias) else None
    looked = operands if bias is None else (*operands[:-1], highest)
    if not (can_look(*operands) and are_finite(*looked)):
        return by_edges(*operands)
    out = product(*operands)
    if not out.requires_grad:
        return out
    return _Watched.apply(out, by_edges, *operands)  # type: ignore[no-any-return]


class _Watched(Function):
    """The result of a product, whose gradient is looked at."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, by_edges: Product, *operands: Tensor | None) -> Tensor:
        ctx.by_edges = by_edges
        ctx.save_for_backward(*operands)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        operands, wanted = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if are_finite(grad):
            return grad, None, *(None for _ in operands)
        differentiates = torch.is_grad_enabled()
        with torch.enable_grad():
            # Views, because an operand may be computed from another one, or be the same tensor.
            inputs = [None if x is None else x.view_as(x) for x in operands]
            out = ctx.by_edges(*inputs)
            asked: list[Any] = [x for x, is_wanted in zip(inputs, wanted, strict=True) if is_wanted]
            wild, tame = parted(grad)
            found = iter(
                torch.autograd.grad(
                    out, asked, wild, create_graph=differentiates, allow_unused=True
                )
            )
        rest = [next(found) if is_wanted else None for is_wanted in wanted]
        return tame, None, *rest


def parted(grad: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers that are not finite and those that are, with zeros in the places of the others.

    The operations are such that also gradients in a batch that cannot be seen can be parted.
    """
    tame = torch.where(grad.abs() < torch.inf, grad, torch.zeros_like(grad))
    return torch.where(grad.abs() < torch.inf, torch.zeros_like(grad), grad), tame
