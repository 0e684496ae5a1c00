"""Conversion of a basis to edge lists, torch and scipy matrices, networkx graphs, and pictures."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..signatures import typed
from .base import Basis
from .registry import makes

if TYPE_CHECKING:  # scipy and networkx are imported only by the functions that need them
    import networkx as nx
    import scipy.sparse as sp
    from matplotlib.figure import Figure


@typed
def to_edge_index(basis: Basis) -> tuple[Tensor, Tensor, Tensor]:
    """edge_index (2, E), edge_weight (E,) and edge_type (E,) of a basis, sorted by target."""
    edges = basis.edges()
    return edges.index.long(), edges.values(), edges.label.long()


@typed
def to_torch_sparse(basis: Basis) -> list[Tensor]:
    """K CSR matrices A_kᵀ (N × M), as PyG's layers take them; parallel edges are summed."""
    edge_index, value, label = to_edge_index(basis)
    size = (basis.size[1], basis.size[0])
    matrices = []
    for k in range(basis.num_bases):
        keep = label == k
        coo = torch.sparse_coo_tensor(edge_index[:, keep].flip(0), value[keep], size)
        matrices.append(coo.coalesce().to_sparse_csr())
    return matrices


@typed
def to_scipy(basis: Basis) -> list[sp.csr_array]:
    """K scipy matrices A_k (M × N); parallel edges are summed."""
    import scipy.sparse as sp

    index, weight, kind = (part.detach().cpu() for part in to_edge_index(basis))
    weight = weight.to(torch.promote_types(weight.dtype, torch.float32))  # scipy has no float16
    edge_index, value, label = index.numpy(), weight.numpy(), kind.numpy()
    return [
        sp.csr_array((value[label == k], tuple(edge_index[:, label == k])), shape=basis.size)
        for k in range(basis.num_bases)
    ]


@typed
def to_networkx(basis: Basis, nodes: Sequence[Hashable] | None = None) -> nx.MultiDiGraph:
    """A directed multigraph with the attributes ``weight`` and ``label`` on its edges.

    Args:
        basis: with M = N, whose sources and targets are the same nodes.
        nodes: the networkx node of each index, as :func:`from_networkx` returned it.

    Raises:
        ValueError: M ≠ N, or ``nodes`` has another length.
    """
    import networkx as nx

    if basis.size[0] != basis.size[1]:
        raise RefusedValue("a graph has one set of nodes", "M = N", basis.size)
    names = list(range(basis.size[0])) if nodes is None else list(nodes)
    if len(names) != basis.size[0]:
        raise RefusedValue("nodes must name every index", basis.size[0], len(names))
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(names)
    edge_index, value, label = to_edge_index(basis)
    for source, target, weight, kind in zip(
        *edge_index.tolist(), value.tolist(), label.tolist(), strict=True
    ):
        graph.add_edge(names[source], names[target], weight=weight, label=kind)
    return graph


@makes("plot")
def plot(basis: Basis, kind: str, path: str | Path | None, options: dict[str, Any]) -> Figure:
    """What :meth:`.Basis.plot` returns."""
    from ..plot import check_matplotlib

    check_matplotlib()
    from ..plot.basis import draw

    return draw(basis, kind, path, options)
