"""From layers of torch, weights included."""

from __future__ import annotations

from inspect import isfunction
from typing import Any, Union, overload

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized
from torch_geometric.nn.conv import MessagePassing

from ..errors import RefusedType, RefusedValue
from ..families import Family
from ..signatures import typed
from .attention.blocks import DecoderBlock, EncoderBlock, FeedForward, Skip
from .attention.multi_head import multi_head_attention
from .attention_conv import AttentionConv
from .grids import GridConv, GridPool, our_weight

__all__ = ["from_torch"]

Layer = Union[GridConv, GridPool, AttentionConv, EncoderBlock, DecoderBlock]  # noqa: UP007


@typed
@overload
def from_torch(module: nn.MultiheadAttention, **supports: Any) -> AttentionConv: ...
@overload
def from_torch(module: nn.TransformerEncoderLayer, **supports: Any) -> EncoderBlock: ...
@overload
def from_torch(module: nn.TransformerDecoderLayer, **supports: Any) -> DecoderBlock: ...
@overload
def from_torch(module: nn.Module, **supports: Any) -> Layer: ...
def from_torch(module: nn.Module, **supports: Any) -> Layer:
    """The layer of this package that equals one of torch's, with a copy of its weights.

    Args:
        module: ``Conv1d``, ``Conv2d``, ``Conv3d``, ``ConvTranspose``, ``MaxPool`` or ``AvgPool`` of
            1 to 3 axes, ``LPPool`` with norm 1, ``MultiheadAttention``, ``TransformerEncoderLayer``
            or ``TransformerDecoderLayer``.
        **supports: for attention, the supports in place of torch's masks: ``support``, and
            ``memory_support`` of a decoder layer; complete by default.

    Raises:
        TypeError: it is another layer, or a subclass, which may compute something else.
        ValueError: it has an option that has no equal, or no weights yet; or a part of it is
            parametrised (``weight_norm``, ``spectral_norm``, ...), pruned or hooked.
    """
    layer: Layer
    if isinstance(module, nn.Module):
        require_weights(module)
        require_plain(module)
    kind = type(module)
    if kind in ATTENTIONS:
        layer = from_attention(module, **supports)
    elif kind in BLOCKS:
        layer = from_block(module, **supports)
    elif supports:
        raise RefusedType("attention has supports", "no more than the module", sorted(supports))
    elif kind in CONVOLUTIONS:
        layer = from_convolution(module)
    elif kind in POOLINGS:
        layer = from_pooling(module)
    else:
        expected = "a convolution, pooling, attention or Transformer layer of torch.nn"
        if isinstance(module, (*ATTENTIONS, *BLOCKS, *CONVOLUTIONS, *POOLINGS)):
            expected += ", and no subclass of them"
        if isinstance(module, MessagePassing):
            expected += " (pyg.from_pyg and pyg.outer_conv take layers of PyG)"
        rule = "a layer of torch becomes one of this package"
        raise RefusedType(rule, expected, type(module).__name__)
    return layer.train(module.training)


# Attention ---------------------------------------------------------------------------------------


ATTENTIONS = (nn.MultiheadAttention,)


def from_attention(module: Any, support: Family | str = "complete") -> AttentionConv:
    """The AttentionConv equal to torch's layer with the support as its mask."""
    require(
        "keys and values come from the sources alone",
        (module.bias_k is None, "add_bias_kv=False", "add_bias_kv=True"),
        (not module.add_zero_attn, "add_zero_attn=False", "add_zero_attn=True"),
        (module.kdim == module.vdim, "vdim = kdim", f"{module.vdim} and {module.kdim}"),
    )
    layer = multi_head_attention(
        module.embed_dim,
        module.num_heads,
        module.dropout,
        module.in_proj_bias is not None,
        None if module.kdim == module.embed_dim else module.kdim,
        support=support,
    ).to(module.out_proj.weight.device, module.out_proj.weight.dtype)
    heads, score = module.num_heads, layer.family.score
    ours = (score.query.weight, score.key.weight, layer.theta.value)
    for parameter, weight in zip(ours, _weights(module), strict=True):
        copy_to_heads(parameter, weight)
    output = module.out_proj.weight
    copy_weight(layer.theta.output, output.t().unflatten(0, (heads, -1)), output)
    if module.in_proj_bias is not None:
        biases = (score.query.bias, score.key.bias, layer.value_bias)
        for parameter, bias in zip(biases, module.in_proj_bias.chunk(3), strict=True):
            copy_weight(parameter, bias.unflatten(0, (heads, -1)), module.in_proj_bias)
        copy_weight(layer.bias, module.out_proj.bias)
    return layer


