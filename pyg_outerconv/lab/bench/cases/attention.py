"""Attention: on given edges, in layers of graphs, and of sequences."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv
from torch_geometric.utils import scatter, softmax

from ....families import Relation, SlidingWindow
from ....kernels import attend
from ....nn.attention_conv import AttentionConv
from ....nn.convert import from_torch
from ....pyg import outer_conv
from ..case import (
    DGL,
    OURS,
    PYG,
    PYG_CSR,
    SCATTER,
    TORCH,
    Contender,
    Context,
    Setup,
    case,
    compiled,
    layer_contender,
    load_peer,
    of_layer,
)
from ..graphs import inputs_on_random_graph, random_graph
from ..roofline import attention
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
def attention_on_edges(
    context: Context, nodes: int = 100_000, heads: int = 4, channels: int = 16
) -> Setup:
    """``attend``, and gather, softmax and scatter as PyG's TransformerConv does it."""
    generator = context.generator()
    nodes = context.size(nodes, at_least=8)
    edge_index = random_graph(nodes, 12 * nodes, generator).to(context.device)
    query, key, value = (
        context.randn(nodes, heads, channels, generator=generator).requires_grad_()
        for _ in range(3)
    )
    direction = context.randn(nodes, heads, channels, generator=generator)
    basis = Relation(1, None).basis(edge_index, size=(nodes, nodes), dtype=context.dtype)
    csr = basis.edges().pattern.by_target
    source, target = edge_index

    def by_attend() -> Tensor:
        return attend(csr, query, key, value)

    def by_gathering() -> Tensor:
        score = (query[target] * key[source]).sum(-1) / math.sqrt(channels)
        weight = softmax(score, target, num_nodes=nodes)
        messages = value[source] * weight.unsqueeze(-1)
        out: Tensor = scatter(messages, target, dim=0, dim_size=nodes, reduce="sum")
        return out

    absent = {
        PYG_CSR: "TransformerConv takes no torch.sparse matrix",
        SCATTER: "PyG's own softmax and scatter are what torch-scatter offers",
    }
    contenders = [
        layer_contender(OURS, by_attend, query, [key, value], direction),
        layer_contender(PYG, by_gathering, query, [key, value], direction),
        *compiled(context, absent, by_gathering, (), query, [key, value], direction),
        *_by_dgl(edge_index, query, key, value, direction, absent),
    ]
    sizes = {
        "nodes": nodes,
        "edges": edge_index.size(1),
        "heads": heads,
        "channels of a head": channels,
    }
    work = attention(nodes, edge_index.size(1), heads * channels, context.item_size)
    return Setup(contenders, sizes, absent, work)


def _by_dgl(
    edge_index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    direction: Tensor,
    absent: dict[str, str],
) -> list[Contender]:
    """DGL's sampled product, edge softmax and weighted sum, its formats made beforehand."""
    module = load_peer(DGL, absent)
    if module is None:
        return []
    graph = module.graph((edge_index[0], edge_index[1]), num_nodes=query.size(0))
    graph.create_formats_()

    def forward() -> Tensor:
        score = module.ops.u_dot_v(graph, key, query) / math.sqrt(key.size(-1))
        weight = module.nn.functional.edge_softmax(graph, score)
        out: Tensor = module.ops.u_mul_e_sum(graph, value, weight)
        return out

    return [layer_contender(DGL, forward, query, [key, value], direction)]


def attention_layer(context: Context, kind: type, nodes: int = 100_000) -> Setup:
    """A layer with all its projections, ours and PyG's."""
    width = HEADS * CHANNELS
    edge_index, x, direction = inputs_on_random_graph(context, nodes, width, width)
    nodes = x.size(0)
    theirs = kind(width, CHANNELS, heads=HEADS).to(context.device, context.dtype)
    ours = outer_conv(theirs)
    absent = {
        PYG_CSR: "layers of attention take no torch.sparse matrix",
        SCATTER: "PyG's own softmax and scatter are what torch-scatter offers",
        DGL: "its primitives are measured by attention-100k",
    }
    contenders = [
        of_layer(OURS, ours, x, direction, edge_index),
        of_layer(PYG, theirs, x, direction, edge_index),
        *compiled(context, absent, theirs, (x, edge_index), x, theirs.parameters(), direction),
    ]
    edges = edge_index.size(1)
    sizes = {"nodes": nodes, "edges": edges, "heads": HEADS, "channels of a head": CHANNELS}
    return Setup(contenders, sizes, absent, attention(nodes, edges, width, context.item_size))


for _name, _kind, _what in (
    ("gat", GATConv, "GAT"),
    ("gatv2", GATv2Conv, "GATv2"),
    ("transformer", TransformerConv, "TransformerConv"),
):
    case(
        f"{_name}-100k",
        "attention-layers",
        f"{_what} layer, 4 heads of 16 channels, on a random graph",
        targets=(faster(PYG, 5), smaller(PYG, 4)),
        memory=(OURS, PYG),
        kind=_kind,
    )(attention_layer)


@case(
    "attention-full",
    "sequence",
    "multi-head attention of 1,024 places, batch 4, 256 channels, 8 heads",
    targets=(faster(TORCH, 0.9),),
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
        of_layer(OURS, ours, x, direction),
        layer_contender(TORCH, torchs, x, theirs.parameters(), direction),
    ]
    sizes = {"length": length, "batch": batch, "channels": channels, "heads": 8}
    return Setup(contenders, sizes)


@case(
    "attention-window",
    "sequence",
    "attention of 16,384 places to the 128 around each, 8 heads of 8 channels",
    targets=(faster(MASKED, 20), smaller(MASKED, 20)),
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
        of_layer(OURS, ours, x, direction),
        layer_contender(MASKED, masked, x, theirs.parameters(), direction),
    ]
    edges = int(seen.sum())
    sizes = {"length": length, "reach on each side": reach, "edges": edges, "heads": heads}
    return Setup(contenders, sizes, work=attention(length, edges, channels, context.item_size))


@case(
    "attention-long",
    "sequence",
    "attention of 65,536 places to the 128 around each, 8 heads of 8 channels",
    targets=(under(6),),
    memory=(OURS,),
)
def long_sequence(context: Context, length: int = 65_536) -> Setup:
    """The layer over a sliding window, alone."""
    length = context.size(length, at_least=8)
    _, ours, x, direction = _windowed(context, length, 64, 64, 8)
    contender = of_layer(OURS, ours, x, direction)
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
