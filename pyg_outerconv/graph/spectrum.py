"""The largest eigenvalue of a graph's Laplacian, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedValue
from ..kernels.capture import unsafe_to_capture
from ..kernels.primitive import item_by_item
from .graph import Graph

if TYPE_CHECKING:  # scipy.sparse is imported when an eigenvalue is computed
    import scipy.sparse as sp

# Below this size a dense solver is faster than Lanczos, which needs more rows than vectors.
DENSE_LIMIT = 128
# Arnoldi may converge to another eigenvalue where several have almost the largest modulus.
DENSE_LIMIT_ASYMMETRIC = 512
# Up to this size a dense solver is used if the iteration does not converge.
DENSE_RESCUE = 1500
# Bound on restarts: an iteration that needs more rarely converges, and takes minutes to fail.
_RESTARTS = 300


def largest_eigenvalues(matrix: Graph, batch: Tensor | None = None) -> Tensor:
    """(G,) the largest eigenvalue by modulus of a square matrix, for each graph of a batch.

    Symmetric matrices: Lanczos (scipy's ``eigsh``) from 128 rows on, a dense solver below. Other
    matrices may have complex eigenvalues, and the largest modulus is returned: Arnoldi (``eigs``)
    or a dense solver on each strongly connected component. The components have the eigenvalues of
    the whole matrix, which may be too far from normal for an iteration (a long directed path).
    A matrix without rows has the eigenvalue 0.
    """
    value = matrix.weight(torch.float64).detach().double()
    num_graphs = 1
    if batch is not None:
        num_graphs = int(batch.max()) + 1 if batch.numel() else 0
    return _largest_eigenvalues(matrix.edge_index, value, matrix.size[0], batch, num_graphs)


# A custom operator: scipy gets plain tensors under torch.func, and a compiler sees one node.
@torch.library.custom_op(
    "pyg_outerconv::largest_eigenvalues", mutates_args=(), **unsafe_to_capture()
)
def _largest_eigenvalues(
    edge_index: Tensor, value: Tensor, num_nodes: int, batch: Tensor | None, num_graphs: int
) -> Tensor:
    import scipy.sparse as sp

    row, column = edge_index.cpu().numpy()
    entries = value.cpu().numpy()
    whole = sp.csr_array((entries, (row, column)), shape=(num_nodes, num_nodes))
    if batch is None:
        return torch.tensor([_largest(whole)], dtype=torch.float64)
    blocks = _diagonal_blocks(whole, batch.cpu().numpy(), num_graphs)
    return torch.tensor([_largest(block) for block in blocks], dtype=torch.float64)


@_largest_eigenvalues.register_fake
def _(
    edge_index: Tensor, value: Tensor, num_nodes: int, batch: Tensor | None, num_graphs: int
) -> Tensor:
    return torch.empty(num_graphs, dtype=torch.float64)


@_largest_eigenvalues.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
    return item_by_item(_largest_eigenvalues, info, in_dims, arguments)


def _largest(matrix: sp.csr_array) -> float:
    from scipy.sparse.csgraph import connected_components

    size = matrix.shape[0]
    if size == 0:
        return 0.0
    gap = abs(matrix - matrix.T)
    scale = abs(matrix).max() if matrix.nnz else 0.0
    if scale == 0.0:
        return 0.0
    if gap.nnz == 0 or gap.max() <= 1e-6 * scale:
        return _largest_of_block((matrix + matrix.T) / 2, symmetric=True)
    count, part = connected_components(matrix, connection="strong")
    largest = np.abs(matrix.diagonal()[np.bincount(part)[part] == 1]).max(initial=0.0)
    for block in _diagonal_blocks(matrix, part, count):
        if block.shape[0] > 1:
            largest = max(largest, _largest_of_block(block, symmetric=False))
    return float(largest)


def _diagonal_blocks(matrix: sp.csr_array, part: np.ndarray, count: int) -> Iterator[sp.csr_array]:
    """The diagonal block of each of ``count`` parts, ``part`` (N,) being the part of each row."""
    order = np.argsort(part, kind="stable")
    ends = np.bincount(part, minlength=count).cumsum()
    matrix = matrix[order][:, order]
    for start, end in pairwise([0, *ends.tolist()]):
        yield matrix[start:end, start:end]


def _largest_of_block(matrix: sp.csr_array, symmetric: bool) -> float:
    from scipy.sparse.linalg import ArpackNoConvergence, eigs, eigsh

    size = matrix.shape[0]
    if size < (DENSE_LIMIT if symmetric else DENSE_LIMIT_ASYMMETRIC):
        return _largest_of_dense(matrix.toarray(), symmetric)
    # Fixed, to be reproducible; random, to be orthogonal to no eigenvector.
    start = np.random.default_rng(0).standard_normal(size)
    solve = eigsh if symmetric else eigs
    try:
        eigenvalues = solve(
            matrix,
            k=1 if symmetric else 6,  # Arnoldi may not find the largest first
            which="LM",
            v0=start,
            ncv=min(size, 64),
            tol=1e-9,
            maxiter=_RESTARTS,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence as error:
        if size <= DENSE_RESCUE:
            return _largest_of_dense(matrix.toarray(), symmetric)
        raise RefusedValue(
            f"the largest eigenvalue of a {size} x {size} Laplacian did not converge ({error}); "
            "use lambda_max='bound' or give the number"
        ) from error
    return float(np.abs(eigenvalues).max())


def _largest_of_dense(matrix: np.ndarray, symmetric: bool) -> float:
    eigenvalues = np.linalg.eigvalsh(matrix) if symmetric else np.linalg.eigvals(matrix)
    return float(np.abs(eigenvalues).max())
