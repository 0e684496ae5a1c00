"""Products over all pairs of nodes, where pairs without an edge are multiplied by 0.

What has no edge never arrives, forwards and backwards: but 0 times NaN, or times infinity, is NaN.
So such a product runs only if all that it multiplies is finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.autograd import Function, forward_ad

from .index_checks import has_numbers
from .primitive import is_lean, is_plain, item_by_item
from .tiles import accumulator

Product = Callable[..., Tensor]


def can_look(*tensors: Tensor | None) -> bool:
    """Whether numbers can be looked at.

    They cannot under a compiler, a tracer or a mode, within ``torch.func``, in forward mode, where
    a batch is hidden, without memory (fake and meta tensors), and while a CUDA graph is captured.
    """
    return is_lean() and _are_there(*tensors)


def is_transformed(*tensors: Tensor | None) -> bool:
    """Whether ``torch.func`` or forward mode runs on tensors whose numbers lie below wrappers."""
    if is_lean() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return _are_there(*[_bare(x) for x in tensors])


def _are_there(*tensors: Tensor | None) -> bool:
    return is_plain(*tensors) and has_numbers(*tensors)


def are_finite(*tensors: Tensor | None) -> bool:
    """Whether all numbers can be looked at and are finite, as are their products and their sums.

    The sum of squares is, so that by the inequality of Cauchy and Schwarz no inner product of two
    tensors overflows.
    """
    return can_look(*tensors) and all(x is None or _is_finite(x.detach()) for x in tensors)


def _bare(x: Tensor | None) -> Tensor | None:
    """The tensor without the wrappers of ``torch.func``: all items of a batch."""
    while x is not None and is_functorch_wrapped_tensor(x):
        x = get_unwrapped(x)
    return x


def _are_finite_below(*tensors: Tensor | None) -> bool:
    """:func:`are_finite` below the wrappers of ``torch.func``; False in forward mode."""
    if forward_ad._current_level >= 0:
        return False  # tangents would have to be looked at, too
    bare = [_bare(x) for x in tensors]
    with torch._C._DisableFuncTorch():
        return _are_there(*bare) and all(x is None or _is_finite(x.detach()) for x in bare)


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
    operands = operands if bias is None else (*operands, bias)
    if not (can_look(*operands) and are_finite(*_looked_at(operands, bias))):
        return by_edges(*operands)
    out = product(*operands)
    if not out.requires_grad:
        return out
    return _Watched.apply(out, by_edges, *operands)  # type: ignore[no-any-return]


def over_all_pairs_below(
    product: Product,
    by_edges: Product,
    *operands: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """:func:`over_all_pairs` within ``torch.func`` and forward mode.

    The numbers below the wrappers are looked at, of all items of a batch at once. Edges serve one
    item after another; so does forward mode, where no number is looked at. ``by_edges`` also takes
    the mask, of booleans, if there is one.
    """
    operands = operands if bias is None else (*operands, bias)
    masks = () if mask is None else (mask,)
    if not _are_finite_below(*_looked_at(operands, bias)):
        return each_item(by_edges, *operands, *masks)  # type: ignore[no-any-return]
    return _WatchedBelow.apply(product(*operands), by_edges, *operands, *masks)  # type: ignore[no-any-return]


def _looked_at(operands: tuple[Tensor | None, ...], bias: Tensor | None) -> Any:
    """The operands, with the highest number in the place of a bias, which may be -inf."""
    if bias is None:
        return operands
    return *operands[:-1], bias.detach().amax() if bias.numel() else None


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
        wild, tame = parted(grad)
        gradients = iter(gradients_of(ctx.by_edges, wanted)(*operands, wild))
        return tame, None, *(next(gradients) if one else None for one in wanted)


class _WatchedBelow(Function):
    """:class:`_Watched` within ``torch.func``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(out: Tensor, by_edges: Product, *operands: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.by_edges, *operands = inputs
        ctx.save_for_backward(*operands)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        operands, wanted = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if _are_finite_below(grad):
            return grad, None, *(None for _ in operands)
        wild, tame = parted(grad)
        gradients = iter(each_item(gradients_of(ctx.by_edges, wanted), *operands, wild))
        return tame, None, *(next(gradients) if one else None for one in wanted)


def parted(grad: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers that are not finite and those that are, with zeros in the places of the others.

    The operations are such that also gradients in a batch that cannot be seen can be parted.
    """
    tame = torch.where(grad.abs() < torch.inf, grad, torch.zeros_like(grad))
    return torch.where(grad.abs() < torch.inf, torch.zeros_like(grad), grad), tame


Run = Callable[..., Any]


def each_item(run: Run, *operands: Tensor | None) -> Any:
    """``run(*operands)``, with derivatives of every order, item by item of a hidden batch.

    ``run`` is differentiable any number of times in reverse mode, and has one result or a tuple of
    them. Wrapped tensors that it reads beside its operands stay wrapped.
    """
    return _EachItem.apply(run, *operands)


def gradients_of(run: Run, wanted: tuple[bool, ...]) -> Run:
    """From operands, and a gradient of each result, to the gradients of the operands wanted."""

    def gradients(*both: Any) -> tuple[Tensor, ...]:
        operands, above = both[: len(wanted)], both[len(wanted) :]
        differentiates = torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = [_input(x, one) for x, one in zip(operands, wanted, strict=True)]
            asked: list[Any] = [x for x, one in zip(inputs, wanted, strict=True) if one]
            return _gradients(_several(run(*inputs)), asked, above, differentiates)

    return gradients


def _input(x: Tensor | None, is_wanted: bool) -> Tensor | None:
    """An operand as another tensor: it may be the same as one beside it, or computed from it."""
    if x is None:
        return None
    if x.requires_grad:
        return x.view_as(x)
    return x.detach().requires_grad_() if is_wanted else x


def _tangent_of(run: Run, wanted: tuple[bool, ...]) -> Run:
    """From operands, and tangents of those wanted, to the tangents of the results.

    Gradients are linear in the gradient that they are computed from, so that their own gradient in
    it is the tangent.
    """

    def tangent(*both: Any) -> Any:
        operands, along = both[: len(wanted)], both[len(wanted) :]
        with torch.enable_grad():
            output = run(*operands)
            above = [torch.zeros_like(out).requires_grad_() for out in _several(output)]
            parts = gradients_of(run, wanted)(*operands, *above)
            differentiates = any(x is not None and x.requires_grad for x in both)
            outs = _gradients(parts, above, along, differentiates)
        return outs if isinstance(output, tuple) else outs[0]

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
    outs, above = zip(*pairs, strict=True)
    how = {"create_graph": differentiates, "materialize_grads": True}
    return torch.autograd.grad(outs, inputs, above, **how)


def _several(output: Any) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)


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
        gradients = iter(each_item(gradients_of(ctx.run, wanted), *ctx.saved_tensors, *above))
        return None, *(next(gradients) if one else None for one in wanted)

    @staticmethod
    def jvp(ctx: Any, _: None, *along: Tensor | None) -> Any:
        wanted = tuple([x is not None for x in along])
        with forward_ad._set_fwd_grad_enabled(True):  # torch turns it off, as in a primitive
            operands = [
                None if x is None else forward_ad.unpack_dual(x).primal for x in ctx.saved_tensors
            ]
            tangents = [x for x in along if x is not None]
            return each_item(_tangent_of(ctx.run, wanted), *operands, *tangents)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        return item_by_item(_EachItem.apply, info, in_dims, arguments)