def _weights(module: Any) -> tuple[Tensor, ...]:
    """The weights of queries, keys and values, each (H·D, P)."""
    if module.in_proj_weight is None:
        return module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    return module.in_proj_weight.chunk(3)  # type: ignore[no-any-return]


BLOCKS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)

_PARTS: dict[str, type[nn.Module]] = {
    "self_attn": nn.MultiheadAttention,
    "linear1": nn.Linear,
    "linear2": nn.Linear,
    "norm1": nn.LayerNorm,
    "norm2": nn.LayerNorm,
    "dropout": nn.Dropout,
    "dropout1": nn.Dropout,
    "dropout2": nn.Dropout,
}
_PARTS_OF_A_DECODER: dict[str, type[nn.Module]] = {
    "multihead_attn": nn.MultiheadAttention,
    "norm3": nn.LayerNorm,
    "dropout3": nn.Dropout,
}


def from_block(module: Any, **supports: Any) -> EncoderBlock | DecoderBlock:
    """The block that equals torch's encoder or decoder layer with the supports as its masks."""
    decodes = isinstance(module, nn.TransformerDecoderLayer)
    kind: Any = DecoderBlock if decodes else EncoderBlock
    parts = _PARTS | (_PARTS_OF_A_DECODER if decodes else {})
    for name, of in parts.items():
        if type(getattr(module, name)) is not of:
            got = f"{name} = {getattr(module, name)}"
            raise RefusedType("parts of a block are of their class", of.__name__, got)
    norm = module.norm1
    block = kind(
        norm.normalized_shape[0],
        module.self_attn.num_heads,
        module.linear1.out_features,
        dropout=module.dropout.p,
        activation=module.activation,
        norm_first=module.norm_first,
        eps=norm.eps,
        bias=module.linear1.bias is not None,
        **{"support": "complete", **supports},
    ).to(module.linear1.weight.device, module.linear1.weight.dtype)
    block.attention = from_attention(module.self_attn, block.attention.family.support)
    if decodes:
        over = block.memory_attention.family.support
        block.memory_attention = from_attention(module.multihead_attn, over)
    for ours, theirs in _pairs(block, module):
        _copy(ours, theirs)
    return block  # type: ignore[no-any-return]


def _pairs(block: Any, module: Any) -> list[tuple[Any, Any]]:
    """The linear maps, norms and dropouts, ours and torch's."""
    feed: FeedForward = block.feed_forward
    skips: list[Skip] = [block.around_attention]
    skips += [block.around_memory_attention] if isinstance(block, DecoderBlock) else []
    skips.append(block.around_feed_forward)
    pairs: list[tuple[Any, Any]] = [(feed.first, module.linear1), (feed.second, module.linear2)]
    pairs.append((feed.dropout, module.dropout))
    for place, skip in enumerate(skips, start=1):
        pairs.append((skip.norm, getattr(module, f"norm{place}")))
        pairs.append((skip.dropout, getattr(module, f"dropout{place}")))
    return pairs


def _copy(into: Any, given: Any) -> None:
    """Copy the parameters of a linear map or norm, or the probability of a dropout."""
    if type(given) is not type(into):
        raise RefusedType("parts of a block are of their class", type(into).__name__, given)
    if isinstance(given, nn.Dropout):
        into.p = given.p
        return
    require("parts have biases alike", ((into.bias is None) == (given.bias is None), given, into))
    copy_parameters(into, given)


