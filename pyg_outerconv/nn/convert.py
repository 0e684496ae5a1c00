"""From layers of torch, weights included."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from inspect import isfunction
from typing import Any, Union, overload

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized
from torch_geometric.nn.conv import MessagePassing

from ..attention import IndexTerm
from ..errors import RefusedType, RefusedValue
from ..families import Family
from ..signatures import typed
from .attention.blocks import BlockStack, DecoderBlock, EncoderBlock, EncoderDecoder
from .attention.multi_head import multi_head_attention
from .attention_conv import AttentionConv
from .grids import GridConv, GridPool, our_weight

__all__ = ["from_torch"]

Support = Family | str
Terms = tuple[IndexTerm, ...]
Layer = Union[  # noqa: UP007
    GridConv, GridPool, AttentionConv, EncoderBlock, DecoderBlock, BlockStack, EncoderDecoder
]


@typed
@overload
def from_torch(module: nn.MultiheadAttention, **masks: Any) -> AttentionConv: ...
@overload
def from_torch(module: nn.TransformerEncoderLayer, **masks: Any) -> EncoderBlock: ...
@overload
def from_torch(module: nn.TransformerDecoderLayer, **masks: Any) -> DecoderBlock: ...
@overload
def from_torch(module: nn.TransformerEncoder, **masks: Any) -> BlockStack: ...
@overload
def from_torch(module: nn.TransformerDecoder, **masks: Any) -> BlockStack: ...
@overload
def from_torch(module: nn.Transformer, **masks: Any) -> EncoderDecoder: ...
@overload
def from_torch(module: nn.Module, **masks: Any) -> Layer: ...
@torch.enable_grad()  # so that parts of a weight say whether it learns
def from_torch(module: nn.Module, **masks: Any) -> Layer:
    """The layer of this package that equals one of torch's, with a copy of its weights.

    Layers of attention take (*, M, P), with batches first whatever ``batch_first`` is.

    Args:
        module: ``Conv1d``, ``Conv2d``, ``Conv3d``, ``ConvTranspose``, ``MaxPool`` or ``AvgPool`` of
            1 to 3 axes, ``LPPool`` with norm 1, ``MultiheadAttention``, ``Transformer``, or its
            encoder, its decoder, or a layer of these.
        **masks: for attention, what is in the place of torch's masks: ``support``, complete by
            default, and ``terms``, such as ``(EdgeBias(heads),)`` for a mask of numbers; also
            ``memory_support`` and ``memory_terms`` of a decoder or its layer, ``encoder_support``
            and ``encoder_terms`` of a ``Transformer``.

    Raises:
        TypeError: it is another layer, or a subclass, which may compute something else.
        ValueError: it has an option that has no equal, or no weights yet; or a part of it is
            parametrised (``weight_norm``, ``spectral_norm``, ...), pruned or hooked.
    """
    if isinstance(module, nn.Module):
        require_weights(module)
        require_plain(module)
    convert = CONVERSIONS.get(type(module))
    if convert is None:
        expected = "a convolution, pooling, attention or Transformer layer of torch.nn"
        if isinstance(module, tuple(CONVERSIONS)):
            expected += ", and no subclass of them"
        if isinstance(module, MessagePassing):
            expected += " (pyg.from_pyg and pyg.outer_conv take layers of PyG)"
        rule = "a layer of torch becomes one of this package"
        raise RefusedType(rule, expected, type(module).__name__)
    if masks and convert in (from_convolution, from_pooling):
        raise RefusedType("attention has supports", "no more than the module", sorted(masks))
    return convert(module, **masks).train(module.training)


# Attention ---------------------------------------------------------------------------------------


def from_attention(module: Any, support: Support = "complete", terms: Terms = ()) -> AttentionConv:
    """The AttentionConv equal to torch's layer with the support, and the terms, as its mask."""
    heads, output = module.num_heads, module.out_proj
    layer = multi_head_attention(
        module.embed_dim,
        heads,
        module.dropout,
        module.in_proj_bias is not None,
        module.kdim,
        module.vdim,
        support=support,
        terms=terms,
        learned_sources=0 if module.bias_k is None else 1,
        empty_source=module.add_zero_attn,
    ).to(output.weight.device, output.weight.dtype)

    def by_head(x: Tensor) -> Tensor:
        return x.unflatten(0, (heads, -1))

    weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    query, key, value = (by_head(weight).mT for weight in weights)
    score, added = layer.family.score, layer.added_sources
    copy_weight(score.query.weight, query)
    copy_weight(score.key.weight, key)
    copy_weight(layer.theta.value, value)
    copy_weight(layer.theta.output, by_head(output.weight.t()))
    if module.in_proj_bias is not None:
        query, key, value = map(by_head, module.in_proj_bias.chunk(3))
        copy_weight(score.query.bias, query)
        copy_weight(score.key.bias, key)
        copy_weight(layer.value_bias, value)
        copy_weight(layer.bias, output.bias)
    if module.bias_k is not None:
        copy_weight(added.key, by_head(module.bias_k.view(-1)).unsqueeze(0))
        copy_weight(added.value, by_head(module.bias_v.view(-1)).unsqueeze(0))
    return layer


