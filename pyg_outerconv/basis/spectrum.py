"""The largest eigenvalue of a graph's Laplacian, computed without gradient."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..errors import RefusedValue
from .structure import Structure

# Below this size a dense solver is faster than Lanczos, and Lanczos needs room for its vectors.
DENSE_LIMIT = 128


def largest_eigenvalues(matrix: Structure, batch: Tensor | None = None) -> Tensor:
    """(G,) the largest eigenvalue, by modulus, of a square matrix, graph by graph.

    Lanczos (scipy's ``eigsh``) where the matrix is symmetric and has at least 128 rows, a dense
    solver where it is smaller. Where it is not symmetric its eigenvalues may be complex: the
    largest modulus is returned, by Arnoldi (``eigs``) or a dense solver. A matrix without rows
    has the eigenvalue 0.

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
    row, column = edge_index.cpu().numpy()
    entries = value.cpu().numpy()
    whole = sp.csr_array((entries, (row, column)), shape=(num_nodes, num_nodes))
    if batch is None:
        return torch.tensor([_largest(whole)], dtype=torch.float64)
    graph = batch.cpu().numpy()
    groups = [np.flatnonzero(graph == number) for number in range(num_graphs)]
    return torch.tensor([_largest(whole[nodes][:, nodes]) for nodes in groups], dtype=torch.float64)


@_largest_eigenvalues.register_fake
def _(
    edge_index: Tensor, value: Tensor, num_nodes: int, batch: Tensor | None, num_graphs: int
) -> Tensor:
    return torch.empty(num_graphs, dtype=torch.float64)


def _largest(matrix: sp.csr_array) -> float:
    size = matrix.shape[0]
    if size == 0:
        return 0.0
    gap = abs(matrix - matrix.T)
    scale = abs(matrix).max() if matrix.nnz else 0.0
    symmetric = gap.nnz == 0 or gap.max() <= 1e-6 * scale
    if symmetric:
        matrix = (matrix + matrix.T) / 2
    if size < DENSE_LIMIT:
        dense = matrix.toarray()
        found = np.linalg.eigvalsh(dense) if symmetric else np.linalg.eigvals(dense)
        return float(np.abs(found).max())
    # A fixed start makes the result repeatable; random, so that it misses no eigenvector.
    start = np.random.default_rng(0).standard_normal(size)
    solve = sp.linalg.eigsh if symmetric else sp.linalg.eigs
    try:
        found = solve(
            matrix,
            k=1,
            which="LM",
            v0=start,
            ncv=min(size, 64),
            tol=1e-9,
            return_eigenvectors=False,
        )
    except sp.linalg.ArpackNoConvergence as error:
        raise RefusedValue(
            f"the largest eigenvalue of a {size} x {size} Laplacian did not converge ({error}); "
            "use lambda_max='bound' or give the number"
        ) from error
    return float(np.abs(found).max())
