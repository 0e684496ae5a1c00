"""The work of dense products with Θ and of sparse products with A_k."""

from __future__ import annotations

from ..graph.sparse_features import SparseFeatures
from .cost import Work, moving
from .problem import Problem

CACHE_LINE = 64  # bytes


def dense_product(
    problem: Problem, rows: float, wanted: bool, calls: float = 1
) -> tuple[Work, Work]:
    """Forward and backward work of a product of ``rows`` rows with matrices Θ_k.

    ``wanted``: whether the rows require gradients.
    """
    flops = 2.0 * rows * problem.in_channels * problem.parameter.shape[3]
    forward = Work(dense_flops=flops, calls=calls)
    return forward, forward * (wanted + problem.gradients[1])


def transform(problem: Problem, rows: float) -> tuple[Work, Work]:
    """Forward and backward work of X Θ_k, for ``rows`` pairs of a source and a label."""
    of_x, of_theta, _ = problem.gradients
    if problem.has_features:
        return dense_product(problem, rows, of_x)
    width = problem.out_channels * problem.itemsize
    if isinstance(problem.x, SparseFeatures):
        wide = float(problem.num_labels * width)
        forward = Work(
            gathers=((problem.x.num_entries * wide, problem.in_channels * wide),), calls=1
        )
        return forward, forward * (of_x + of_theta)
    looked_up = moving(rows * width)
    return looked_up, looked_up * of_theta


def sparse_product(
    problem: Problem,
    width: int,
    rows: tuple[float, float],
    wanted: bool,
    entries: float | None = None,
) -> tuple[Work, Work]:
    """Forward and backward work of a sparse product of a width.

    Args:
        problem: the problem, whose edges are the entries of the matrix.
        width: number of channels of the dense operand and of the result.
        rows: number of rows of the operand, and of the result.
        wanted: whether the operand requires gradients.
        entries: number of entries of the matrix, if it is not the number of edges.
    """
    count = float(problem.num_edges) if entries is None else entries
    line = float(width * problem.num_columns * problem.itemsize)
    # MKL takes longer for rows that end within a cache line.
    vain = count * (-line % CACHE_LINE + CACHE_LINE) if line % CACHE_LINE else 0.0
    forward, transposed = (
        Work(gathers=((count * line, end * line),), picks=((vain, end * line),), calls=1)
        for end in rows
    )
    return forward, transposed * wanted + forward * problem.gradients[2]
