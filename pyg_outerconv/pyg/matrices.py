"""Sparse matrices of torch in the place of ``edge_index``, where a contraction is faster."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import aggr
from torch_geometric.typing import OptTensor

from ..basis import EdgeBasis
from ..basis.edges import edge_basis
from ..graph import Graph
from ..graph.edge_index import from_sparse


def is_product(layer: Any, x: Any, matrix: Any, edge_weight: OptTensor) -> bool:
    """Whether PyG's product with a matrix is a contraction of its values, and large enough.

    It is a sum over a CSR matrix (N, M) of the type of the features, without gradients of its own.
    Its values, not ``edge_weight``, are the weights.
    """
    source = x[0] if isinstance(x, tuple | list) else x
    if not isinstance(matrix, Tensor) or matrix.layout is not torch.sparse_csr:
        return False
    if not isinstance(source, Tensor) or source.dim() != 2 or source.dtype != matrix.dtype:
        return False
    if edge_weight is not None or matrix.requires_grad or matrix.size(1) != source.size(0):
        return False
    if layer.flow != "source_to_target" or layer.node_dim not in (-2, 0):
        return False
    # PyG's product reads the name.
    is_sum = type(layer.aggr_module) is aggr.SumAggregation and layer.aggr in ("add", "sum")
    return is_sum and matrix._nnz() * source.size(1) >= layer.least_of_matrices


def matrix_basis(matrix: Tensor) -> EdgeBasis:
    """The transposed matrix (N, M) as a basis of one matrix (M, N)."""
    edge_index, value, size = from_sparse(matrix, None, None)
    assert size[0] is not None
    assert size[1] is not None
    return edge_basis(Graph.of(edge_index, (size[0], size[1]), edge_weight=value))
