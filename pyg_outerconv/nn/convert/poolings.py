"""torch's poolings and GridPool."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...errors import RefusedValue, refusal
from ...families.per_axis import spread
from ..grid_pool import GridPool

# Each with its number of axes and its reduction.
POOLINGS: dict[type[nn.Module], tuple[int, str]] = {
    nn.MaxPool1d: (1, "max"),
    nn.MaxPool2d: (2, "max"),
    nn.MaxPool3d: (3, "max"),
    nn.AvgPool1d: (1, "mean"),
    nn.AvgPool2d: (2, "mean"),
    nn.AvgPool3d: (3, "mean"),
    nn.LPPool1d: (1, "sum"),
    nn.LPPool2d: (2, "sum"),
    nn.LPPool3d: (3, "sum"),
}


def from_pooling(module: Any) -> GridPool:
    """The GridPool that equals a pooling of torch.

    Raises:
        ValueError: it has an option that has no equal.
    """
    dim, aggr = POOLINGS[type(module)]
    options = [("return_indices", False), ("divisor_override", None), ("norm_type", 1)]
    if aggr == "sum":
        options.append(("ceil_mode", False))  # torch takes the mean of a last, smaller cluster
    for name, none in options:
        value = getattr(module, name, none)
        if value != none:
            raise RefusedValue(refusal(f"GridPool has no {name}", none, value))
    return GridPool(
        _sizes(module.kernel_size),
        _sizes(module.stride),
        _sizes(getattr(module, "padding", 0)),
        _sizes(getattr(module, "dilation", 1)),
        module.ceil_mode,
        aggr,
        getattr(module, "count_include_pad", True),
        dim,
    )


def to_pooling(layer: GridPool) -> nn.Module:
    """The pooling of torch that equals a GridPool on images.

    Raises:
        ValueError: torch has none.
    """
    family = layer.family
    axes, aggr = family.num_axes, layer.aggr
    dilation, padding = spread(family.dilation, axes), spread(family.padding, axes)
    for has_it, what, got in (
        (axes <= 3, "1 to 3 axes", axes),
        (aggr != "min", "max, mean or sum", aggr),
        (aggr == "max" or set(dilation) == {1}, "dilation for max alone", family.dilation),
        (aggr != "sum" or set(padding) == {0}, "sums without padding", family.padding),
        (aggr != "sum" or not family.ceil_mode, "sums without ceil_mode", family.ceil_mode),
    ):
        if not has_it:
            raise RefusedValue(refusal("torch's poolings have less", what, got))
    kind = next(kind for kind, how in POOLINGS.items() if how == (axes, aggr))
    if aggr == "sum":
        return kind(1, family.kernel_size, family.stride)
    options: dict[str, Any] = {"padding": family.padding, "ceil_mode": family.ceil_mode}
    if aggr == "max":
        options["dilation"] = family.dilation
    else:
        options["count_include_pad"] = layer.count_include_pad
    return kind(family.kernel_size, family.stride, **options)


def _sizes(value: Any) -> Any:
    """An option of torch, which is a number or one for each axis."""
    return tuple(value) if isinstance(value, tuple | list) else value
