"""PyG's layers that are one convolution, each with the OuterConv that equals it.

A peer says which of our parameters are which of PyG's. Our layer is run on PyG's own parameters, so
that both results have gradients in the same tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import (
    ChebConv,
    DirGNNConv,
    GCNConv,
    GraphConv,
    RGCNConv,
    SAGEConv,
    SGConv,
    TAGConv,
)

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Directed, Relation, Walk

P, Q, R = 4, 6, 3


@dataclass(frozen=True)
class Peer:
    """One of PyG's layers and ours.

    Attributes:
        make: PyG's layer.
        ours: our layer.
        mapping: our parameters by name, made of PyG's.
        weighted, typed: whether PyG's layer takes edge weights, edge types.
        loops: whether it takes several self-loops at one node (PyG's gcn_norm keeps one of them).
        extra: further arguments of PyG's layer for some edges.
    """

    make: Callable[[], Module]
    ours: Callable[[], OuterConv]
    mapping: Callable[[Any], dict[str, Tensor]]
    weighted: bool = True
    typed: bool = False
    loops: bool = True
    extra: Callable[..., dict[str, Any]] = field(default=lambda *_: {})


def one(weight: Tensor) -> Tensor:
    """Θ (1, P, Q) of a ``Linear.weight`` (Q, P)."""
    return weight.t().unsqueeze(0)


def of_lin(peer: Any) -> dict[str, Tensor]:
    bias = peer.lin.bias if peer.lin.bias is not None else peer.bias
    return {"theta.weight": one(peer.lin.weight), "bias": bias}


def of_lins(peer: Any) -> dict[str, Tensor]:
    return {
        "theta.weight": torch.stack([lin.weight.t() for lin in peer.lins]),
        "bias": peer.bias,
    }


def of_rgcn(peer: Any) -> dict[str, Tensor]:
    mapping = {"theta.weight": peer.weight, "root.weight": peer.root[None], "bias": peer.bias}
    return mapping if peer.num_bases is None else {**mapping, "theta.comp": peer.comp}


def of_graph_conv(peer: Any) -> dict[str, Tensor]:
    rel, root = peer.lin_rel, peer.lin_root
    return {"theta.weight": one(rel.weight), "root.weight": one(root.weight), "bias": rel.bias}


def of_sage(peer: Any) -> dict[str, Tensor]:
    left, right = peer.lin_l, peer.lin_r
    return {"theta.weight": one(left.weight), "root.weight": one(right.weight), "bias": left.bias}


def of_dir_gnn(peer: Any) -> dict[str, Tensor]:
    alpha, there, back = peer.alpha, peer.conv_in, peer.conv_out
    return {
        "theta.weight": torch.cat(
            [(1 - alpha) * one(there.lin.weight), alpha * one(back.lin.weight)]
        ),
        "root.weight": one(peer.lin.weight),
        "bias": (1 - alpha) * there.bias + alpha * back.bias + peer.lin.bias,
    }


PYG = {"source": "rw"}  # what PyG calls a norm of the Laplacian


def laplacian_spectrum(norm: str | None) -> Callable[..., dict[str, Any]]:
    """PyG's lambda_max, from the eigenvalues of a dense Laplacian that is written out here."""

    def extra(
        edge_index: Tensor, weight: Tensor | None, num_nodes: int, dtype: torch.dtype
    ) -> dict[str, Any]:
        weight = torch.ones(edge_index.size(1)) if weight is None else weight.detach()
        adjacency = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
        adjacency.index_put_(tuple(edge_index), weight.double(), accumulate=True)
        adjacency.fill_diagonal_(0)
        degree = adjacency.sum(1)
        inverse = torch.where(degree > 0, 1 / degree, 0)
        eye = torch.eye(num_nodes, dtype=torch.float64)
        matrix = {
            "sym": eye - inverse.sqrt()[:, None] * adjacency * inverse.sqrt(),
            "source": eye - inverse[:, None] * adjacency,
            None: degree.diag() - adjacency,
        }[norm]
        largest = float(torch.linalg.eigvals(matrix).abs().max())
        return {"lambda_max": torch.tensor(largest or 2.0, dtype=dtype)}

    return extra


PEERS = {
    "GCNConv": Peer(lambda: GCNConv(P, Q), lambda: OuterConv(P, Q, GCN()), of_lin, loops=False),
    "GCNConv(improved)": Peer(
        lambda: GCNConv(P, Q, improved=True),
        lambda: OuterConv(P, Q, GCN(improved=True)),
        of_lin,
        loops=False,
        # Without weights PyG's gcn_norm forgets the 2 of added loops.
        extra=lambda edges, _, __, dtype: {"edge_weight": torch.ones(edges.size(1), dtype=dtype)},
    ),
    "GCNConv(no self-loops)": Peer(
        lambda: GCNConv(P, Q, add_self_loops=False),
        lambda: OuterConv(P, Q, GCN(add_self_loops=False)),
        of_lin,
    ),
    "GCNConv(no norm)": Peer(
        lambda: GCNConv(P, Q, normalize=False, add_self_loops=False),
        lambda: OuterConv(P, Q, Relation(1, None)),
        of_lin,
    ),
    **{
        f"ChebConv({norm}, default)": Peer(
            lambda norm=norm: ChebConv(P, Q, 4, normalization=PYG.get(norm, norm)),
            lambda norm=norm: OuterConv(P, Q, Chebyshev(4, norm=norm)),
            of_lins,
        )
        for norm in ("sym", "source")  # of D − W PyG differentiates the largest degree
    },
    **{
        f"ChebConv({norm}, exact)": Peer(
            lambda norm=norm: ChebConv(P, Q, 3, normalization=PYG.get(norm, norm)),
            lambda norm=norm: OuterConv(P, Q, Chebyshev(3, "exact", norm)),
            of_lins,
            extra=laplacian_spectrum(norm),
        )
        for norm in ("sym", "source", None)
    },
    **{
        f"ChebConv({norm}, given)": Peer(
            lambda norm=norm: ChebConv(P, Q, 3, normalization=PYG.get(norm, norm)),
            lambda norm=norm: OuterConv(P, Q, Chebyshev(3, 1.7, norm=norm)),
            of_lins,
            extra=lambda *_: {"lambda_max": torch.tensor(1.7, dtype=torch.float64)},
        )
        for norm in ("source", None)
    },
    "TAGConv": Peer(
        lambda: TAGConv(P, Q, K=3), lambda: OuterConv(P, Q, Walk(3, norm="sym")), of_lins
    ),
    "TAGConv(no norm)": Peer(
        lambda: TAGConv(P, Q, K=2, normalize=False),
        lambda: OuterConv(P, Q, Walk(2, norm=None)),
        of_lins,
    ),
    "SGConv": Peer(
        lambda: SGConv(P, Q, K=2),
        lambda: OuterConv(P, Q, Walk(2, norm="sym", add_self_loops=True, powers=(2,))),
        of_lin,
        loops=False,
    ),
    **{
        f"RGCNConv({aggr}, {theta})": Peer(
            lambda aggr=aggr, options=options: RGCNConv(P, Q, R, aggr=aggr, **options),
            lambda norm=norm, theta=theta: OuterConv(
                P, Q, Relation(R, norm), theta=theta, root_weight=True
            ),
            of_rgcn,
            weighted=False,
            typed=True,
        )
        for aggr, norm in (("add", None), ("mean", "mean"))
        for theta, options in (
            ("full", {}),
            ("basis-decomposed(num_bases=2)", {"num_bases": 2}),
            ("block-diagonal(num_blocks=2)", {"num_blocks": 2}),
        )
    },
    "GraphConv(add)": Peer(
        lambda: GraphConv(P, Q, aggr="add"),
        lambda: OuterConv(P, Q, Relation(1, None), root_weight=True),
        of_graph_conv,
    ),
    "GraphConv(mean)": Peer(
        lambda: GraphConv(P, Q, aggr="mean"),
        lambda: OuterConv(P, Q, Relation(1, None), aggr="mean", root_weight=True),
        of_graph_conv,
    ),
    "SAGEConv": Peer(
        lambda: SAGEConv(P, Q, aggr="mean"),
        lambda: OuterConv(P, Q, Relation(1, "mean"), root_weight=True),
        of_sage,
        weighted=False,
    ),
    "DirGNNConv(GCNConv)": Peer(
        lambda: DirGNNConv(GCNConv(P, Q), alpha=0.3),
        lambda: OuterConv(P, Q, Directed(GCN(add_self_loops=False)), root_weight=True),
        of_dir_gnn,
        weighted=False,
    ),
}
