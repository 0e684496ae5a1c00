"""A sparse product with labels mixed: values are made at once, and not kept for the backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..basis.edges import EdgeBasis
from ..kernels.call import View, pick, views
from ..kernels.products import product, sample
from ..kernels.softmax import sum_of_rows


def mixed_product(edges: EdgeBasis, coefficient: Tensor, x: Tensor) -> Tensor:
    """(Σ_k c_k A_k)ᵀ X for ``coefficient`` (K,) and anything (M, ...) as x: (N, ...).

    Holds E numbers while it runs and keeps none, where values that autograd knew would stay.
    """
    pattern = edges.pattern
    near, far = views(pattern.ends)
    wide = x.flatten(1).unsqueeze(1)
    value = None if edges.value is None else edges.value.to(x.dtype)
    backend = pick("spmm", near, pattern.size[0], wide)
    out: Tensor = _MixedProduct.apply(
        *near,
        *far,
        pattern.label,
        *pattern.by_label,
        value,
        coefficient.to(x.dtype),
        wide,
        backend.name,
    )
    return out.squeeze(1).unflatten(1, x.shape[1:])


def _mixed(value: Tensor | None, coefficient: Tensor, label: Tensor) -> Tensor:
    """(E, 1) value[e] c[label[e]]."""
    factor = coefficient.index_select(0, label)
    return (factor if value is None else value * factor).unsqueeze(1)


class _MixedProduct(torch.autograd.Function):
    """Linear in values, coefficients and x; its backward makes the mixed values again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        near, far, (label, _, _), (value, coefficient, x), backend = _take_apart(arguments)
        return product(near, far, _mixed(value, coefficient, label), x, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.backend = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        near, far, (label, ptr, order), (value, coefficient, x), backend = _take_apart(
            (*ctx.saved_tensors, ctx.backend)
        )
        of_value = of_coefficient = of_x = None
        if ctx.needs_input_grad[11]:
            of_x = product(far, near, _mixed(value, coefficient, label), grad, backend)
        if any(ctx.needs_input_grad[9:11]):
            sampled = sample(near, far, grad, x, backend)
            if ctx.needs_input_grad[9]:
                of_value = (sampled * coefficient.index_select(0, label).unsqueeze(1)).squeeze(1)
            if ctx.needs_input_grad[10]:
                pulled = sampled if value is None else sampled * value.unsqueeze(1)
                of_coefficient = sum_of_rows(ptr, pulled.index_select(0, order), backend).squeeze(1)
        return *(None,) * 9, of_value, of_coefficient, of_x, None


def _take_apart(
    arguments: tuple[Any, ...],
) -> tuple[View, View, tuple[Tensor, ...], tuple[Any, ...], str]:
    """Both views; label and its order; value, coefficient and x; the backend."""
    near, far = arguments[:3], arguments[3:6]
    return near, far, arguments[6:9], arguments[9:12], arguments[12]
