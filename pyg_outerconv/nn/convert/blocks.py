"""torch's TransformerEncoderLayer and DecoderLayer, and the blocks here."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ...errors import RefusedType, RefusedValue, refusal
from ..attention.decoder_block import DecoderBlock
from ..attention.encoder_block import EncoderBlock
from ..attention.feed_forward import FeedForward
from ..attention.skip import Skip
from .attentions import from_attention, to_attention

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
    """The block that equals torch's, whose masks the supports are.

    Args:
        module: an encoder layer or a decoder layer.
        **supports: ``support``, and for a decoder ``memory_support``; complete if not given.

    Raises:
        TypeError: a part of the block was replaced by one of another class.
        ValueError: the block has less.
    """
    decodes = isinstance(module, nn.TransformerDecoderLayer)
    kind: Any = DecoderBlock if decodes else EncoderBlock
    parts = _PARTS | (_PARTS_OF_A_DECODER if decodes else {})
    for name, of in parts.items():
        if type(getattr(module, name)) is not of:
            got = f"{name} = {getattr(module, name)}"
            raise RefusedType(refusal("parts of a block are of their class", of.__name__, got))
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


def to_block(block: EncoderBlock | DecoderBlock) -> nn.Module:
    """torch's layer with the same weights, batches first.

    torch is told at a call what the supports are here, as masks. Scores that attentions share
    become copies.

    Raises:
        ValueError: torch has no such layer.
    """
    decodes = isinstance(block, DecoderBlock)
    kind: Any = nn.TransformerDecoderLayer if decodes else nn.TransformerEncoderLayer
    first, around = block.feed_forward.first, block.around_attention
    attention = to_attention(block.attention)
    module = kind(
        first.in_features,
        attention.num_heads,
        first.out_features,
        block.feed_forward.dropout.p,
        block.feed_forward.activation,
        around.norm.eps,
        True,
        around.norm_first,
        first.bias is not None,
        first.weight.device,
        first.weight.dtype,
    )
    module.self_attn = attention
    if isinstance(block, DecoderBlock):
        module.multihead_attn = to_attention(block.memory_attention)
    for ours, theirs in _pairs(block, module):
        _copy(theirs, ours)
    return module  # type: ignore[no-any-return]


def _pairs(block: Any, module: Any) -> list[tuple[Any, Any]]:
    """Parts without heads, ours and torch's, in the order of torch's norms."""
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
    """Weights of a linear map or norm, or the share of a dropout. Raises TypeError, ValueError."""
    if type(given) is not type(into):
        raise RefusedType(
            refusal("parts of a block are of their class", type(into).__name__, given)
        )
    if isinstance(given, nn.Dropout):
        into.p = given.p
        return
    if (into.bias is None) != (given.bias is None):
        raise RefusedValue(refusal("parts have biases alike", given, into))
    with torch.no_grad():
        for name, parameter in given.named_parameters():
            copied = getattr(into, name)
            copied.copy_(parameter)
            copied.requires_grad_(parameter.requires_grad)
