"""Attention layers by their names, each an ``AttentionConv`` with options."""

from .agnn import agnn_conv
from .decoder_block import DecoderBlock
from .encoder_block import EncoderBlock
from .feed_forward import FeedForward
from .gat import gat_conv, gatv2_conv, super_gat_conv
from .graph_attention import GraphAttention
from .linear import linear_attention
from .multi_head import multi_head_attention
from .set_pooling import set_pooling
from .skip import Skip
from .transformer_conv import TransformerConv, transformer_conv
from .windowed import long_sequence_block, windowed_block

__all__ = [
    "DecoderBlock",
    "EncoderBlock",
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
