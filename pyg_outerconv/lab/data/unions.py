"""Sets of graphs as one graph: their disjoint union."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_geometric.data import Batch, Data


def union_of(graphs: Sequence[Data]) -> Data:
    """The disjoint union of graphs, as PyG's ``Batch`` makes it.

    Args:
        graphs: G graphs, each with ``y`` (1,), and features ``x`` or none. ``edge_attr`` (E, R),
            one of R types in one-hot code, as TUDataset has it, becomes ``edge_type`` (E,).

    Returns:
        ``edge_index`` (2, E), ``x`` (N, P), ``batch`` (N,) the graph of each node, ascending, and
        ``y`` (G,).
    """
    union = Batch.from_data_list([graphs[place] for place in range(len(graphs))])
    made = Data(edge_index=union.edge_index, y=union.y, batch=union.batch)
    if union.get("x") is not None and union.x.size(1):
        made.x = union.x
    else:
        made.num_nodes = union.num_nodes
    kinds = union.get("edge_attr")
    if kinds is not None and kinds.size(1):
        made.edge_type = kinds.argmax(-1).to(torch.long)
    return made
