"""Functions that ``torch.func`` sees as one, and runs for one item of a batch after another.

Within them all tensors are plain, so that numbers can be looked at, and edges left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from .primitive import item_by_item

Run = Callable[..., Any]


def each_item(run: Run, *operands: Tensor | None) -> Any:
    """``run(*operands)``, with derivatives of every order, item by item of a hidden batch.

    Args:
        run: a function of the operands with one result, or a tuple of them, which is
            differentiable any number of times in reverse mode.
        operands: tensors; wrapped ones that ``run`` reads otherwise stay wrapped.
    """
    return _EachItem.apply(run, *operands)


def gradients_of(run: Run, wanted: tuple[bool, ...]) -> Run:
    """From operands, and a gradient of each result, to the gradients of the operands wanted."""

    def gradients(*both: Any) -> tuple[Tensor, ...]:
        operands, above = both[: len(wanted)], both[len(wanted) :]
        differentiates = torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = [
                x.view_as(x) if x.requires_grad else x.detach().requires_grad_() if one else x
                for x, one in zip(operands, wanted, strict=True)
            ]
            asked = [x for x, one in zip(inputs, wanted, strict=True) if one]
            return _gradients(_several(run(*inputs)), asked, above, differentiates)

    return gradients


def _tangent_of(run: Run, wanted: tuple[bool, ...]) -> Run:
    """From operands, and tangents of those wanted, to the tangents of the results.

    Gradients are linear in the gradient that they are computed from, so that their own gradient in
    it is the tangent.
    """

    def tangent(*both: Any) -> Any:
        operands, along = both[: len(wanted)], both[len(wanted) :]
        with torch.enable_grad():
            found = run(*operands)
            above = [torch.zeros_like(out).requires_grad_() for out in _several(found)]
            parts = gradients_of(run, wanted)(*operands, *above)
            differentiates = any(x is not None and x.requires_grad for x in both)
            outs = _gradients(parts, above, along, differentiates)
        return outs if isinstance(found, tuple) else outs[0]

    return tangent


def _gradients(
    outs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    above: Sequence[Tensor],
    differentiates: bool,
) -> tuple[Tensor, ...]:
    """The gradients in inputs; zeros where results do not depend on them."""
    pairs = [pair for pair in zip(outs, above, strict=True) if pair[0].requires_grad]
    if not pairs:
        return tuple([torch.zeros_like(x) for x in inputs])
    found = torch.autograd.grad(
        [out for out, _ in pairs],
        inputs,
        [grad for _, grad in pairs],
        create_graph=differentiates,
        allow_unused=True,
    )
    return tuple(
        torch.zeros_like(x) if part is None else part for x, part in zip(inputs, found, strict=True)
    )


def _several(found: Any) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


class _EachItem(Function):
    @staticmethod
    def forward(run: Run, *operands: Tensor | None) -> Any:
        return run(*operands)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.run, *operands = inputs
        ctx.save_for_backward(*operands)
        ctx.save_for_forward(*operands)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> Any:
        wanted = tuple(ctx.needs_input_grad[1:])
        found = iter(each_item(gradients_of(ctx.run, wanted), *ctx.saved_tensors, *above))
        return None, *(next(found) if one else None for one in wanted)

    @staticmethod
    def jvp(ctx: Any, _: None, *along: Tensor | None) -> Any:
        wanted = tuple([x is not None for x in along])
        with forward_ad._set_fwd_grad_enabled(True):  # torch turns it off, as in a primitive
            operands = [
                None if x is None else forward_ad.unpack_dual(x).primal for x in ctx.saved_tensors
            ]
            given = [x for x in along if x is not None]
            return each_item(_tangent_of(ctx.run, wanted), *operands, *given)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        return item_by_item(_EachItem.apply, info, in_dims, arguments)
