"""Attention within a band, as an operator with derivatives and a vmap rule."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import band_attention
from .band import BandLimits
from .band_attention import Options
from .call import distinct_views
from .differentiable import apply, differentiable, is_differentiated


def banded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: BandLimits,
    options: Options,
) -> Tensor:
    """Attention within a band, (R, H, V); ``seen`` (C, H) excludes columns, or is None."""
    tensors = distinct_views(query, key, value, seen)
    return apply(_Banded, *tensors, *band, *options)  # type: ignore[no-any-return]


@torch.library.custom_op("pyg_outerconv::band_attention", mutates_args=())
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    left: int,
    right: int,
    offset: int,
    dilation: int,
    scale: float,
    dropout_p: float,
    seed: int,
) -> Tensor:
    band, options = BandLimits(left, right, offset, dilation), Options(scale, dropout_p, seed)
    with torch.autocast(query.device.type, enabled=False):
        return band_attention.forward(query, key, value, seen, band, options)


@_forward.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    left: int,
    right: int,
    offset: int,
    dilation: int,
    scale: float,
    dropout_p: float,
    seed: int,
) -> Tensor:
    return query.new_empty((*query.shape[:2], value.size(2)))


@torch.library.custom_op("pyg_outerconv::band_attention_backward", mutates_args=())
def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    left: int,
    right: int,
    offset: int,
    dilation: int,
    scale: float,
    dropout_p: float,
    seed: int,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    band, options = BandLimits(left, right, offset, dilation), Options(scale, dropout_p, seed)
    with torch.autocast(query.device.type, enabled=False):
        return band_attention.backward(query, key, value, seen, band, options, grad)


@_backward.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    left: int,
    right: int,
    offset: int,
    dilation: int,
    scale: float,
    dropout_p: float,
    seed: int,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


@differentiable
class _Banded(torch.autograd.Function):
    """Attention within a band; backward is one operator, unless it is differentiated itself."""

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        seen: Tensor | None,
        left: int,
        right: int,
        offset: int,
        dilation: int,
        scale: float,
        dropout_p: float,
        seed: int,
    ) -> Tensor:
        return _forward(
            query, key, value, seen, left, right, offset, dilation, scale, dropout_p, seed
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        query, key, value, seen, *ctx.numbers = inputs
        ctx.save_for_backward(query, key, value, seen)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, seen = ctx.saved_tensors
        numbers = ctx.numbers
        if is_differentiated():
            band, options = BandLimits(*numbers[:4]), Options(*numbers[4:])
            grads = band_attention.backward(query, key, value, seen, band, options, grad)
        else:
            grads = _backward(query, key, value, seen, *numbers, grad)
        return *grads, *(None,) * 8

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        band, options = BandLimits(*ctx.numbers[:4]), Options(*ctx.numbers[4:])
        query, key, value, seen = primals
        return band_attention.tangent(query, key, value, seen, band, options, *tangents[:3])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        # Fold the batch into the heads.
        operands = []
        for x, dim in zip(args[:4], in_dims[:4], strict=True):
            if x is not None:
                x = x.unsqueeze(2) if dim is None else x.movedim(dim, 2)
                x = x.expand(*x.shape[:2], info.batch_size, *x.shape[3:]).flatten(1, 2)
            operands.append(x)
        out: Tensor = apply(_Banded, *operands, *args[4:])
        return out.unflatten(1, (-1, info.batch_size)), 2