# Convolutions and pooling ------------------------------------------------------------------------


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


# Weights -----------------------------------------------------------------------------------------


LIBRARIES = ("torch.nn.modules.", "torch_geometric.nn.", "pyg_outerconv.")


def require(rule: str, *conditions: tuple[Any, Any, Any]) -> None:
    """Raise ValueError for the first of (holds, expected, got) that does not hold."""
    for holds, expected, got in conditions:
        if not holds:
            raise RefusedValue(rule, expected, got)


def require_weights(module: nn.Module, unused: str | None = None) -> None:
    """Raise ValueError if a layer has no weights before its first input.

    Args:
        module: the layer.
        unused: the beginning of the names of parameters that may be missing.
    """
    names = [name for name, parameter in module.named_parameters() if is_lazy(parameter)]
    waiting = [name for name in names if unused is None or not name.startswith(unused)]
    rule = "a layer is converted with its weights"
    require(rule, (not waiting, "weights, which the first input makes", f"none yet of {waiting}"))


def require_plain(module: nn.Module) -> None:
    """Check that every part of a layer computes what its class does.

    A conversion copies options and weights. It would silently lose parametrizations
    (``weight_norm``, ``spectral_norm``, …), pruning, hooks and methods set on an object.
    Activations are passed on, and may be any module.

    Raises:
        TypeError: a submodule with weights is of a class outside torch and this package.
        ValueError: a part is parametrised, hooked, or has methods set on the object.
    """
    for name, part in module.named_modules():
        if "activation" in name.split("."):
            continue
        where = f"{name or 'the layer'} ({type(part).__name__})"
        if is_parametrized(part):
            rule = "weights are converted as they are, not what they are made of"
            expected = "torch.nn.utils.parametrize.remove_parametrizations before"
            names = ", ".join(part.parametrizations)  # type: ignore[arg-type]
            raise RefusedValue(rule, expected, f"a parametrised {names} of {where}")
        waiting = any(is_lazy(parameter) for parameter in part.parameters(recurse=False))
        hooks = [] if waiting else _hooks(part)  # lazy parts wait for an input by a hook
        methods = [key for key in vars(part) if isfunction(getattr(type(part), key, None))]
        hooks += [f"a {key} of its own" for key in methods]
        if hooks:
            rule = "a layer is converted that computes what its class does"
            expected = "no hooks: remove them (remove_spectral_norm, prune.remove, handle.remove)"
            raise RefusedValue(rule, expected, f"{', '.join(hooks)} on {where}")
        holds = name and any(True for _ in part.parameters(recurse=False))
        if holds and not f"{type(part).__module__}.".startswith(LIBRARIES):
            rule = "a layer is converted whose parts are the library's"
            raise RefusedType(rule, "none replaced", where)


def _hooks(part: nn.Module) -> list[str]:
    """The names of the hooks of a module, forwards and backwards."""
    found: list[Any] = []
    for name, value in vars(part).items():
        if name.endswith("_hooks") and "state_dict" not in name and isinstance(value, dict):
            found += value.values()
    return [getattr(hook, "__name__", type(hook).__name__) for hook in found]


def copy_weight(parameter: Any, value: Tensor, like: Tensor | None = None) -> None:
    """Copy a value to a parameter, with the ``requires_grad`` of ``like``, or of the value."""
    with torch.no_grad():
        parameter.copy_(value)
    parameter.requires_grad_((value if like is None else like).requires_grad)


def copy_parameters(into: Any, module: nn.Module) -> None:
    """Copy all parameters of a module to the parameters of the same names."""
    for name, parameter in module.named_parameters():
        copy_weight(getattr(into, name), parameter)


def copy_to_heads(parameter: Any, weight: Tensor) -> None:
    """Copy the weight (H·D, P) of one linear map for all heads to a parameter (H, P, D)."""
    copy_weight(parameter, weight.t().unflatten(1, (parameter.size(0), -1)).transpose(0, 1), weight)
