"""Six layers of PyG are one layer with six bases: weights copied in, the outputs agree.

python examples/one_layer_many_convolutions.py
"""

import torch
from torch_geometric.datasets import KarateClub
from torch_geometric.nn import ChebConv, GCNConv, GraphConv, RGCNConv, SAGEConv, TAGConv

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk

CHANNELS = (34, 8)


def stacked(*weights):
    """Θ (K, P, Q) of PyG's weights, each (Q, P)."""
    return torch.stack([weight.t() for weight in weights])


def pairs():
    """PyG's layer, our family, Θ and the bias made of PyG's parameters, and edge types."""
    gcn, cheb, tag = GCNConv(*CHANNELS), ChebConv(*CHANNELS, K=3), TAGConv(*CHANNELS, K=2)
    graph, sage = GraphConv(*CHANNELS), SAGEConv(*CHANNELS)
    rgcn = RGCNConv(*CHANNELS, num_relations=2, aggr="add", root_weight=False)
    yield gcn, GCN(), stacked(gcn.lin.weight), gcn.bias, None
    yield cheb, Chebyshev(3, "bound"), stacked(*(lin.weight for lin in cheb.lins)), cheb.bias, None
    yield tag, Walk(2, "sym"), stacked(*(lin.weight for lin in tag.lins)), tag.bias, None
    yield (
        graph,
        Stack(Relation(1, None), Identity()),
        stacked(graph.lin_rel.weight, graph.lin_root.weight),
        graph.lin_rel.bias,
        None,
    )
    yield (
        sage,
        Stack(Relation(1, "mean"), Identity()),
        stacked(sage.lin_l.weight, sage.lin_r.weight),
        sage.lin_l.bias,
        None,
    )
    yield rgcn, Relation(2, None), rgcn.weight, rgcn.bias, torch.arange(156) % 2


def main():
    """Print the largest difference of each pair, relative to the largest output."""
    data = KarateClub()[0]
    for theirs, family, theta, bias, edge_type in pairs():
        ours = OuterConv(*CHANNELS, family)
        with torch.no_grad():
            ours.theta.weight.copy_(theta)
            ours.bias.copy_(bias)
            expected = (
                theirs(data.x, data.edge_index)
                if edge_type is None
                else theirs(data.x, data.edge_index, edge_type)
            )
            actual = ours(data.x, data.edge_index, edge_type=edge_type)
        gap = float((actual - expected).abs().max() / expected.abs().max())
        print(f"{type(theirs).__name__:<10} = {family!s:<70} up to {gap:.0e}")
        assert gap < 1e-5


if __name__ == "__main__":
    main()
