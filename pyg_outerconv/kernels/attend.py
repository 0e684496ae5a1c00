"""Attention along the entries of a sparse matrix: scores, softmax and sum in one primitive."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal
from .attend_operators import attend_operator, backward_operator, run_attend, run_backward
from .call import View, distinct_views, is_plain, one_value_an_entry, pick, same_dtype, views
from .differentiable import apply, differentiable, is_differentiated
from .products import product, sample
from .softmax import softmax_derivative, softmax_of_rows
from .sparsity import Sparsity
from .tiles import exact


def attend(
    sparsity: Sparsity,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention in which row r attends to the columns of its entries.

    ``score[e, h] = scale <query[row of e, h, :], key[col of e, h, :]> + bias[e, h]``,
    ``out[r, h, :] = sum_{e in row r} softmax_r(score)[e, h] value[col of e, h, :]``
    (Vaswani et al., *Attention Is All You Need*, equation 1, on a sparse support). No tensor of
    entries × channels is held; differentiable in all tensors any number of times.

    Args:
        sparsity: the places of the E entries of the R × C support.
        query: (R, H, D).
        key: (C, H, D).
        value: (C, H, V).
        bias: (E, H) or (E,), added to the scores, in row order; -inf excludes an entry.
        scale: the factor of scores; 1/√D if None.

    Returns:
        (R, H, V); zeros for rows without entries, or whose entries are all excluded.

    Raises:
        ValueError: the shapes do not fit, or no backend can serve the call.
        TypeError: the operands have different dtypes.
    """
    rows, cols = sparsity.shape
    fits = (
        query.dim() == key.dim() == value.dim() == 3
        and query.shape[1:] == key.shape[1:]
        and (query.size(0), key.size(0)) == (rows, cols)
        and key.shape[:2] == value.shape[:2]
    )
    if not fits:
        raise RefusedValue(
            refusal(
                "attend needs queries for rows, keys and values for columns",
                f"({rows}, H, D), ({cols}, H, D) and ({cols}, H, V)",
                f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}",
            )
        )
    if bias is not None:
        bias = one_value_an_entry("attend", bias, sparsity.num_entries)
        if bias.size(1) not in (1, query.size(1)):
            raise RefusedValue(
                refusal("attend needs a bias for each head", query.size(1), bias.size(1))
            )
        bias = bias.expand(-1, query.size(1))
    query, key, value, bias = same_dtype("attend", query, key, value, bias)  # type: ignore[assignment]
    view, transposed_view = views(sparsity)
    backend = pick("attend", view, cols, query).name
    scale = 1.0 / math.sqrt(max(query.size(2), 1)) if scale is None else float(scale)
    tensors = distinct_views(*view[:2], *transposed_view, query, key, value, bias)
    out, _ = apply(_Attend, *tensors, scale, backend)
    return out  # type: ignore[no-any-return]


# The derivative --------------------------------------------------------------------------------


@differentiable
class _Attend(torch.autograd.Function):
    """Fused attention; backward is fused too, unless it is differentiated itself."""

    @staticmethod
    def forward(
        ptr: Tensor,
        index: Tensor,
        ptr_t: Tensor,
        index_t: Tensor,
        perm_t: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        run = run_attend if is_plain(query, key, value, bias) else attend_operator
        return run(ptr, index, query, key, value, bias, scale, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.scale, ctx.backend = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        ptr, index, ptr_t, index_t, perm_t, query, key, value, bias, *outputs = ctx.saved_tensors
        out, logsumexp = outputs
        if is_differentiated():
            view, transposed_view = (ptr, index, None), (ptr_t, index_t, perm_t)
            found = _unfused(
                view, transposed_view, query, key, value, bias, ctx.scale, grad, ctx.backend
            )
        else:
            run = run_backward if is_plain(query, key, value, grad) else backward_operator
            found = run(
                ptr,
                index,
                ptr_t,
                index_t,
                perm_t,
                query,
                key,
                value,
                bias,
                ctx.scale,
                out,
                logsumexp,
                grad,
                ctx.backend,
            )
        of_bias = None if bias is None else found[3]
        return None, None, None, None, None, *found[:3], of_bias, None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[Tensor, None]:
        ptr, index, ptr_t, index_t, perm_t, query, key, value, bias = primals
        view, transposed_view = (ptr, index, None), (ptr_t, index_t, perm_t)
        out = _tangent(
            view, transposed_view, query, key, value, bias, ctx.scale, tangents[5:], ctx.backend
        )
        return out, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        # Fold the batch into the heads.
        *both, query, key, value, bias, scale, backend = args

        def fold(x: Tensor | None, dim: int | None) -> Tensor | None:
            if x is None:
                return None
            x = x.unsqueeze(2) if dim is None else x.movedim(dim, 2)
            return x.expand(*x.shape[:2], info.batch_size, *x.shape[3:]).flatten(1, 2)

        operands = [
            fold(x, dim) for x, dim in zip((query, key, value, bias), in_dims[5:9], strict=True)
        ]
        out, logsumexp = apply(_Attend, *both, *operands, scale, backend)
        shape = (-1, info.batch_size)
        return (out.unflatten(1, shape), logsumexp.unflatten(1, shape)), (2, 2)


def _unfused(
    view: View,
    transposed_view: View,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    grad: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients by primitives that are differentiable themselves; holds tensors of (E, H)."""
    dtype = query.dtype
    query, key, value, grad = (exact(x) for x in (query, key, value, grad))
    query = query * scale
    share = _shares(view, transposed_view, query, key, bias, backend)
    of_share = sample(view, transposed_view, grad, value, backend)
    of_score = softmax_derivative(view[0], share, of_share, backend)
    return (
        (product(view, transposed_view, of_score, key, backend) * scale).to(dtype),
        product(transposed_view, view, of_score, query, backend).to(dtype),
        product(transposed_view, view, share, grad, backend).to(dtype),
        of_score.to(dtype),
    )


def _tangent(
    view: View,
    transposed_view: View,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    tangents: tuple[Any, ...],
    backend: str,
) -> Tensor:
    """The derivative along tangents of query, key, value and bias, by the same primitives."""
    dtype = value.dtype
    query, key, value = (exact(x) for x in (query, key, value))
    of_query, of_key, of_value = (exact(x) for x in tangents[:3])
    of_bias = tangents[3]
    query = query * scale
    share = _shares(view, transposed_view, query, key, bias, backend)
    of_score = sample(view, transposed_view, of_query * scale, key, backend)
    of_score = of_score + sample(view, transposed_view, query, of_key, backend)
    of_share = softmax_derivative(
        view[0], share, of_score if bias is None else of_score + of_bias, backend
    )
    out = product(view, transposed_view, of_share, value, backend)
    return (out + product(view, transposed_view, share, of_value, backend)).to(dtype)


def _shares(
    view: View, transposed_view: View, query: Tensor, key: Tensor, bias: Tensor | None, backend: str
) -> Tensor:
    """The softmax of the scores of each row, (E, H), for queries that are already scaled."""
    score = sample(view, transposed_view, query, key, backend)
    score = score if bias is None else score + bias.to(score.dtype)
    return softmax_of_rows(view[0], score, backend)
