"""Attention layers of graphs: GAT, GATv2 and TransformerConv, with PyG's weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from ...nn import AttentionConv
from ...nn.attention import gat_conv, gatv2_conv, transformer_conv
from ..bounds import attention
from ..case import Setup, case, layer_contender
from ..context import Context
from ..graphs import random_graph
from ..names import DGL, OURS, PYG, PYG_COMPILED, PYG_CSR, SCATTER
from ..peers import compiled, set_parameter
from ..targets import Faster, Smaller

HEADS, CHANNELS = 4, 16


def _copy_linear(weight: Tensor, bias: Tensor | None, linear: Any) -> None:
    """PyG's map to all heads as ours (H, P, C)."""
    set_parameter(weight, linear.weight.t().unflatten(1, (HEADS, -1)).transpose(0, 1))
    if bias is not None:
        set_parameter(bias, linear.bias.unflatten(0, (HEADS, -1)))


def _copy_gat(ours: Any, theirs: Any) -> None:
    score = ours.family.score
    _copy_linear(ours.theta.weight, None, theirs.lin)
    set_parameter(score.att_source, theirs.att_src[0])
    set_parameter(score.att_target, theirs.att_dst[0])


def _copy_gatv2(ours: Any, theirs: Any) -> None:
    score = ours.family.score
    _copy_linear(ours.theta.weight, ours.value_bias, theirs.lin_l)
    _copy_linear(score.ends.target.weight, score.ends.target.bias, theirs.lin_r)
    set_parameter(score.att, theirs.att[0])


def _copy_transformer(ours: Any, theirs: Any) -> None:
    score = ours.family.score
    _copy_linear(ours.theta.weight, ours.value_bias, theirs.lin_value)
    _copy_linear(score.key.weight, score.key.bias, theirs.lin_key)
    _copy_linear(score.query.weight, score.query.bias, theirs.lin_query)
    set_parameter(ours.skip.weight, theirs.lin_skip.weight)
    set_parameter(ours.skip.bias, theirs.lin_skip.bias)


# Ours, PyG's, and the copying of weights.
Kind = tuple[Callable[..., AttentionConv], type, Callable[[Any, Any], None]]
KINDS: dict[str, Kind] = {
    "gat": (gat_conv, GATConv, _copy_gat),
    "gatv2": (gatv2_conv, GATv2Conv, _copy_gatv2),
    "transformer": (transformer_conv, TransformerConv, _copy_transformer),
}


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
    make, peer, copy_weights = KINDS[kind]
    ours = make(width, CHANNELS, heads=HEADS).to(context.device, context.dtype)
    theirs = peer(width, CHANNELS, heads=HEADS).to(context.device, context.dtype)
    copy_weights(ours, theirs)
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
