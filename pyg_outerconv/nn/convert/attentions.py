"""torch's MultiheadAttention and Transformer layers, and the layers here."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...errors import RefusedType
from ...families import Family
from ..attention.blocks import DecoderBlock, EncoderBlock, FeedForward, Skip
from ..attention.multi_head import multi_head_attention
from ..attention_conv import AttentionConv
from .weights import copy_parameters, copy_to_heads, copy_weight, require

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
