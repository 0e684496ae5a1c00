"""Attention layers by their names, each an ``AttentionConv`` with options."""

from .blocks import (
    BlockStack,
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    FeedForward,
    Skip,
    long_sequence_block,
    windowed_block,
)
from .graph_attention import (
    GraphAttention,
    TransformerConv,
    agnn_conv,
    gat_conv,
    gatv2_conv,
    super_gat_conv,
    transformer_conv,
)
from .multi_head import linear_attention, multi_head_attention, set_pooling

__all__ = [
    "BlockStack",
    "DecoderBlock",
    "EncoderBlock",
    "EncoderDecoder",
    "FeedForward",
    "GraphAttention",
    "Skip",
    "TransformerConv",
    "agnn_conv",
    "gat_conv",
    "gatv2_conv",
    "linear_attention",
    "long_sequence_block",
    "multi_head_attention",
    "set_pooling",
    "super_gat_conv",
    "transformer_conv",
    "windowed_block",
]