# The parts of torch's layers: the class of each, and its place in a block.
ENCODER: dict[str, tuple[type[nn.Module], str]] = {
    "self_attn": (nn.MultiheadAttention, "attention"),
    "norm1": (nn.LayerNorm, "around_attention.norm"),
    "dropout1": (nn.Dropout, "around_attention.dropout"),
    "linear1": (nn.Linear, "feed_forward.first"),
    "dropout": (nn.Dropout, "feed_forward.dropout"),
    "linear2": (nn.Linear, "feed_forward.second"),
    "norm2": (nn.LayerNorm, "around_feed_forward.norm"),
    "dropout2": (nn.Dropout, "around_feed_forward.dropout"),
}
DECODER = ENCODER | {
    "multihead_attn": (nn.MultiheadAttention, "memory_attention"),
    "norm2": (nn.LayerNorm, "around_memory_attention.norm"),
    "dropout2": (nn.Dropout, "around_memory_attention.dropout"),
    "norm3": (nn.LayerNorm, "around_feed_forward.norm"),
    "dropout3": (nn.Dropout, "around_feed_forward.dropout"),
}


def from_encoder_layer(module: Any, **mask: Any) -> EncoderBlock:
    """The block that equals torch's layer of an encoder with this mask."""
    return _with_parts(EncoderBlock, module, ENCODER, self_attn=mask)  # type: ignore[no-any-return]


def from_decoder_layer(
    module: Any, memory_support: Support = "complete", memory_terms: Terms = (), **mask: Any
) -> DecoderBlock:
    """The block that equals torch's layer of a decoder with these masks."""
    memory = {"support": memory_support, "terms": memory_terms}
    masks = {"self_attn": mask, "multihead_attn": memory}
    return _with_parts(DecoderBlock, module, DECODER, **masks)  # type: ignore[no-any-return]


def _with_parts(kind: Any, module: Any, parts: dict[str, Any], **masks: dict[str, Any]) -> Any:
    """A block with copies of the parts of torch's layer."""
    for name, (of, _) in parts.items():
        if type(getattr(module, name)) is not of:
            got = f"{name} = {getattr(module, name)}"
            raise RefusedType("parts of a block are of their class", of.__name__, got)
    attention = module.self_attn
    sizes = {"channels": attention.embed_dim, "heads": attention.num_heads}
    with torch.device("meta"):  # for all that has a size is replaced
        block = kind(**sizes, activation=module.activation, norm_first=module.norm_first)
    for name, (_, place) in parts.items():
        part = getattr(module, name)
        part = from_attention(part, **masks[name]) if name in masks else deepcopy(part)
        within, _, last = place.rpartition(".")
        setattr(block.get_submodule(within), last, part)
    return block


