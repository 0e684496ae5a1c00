"""torch's convolutions and poolings, and GridConv and GridPool."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...errors import RefusedType
from ...families.options import spread
from ..grid_conv import GridConv, our_weight, torch_weight
from ..grid_pool import GridPool
from ..theta_forms import GroupedTheta
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


def to_convolution(layer: GridConv) -> nn.Module:
    """The convolution of torch that equals a GridConv on images."""
    family, form = layer.family, layer.theta
    _check(layer)
    assert isinstance(form, GroupedTheta)  # checked
    axes, transposed = family.num_axes, family.transposed
    how = {(axes, transposed): kind for kind, (axes, transposed) in CONVOLUTIONS.items()}
    further = {"output_padding": family.output_padding} if transposed else {}
    module: Any = how[axes, transposed](
        form.in_channels,
        form.out_channels,
        family.window,
        stride=family.stride,
        padding=family.padding,
        dilation=family.dilation,
        groups=form.option,
        bias=layer.bias is not None,
        padding_mode=spread(family.padding_mode, axes)[0],
        device=form.weight.device,
        dtype=form.weight.dtype,
        **further,
    )
    kernel = torch_weight(form.weight, transposed).view(module.weight.shape)
    copy_weight(module.weight, kernel, form.weight)
    if layer.bias is not None:
        copy_weight(module.bias, layer.bias)
    return module  # type: ignore[no-any-return]


def _check(layer: GridConv) -> None:
    """Raise ValueError if torch has no equal convolution."""
    family, form = layer.family, layer.theta
    modes = set(spread(family.padding_mode, family.num_axes))
    require(
        "torch's convolutions have less",
        (family.num_axes <= 3, "1 to 3 axes", family.num_axes),
        (family.offsets is None, "a kernel_size", f"offsets={family.offsets}"),
        (family.padding != "causal", "the same padding at both ends", "padding='causal'"),
        (len(modes) == 1, "one padding_mode for all axes", family.padding_mode),
        (
            not family.transposed or (modes == {"zeros"} and not isinstance(family.padding, str)),
            "transposed convolutions with numbers of zeros as padding",
            f"padding={family.padding!r}, padding_mode={family.padding_mode!r}",
        ),
        (isinstance(form, GroupedTheta), "a full or grouped theta", f"theta={form.name!r}"),
        (layer.root is None, "no root weight", "one"),
        (
            layer.aggr == layer.label_aggr == "sum",
            "sums alone",
            f"aggr={layer.aggr!r}, label_aggr={layer.label_aggr!r}",
        ),
    )


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


def to_pooling(layer: GridPool) -> nn.Module:
    """The pooling of torch that equals a GridPool on images."""
    family = layer.family
    axes, aggr = family.num_axes, layer.aggr
    dilation, padding = spread(family.dilation, axes), spread(family.padding, axes)
    require(
        "torch's poolings have less",
        (axes <= 3, "1 to 3 axes", axes),
        (aggr != "min", "max, mean or sum", aggr),
        (aggr == "max" or set(dilation) == {1}, "dilation for max alone", family.dilation),
        (aggr != "sum" or set(padding) == {0}, "sums without padding", family.padding),
        (aggr != "sum" or not family.ceil_mode, "sums without ceil_mode", family.ceil_mode),
    )
    kind = next(kind for kind, how in POOLINGS.items() if how == (axes, aggr))
    if aggr == "sum":
        return kind(1, family.window, family.stride)
    options: dict[str, Any] = {"padding": family.padding, "ceil_mode": family.ceil_mode}
    if aggr == "max":
        options["dilation"] = family.dilation
    else:
        options["count_include_pad"] = layer.count_include_pad
    return kind(family.window, family.stride, **options)


def _sizes(value: Any) -> Any:
    """An option of torch, which is a number or one for each axis."""
    return tuple(value) if isinstance(value, tuple | list) else value
