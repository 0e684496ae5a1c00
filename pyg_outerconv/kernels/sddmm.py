"""Scores of the entries of a sparse matrix: dot products or sums of row and column operands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal, unknown
from .call import View, distinct_views, pick, same_dtype, views
from .differentiable import apply, differentiable
from .products import sample
from .softmax import sum_of_rows
from .sparsity import Sparsity

OPERATIONS = ("dot", "add")


def sddmm(sparsity: Sparsity, a: Tensor, b: Tensor, *, op: str = "dot") -> Tensor:
    """The score of each entry of a sparse matrix (R × C), from its row and its column.

    ``'dot'``: ``out[e, h] = <a[row of e, h, :], b[col of e, h, :]>``;
    ``'add'``: ``out[e, h] = a[row of e, h] + b[col of e, h]``. Entries are in row order;
    differentiable in ``a`` and ``b`` any number of times.

    Args:
        sparsity: the places of the E entries.
        a: (R, channels) or (R, H, channels); for ``'add'`` (R,) or (R, H).
        b: (C, channels) or (C, H, channels); for ``'add'`` (C,) or (C, H). For ``'dot'``, one of
            the two may have a single head, which is used for all.
        op: 'dot' or 'add'.

    Returns:
        (E,), or (E, H) where the operands have heads.

    Raises:
        ValueError: the shapes do not fit, the operation is unknown, or no backend can serve the
            call.
        TypeError: ``a`` and ``b`` have different dtypes.
    """
    if op not in OPERATIONS:
        raise RefusedValue(unknown("op of sddmm", op, OPERATIONS))
    rows, cols = sparsity.shape
    dims = (2, 3) if op == "dot" else (1, 2)
    heads = [x.size(1) if x.dim() == dims[1] else 1 for x in (a, b)]
    fits = (
        a.dim() == b.dim()
        and a.dim() in dims
        and (a.size(0), b.size(0)) == (rows, cols)
        and (op == "add" or a.size(-1) == b.size(-1))
        and (heads[0] == heads[1] or (op == "dot" and 1 in heads))
    )
    if not fits:
        channels = ", channels" if op == "dot" else ""
        raise RefusedValue(
            refusal(
                "sddmm needs a row of a for every row, and a row of b for every column",
                f"({rows}, [H]{channels}) and ({cols}, [H]{channels})",
                f"{tuple(a.shape)} and {tuple(b.shape)}",
            )
        )
    a, b = same_dtype("sddmm", a, b)  # type: ignore[assignment]
    view, transposed_view = views(sparsity)
    plain = a.dim() == dims[0]
    if plain:
        a, b = a.unsqueeze(1), b.unsqueeze(1)
    backend = pick("sddmm", view, cols, a).name
    out = (
        sample(view, transposed_view, a, b, backend)
        if op == "dot"
        else _add(view, transposed_view, a, b, backend)
    )
    return out.squeeze(1) if plain else out


def _add(view: View, transposed_view: View, a: Tensor, b: Tensor, backend: str) -> Tensor:
    out: Tensor = apply(
        _Add, *distinct_views(*view[:2], transposed_view[0], transposed_view[2], a, b), backend
    )
    return out


@differentiable
class _Add(torch.autograd.Function):
    """out[e, h] = a[row of e, h] + b[col of e, h]; torch gathers, whatever the backend."""

    @staticmethod
    def forward(
        ptr: Tensor,
        index: Tensor,
        ptr_t: Tensor,
        perm_t: Tensor,
        a: Tensor,
        b: Tensor,
        backend: str,
    ) -> Tensor:
        rows = torch.repeat_interleave(a, ptr.diff().long(), dim=0, output_size=index.numel())
        return rows + b.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ptr, _, ptr_t, perm_t, _, _, ctx.backend = inputs
        ctx.save_for_backward(ptr, ptr_t, perm_t)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ptr, ptr_t, perm_t = ctx.saved_tensors
        grad_a = grad_b = None
        if ctx.needs_input_grad[4]:
            grad_a = sum_of_rows(ptr, grad, ctx.backend)
        if ctx.needs_input_grad[5]:
            grad_b = sum_of_rows(ptr_t, grad.index_select(0, perm_t), ctx.backend)
        return None, None, None, None, grad_a, grad_b, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        out: Tensor = apply(_Add, *primals[:4], *tangents[4:], ctx.backend)
        return out

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        ptr, index, ptr_t, perm_t, a, b, backend = args
        a, b = (
            (x.unsqueeze(-1) if dim is None else x.movedim(dim, -1))
            .expand(-1, -1, info.batch_size)
            .flatten(1)
            for x, dim in ((a, in_dims[4]), (b, in_dims[5]))
        )
        out: Tensor = apply(_Add, ptr, index, ptr_t, perm_t, a, b, backend)
        return out.unflatten(1, (-1, info.batch_size)), 2
