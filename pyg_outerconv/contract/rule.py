"""The plain rule: which order of edges or of a polynomial to take, by comparing a few sizes.

1. Sparse products run at the narrower width: Θ comes first where it makes rows narrower.
2. Only the (node, label) pairs that have edges are listed where there are fewer edges than pairs.
3. Labels are mixed first where Θ mixes a few matrices for many labels.
4. A matrix that edges fill for the most part is a dense one.

Nothing is counted for it, and nothing priced. ``outerconv bench --only orders`` compares it with
every order that may, and ``examples/bench/orders.md`` shows what came of it.
"""

from __future__ import annotations

from ..basis.edges import EdgeBasis
from ..basis.pattern import LONG
from .problem import LINEAR, Problem

FEW = 4  # matrices of a mixture, and labels for each of them
FULL, ALL = 0.5, 0.95  # of the places of a dense matrix, with a backward pass and without one
WIDE = 128  # channels for which the latter pays


def is_plain(problem: Problem) -> bool:
    """Whether the rule is for the problem: its edges are given, not made by a rule of their own."""
    return isinstance(problem.basis, EdgeBasis)


def rank_of_form(problem: Problem, *, first: bool, compact: bool) -> int:
    """0 for the form that the rule takes, 1 for others; ``first``: whether Θ comes first in it."""
    if not is_plain(problem):
        return 1
    wanted = bool(transforms(problem)), bool(is_compact(problem))  # a tracer compares in tensors
    return int(wanted != (first, compact))


def transforms(problem: Problem) -> bool:
    """Whether Θ comes first.

    Features that need no gradient are propagated once, where what Θ made has one and goes back.
    Where widths are equal, it is what has the longer rows to add up.
    """
    if not problem.has_features:
        return True
    if problem.reduce not in LINEAR:
        return False
    of_x, of_theta, _ = problem.gradients
    width = problem.out_channels * (2 if of_theta and not of_x else 1)
    return width < problem.in_channels or (width == problem.in_channels and _is_short(problem))


def _is_short(problem: Problem) -> bool:
    """Whether few edges share a target and a label, and labels are several."""
    if not is_plain(problem) or problem.num_labels == 1:
        return False
    return problem.num_edges < LONG * problem.num_labels * problem.basis.size[1]


def is_compact(problem: Problem) -> bool:
    """Whether pairs of a node and a label that have edges are few."""
    if problem.num_labels == 1:
        return False
    if problem.reduce not in LINEAR:  # each row has places beside it, of what is the largest
        return problem.num_edges < LONG * problem.num_labels * problem.basis.size[1]
    nodes = problem.basis.size[0 if transforms(problem) else 1]
    return problem.num_edges < problem.num_labels * nodes


def mixes(problem: Problem) -> bool:
    """Whether Θ is a mixture of so few matrices that edges are mixed instead."""
    mixture = problem.mixture
    count = 0 if mixture is None else mixture.num_matrices
    return 0 < count <= FEW and FEW * count <= problem.num_labels


def has_few(problem: Problem) -> bool:
    """Whether Θ is a mixture of no more matrices than labels: a polynomial adds up powers first."""
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
