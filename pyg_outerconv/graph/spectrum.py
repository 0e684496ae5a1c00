"""The largest eigenvalue of a graph's Laplacian, computed without gradient."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedValue
from .edge_list import EdgeList

if TYPE_CHECKING:  # scipy is imported where an eigenvalue is asked for
    import scipy.sparse as sp

# Below this size a dense solver is faster than Lanczos, and Lanczos needs room for its vectors.
DENSE_LIMIT = 128
# Arnoldi may settle on an eigenvalue that is not the largest where many have nearly one modulus.
DENSE_LIMIT_ASYMMETRIC = 512
# Up to this size a dense solver takes over where an iteration fails.
DENSE_RESCUE = 1500
# Restarts of an iteration: what needs more is as good as stuck, and takes minutes to say so.
_RESTARTS = 300


def largest_eigenvalues(matrix: EdgeList, batch: Tensor | None = None) -> Tensor:
    """(G,) the largest eigenvalue, by modulus, of a square matrix, graph by graph.

    Lanczos (scipy's ``eigsh``) where the matrix is symmetric and has at least 128 rows, a dense
    solver where it is smaller. Where it is not symmetric its eigenvalues may be complex: the
    largest modulus is returned, by Arnoldi (``eigs``) or a dense solver, of each strongly connected
    component: their eigenvalues are those of the whole, which alone may be too far from normal for
    any iteration (a long path in one direction). A matrix without rows has the eigenvalue 0.

    Args:
        matrix: the entries, in ``edge_weight``; square.
        batch: (N,) the graph of each row, whose blocks are treated one by one; None for one graph.

    Raises:
        ValueError: the iteration did not converge.
    """
    value = matrix.weight(torch.float64).detach().double()
    num_graphs = 1
    if batch is not None:
        num_graphs = int(batch.max()) + 1 if batch.numel() else 0
    return _largest_eigenvalues(matrix.edge_index, value, matrix.size[0], batch, num_graphs)


# An operator, so that scipy sees plain tensors under torch.func, and a compiler one node.
@torch.library.custom_op("pyg_outerconv::largest_eigenvalues", mutates_args=())
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
    """The rows and columns of each of ``count`` parts, ``part`` (N,) saying which a row is in."""
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
    # A fixed start makes the result repeatable; random, so that it misses no eigenvector.
    start = np.random.default_rng(0).standard_normal(size)
    solve = eigsh if symmetric else eigs
    try:
        found = solve(
            matrix,
            k=1 if symmetric else 6,  # the largest of several, in case it is not found first
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
    return float(np.abs(found).max())


def _largest_of_dense(matrix: np.ndarray, symmetric: bool) -> float:
    found = np.linalg.eigvalsh(matrix) if symmetric else np.linalg.eigvals(matrix)
    return float(np.abs(found).max())
