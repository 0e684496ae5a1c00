"""A sparse product with mixed labels, whose mixed values are not stored for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .call import View, pick, views
from .differentiable import apply, differentiable
from .products import product, sample
from .softmax import sum_of_rows
from .sparsity import Sparsity


def mixed_product(
    sparsity: Sparsity,
    label: Tensor,
    by_label: tuple[Tensor, Tensor],
    value: Tensor | None,
    coefficient: Tensor,
    x: Tensor,
) -> Tensor:
    """(Σ_k c_k A_k)ᵀ X, for the basis matrices A_k of one pattern.

    Holds E mixed values while it runs; autograd would store them until the backward pass.

    Args:
        sparsity: the places of the E entries, N × M.
        label: (E,) the label of each entry, in [0, K).
        by_label: the entries sorted by label: pointers (K + 1,) and positions (E,).
        value: (E,), or None for ones.
        coefficient: c (K,).
        x: X (M, ...).

    Returns:
        (N, ...).
    """
    view, transposed_view = views(sparsity)
    wide = x.flatten(1).unsqueeze(1)
    value = None if value is None else value.to(x.dtype)
    backend = pick("spmm", view, sparsity.shape[1], wide)
    out: Tensor = apply(
        _MixedProduct,
        *view,
        *transposed_view,
        label,
        *by_label,
        value,
        coefficient.to(x.dtype),
        wide,
        backend.name,
    )
    return out.squeeze(1).unflatten(1, x.shape[1:])


def _mixed(value: Tensor | None, coefficient: Tensor, label: Tensor) -> Tensor:
    """The mixed values ``value[e] c[label[e]]``, (E, 1)."""
    factor = coefficient.index_select(0, label)
    return (factor if value is None else value * factor).unsqueeze(1)


@differentiable
class _MixedProduct(torch.autograd.Function):
    """The product, linear in values, c and X; backward computes the mixed values again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        ptr: Tensor,
        index: Tensor,
        perm: Tensor | None,
        ptr_t: Tensor,
        index_t: Tensor,
        perm_t: Tensor | None,
        label: Tensor,
        label_ptr: Tensor,
        by_label: Tensor,
        value: Tensor | None,
        coefficient: Tensor,
        x: Tensor,
        backend: str,
    ) -> Tensor:
        view, transposed_view = (ptr, index, perm), (ptr_t, index_t, perm_t)
        return product(view, transposed_view, _mixed(value, coefficient, label), x, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.backend = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        view, transposed_view, (label, ptr, order), (value, coefficient, x) = _unpack(
            ctx.saved_tensors
        )
        backend = ctx.backend
        of_value = of_coefficient = of_x = None
        if ctx.needs_input_grad[11]:
            of_x = product(transposed_view, view, _mixed(value, coefficient, label), grad, backend)
        if any(ctx.needs_input_grad[9:11]):
            sampled = sample(view, transposed_view, grad, x, backend)
            if ctx.needs_input_grad[9]:
                of_value = (sampled * coefficient.index_select(0, label).unsqueeze(1)).squeeze(1)
            if ctx.needs_input_grad[10]:
                weighted = sampled if value is None else sampled * value.unsqueeze(1)
                of_coefficient = sum_of_rows(ptr, weighted.index_select(0, order), backend).squeeze(
                    1
                )
        return *(None,) * 9, of_value, of_coefficient, of_x, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        view, transposed_view, (label, _, _), (value, coefficient, x) = _unpack(primals)
        of_value, of_coefficient, of_x = tangents[9:]
        mixed = _mixed(value, of_coefficient, label)
        if value is not None:
            mixed = mixed + _mixed(of_value, coefficient, label)
        out = product(view, transposed_view, _mixed(value, coefficient, label), of_x, ctx.backend)
        return out + product(view, transposed_view, mixed, x, ctx.backend)


def _unpack(tensors: Sequence[Any]) -> tuple[View, View, Sequence[Tensor], Sequence[Any]]:
    """Split into view; transposed view; label, by_label; value, coefficient, x."""
    view, transposed_view = tuple(tensors[:3]), tuple(tensors[3:6])
    return view, transposed_view, tensors[6:9], tensors[9:12]