def from_stack(module: Any, **masks: Any) -> BlockStack:
    """The blocks that equal torch's encoder or decoder; layers that are one object stay so."""
    blocks = {layer: from_torch(layer, **masks) for layer in module.layers}
    return BlockStack([blocks[layer] for layer in module.layers], deepcopy(module.norm))


def from_transformer(
    module: Any, encoder_support: Support = "complete", encoder_terms: Terms = (), **masks: Any
) -> EncoderDecoder:
    """The encoder and the decoder that equal those of torch's Transformer."""
    encoder = from_torch(module.encoder, support=encoder_support, terms=encoder_terms)
    return EncoderDecoder(encoder, from_torch(module.decoder, **masks))


# Convolutions and pooling ------------------------------------------------------------------------


# Each with its number of axes, and whether it is transposed.
CONVOLUTIONS: dict[type[nn.Module], tuple[int, bool]] = {
    getattr(nn, f"{kind}{dim}d"): (dim, kind == "ConvTranspose")
    for kind in ("Conv", "ConvTranspose")
    for dim in (1, 2, 3)
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
    copy_weight(layer.theta.weight, kernel)
    if layer.bias is not None:
        copy_weight(layer.bias, module.bias)
    return layer


# Each with its number of axes and its reduction.
POOLINGS: dict[type[nn.Module], tuple[int, str]] = {
    getattr(nn, f"{kind}Pool{dim}d"): (dim, aggr)
    for kind, aggr in (("Max", "max"), ("Avg", "mean"), ("LP", "sum"))
    for dim in (1, 2, 3)
}


def from_pooling(module: Any) -> GridPool:
    """The GridPool that equals a pooling of torch."""
    dim, aggr = POOLINGS[type(module)]
    options = [("return_indices", False), ("divisor_override", None), ("norm_type", 1)]
    if aggr == "sum":
        options.append(("ceil_mode", False))  # torch takes the mean of a last, smaller cluster
    for name, none in options:
        value = getattr(module, name, none)
        if value != none:
            raise RefusedValue(f"GridPool has no {name}", none, value)
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


CONVERSIONS: dict[type[nn.Module], Callable[..., Layer]] = {
    nn.MultiheadAttention: from_attention,
    nn.TransformerEncoderLayer: from_encoder_layer,
    nn.TransformerDecoderLayer: from_decoder_layer,
    nn.TransformerEncoder: from_stack,
    nn.TransformerDecoder: from_stack,
    nn.Transformer: from_transformer,
    **dict.fromkeys(CONVOLUTIONS, from_convolution),
    **dict.fromkeys(POOLINGS, from_pooling),
}
"""What makes our layer, for each layer of torch."""


# Weights -----------------------------------------------------------------------------------------


LIBRARIES = ("torch.nn.modules.", "torch_geometric.nn.", "pyg_outerconv.")


def require_weights(module: nn.Module) -> None:
    """Raise ValueError if a layer has no weights before its first input."""
    waiting = [name for name, parameter in module.named_parameters() if is_lazy(parameter)]
    if waiting:
        rule = "a layer is converted with its weights"
        raise RefusedValue(rule, "weights, which the first input makes", f"none yet of {waiting}")


def require_plain(module: nn.Module) -> None:
    """Check that every part of a layer computes what its class does.

    A conversion copies options and weights. It would silently lose parametrizations
    (``weight_norm``, ``spectral_norm``, …), pruning, hooks and methods set on an object.
    Activations are passed on, and may be any module.
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
    hooks: list[Any] = []
    for name, value in vars(part).items():
        if name.endswith("_hooks") and "state_dict" not in name and isinstance(value, dict):
            hooks += value.values()
    return [getattr(hook, "__name__", type(hook).__name__) for hook in hooks]


def copy_weight(parameter: Any, value: Tensor) -> None:
    """Copy a value to a parameter, which then learns if the value does."""
    with torch.no_grad():
        parameter.copy_(value)
    parameter.requires_grad_(value.requires_grad)
