"""The work of the two products that every order is made of."""

from __future__ import annotations

from ..graph.sparse_features import SparseFeatures
from .cost import Work, moving
from .problem import Problem

CACHE_LINE = 64  # bytes


def dense_product(
    problem: Problem, rows: float, wanted: bool, calls: float = 1
) -> tuple[Work, Work]:
    """Forward and backward of a product of ``rows`` rows with matrices Θ_k.

    ``wanted`` says whether the rows need a gradient; Θ does if the problem says so.
    """
    flops = 2.0 * rows * problem.in_channels * problem.parameter.shape[3]
    forward = Work(dense_flops=flops, calls=calls)
    return forward, forward * (wanted + problem.gradients[1])


def transform(problem: Problem, rows: float) -> tuple[Work, Work]:
    """Forward and backward of X Θ_k, for ``rows`` pairs of a source and a label."""
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
    """Forward and backward of a sparse product of the given width.

    Args:
        problem: whose edges they are.
        width: channels of the dense operand and of the result.
        rows: of the operand and of the result.
        wanted: whether the operand needs a gradient; the values do if the problem says so.
        entries: of the matrix, where it is not the problem's explicit edges.
    """
    count = float(problem.num_edges) if entries is None else entries
    line = float(width * problem.num_columns * problem.itemsize)
    # MKL takes a further detour for rows that do not fill their last line.
    vain = count * (-line % CACHE_LINE + CACHE_LINE) if line % CACHE_LINE else 0.0
    forward, transposed = (
        Work(gathers=((count * line, end * line),), picks=((vain, end * line),), calls=1)
        for end in rows
    )
    return forward, transposed * wanted + forward * problem.gradients[2]
