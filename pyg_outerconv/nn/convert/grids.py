"""torch's convolutions and poolings, and GridConv and GridPool."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ...errors import RefusedType, RefusedValue, refusal
from ...families.per_axis import spread
from ..grid_conv import GridConv, our_weight, torch_weight
from ..grid_pool import GridPool
from ..theta_forms import GroupedTheta

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
    """The GridConv that equals a convolution of torch.

    Raises:
        TypeError: weights are complex.
    """
    if not module.weight.is_floating_point():
        raise RefusedType(
            refusal("weights are floating point", "torch.float32", module.weight.dtype)
        )
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
    with torch.no_grad():
        kernel = module.weight.flatten(2)
        layer.theta.weight.copy_(our_weight(kernel, module.groups, transposed))
        if layer.bias is not None:
            layer.bias.copy_(module.bias)
            layer.bias.requires_grad_(module.bias.requires_grad)
    layer.theta.weight.requires_grad_(module.weight.requires_grad)
    return layer


def to_convolution(layer: GridConv) -> nn.Module:
    """The convolution of torch that equals a GridConv on images.

    Raises:
        ValueError: torch has none, or it has no weights yet.
    """
    family, form = layer.family, layer.theta
    _check(layer)
    assert isinstance(form, GroupedTheta)  # checked
    axes, transposed = family.num_axes, family.transposed
    how = {(axes, transposed): kind for kind, (axes, transposed) in CONVOLUTIONS.items()}
    further = {"output_padding": family.output_padding} if transposed else {}
    module: Any = how[axes, transposed](
        form.in_channels,
        form.out_channels,
        family.kernel_size,
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
    with torch.no_grad():
        module.weight.copy_(torch_weight(form.weight, transposed).view(module.weight.shape))
        if layer.bias is not None:
            module.bias.copy_(layer.bias)
            module.bias.requires_grad_(layer.bias.requires_grad)
    module.weight.requires_grad_(form.weight.requires_grad)
    return module  # type: ignore[no-any-return]


def _check(layer: GridConv) -> None:
    """Raise ValueError if torch has no equal convolution, or the weights have no shapes yet."""
    family, form = layer.family, layer.theta
    if form.in_channels < 0:
        raise RefusedValue(refusal("a layer is converted with its weights", "weights", "none yet"))
    modes = set(spread(family.padding_mode, family.num_axes))
    for has_it, what, got in (
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
    ):
        if not has_it:
            raise RefusedValue(refusal("torch's convolutions have less", what, got))


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
