"""Attention: on given edges, and of sequences."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from ....families import Relation, SlidingWindow
from ....kernels import attend
from ....nn.convert import from_torch
from ..case import OURS, PYG, TORCH, Context, Setup, case
from ..graphs import random_graph
from ..roofline import attention
from ..sides import Sides
from ..targets import faster, smaller, under

HEADS, CHANNELS = 4, 16
MASKED = "dense, masked"


@case(
    "attention-100k",
    "attention",
    "scaled dot-product attention of given queries, keys and values over the edges",
    targets=(faster(PYG, 5), smaller(PYG, 4)),
    memory=(OURS, PYG),
)
def attention_on_edges(context: Context, nodes: int = 100_000) -> Setup:
    """``attend``, and gather, softmax and scatter as PyG's TransformerConv does it."""
    generator, nodes = context.generator(), context.size(nodes, at_least=8)
    shape, edge_index = (nodes, HEADS, CHANNELS), random_graph(nodes, 12 * nodes, generator)
    sides = Sides(context, shape, edge_index, generator=generator)
    query = sides.x
    key, value = (context.randn(*shape, generator=generator).requires_grad_() for _ in range(2))
    csr = sides.basis(Relation(1, None)).edges().pattern.by_target
    source, target = sides.edge_index

    def by_gathering() -> Tensor:
        score = (query[target] * key[source]).sum(-1) / math.sqrt(CHANNELS)
        weight = softmax(score, target, num_nodes=nodes)
        messages = value[source] * weight.unsqueeze(-1)
        out: Tensor = scatter(messages, target, dim=0, dim_size=nodes, reduce="sum")
        return out

    sides.add(OURS, lambda: attend(csr, query, key, value), [key, value])
    sides.add(PYG, by_gathering, [key, value])
    sides.compiled(by_gathering, of=[key, value])
    work = attention(nodes, sides.edges, HEADS * CHANNELS, context.item_size)
    return sides.setup({"heads": HEADS, "channels of a head": CHANNELS}, work)


# Sequences ----------------------------------------------------------------------------------------


@case(
    "attention-full",
    "sequence",
    "multi-head attention of 1,024 places, batch 4, 256 channels, 8 heads",
    targets=(faster(TORCH, 0.9),),
    memory=(OURS, TORCH),
)
def all_places(context: Context, length: int = 1024) -> Setup:
    """Torch's MultiheadAttention and ours with its weights."""
    sides, theirs = _sequences(context, (4, context.size(length, at_least=8), 256))
    x = sides.x
    sides.layer(OURS, from_torch(theirs))
    sides.add(TORCH, lambda: theirs(x, x, x, need_weights=False)[0], theirs.parameters())
    batch, length, channels = x.shape
    return sides.setup({"length": length, "batch": batch, "channels": channels, "heads": 8})


@case(
    "attention-window",
    "sequence",
    "attention of 16,384 places to the 128 around each, 8 heads of 8 channels",
    targets=(faster(MASKED, 20), smaller(MASKED, 20)),
    memory=(OURS, MASKED),
)
def window(context: Context, length: int = 16_384, reach: int = 64) -> Setup:
    """The layer over a sliding window, and the same projections with torch's dense attention."""
    length = context.size(length, at_least=8)
    sides, theirs = _sequences(context, (length, 64))
    place = torch.arange(length, device=context.device)
    seen = (place[:, None] - place).abs() <= reach

    def masked() -> Tensor:
        projected = F.linear(sides.x, theirs.in_proj_weight, theirs.in_proj_bias)
        # torch's fused kernel wants a batch.
        query, key, value = projected.unflatten(-1, (3, 1, 8, -1)).permute(1, 2, 3, 0, 4)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        out = out.squeeze(0).movedim(0, 1).flatten(1)
        return F.linear(out, theirs.out_proj.weight, theirs.out_proj.bias)

    sides.layer(OURS, from_torch(theirs, support=SlidingWindow(reach)))
    sides.add(MASKED, masked, theirs.parameters())
    edges = int(seen.sum())
    sizes = {"length": length, "reach on each side": reach, "edges": edges, "heads": 8}
    return sides.setup(sizes, attention(length, edges, 64, context.item_size))


@case(
    "attention-long",
    "sequence",
    "attention of 65,536 places to the 128 around each, 8 heads of 8 channels",
    targets=(under(6),),
    memory=(OURS,),
)
def long_sequence(context: Context, length: int = 65_536, reach: int = 64) -> Setup:
    """The layer over a sliding window, alone."""
    sides, theirs = _sequences(context, (context.size(length, at_least=8), 64))
    sides.layer(OURS, from_torch(theirs, support=SlidingWindow(reach)))
    return sides.setup({"length": sides.nodes, "reach on each side": reach, "heads": 8})


def _sequences(
    context: Context, shape: tuple[int, ...]
) -> tuple[Sides, torch.nn.MultiheadAttention]:
    """Sequences of that shape, and torch's layer of eight heads, whose weights ours gets."""
    sides = Sides(context, shape)
    return sides, sides.placed(torch.nn.MultiheadAttention(shape[-1], 8, batch_first=True))
