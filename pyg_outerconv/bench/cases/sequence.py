"""Attention of sequences: all places, and windows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...families import SlidingWindow
from ...nn.attention_conv import AttentionConv
from ...nn.convert.torch_layers import from_torch
from ..bounds import attention
from ..case import Setup, case, layer_contender
from ..context import Context
from ..names import OURS, TORCH
from ..targets import Faster, Smaller, Under

MASKED = "dense, masked"


@case(
    "attention-full",
    "sequence",
    "multi-head attention of 1,024 places, batch 4, 256 channels, 8 heads",
    targets=(Faster(TORCH, 0.9),),
    memory=(OURS, TORCH),
)
def all_places(context: Context, length: int = 1024, batch: int = 4, channels: int = 256) -> Setup:
    """Torch's MultiheadAttention and ours with its weights."""
    generator = context.generator()
    length = context.size(length, at_least=8)
    x = context.randn(batch, length, channels, generator=generator).requires_grad_()
    direction = context.randn(batch, length, channels, generator=generator)
    theirs = torch.nn.MultiheadAttention(channels, 8, batch_first=True)
    theirs = theirs.to(context.device, context.dtype)
    ours = from_torch(theirs)

    def torchs() -> Tensor:
        out: Tensor = theirs(x, x, x, need_weights=False)[0]
        return out

    contenders = [
        layer_contender(OURS, lambda: ours(x), x, ours.parameters(), direction),
        layer_contender(TORCH, torchs, x, theirs.parameters(), direction),
    ]
    sizes = {"length": length, "batch": batch, "channels": channels, "heads": 8}
    return Setup(contenders, sizes)


@case(
    "attention-window",
    "sequence",
    "attention of 16,384 places to the 128 around each, 8 heads of 8 channels",
    targets=(Faster(MASKED, 20), Smaller(MASKED, 20)),
    memory=(OURS, MASKED),
)
def window(
    context: Context, length: int = 16_384, reach: int = 64, channels: int = 64, heads: int = 8
) -> Setup:
    """The layer over a sliding window, and the same projections with torch's dense attention."""
    length = context.size(length, at_least=8)
    theirs, ours, x, direction = _windowed(context, length, reach, channels, heads)
    place = torch.arange(length, device=context.device)
    seen = (place[:, None] - place).abs() <= reach

    def masked() -> Tensor:
        projected = F.linear(x, theirs.in_proj_weight, theirs.in_proj_bias)
        # torch's fused kernel wants a batch.
        query, key, value = projected.unflatten(-1, (3, 1, heads, -1)).permute(1, 2, 3, 0, 4)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        out = out.squeeze(0).movedim(0, 1).flatten(1)
        return F.linear(out, theirs.out_proj.weight, theirs.out_proj.bias)

    contenders = [
        layer_contender(OURS, lambda: ours(x), x, ours.parameters(), direction),
        layer_contender(MASKED, masked, x, theirs.parameters(), direction),
    ]
    edges = int(seen.sum())
    sizes = {"length": length, "reach on each side": reach, "edges": edges, "heads": heads}
    return Setup(contenders, sizes, work=attention(length, edges, channels, context.item_size))


@case(
    "attention-long",
    "sequence",
    "attention of 65,536 places to the 128 around each, 8 heads of 8 channels",
    targets=(Under(6),),
    memory=(OURS,),
)
def long_sequence(context: Context, length: int = 65_536) -> Setup:
    """The layer over a sliding window, alone."""
    length = context.size(length, at_least=8)
    _, ours, x, direction = _windowed(context, length, 64, 64, 8)
    contender = layer_contender(OURS, lambda: ours(x), x, ours.parameters(), direction)
    return Setup([contender], {"length": length, "reach on each side": 64, "heads": 8})


def _windowed(
    context: Context, length: int, reach: int, channels: int, heads: int
) -> tuple[torch.nn.MultiheadAttention, AttentionConv, Tensor, Tensor]:
    """Torch's layer, ours over a window with its weights, one sequence, and a gradient of Y."""
    generator = context.generator()
    x = context.randn(length, channels, generator=generator).requires_grad_()
    direction = context.randn(length, channels, generator=generator)
    theirs = torch.nn.MultiheadAttention(channels, heads, batch_first=True)
    theirs = theirs.to(context.device, context.dtype)
    return theirs, from_torch(theirs, support=SlidingWindow(reach)), x, direction
