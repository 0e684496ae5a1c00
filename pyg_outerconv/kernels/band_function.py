"""Attention within a band, as an operator with derivatives and a vmap rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import band_attention
from .band import BandLimits
from .band_attention import Options
from .primitive import Primitive, is_differentiated, without_autocast


def banded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: BandLimits,
    options: Options,
) -> Tensor:
    """Attention within a band, (R, H, V); ``seen`` (C, H) excludes columns, or is None."""
    return _Banded.apply(query, key, value, seen, band, options)  # type: ignore[no-any-return]


@torch.library.custom_op("pyg_outerconv::band_attention", mutates_args=())
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: Sequence[int],
    scale: float,
    dropout_p: float,
    seed: int,
) -> Tensor:
    options = Options(scale, dropout_p, seed)
    with without_autocast(query.device.type):
        return band_attention.forward(query, key, value, seen, BandLimits(*band), options)


@_forward.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    return query.new_empty((*query.shape[:2], value.size(2)))


@torch.library.custom_op("pyg_outerconv::band_attention_backward", mutates_args=())
def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: Sequence[int],
    scale: float,
    dropout_p: float,
    seed: int,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    options = Options(scale, dropout_p, seed)
    with without_autocast(query.device.type):
        return band_attention.backward(query, key, value, seen, BandLimits(*band), options, grad)


@_backward.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


class _Banded(Primitive):
    """Attention within a band; backward is one operator, unless it is differentiated itself."""

    operands = 4

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        seen: Tensor | None,
        band: BandLimits,
        options: Options,
    ) -> Tensor:
        return _forward(query, key, value, seen, list(band), *options)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (query, key, value, seen), (band, options) = ctx.saved_tensors, ctx.rest
        if is_differentiated():
            found = band_attention.backward(query, key, value, seen, band, options, grad)
            return *found, None
        return *_backward(query, key, value, seen, list(band), *options, grad), None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        return band_attention.tangent(*primals, *ctx.rest, *tangents[:3])
