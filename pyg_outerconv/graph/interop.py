"""Edge lists of graphs from elsewhere: PyG's, scipy's and networkx's, heterogeneous ones too."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from ..errors import RefusedType, RefusedValue, refusal, unknown
from .edge_list import EdgeList, structure

if TYPE_CHECKING:  # whoever has one of theirs has imported them, and nobody else waits for them
    import networkx as nx


def edge_list_of(data: Data) -> EdgeList:
    """The structure of a PyG ``Data`` or ``Batch``: edge_index (or adj_t), edge_weight, edge_type.

    Raises:
        TypeError: ``data`` is not a homogeneous graph.
        ValueError: it has no edges, or no number of nodes; see :func:`structure`.
    """
    return EdgeList.of_data(data)


def from_scipy(matrices: Any, bipartite: bool | None = None) -> EdgeList:
    """The structure of a scipy sparse matrix (M × N, entry ``[m, n]`` is the edge m → n).

    A sequence of matrices of one size gives edges with types. Stored zeros are edges.

    Args:
        matrices: a scipy sparse matrix or array, or a sequence of them.
        bipartite: whether rows and columns are different nodes; by default where M ≠ N.

    Raises:
        TypeError: an argument is no scipy sparse matrix or array, or a value is no real number.
        ValueError: sizes differ, a value is not finite, or an integer is too large for the
            default type.
    """
    import scipy.sparse as sp

    parts = list(matrices) if isinstance(matrices, Sequence) else [matrices]
    for part in parts:
        if not sp.issparse(part):
            raise RefusedType(
                refusal(
                    "from_scipy reads scipy sparse matrices",
                    "a scipy.sparse matrix or array",
                    type(part).__name__,
                )
            )
        if part.shape != parts[0].shape:
            raise RefusedValue(
                refusal("matrices of a structure must have one size", parts[0].shape, part.shape)
            )
    coo = [sp.coo_array(part) for part in parts]
    edge_index = np.concatenate([np.stack(part.coords).astype(np.int64) for part in coo], axis=1)
    weight = np.concatenate([_as_float(part.data) for part in coo])
    kinds = np.repeat(np.arange(len(coo)), [part.nnz for part in coo])
    return structure(
        torch.from_numpy(edge_index),
        torch.from_numpy(weight),
        torch.from_numpy(kinds) if len(coo) > 1 else None,
        size=parts[0].shape,
        bipartite=bipartite,
    )


def from_networkx(
    graph: nx.Graph, weight: str | None = "weight"
) -> tuple[EdgeList, list[Hashable]]:
    """The structure of a networkx graph, and the node that each index stands for.

    An edge of an undirected graph becomes two, one in each direction (a self-loop stays one);
    parallel edges of a multigraph are kept.

    Args:
        graph: directed or not, multigraph or not.
        weight: the edge attribute that holds weights. If no edge has it, all weigh the same.

    Returns:
        The structure, and ``nodes`` with ``nodes[i]`` the networkx node of index i.

    Raises:
        TypeError: a weight is no real number.
        ValueError: only some edges have the weight, or one is not finite, or an integer that the
            default type does not hold.
    """
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
            refusal(
                f"every edge or none must have the attribute {weight!r}",
                f"{len(weights)} values",
                f"{len(weights) - missing}",
            )
        )
    edge_index = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).t().contiguous()
    values = None
    if weights and not missing:
        values = torch.from_numpy(_as_float(np.asarray(weights))).to(torch.get_default_dtype())
    return structure(edge_index, values, size=(len(nodes), len(nodes))), nodes


def from_hetero(
    data: HeteroData, edge_type: tuple[str, str, str] | None = None
) -> tuple[EdgeList, list[tuple[str, str, str]]]:
    """The structure of a heterogeneous graph, and the relation that each edge type stands for.

    Without ``edge_type`` the nodes of all types follow one another in the order of
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
                refusal(
                    "every node type needs a number of nodes",
                    "num_nodes or x",
                    f"neither for {name!r}",
                )
            )
    if edge_type is not None:
        if edge_type not in data.edge_types:
            raise RefusedValue(unknown("edge type", edge_type, map(str, data.edge_types)))
        store, (source, _, target) = data[edge_type], edge_type
        index = store.edge_index
        size = (counts[source], counts[target])
        edges = structure(index, store.get("edge_weight"), size=size, bipartite=source != target)
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
            refusal(
                "every edge type or none must have weights", len(weights), len(weights) - missing
            )
        )
    if not index_parts:
        raise RefusedValue(refusal("a graph needs edges", "at least one edge type", "none"))
    return structure(
        torch.cat(index_parts, dim=1),
        None if missing else torch.cat(weights),
        torch.cat(kinds),
        size=(total, total),
    ), list(data.edge_types)


def _as_float(values: np.ndarray) -> np.ndarray:
    """Real numbers as floats; integers change type, to one that must hold them exactly."""
    if values.dtype in (np.float16, np.float32, np.float64):
        return values
    if values.dtype.kind not in "biu":
        raise RefusedType(
            refusal("weights of edges are real numbers", "float64, or integers", values.dtype)
        )
    short = values.astype(np.float32 if torch.get_default_dtype() == torch.float32 else np.float64)
    if not np.array_equal(short.astype(values.dtype), values):
        raise RefusedValue(
            refusal("integers are weights that the default type holds", short.dtype, values.max())
        )
    return short
