"""Attention layers of graphs: GAT, GATv2 and TransformerConv, with PyG's weights."""

from __future__ import annotations

from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from ...nn.convert.pyg_layers import from_pyg
from ..bounds import attention
from ..case import Setup, case, layer_contender
from ..context import Context
from ..graphs import random_graph
from ..names import DGL, OURS, PYG, PYG_COMPILED, PYG_CSR, SCATTER
from ..peers import compiled
from ..targets import Faster, Smaller

HEADS, CHANNELS = 4, 16
KINDS: dict[str, type] = {"gat": GATConv, "gatv2": GATv2Conv, "transformer": TransformerConv}


@case(
    "gat-100k",
    "attention-layers",
    "GAT layer, 4 heads of 16 channels, on a random graph",
    targets=(Faster(PYG, 5), Smaller(PYG, 4)),
    memory=(OURS, PYG),
    kind="gat",
)
@case(
    "gatv2-100k",
    "attention-layers",
    "GATv2 layer, 4 heads of 16 channels, on a random graph",
    targets=(Faster(PYG, 5), Smaller(PYG, 4)),
    memory=(OURS, PYG),
    kind="gatv2",
)
@case(
    "transformer-100k",
    "attention-layers",
    "TransformerConv layer, 4 heads of 16 channels, on a random graph",
    targets=(Faster(PYG, 5), Smaller(PYG, 4)),
    memory=(OURS, PYG),
    kind="transformer",
)
def attention_layer(context: Context, kind: str, nodes: int = 100_000) -> Setup:
    """A layer with all its projections, ours and PyG's."""
    generator = context.generator()
    nodes = context.size(nodes, at_least=8)
    width = HEADS * CHANNELS
    edge_index = random_graph(nodes, 12 * nodes, generator).to(context.device)
    x = context.randn(nodes, width, generator=generator).requires_grad_()
    direction = context.randn(nodes, width, generator=generator)
    theirs = KINDS[kind](width, CHANNELS, heads=HEADS).to(context.device, context.dtype)
    ours = from_pyg(theirs)
    absent = {
        PYG_CSR: "layers of attention take no torch.sparse matrix",
        SCATTER: "PyG's own softmax and scatter are what torch-scatter offers",
        DGL: "its primitives are measured by attention-100k",
    }
    contenders = [
        layer_contender(OURS, lambda: ours(x, edge_index), x, ours.parameters(), direction),
        layer_contender(PYG, lambda: theirs(x, edge_index), x, theirs.parameters(), direction),
    ]
    if (fused := compiled(theirs, context, absent)) is not None:
        contenders.append(
            layer_contender(
                PYG_COMPILED, lambda: fused(x, edge_index), x, theirs.parameters(), direction
            )
        )
    edges = edge_index.size(1)
    sizes = {"nodes": nodes, "edges": edges, "heads": HEADS, "channels of a head": CHANNELS}
    return Setup(contenders, sizes, absent, attention(nodes, edges, width, context.item_size))
