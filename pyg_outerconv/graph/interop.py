"""Edge lists of PyG, scipy and networkx graphs, and of heterogeneous PyG graphs."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from ..errors import RefusedType, RefusedValue, unknown
from ..kernels.index_checks import check_indices, check_integers, check_pointers
from ..signatures import typed
from .graph import Graph

if TYPE_CHECKING:  # networkx is slow to import, and a user who passes a graph has imported it
    import networkx as nx


def edge_list_of(data: Data) -> Graph:
    """The graph of a PyG ``Data`` or ``Batch``: edge_index (or adj_t), edge_weight, edge_type.

    Raises:
        TypeError, ValueError: ``data`` is not a homogeneous graph, or lacks edges or nodes.
    """
    return Graph.of_data(data)


@typed
def from_scipy(matrices: Any, bipartite: bool | None = None) -> Graph:
    """The graph of a scipy sparse matrix (M × N, entry ``[m, n]`` is the edge m → n).

    A sequence of matrices of one size gives a graph with edge types. Stored zeros are edges.

    Args:
        matrices: a scipy sparse matrix or array, or a sequence of them.
        bipartite: whether rows and columns are different nodes; by default where M ≠ N.

    Raises:
        TypeError: an argument is not a scipy sparse matrix or array, or a value is not real.
        ValueError: sizes differ, a value is not finite, or an integer is too large for the
            default dtype.
    """
    import scipy.sparse as sp

    parts = list(matrices) if isinstance(matrices, Sequence) else [matrices]
    if not parts:
        raise RefusedValue("from_scipy reads matrices", "at least one", "none")
    for part in parts:
        if not sp.issparse(part):
            raise RefusedType(
                "from_scipy reads scipy sparse matrices",
                "a scipy.sparse matrix or array",
                type(part).__name__,
            )
        if part.shape != parts[0].shape:
            raise RefusedValue(
                "matrices of an edge list must have one size", parts[0].shape, part.shape
            )
        if part.format in ("csr", "csc", "bsr"):
            _check_compressed(part)
    coo = [sp.coo_array(part) for part in parts]
    edge_index = np.concatenate([np.stack(part.coords).astype(np.int64) for part in coo], axis=1)
    weight = np.concatenate([_as_float(part.data) for part in coo])
    kinds = np.repeat(np.arange(len(coo)), [part.nnz for part in coo])
    return Graph.read(
        torch.from_numpy(edge_index),
        torch.from_numpy(weight),
        torch.from_numpy(kinds) if len(coo) > 1 else None,
        size=parts[0].shape,
        bipartite=bipartite,
    )


@typed
def from_networkx(graph: nx.Graph, weight: str | None = "weight") -> tuple[Graph, list[Hashable]]:
    """The ``Graph`` of a networkx graph, and the networkx node of each index.

    An undirected edge becomes two directed edges (a self-loop stays one);
    parallel edges of a multigraph are kept.

    Args:
        graph: directed or not, multigraph or not.
        weight: the edge attribute that holds weights. If no edge has it, the edges are unweighted.

    Returns:
        The graph, and ``nodes`` with ``nodes[i]`` the networkx node of index i.

    Raises:
        TypeError: it is no graph of networkx, or a weight is not a real number.
        ValueError: only some edges have the weight, a weight is not finite, or a weight is an
            integer that the default dtype cannot represent.
    """
    networkx = sys.modules.get("networkx")
    if networkx is None or not isinstance(graph, networkx.Graph):
        got = type(graph).__name__
        raise RefusedType("from_networkx reads graphs of networkx", "a networkx.Graph", got)
    nodes = list(graph.nodes)
    number = {node: i for i, node in enumerate(nodes)}
    ends, weights = [], []
    for head, tail, attributes in graph.edges(data=True):
        both = (
            [(head, tail)] if graph.is_directed() or head == tail else [(head, tail), (tail, head)]
        )
        ends += [(number[a], number[b]) for a, b in both]
        weights += [None if weight is None else attributes.get(weight)] * len(both)
    missing = sum(value is None for value in weights)
    if 0 < missing < len(weights):
        raise RefusedValue(
            f"every edge or none must have the attribute {weight!r}",
            f"{len(weights)} values",
            f"{len(weights) - missing}",
        )
    edge_index = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).t().contiguous()
    values = None
    if weights and not missing:
        values = torch.from_numpy(_as_float(np.asarray(weights))).to(torch.get_default_dtype())
    return Graph.read(edge_index, values, size=(len(nodes), len(nodes))), nodes


@typed
def from_hetero(
    data: HeteroData, edge_type: tuple[str, str, str] | None = None
) -> tuple[Graph, list[tuple[str, str, str]]]:
    """The ``Graph`` of a heterogeneous graph, and the relation of each edge type number.

    Without ``edge_type`` the nodes of all types are concatenated in the order of
    ``data.node_types``, and relation number r of ``data.edge_types`` has edge type r. With it,
    only that relation's edges are taken, from its M sources to its N targets, which are different
    nodes unless both are of one type.

    Raises:
        ValueError: the relation is unknown, or a node type has no number of nodes.
    """
    counts = {name: data[name].num_nodes for name in data.node_types}
    for name, count in counts.items():
        if count is None:
            raise RefusedValue(
                "every node type needs a number of nodes", "num_nodes or x", f"neither for {name!r}"
            )
    if edge_type is not None:
        if edge_type not in data.edge_types:
            raise RefusedValue(unknown("edge type", edge_type, map(str, data.edge_types)))
        store, (source, _, target) = data[edge_type], edge_type
        index = store.edge_index
        size = (counts[source], counts[target])
        edges = Graph.read(index, store.get("edge_weight"), size=size, bipartite=source != target)
        return edges, [edge_type]
    shift, total = {}, 0
    for name in data.node_types:
        shift[name], total = total, total + counts[name]
    index_parts, kinds, weights = [], [], []
    for kind, (source, relation, target) in enumerate(data.edge_types):
        store = data[source, relation, target]
        offset = torch.tensor([[shift[source]], [shift[target]]], device=store.edge_index.device)
        index_parts.append(store.edge_index + offset)
        kinds.append(torch.full((store.edge_index.size(1),), kind, device=offset.device))
        weights.append(store.get("edge_weight"))
    missing = sum(weight is None for weight in weights)
    if 0 < missing < len(weights):
        raise RefusedValue(
            "every edge type or none must have weights", len(weights), len(weights) - missing
        )
    if not index_parts:
        raise RefusedValue("a graph needs edges", "at least one edge type", "none")
    return Graph.read(
        torch.cat(index_parts, dim=1),
        None if missing else torch.cat(weights),
        torch.cat(kinds),
        size=(total, total),
    ), list(data.edge_types)


def _check_compressed(matrix: Any) -> None:
    """Refuse pointers out of range in a CSR, CSC or BSR matrix, which scipy reads memory at."""
    ptr, rows = torch.as_tensor(matrix.indptr), matrix.shape[matrix.format == "csc"]
    if matrix.format == "bsr":
        rows //= matrix.blocksize[0]
    check_integers("indptr of a matrix", ptr)
    lengths = (len(ptr), len(matrix.data))
    if lengths != (rows + 1, len(matrix.indices)):
        rule = "a matrix has a pointer for each row and one more, and as many data as indices"
        raise RefusedValue(rule, (rows + 1, len(matrix.indices)), lengths)
    check_pointers("indptr of a matrix", ptr, len(matrix.indices))
    columns = matrix.shape[matrix.format != "csc"]
    columns //= matrix.blocksize[1] if matrix.format == "bsr" else 1
    check_indices("indices of a matrix", torch.as_tensor(matrix.indices), columns)


def _as_float(values: np.ndarray) -> np.ndarray:
    """Real numbers as floating point; integers and booleans must be representable exactly."""
    if values.dtype in (np.float16, np.float32, np.float64):
        return values
    if values.dtype.kind not in "biu":
        raise RefusedType("edge weights are real numbers", "float64, or integers", values.dtype)
    short = values.astype(np.float32 if torch.get_default_dtype() == torch.float32 else np.float64)
    if not np.array_equal(short.astype(values.dtype), values):
        raise RefusedValue("integer weights must fit the default dtype", short.dtype, values.max())
    return short
