"""torch's convolutions and poolings, and GridConv and GridPool."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...errors import RefusedType
from ..grid_conv import GridConv, our_weight
from ..grid_pool import GridPool
from .weights import copy_weight, require

# Each with its number of axes, and whether it is transposed.
CONVOLUTIONS: dict[type[nn.Module], tuple[int, bool]] = {
    nn.Conv1d: (1, False),
    nn.Conv2d: (2, False),
    nn.Conv3d: (3, False),
    nn.ConvTranspose1d: (1, True),
    nn.ConvTranspose2d: (2, True),
    nn.ConvTranspose3d: (3, True),
}


def from_convolution(module: Any) -> GridConv:
    """The GridConv that equals a convolution of torch."""
    if not module.weight.is_floating_point():
        raise RefusedType("weights are floating point", "torch.float32", module.weight.dtype)
    dim, transposed = CONVOLUTIONS[type(module)]
    layer = GridConv(
        module.in_channels,
        module.out_channels,
        module.kernel_size,
        module.stride,
        module.padding,
        module.dilation,
        module.groups,
        module.bias is not None,
        module.padding_mode,
        transposed,
        module.output_padding if transposed else 0,
        dim=dim,
    ).to(module.weight.device, module.weight.dtype)
    kernel = our_weight(module.weight.flatten(2), module.groups, transposed)
    copy_weight(layer.theta.weight, kernel, module.weight)
    if layer.bias is not None:
        copy_weight(layer.bias, module.bias)
    return layer


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
    """The GridPool that equals a pooling of torch."""
    dim, aggr = POOLINGS[type(module)]
    options = [("return_indices", False), ("divisor_override", None), ("norm_type", 1)]
    if aggr == "sum":
        options.append(("ceil_mode", False))  # torch takes the mean of a last, smaller cluster
    for name, none in options:
        value = getattr(module, name, none)
        require(f"GridPool has no {name}", (value == none, none, value))
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


def _sizes(value: Any) -> Any:
    """An option of torch, which is a number or one for each axis."""
    return tuple(value) if isinstance(value, tuple | list) else value
