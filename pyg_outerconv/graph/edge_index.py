"""Edges of sparse matrices and of PyG's ``Data`` objects."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from ..errors import RefusedType, RefusedValue
from ..kernels.index_checks import check_indices, check_pointers, has_numbers
from .checks import agreed


def is_matrix(matrix: Any) -> bool:
    """Whether the argument is a sparse matrix: torch's, or ``SparseTensor`` of torch_sparse."""
    # torch_sparse is optional
    is_other = hasattr(matrix, "coo") and hasattr(matrix, "sparse_sizes")
    return is_torch_sparse_tensor(matrix) or is_other


def from_sparse(
    matrix: Any, edge_weight: Tensor | None, size: tuple[int | None, int | None] | None
) -> tuple[Tensor, Tensor | None, tuple[int | None, int | None]]:
    """The (2, E) edge index, weights and (M, N) of a sparse matrix (N, M), whose rows are targets.

    The values of the matrix are the weights unless ``edge_weight`` is given.
    """
    is_torchs = isinstance(matrix, Tensor)
    rows, columns = matrix.shape if is_torchs else matrix.sparse_sizes()
    num_nodes = (columns, rows)
    agreed("the sparse matrix, which has a row for each target", num_nodes, size)
    if not is_torchs:
        row, column, value = matrix.coo()
        row_col = torch.stack([row, column])
    elif matrix.layout == torch.sparse_coo and not matrix.is_coalesced():
        # Parallel edges are kept apart, as everywhere else.
        if matrix.requires_grad:
            raise RefusedValue(
                "torch gives values of a COO matrix gradients only where it is coalesced",
                "matrix.coalesce()",
                "a matrix that is not",
            )
        row_col, value = matrix._indices(), matrix._values()
    elif matrix.layout == torch.sparse_coo:
        row_col, value = matrix.indices(), matrix.values()
    else:
        check_compressed(matrix)
        row_col, value = to_edge_index(matrix)
    return (
        row_col.flip(0),
        value if edge_weight is None else edge_weight,
        num_nodes,
    )


def check_compressed(matrix: Tensor) -> None:
    """Refuse a CSR or CSC matrix with pointers or indices that torch would read other memory at."""
    if matrix.layout is torch.sparse_csr:
        ptr, index, count = matrix.crow_indices(), matrix.col_indices(), matrix.size(1)
    else:
        ptr, index, count = matrix.ccol_indices(), matrix.row_indices(), matrix.size(0)
    if has_numbers(ptr, index):
        check_pointers("pointers of a sparse matrix", ptr, index.numel())
        check_indices("indices of a sparse matrix", index, count)


def edges_of(data: Data) -> dict[str, Any]:
    """The edges of a ``Data`` object and their attributes, as arguments of :meth:`Graph.read`."""
    require_data(data)
    edge_index = data.get("edge_index")
    if edge_index is None:
        edge_index = data.get("adj_t")
    if edge_index is None:
        raise RefusedValue(
            "a graph needs edges",
            "data.edge_index or data.adj_t",
            f"a Data object with {sorted(data.keys())}",
        )
    beside = ("edge_weight", "edge_type", "batch", "edge_attr", "pos")
    attributes = {name: data.get(name) for name in beside}
    return {"edge_index": edge_index, "size": (data.num_nodes, data.num_nodes), **attributes}


def require_data(data: Any) -> None:
    """Refuse an argument that is not a homogeneous graph, with a TypeError."""
    if not isinstance(data, Data):
        raise RefusedType(
            "a family reads a homogeneous graph",
            "torch_geometric.data.Data (for HeteroData see from_hetero)",
            type(data).__name__,
        )
