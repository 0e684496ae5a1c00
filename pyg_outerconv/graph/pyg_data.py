"""The edges and edge attributes of a PyG ``Data`` or ``Batch`` object."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data

from ..errors import RefusedType, RefusedValue, refusal


def edges_of(data: Data) -> dict[str, Any]:
    """The edges of a ``Data`` object and their attributes, as arguments of :func:`.structure`.

    Raises:
        TypeError: ``data`` is not a homogeneous graph.
        ValueError: ``data`` has no edges.
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
    beside = ("edge_weight", "edge_type", "batch", "edge_attr", "pos")
    found = {name: data.get(name) for name in beside}
    return {"edge_index": edge_index, "size": (data.num_nodes, data.num_nodes), **found}


def require_data(data: Any) -> None:
    """Refuse an argument that is not a homogeneous graph.

    Raises:
        TypeError: ``data`` is not a ``Data`` object.
    """
    if not isinstance(data, Data):
        raise RefusedType(
            refusal(
                "a family reads a homogeneous graph",
                "torch_geometric.data.Data (for HeteroData see from_hetero)",
                type(data).__name__,
            )
        )
