"""The primitives as differentiable functions: :func:`spmm` and :func:`sddmm`.

Each is a custom operator without autograd, so that a compiler sees one node, inside an
``autograd.Function`` whose backward uses the same primitives: second derivatives and
``torch.func`` follow. Forward-mode differentiation is not defined, and raises.

A matrix enters as two views of one :class:`Sparsity`, each (ptr, index, perm): by row, where perm
is None, and by column. Multiplying by the transpose swaps the views; values stay in row order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .backend import Request
from .dispatch import BACKENDS, choose, note
from .sparsity import Sparsity

View = tuple[Tensor, Tensor, Tensor | None]


def spmm(sparsity: Sparsity, value: Tensor | None, x: Tensor, *, transpose: bool = False) -> Tensor:
    """Multiply a sparse matrix S (R × C), or its transpose, with a dense one.

    ``out[r, :] = sum_c S[r, c] x[c, :]``, differentiable in ``value`` and ``x``, any number of
    times.

    Args:
        sparsity: where the E entries of S are.
        value: (E,) the entries in row order, or None for ones.
        x: (C, channels), or (R, channels) with ``transpose``.
        transpose: multiply with Sᵀ.

    Returns:
        (R, channels), or (C, channels) with ``transpose``.

    Raises:
        ValueError: the shapes do not fit, or no backend can serve the call.
        TypeError: ``value`` and ``x`` are of different types.
    """
    rows, cols = sparsity.shape
    expected = rows if transpose else cols
    if x.dim() != 2 or x.size(0) != expected:
        raise RefusedValue(
            refusal(
                "spmm needs x of two dimensions that fits the matrix",
                f"({expected}, channels)",
                tuple(x.shape),
            )
        )
    if value is not None:
        if value.shape != sparsity.col.shape:
            raise RefusedValue(
                refusal(
                    "spmm needs one value an entry", tuple(sparsity.col.shape), tuple(value.shape)
                )
            )
        if value.dtype != x.dtype:
            raise RefusedType(refusal("spmm needs value and x of one type", x.dtype, value.dtype))
    backend = choose(_request("spmm", sparsity.rowptr, sparsity.col, x, expected))
    near, far = _views(sparsity, transpose)
    return _SpMM.apply(*near, *far, value, x, backend.name)  # type: ignore[no-any-return]


def sddmm(sparsity: Sparsity, a: Tensor, b: Tensor) -> Tensor:
    """Dot products of rows of ``a`` and ``b`` at the entries of a sparse matrix (R × C).

    ``out[e] = <a[row of e, :], b[col of e, :]>``, in row order; differentiable in both.

    Args:
        sparsity: where the E entries are.
        a: (R, channels).
        b: (C, channels).

    Returns:
        (E,).

    Raises:
        ValueError: the shapes do not fit, or no backend can serve the call.
        TypeError: ``a`` and ``b`` are of different types.
    """
    rows, cols = sparsity.shape
    if a.dim() != 2 or b.dim() != 2 or (a.size(0), b.size(0), b.size(1)) != (rows, cols, a.size(1)):
        raise RefusedValue(
            refusal(
                "sddmm needs a row of a and of b for every row and column",
                f"({rows}, channels) and ({cols}, channels)",
                f"{tuple(a.shape)} and {tuple(b.shape)}",
            )
        )
    if a.dtype != b.dtype:
        raise RefusedType(refusal("sddmm needs a and b of one type", a.dtype, b.dtype))
    backend = choose(_request("sddmm", sparsity.rowptr, sparsity.col, a, cols))
    near, far = _views(sparsity, False)
    return _SDDMM.apply(*near, *far, a, b, backend.name)  # type: ignore[no-any-return]


def _views(sparsity: Sparsity, transpose: bool) -> tuple[View, View]:
    by_row: View = (sparsity.rowptr, sparsity.col, None)
    by_column: View = (sparsity.colptr, sparsity.row, sparsity.perm)
    return (by_column, by_row) if transpose else (by_row, by_column)


def _request(primitive: str, ptr: Tensor, index: Tensor, x: Tensor, num_cols: int) -> Request:
    shape = (ptr.numel() - 1, num_cols)
    return Request(primitive, x.device.type, x.dtype, index.dtype, shape, index.numel(), x.size(1))


# The operators -------------------------------------------------------------------------------


@torch.library.custom_op("pyg_outerconv::spmm", mutates_args=())
def _spmm(
    ptr: Tensor, index: Tensor, perm: Tensor | None, value: Tensor | None, x: Tensor, backend: str
) -> Tensor:
    implementation = BACKENDS[backend]
    note(implementation, _request("spmm", ptr, index, x, x.size(0)))
    if value is not None and perm is not None:
        value = value.index_select(0, perm)
    # The types were settled by the caller; a kernel that autocast changes would break that.
    with torch.autocast(x.device.type, enabled=False):
        return implementation.spmm(ptr, index, value, x.contiguous())


@_spmm.register_fake
def _(
    ptr: Tensor, index: Tensor, perm: Tensor | None, value: Tensor | None, x: Tensor, backend: str
) -> Tensor:
    return x.new_empty((ptr.numel() - 1, x.size(1)))


@torch.library.custom_op("pyg_outerconv::sddmm", mutates_args=())
def _sddmm(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor, backend: str) -> Tensor:
    implementation = BACKENDS[backend]
    note(implementation, _request("sddmm", ptr, index, a, b.size(0)))
    with torch.autocast(a.device.type, enabled=False):
        return implementation.sddmm(ptr, index, a.contiguous(), b.contiguous())


@_sddmm.register_fake
def _(ptr: Tensor, index: Tensor, a: Tensor, b: Tensor, backend: str) -> Tensor:
    return a.new_empty((index.numel(),))


# Their derivatives ---------------------------------------------------------------------------


class _SpMM(torch.autograd.Function):
    """out = S x. The first view is the one that is multiplied, the second its transpose."""

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
        return _spmm(ptr, index, perm, value, x, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.backend = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ptr, index, perm, ptr_t, index_t, perm_t, value, x = ctx.saved_tensors
        grad_value = grad_x = None
        if ctx.needs_input_grad[7]:
            grad_x = _SpMM.apply(ptr_t, index_t, perm_t, ptr, index, perm, value, grad, ctx.backend)
        if value is not None and ctx.needs_input_grad[6]:
            # Values are in row order, so the products are sampled in the view by row.
            if perm is None:
                grad_value = _SDDMM.apply(
                    ptr, index, perm, ptr_t, index_t, perm_t, grad, x, ctx.backend
                )
            else:
                grad_value = _SDDMM.apply(
                    ptr_t, index_t, perm_t, ptr, index, perm, x, grad, ctx.backend
                )
        return None, None, None, None, None, None, grad_value, grad_x, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        *views, value, x, backend = args
        value_dim, x_dim = in_dims[6], in_dims[7]
        if value_dim is None:
            # Matrices multiply columns one by one: a batch of x is more columns.
            x = x.movedim(x_dim, 1)
            out = _SpMM.apply(*views, value, x.flatten(1), backend)
            return out.unflatten(1, x.shape[1:]), 1
        outs = []
        for item in range(info.batch_size):
            x_item = x if x_dim is None else x.select(x_dim, item)
            outs.append(_SpMM.apply(*views, value.select(value_dim, item), x_item, backend))
        return torch.stack(outs), 0


class _SDDMM(torch.autograd.Function):
    """out[e] = <a[row e], b[col e]>; its derivatives are products with S = out's gradient."""

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
        return _sddmm(ptr, index, a, b, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.backend = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *views, a, b = ctx.saved_tensors
        near, far = views[:3], views[3:]
        grad_a = grad_b = None
        if ctx.needs_input_grad[6]:
            grad_a = _SpMM.apply(*near, *far, grad, b, ctx.backend)
        if ctx.needs_input_grad[7]:
            grad_b = _SpMM.apply(*far, *near, grad, a, ctx.backend)
        return None, None, None, None, None, None, grad_a, grad_b, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        *views, a, b, backend = args
        a_dim, b_dim = in_dims[6], in_dims[7]
        outs = []
        for item in range(info.batch_size):
            a_item = a if a_dim is None else a.select(a_dim, item)
            b_item = b if b_dim is None else b.select(b_dim, item)
            outs.append(_SDDMM.apply(*views, a_item, b_item, backend))
        return torch.stack(outs), 0
