"""Sums, differences, products and quotients with numbers, vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...kernels.primitive import is_plain
from ..sparse_features import SparseFeatures, features_of
from ..sparse_patterns import canonical, row_of_each, united
from .elementwise import writable
from .table import name_of, named, rule_for


def _spread(x: SparseFeatures, other: Any, *, divides: bool) -> Any:
    """The number that each stored value is multiplied with, or divided by.

    NotImplemented for what does not leave zeros zero: other shapes, divisors of zero, and numbers
    that are infinite or NaN.
    """
    if isinstance(other, int | float):
        good = math.isfinite(other) and not (divides and other == 0)
        return other if good else NotImplemented
    if not isinstance(other, Tensor) or isinstance(other, SparseFeatures):
        return NotImplemented
    if other.is_complex():
        return NotImplemented
    if other.dim() > 2 or other.layout is not torch.strided or not is_plain(other):
        return NotImplemented
    if other.is_meta or not bool(other.isfinite().all()) or (divides and not bool(other.all())):
        return NotImplemented
    rows, columns = x.sparsity.shape
    if other.dim() == 0:
        return other
    shape = (1,) * (2 - other.dim()) + tuple(other.shape)
    if shape[0] not in (1, rows) or shape[1] not in (1, columns):
        return NotImplemented
    place = row_of_each(x.sparsity).long() * shape[1] if shape[0] == rows and rows != 1 else 0
    if shape[1] == columns and columns != 1:
        place = place + x.sparsity.col
    if isinstance(place, int):
        return other.reshape(())
    return other.reshape(-1).index_select(0, place)


def _scaled(function: Callable[..., Any], divides: bool) -> Callable[..., Any]:
    name = name_of(function)
    own = getattr(function, "__name__", "")
    in_place = (own.endswith("_") and not own.endswith("__")) or own.startswith("__i")
    step = torch.div if divides else torch.mul

    def rule(x: Any, other: Any, **kwargs: Any) -> Any:
        if kwargs.pop("out", None) is not None or kwargs.get("rounding_mode") is not None:
            return NotImplemented
        if not isinstance(x, SparseFeatures):
            if in_place or divides:
                return NotImplemented
            x, other = other, x
        if isinstance(other, SparseFeatures) and not divides and not in_place:
            return _product(x, other)
        factor = _spread(x, other, divides=divides)
        if factor is NotImplemented:
            return NotImplemented
        if not in_place:
            return features_of(x.matrix.with_values(step(x.value, factor)))
        value = writable(x, name, linear=True)
        value.div_(factor) if divides else value.mul_(factor)
        return x

    return rule


def _product(x: SparseFeatures, other: SparseFeatures) -> Any:
    """Entry by entry, of two sparse matrices."""
    if x.shape != other.shape:
        return NotImplemented
    first, second = canonical(x.matrix), canonical(other.matrix)
    if first.sparsity is not second.sparsity and not is_plain(first.sparsity.col):
        return NotImplemented
    pattern, value, factor = united(first, second)
    return features_of(type(first)(pattern, value * factor))


for _function in named("mul", "mul_", "multiply", "multiply_", "__mul__", "__rmul__", "__imul__"):
    rule_for(_function)(_scaled(_function, divides=False))
for _function in named(
    "div",
    "div_",
    "divide",
    "divide_",
    "true_divide",
    "true_divide_",
    "__truediv__",
    "__itruediv__",
    "__div__",
    "__idiv__",
):
    rule_for(_function)(_scaled(_function, divides=True))


# Sums --------------------------------------------------------------------------------------------


def _summed(function: Callable[..., Any], sign: int) -> Callable[..., Any]:
    name = name_of(function)
    own = getattr(function, "__name__", "")
    in_place = (own.endswith("_") and not own.endswith("__")) or own.startswith("__i")
    turned = own in ("__rsub__", "rsub")

    def rule(x: Any, other: Any, *, alpha: float = 1, out: Any = None) -> Any:
        if out is not None or not isinstance(alpha, int | float):
            return NotImplemented
        if not isinstance(x, SparseFeatures):  # dense + sparse is dense
            return NotImplemented if sign < 0 or in_place else _plus(x=other, other=x, alpha=1)
        if turned:
            return NotImplemented
        if not in_place:
            return _plus(x, other, sign * alpha)
        if _is_zero(other):
            writable(x, name, linear=True)
            return x
        if isinstance(other, SparseFeatures) and other.sparsity is x.sparsity:
            writable(x, name, linear=True).add_(other.value, alpha=sign * alpha)
            return x
        return NotImplemented

    return rule


def _plus(x: SparseFeatures, other: Any, alpha: float) -> Any:
    """x + alpha · other, in memory of its own, where the sum is sparse."""
    if _is_zero(other):
        return features_of(x.matrix.with_values(x.value.clone()))
    if not isinstance(other, SparseFeatures) or x.shape != other.shape:
        return NotImplemented
    if x.sparsity is not other.sparsity and not is_plain(x.sparsity.col, other.sparsity.col):
        return NotImplemented
    pattern, value, addend = united(x.matrix, other.matrix)
    return features_of(type(x.matrix)(pattern, torch.add(value, addend, alpha=alpha)))


def _is_zero(other: Any) -> bool:
    """Whether it is the number zero, in Python or as a tensor without gradients."""
    if isinstance(other, int | float):
        return other == 0
    if isinstance(other, SparseFeatures) or not isinstance(other, Tensor) or other.numel() != 1:
        return False
    known = other.dim() == 0 and is_plain(other) and not other.is_meta and not other.requires_grad
    return known and bool(other == 0)


for _function in named("add", "add_", "__add__", "__radd__", "__iadd__"):
    rule_for(_function)(_summed(_function, 1))
for _function in named("sub", "sub_", "subtract", "subtract_", "__sub__", "__isub__"):
    rule_for(_function)(_summed(_function, -1))
