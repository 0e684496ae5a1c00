"""A row more, and one less: copies, where a compiler would compare the place of each number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .primitive import LinearInEach, Primitive


def with_one_more(x: Tensor) -> Tensor:
    """x (*, N, P) and a row of ones: (*, N + 1, P)."""
    return _More.apply(x)  # type: ignore[no-any-return]


def without_last(x: Tensor) -> Tensor:
    """x (*, N + 1, P) without its last row: (*, N, P)."""
    return _Less.apply(x)  # type: ignore[no-any-return]


@torch.library.custom_op("pyg_outerconv::one_more_row", mutates_args=())
def _one_more(x: Tensor, fill: float) -> Tensor:
    return torch.cat([x, x.new_full((*x.shape[:-2], 1, x.size(-1)), fill)], dim=-2)


@_one_more.register_fake
def _size_of_more(x: Tensor, fill: float) -> Tensor:
    return x.new_empty((*x.shape[:-2], x.size(-2) + 1, x.size(-1)))


class _More(Primitive):
    operands = 1
    saves = False
    of_primitives = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return _one_more(x, 1.0)  # type: ignore[no-any-return]

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor]:
        return (without_last(grad),)

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        return _one_more(tangents[0], 0.0)  # type: ignore[no-any-return]


class _Less(LinearInEach, Primitive):
    operands = 1
    saves = False
    of_primitives = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.narrow(-2, 0, x.size(-2) - 1).clone()

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor]:
        return (_one_more(grad, 0.0),)
