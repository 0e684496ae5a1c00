"""The plain rule: choose an order for edges or a polynomial by comparing a few sizes.

1. Sparse products run at the narrower width: Θ comes first if Q < P.
2. The compact form, which lists only (node, label) pairs with edges, is used if there are fewer
   edges than pairs.
3. Labels are mixed first if Θ mixes a few matrices for many labels.
4. A dense matrix is used if edges fill most of it.

The rule counts no pairs and computes no costs. ``outerconv bench --only orders`` compares it with
every legal order; ``examples/bench/orders.md`` has the results.
"""

from __future__ import annotations

from ..basis.edges import EdgeBasis
from ..basis.pattern import EDGES_PER_ROW
from .problem import LINEAR, Problem

FEW = 4  # at most so many matrices of a mixture, and at least so many labels for each of them
FULL, ALL = 0.5, 0.95  # share of filled entries for a dense matrix, with and without backward pass
WIDE = 128  # the least number of channels for a dense matrix without backward pass


def rank_of_form(problem: Problem, *, theta_first: bool, compact: bool) -> int:
    """0 for the form that the rule chooses, 1 for the others."""
    # bool(), because sizes are symbolic under a tracer.
    wanted = bool(transforms(problem)), bool(_is_compact(problem))
    return int(wanted != (theta_first, compact))


def transforms(problem: Problem) -> bool:
    """Whether Θ comes first: Q < P.

    Q counts twice if Θ requires gradients and X does not: X Θ_k then has a backward pass through
    the sparse product, where A_kᵀ X has none. If both widths are equal, the length of rows decides.
    """
    if not problem.has_features:
        return True
    if problem.aggr not in LINEAR:
        return False
    of_x, of_theta, _ = problem.gradients
    width = problem.out_channels * (2 if of_theta and not of_x else 1)
    if width != problem.in_channels:
        return width < problem.in_channels
    several = isinstance(problem.basis, EdgeBasis) and problem.num_labels > 1
    return several and _rows_are_short(problem)


def _rows_are_short(problem: Problem) -> bool:
    """Whether few edges share a target and a label."""
    return problem.num_edges < EDGES_PER_ROW * problem.num_labels * problem.basis.size[1]


def _is_compact(problem: Problem) -> bool:
    """Whether few (node, label) pairs have edges."""
    if problem.num_labels == 1:
        return False
    if problem.aggr not in LINEAR:  # rows of max and min also store the index of the winner
        return _rows_are_short(problem)
    nodes = problem.basis.size[0 if transforms(problem) else 1]
    return problem.num_edges < problem.num_labels * nodes


def mixes(problem: Problem) -> bool:
    """Whether Θ is a mixture of so few matrices that values of edges are mixed instead."""
    mixture = problem.mixture
    count = 0 if mixture is None or mixture.has_filters else mixture.num_matrices
    return 0 < count <= FEW and FEW * count <= problem.num_labels


def has_few(problem: Problem) -> bool:
    """Whether Θ is a mixture of at most K matrices: a polynomial then sums its powers first."""
    mixture = problem.mixture
    return mixture is not None and mixture.num_matrices <= problem.num_labels


def is_full(problem: Problem) -> bool:
    """Whether the edges fill a dense matrix for the most part."""
    sources, targets = problem.basis.size
    places = problem.num_labels * sources * targets
    if any(problem.gradients):
        return problem.num_edges >= FULL * places
    wide = min(problem.in_channels, problem.out_channels) >= WIDE
    return wide and problem.num_edges >= ALL * places
