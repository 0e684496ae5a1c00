"""Sparse products and sampled dense products, whose derivatives are made of these two again.

Each is a custom operator without autograd, so that a compiler sees one node, inside an
``autograd.Function`` whose backward uses the same primitives: so there are second derivatives, and
``torch.func`` works.

All operands have heads: values (E, H), dense operands (rows, H or 1, channels); see
:class:`~pyg_outerconv.kernels.backend.Backend`. The public functions are in ``spmm.py`` and
``sddmm.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .backend import BACKENDS
from .call import View, distinct_views, is_plain, log_if_recording, without_autocast
from .differentiable import apply, differentiable

# The operators -------------------------------------------------------------------------------


def _run_spmm(
    ptr: Tensor, index: Tensor, perm: Tensor | None, value: Tensor | None, x: Tensor, backend: str
) -> Tensor:
    implementation = BACKENDS[backend]
    log_if_recording(implementation, "spmm", ptr, index, x.size(0), x)
    value = in_order(value, perm)
    # The caller has settled the dtypes; autocast must not change them in the kernel.
    with without_autocast(x.device.type):
        return implementation.spmm(ptr, index, value, x.contiguous())


_spmm = torch.library.custom_op("pyg_outerconv::spmm", _run_spmm, mutates_args=())


@_spmm.register_fake
def _(
    ptr: Tensor, index: Tensor, perm: Tensor | None, value: Tensor | None, x: Tensor, backend: str
) -> Tensor:
    heads = x.size(1) if value is None else value.size(1)
    return x.new_empty((ptr.numel() - 1, heads, x.size(2)))


def _run_sddmm(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor, backend: str) -> Tensor:
    implementation = BACKENDS[backend]
    log_if_recording(implementation, "sddmm", ptr, index, b.size(0), a)
    with without_autocast(a.device.type):
        return implementation.sddmm(ptr, index, a.contiguous(), b.contiguous())


_sddmm = torch.library.custom_op("pyg_outerconv::sddmm", _run_sddmm, mutates_args=())


@_sddmm.register_fake
def _(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor, backend: str) -> Tensor:
    return a.new_empty((index.numel(), max(a.size(1), b.size(1))))


def in_order(value: Tensor | None, perm: Tensor | None) -> Tensor | None:
    """Bring values from row order into the order of a view with this ``perm``."""
    if value is None or perm is None:
        return value if value is None else value.contiguous()
    return value.index_select(0, perm)


# Their derivatives ---------------------------------------------------------------------------


def product(
    view: View, transposed_view: View, value: Tensor | None, x: Tensor, backend: str
) -> Tensor:
    """out = S x, (R, H, channels), for the matrix S (R × C) of ``view``.

    Args:
        view: the places of the entries of S.
        transposed_view: those of Sᵀ.
        value: (E, H) in row order of the untransposed matrix, or None for ones.
        x: (C, H or 1, channels).
        backend: the name of the backend.
    """
    if value is not None and value.size(1) == 1 and x.size(1) > 1:
        # One matrix for all heads of x: the heads become channels.
        out = apply(
            _SpMM,
            *distinct_views(*view, *transposed_view, value, x.flatten(1).unsqueeze(1)),
            backend,
        )
        return out.squeeze(1).unflatten(1, x.shape[1:])  # type: ignore[no-any-return]
    return apply(_SpMM, *distinct_views(*view, *transposed_view, value, x), backend)  # type: ignore[no-any-return]


def sample(view: View, transposed_view: View, a: Tensor, b: Tensor, backend: str) -> Tensor:
    """out[e, h] = <a[row of e, h], b[col of e, h]>, (E, H), for the entries of ``view`` by row."""
    return apply(_SDDMM, *distinct_views(*view, *transposed_view, a, b), backend)  # type: ignore[no-any-return]


def _like(grad: Tensor, heads: int) -> Tensor:
    """Sum the gradient over the heads if the operand has a single one, which all share."""
    return grad if grad.size(1) == heads else grad.sum(1, keepdim=True)


@differentiable
class _SpMM(torch.autograd.Function):
    """out = S x, for the matrix S of the first view; the second view is its transpose."""

    @staticmethod
    def forward(
        ptr: Tensor,
        index: Tensor,
        perm: Tensor | None,
        ptr_t: Tensor,
        index_t: Tensor,
        perm_t: Tensor | None,
        value: Tensor | None,
        x: Tensor,
        backend: str,
    ) -> Tensor:
        run = _run_spmm if is_plain(value, x) else _spmm
        return run(ptr, index, perm, value, x, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *both, value, x, ctx.backend = inputs
        ctx.heads = x.size(1)
        # Only the gradient of values reads x, so that x is not saved without it.
        ctx.save_for_backward(*both, value, x if ctx.needs_input_grad[6] else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *both, value, x = ctx.saved_tensors
        view, transposed_view = tuple(both[:3]), tuple(both[3:])
        grad_value = grad_x = None
        if ctx.needs_input_grad[7]:
            grad_x = _like(product(transposed_view, view, value, grad, ctx.backend), ctx.heads)
        if value is not None and ctx.needs_input_grad[6]:
            # Values are in row order, so the gradient is sampled in the view by row.
            if view[2] is None:
                grad_value = sample(view, transposed_view, grad, x, ctx.backend)
            else:
                grad_value = sample(transposed_view, view, x, grad, ctx.backend)
        return None, None, None, None, None, None, grad_value, grad_x, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        *both, value, x = primals
        view, transposed_view = tuple(both[:3]), tuple(both[3:])
        of_value, of_x = tangents[6:]
        moved = product(view, transposed_view, value, of_x, ctx.backend)
        return (
            moved
            if value is None
            else moved + product(view, transposed_view, of_value, x, ctx.backend)
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        *both, value, x, backend = args
        view, transposed_view = tuple(both[:3]), tuple(both[3:])
        value_dim, x_dim = in_dims[6], in_dims[7]
        if value_dim is None:
            # Fold a batch of x into the channels.
            x = x.movedim(x_dim, -1)
            out = product(view, transposed_view, value, x.flatten(-2), backend)
            return out.unflatten(-1, x.shape[-2:]), out.dim()
        # Fold a batch of matrices into the heads.
        value = value.movedim(value_dim, -1)
        if x_dim is not None:
            x = x.movedim(x_dim, 2)
        elif x.size(1) > 1 or value.size(1) > 1:
            x = x.unsqueeze(2).expand(-1, -1, info.batch_size, -1)
        if x.dim() == 4:
            x = x.expand(-1, value.size(1), -1, -1).flatten(1, 2)
        out = product(view, transposed_view, value.flatten(1), x, backend)
        return out.unflatten(1, value.shape[1:]), 2


@differentiable
class _SDDMM(torch.autograd.Function):
    """out[e] = <a[row of e], b[col of e]>; its derivatives are products with out's gradient."""

    @staticmethod
    def forward(
        ptr: Tensor,
        index: Tensor,
        perm: Tensor | None,
        ptr_t: Tensor,
        index_t: Tensor,
        perm_t: Tensor | None,
        a: Tensor,
        b: Tensor,
        backend: str,
    ) -> Tensor:
        run = _run_sddmm if is_plain(a, b) else _sddmm
        return run(ptr, index, a, b, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.backend = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *both, a, b = ctx.saved_tensors
        view, transposed_view = tuple(both[:3]), tuple(both[3:])
        grad_a = grad_b = None
        if ctx.needs_input_grad[6]:
            grad_a = _like(product(view, transposed_view, grad, b, ctx.backend), a.size(1))
        if ctx.needs_input_grad[7]:
            grad_b = _like(product(transposed_view, view, grad, a, ctx.backend), b.size(1))
        return None, None, None, None, None, None, grad_a, grad_b, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        *both, a, b = primals
        view, transposed_view = tuple(both[:3]), tuple(both[3:])
        of_a, of_b = tangents[6:]
        of_rows = sample(view, transposed_view, of_a, b, ctx.backend)
        return of_rows + sample(view, transposed_view, a, of_b, ctx.backend)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        *both, a, b, backend = args
        view, transposed_view = tuple(both[:3]), tuple(both[3:])
        operands = [
            x.unsqueeze(2) if dim is None else x.movedim(dim, 2)
            for x, dim in ((a, in_dims[6]), (b, in_dims[7]))
        ]
        heads = max(x.size(1) for x in operands)
        left, right = (x.expand(-1, heads, info.batch_size, -1).flatten(1, 2) for x in operands)
        out = sample(view, transposed_view, left, right, backend)
        return out.unflatten(1, (heads, info.batch_size)), 2
