"""Functions of each number for which zero stays zero: they run on the stored values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import RefusedValue
from ..sparse_features import SparseFeatures, features_of
from ..sparse_patterns import canonical, is_canonical
from .table import name_of, named, refuse_write, rule_for, writes

_ALWAYS = """
    abs absolute arcsin arcsinh arctan arctanh asin asinh atan atanh ceil deg2rad elu elu_ erf
    erfinv expm1 fix floor frac gelu hardshrink hardswish leaky_relu leaky_relu_ log1p mish
    nan_to_num neg negative rad2deg relu relu6 relu_ round rrelu selu selu_ sgn sign silu sin sinh
    softshrink softsign sqrt square tan tanh tanhshrink trunc celu celu_ __neg__ __abs__
"""
_IN_PLACE = """
    abs_ absolute_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ atanh_ ceil_ deg2rad_ erf_
    erfinv_ expm1_ fix_ floor_ frac_ log1p_ nan_to_num_ neg_ negative_ rad2deg_ round_ sgn_ sign_
    sin_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ zero_
"""


def apply(function: Callable[..., Any], x: SparseFeatures, *args: Any, **kwargs: Any) -> Any:
    """The function of the stored values, in place if it writes to its argument."""
    if writes(function, (x, *args), kwargs):
        function(writable(x, name_of(function)), *args, **kwargs)
        return x
    matrix = canonical(x.matrix)
    return features_of(matrix.with_values(function(matrix.value, *args, **kwargs)))


def writable(x: SparseFeatures, name: str, *, linear: bool = False) -> Tensor:
    """The values, for a function that changes them in place.

    Raises:
        TypeError: a dense tensor in place of the features would be a view of another; or entries
            are repeated, and the function is not linear.
    """
    if x.is_copy:
        raise refuse_write(name, "a selection or transpose of sparse features is a copy")
    if not linear and not is_canonical(x.sparsity):
        raise refuse_write(name, "repeated entries are added up")
    return x.value


def _register(names: list[str], holds: Callable[..., bool] | None = None) -> None:
    """Rules for functions f with f(0) = 0: always, or where ``holds`` of their arguments."""
    for function in named(*names):

        def rule(x: Any, *args: Any, function: Any = function, **kwargs: Any) -> Any:
            if not isinstance(x, SparseFeatures) or kwargs.get("out") is not None:
                return NotImplemented
            if holds is not None and not holds(*args, **kwargs):
                return NotImplemented
            return apply(function, x, *args, **kwargs)

        rule_for(function)(rule)


def _holds_zero(low: Any = None, high: Any = None, **kwargs: Any) -> bool:
    """Whether bounds are numbers with zero between them; under any of the names that they have."""
    low = kwargs.get("min", kwargs.get("min_val", low))
    high = kwargs.get("max", kwargs.get("max_val", high))
    numbers = all(bound is None or isinstance(bound, int | float) for bound in (low, high))
    return numbers and (low is None or low <= 0) and (high is None or high >= 0)


def _holds_zero_by_default(low: float = -1.0, high: float = 1.0, *rest: Any, **kwargs: Any) -> bool:
    return _holds_zero(low, high, **kwargs)


def _above_zero(bound: Any = None, *rest: Any, **kwargs: Any) -> bool:
    """Whether zero is not below a least value."""
    bound = kwargs.get("min", bound)
    return isinstance(bound, int | float) and bound <= 0


def _below_zero(bound: Any = None, *rest: Any, **kwargs: Any) -> bool:
    """Whether zero is not above a largest value."""
    bound = kwargs.get("max", bound)
    return isinstance(bound, int | float) and bound >= 0


def _positive_power(exponent: Any, *rest: Any, **kwargs: Any) -> bool:
    return isinstance(exponent, int | float) and exponent > 0


_register(_ALWAYS.split())
_register(_IN_PLACE.split())
_register(["clamp", "clamp_", "clip", "clip_"], _holds_zero)
_register(["hardtanh", "hardtanh_"], _holds_zero_by_default)
_register(["clamp_min", "clamp_min_"], _above_zero)
_register(["clamp_max", "clamp_max_"], _below_zero)
_register(["pow", "pow_", "__pow__", "__ipow__", "float_power"], _positive_power)


# Dropout -----------------------------------------------------------------------------------------


@rule_for(F.dropout, torch.dropout)
def dropout(
    input: SparseFeatures,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    train: bool | None = None,
) -> SparseFeatures:
    """Dropout of the stored values: it changes no zeros, so the law is that of a dense X."""
    x, training = input, training if train is None else train
    if not 0.0 <= p <= 1.0:
        raise RefusedValue("dropout takes a probability", "[0, 1]", p)
    if not training or p == 0.0:
        return x
    if inplace:
        value = writable(x, "torch.nn.functional.dropout")
        value.copy_(dropped(value, p)) if not value.requires_grad else value.mul_(mask(value, p))
        return x
    matrix = canonical(x.matrix)
    return features_of(matrix.with_values(dropped(matrix.value, p)))


def dropped(value: Tensor, p: float) -> Tensor:
    """Dropout of a vector; on a CPU by uniform numbers, which torch draws four times as fast."""
    return value * mask(value, p)


def mask(value: Tensor, p: float) -> Tensor:
    """(E,) zero with probability p, else 1 / (1 − p)."""
    if value.device.type != "cpu" or p == 1.0:
        return F.dropout(torch.ones_like(value), p)
    kept = torch.rand(value.shape) >= p
    return kept.to(value.dtype) / (1.0 - p)
