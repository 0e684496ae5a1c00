"""Graphs: the structure that a PyG ``Data`` or ``Batch`` object holds."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data

from ..errors import RefusedType, RefusedValue, refusal
from .structure import Structure, structure


def structure_of(data: Data) -> Structure:
    """The structure of a PyG ``Data`` or ``Batch``: edge_index (or adj_t), edge_weight, edge_type.

    Raises:
        TypeError: ``data`` is not a homogeneous graph.
        ValueError: it has no edges, or no number of nodes; see :func:`structure`.
    """
    require_data(data)
    edge_index = data.get("edge_index")
    if edge_index is None:
        edge_index = data.get("adj_t")
    if edge_index is None:
        raise RefusedValue(
            refusal(
                "a graph needs edges",
                "data.edge_index or data.adj_t",
                f"a Data object with {sorted(data.keys())}",
            )
        )
    return structure(
        edge_index,
        data.get("edge_weight"),
        data.get("edge_type"),
        size=(data.num_nodes, data.num_nodes),
        batch=data.get("batch"),
        edge_attr=data.get("edge_attr"),
        pos=data.get("pos"),
    )


def require_data(data: Any) -> None:
    """Refuse what is no homogeneous graph.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(data, Data):
        raise RefusedType(
            refusal(
                "a family reads a homogeneous graph",
                "torch_geometric.data.Data (for HeteroData see from_hetero)",
                type(data).__name__,
            )
        )
