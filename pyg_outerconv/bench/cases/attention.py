"""Scaled dot-product attention on the edges."""

from __future__ import annotations

import math

from torch import Tensor
from torch_geometric.utils import scatter, softmax

from ...families import Relation
from ...kernels import attend
from ..bounds import attention
from ..case import Contender, Setup, case, layer_contender
from ..context import Context
from ..graphs import random_graph
from ..names import DGL, OURS, PYG, PYG_COMPILED, PYG_CSR, SCATTER
from ..peers import compiled, load_peer
from ..targets import Faster, Smaller


@case(
    "attention-100k",
    "attention",
    "scaled dot-product attention of given queries, keys and values over the edges",
    targets=(Faster(PYG, 5), Smaller(PYG, 4)),
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
    sparsity = basis.edges().pattern.by_target
    source, target = edge_index

    def by_attend() -> Tensor:
        return attend(sparsity, query, key, value)

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
    ]
    if (fused := compiled(by_gathering, context, absent)) is not None:
        contenders.append(layer_contender(PYG_COMPILED, fused, query, [key, value], direction))
    dgl = _by_dgl(edge_index, nodes, query, key, value, direction, absent)
    contenders += [] if dgl is None else [dgl]
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
    nodes: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    direction: Tensor,
    absent: dict[str, str],
) -> Contender | None:
    """DGL's sampled product, edge softmax and weighted sum, its formats made beforehand."""
    module = load_peer(DGL, absent)
    if module is None:
        return None
    graph = module.graph((edge_index[0], edge_index[1]), num_nodes=nodes)
    graph.create_formats_()

    def forward() -> Tensor:
        score = module.ops.u_dot_v(graph, key, query) / math.sqrt(key.size(-1))
        weight = module.nn.functional.edge_softmax(graph, score)
        out: Tensor = module.ops.u_mul_e_sum(graph, value, weight)
        return out

    return layer_contender(DGL, forward, query, [key, value], direction)
