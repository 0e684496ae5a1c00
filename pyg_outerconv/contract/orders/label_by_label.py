"""Contract one label at a time: small products that fit caches, nothing stored for K labels."""

from __future__ import annotations

from torch import Tensor

from ...basis.edges import multiply
from ...basis.pattern_matrices import LabelBlock
from ...graph.sparse_features import SparseFeatures
from ...kernels import REDUCTIONS
from ...theta.theta import autocast_pair
from ..cost import Cost, Work
from ..order import EXPLICIT, Order, has_made, needs_features
from ..problem import LINEAR, Problem
from ..rule import is_plain
from ..work import dense_product, sparse_product


class LabelByLabel(Order):
    """A_kᵀ X Θ_k for each k in turn, on the nodes with edges of label k.

    Within a label, Θ comes first if Q < P and the reduction is linear.
    """

    name = "label_by_label"
    solves = EXPLICIT
    reductions = frozenset(REDUCTIONS)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires dense features."""
        return needs_features(problem)

    def rank(self, problem: Problem) -> int:
        """Last for explicit edges: it allocates the least memory and is seldom the fastest."""
        return 2 if is_plain(problem) else 1

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
        return has_made(problem, "label_blocks", "num_source_pairs", "num_target_pairs")

    def cost(self, problem: Problem) -> Cost:
        """E·min(P, Q) sparse, the smaller dense product, and the rows of one label at a time."""
        sources, targets = float(problem.num_source_pairs), float(problem.num_target_pairs)
        wanted, of_theta, of_basis = problem.gradients
        transforms = _transforms_first(problem)
        width = problem.out_channels if transforms else problem.in_channels
        columns, labels = problem.num_columns, max(problem.num_labels, 1)
        dense, dense_back = dense_product(
            problem,
            (sources if transforms else targets) * columns,
            wanted or (of_basis and not transforms),
        )
        inner = (wanted or of_theta) if transforms else wanted
        # Operands of a label are a K-th of all rows.
        rows = (sources / labels, targets / labels)
        sparse, sparse_back = sparse_product(problem, width, rows, inner)
        line = columns * problem.itemsize
        parts = (
            rows[0] * problem.in_channels * line,
            rows[0 if transforms else 1] * width * line,
            rows[1] * problem.out_channels * line,
        )
        sizes = (
            problem.basis.size[0] * problem.in_channels * line,
            problem.basis.size[1] * problem.out_channels * line,
        )
        ends = Work(
            moves=tuple((labels * part, part) for part in parts),
            picks=((labels * parts[0], sizes[0]), (2.0 * labels * parts[2], sizes[1])),
            calls=6.0 * labels,
        ) * (1 + (problem.num_blocks > 1))  # blocks of Θ are split and concatenated
        # Autograd scatters the gradient of each label into a tensor like X, and adds these up.
        spread = Work(moves=((2.0 * labels * sizes[0], sizes[0]),)) * wanted
        # Operands and result of one label; or of all labels, those that autograd saves.
        kept = wanted or of_theta or of_basis
        dense_kept, sparse_kept = (of_theta, of_basis) if kept else (True, True)
        first, second = (dense_kept, sparse_kept) if transforms else (sparse_kept, dense_kept)
        held = line * (
            sources * problem.in_channels * first
            + (sources if transforms else targets) * width * second
            + targets * problem.out_channels
        )
        held = held if kept else held / labels
        if kept and problem.has_values:
            held += problem.num_edges * problem.itemsize
        # The rows are written by one small product and read by the next.
        forward, backward = dense + sparse + ends * 2, dense_back + sparse_back + spread
        return Cost(forward, backward + ends * (3 * kept), held)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        shape = (problem.basis.size[1], *problem.batch, problem.out_channels)
        out: Tensor | None = None
        for block in problem.edges.pattern.label_blocks:
            part = contract_label(problem, block)
            if out is None:  # not in place, so that the result is batched under vmap, as parts are
                out = part.new_zeros(shape).index_add(0, block.target, part)
            else:
                out.index_add_(0, block.target, part)
        return zeros(problem) if out is None else out


def contract_label(problem: Problem, block: LabelBlock) -> Tensor:
    """A_kᵀ X Θ_k for the targets with edges of label k: (n, *batch, Q)."""
    if _transforms_first(problem):
        z = _transform(problem, block)
        return multiply(block.sparsity, problem.edges, z, block.order, problem.reduce)
    assert isinstance(problem.x, Tensor)  # there are features
    x = problem.x.index_select(0, block.source)
    h = multiply(block.sparsity, problem.edges, x, block.order, problem.reduce)
    return problem.collect_label(h, block.label)


def _transform(problem: Problem, block: LabelBlock) -> Tensor:
    """X Θ_k for the sources with edges of label k: (m, *batch, Q)."""
    x, source = problem.x, block.source
    if isinstance(x, SparseFeatures):
        return problem.transform_label(block.label).index_select(0, source)
    # Without features, source m takes row m of Θ_k.
    rows = source.long() if x is None else x.index_select(0, source)
    return Problem(problem.basis, rows, problem.parameter).transform_label(block.label)


def zeros(problem: Problem) -> Tensor:
    """The result without edges: zeros (N, *batch, Q) that autograd connects to X and Θ."""
    shape = (problem.basis.size[1], *problem.batch, problem.out_channels)
    theta, x = problem.theta, problem.x
    rows = x.value if isinstance(x, SparseFeatures) else x
    if rows is None or not rows.is_floating_point():
        return theta.new_zeros(shape) + theta[:0].sum()
    rows, theta = autocast_pair(rows, theta)
    return rows.new_zeros(shape) + rows[:0].sum() + theta[:0].sum()


def _transforms_first(problem: Problem) -> bool:
    return problem.reduce in LINEAR and problem.narrows
