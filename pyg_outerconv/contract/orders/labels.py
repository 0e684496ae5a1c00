"""Orders label by label: small products that fit caches; comparing labels; mixing labels first."""

from __future__ import annotations

import torch
from torch import Tensor

from ...basis.edges import multiply
from ...basis.pairs import LabelBlock
from ...graph.sparse_matrix import SparseMatrix
from ...kernels import REDUCTIONS
from ...kernels.products import mixed_product
from ...theta import Theta, autocast_pair
from ..cost import Cost, Operations, dense_product, moving, sparse_product, transform
from ..order import EdgeOrder, needs_features, needs_mixture
from ..problem import LINEAR, Problem
from ..rule import mixes


class LabelByLabel(EdgeOrder):
    """A_kᵀ X Θ_k for each k in turn, on the nodes with edges of label k.

    Within a label, Θ comes first if Q < P and the reduction is linear. Nothing is stored for K
    labels.
    """

    name = "label_by_label"
    reductions = frozenset(REDUCTIONS)
    needs = (needs_features,)
    reads = ("label_blocks", "num_source_pairs", "num_target_pairs")

    def rank_of_edges(self, problem: Problem) -> int:
        """Last, because it is seldom the fastest; it allocates the least memory."""
        return 2

    def cost(self, problem: Problem) -> Cost:
        """E·min(P, Q) sparse, the smaller dense product, and the rows of one label at a time."""
        sources, targets = float(problem.num_source_pairs), float(problem.num_target_pairs)
        wanted, of_theta, of_basis = problem.gradients
        first = _transforms_first(problem)
        width = problem.out_channels if first else problem.in_channels
        columns, labels = problem.num_columns, max(problem.num_labels, 1)
        between = sources if first else targets  # rows between the two products
        dense = dense_product(problem, between * columns, wanted or (of_basis and not first))
        # Operands of a label are a K-th of all rows.
        rows = sources / labels, targets / labels
        sparse = sparse_product(problem, width, rows, wanted or (of_theta and first))
        line = columns * problem.itemsize
        parts = (
            rows[0] * problem.in_channels * line,
            between / labels * width * line,
            rows[1] * problem.out_channels * line,
        )
        of_x = problem.basis.size[0] * problem.in_channels * line
        of_y = problem.basis.size[1] * problem.out_channels * line
        ends = Operations(
            moves=tuple((labels * part, part) for part in parts),
            picks=((labels * parts[0], of_x), (2.0 * labels * parts[2], of_y)),
            calls=6.0 * labels,
        ) * (1 + (problem.num_blocks > 1))  # blocks of Θ are split and concatenated
        # Autograd scatters the gradient of each label into a tensor like X, and adds these up.
        spread = Operations(moves=((2.0 * labels * of_x, of_x),)) * wanted
        # Operands and result of one label; or of all labels, those that autograd saves.
        kept = any(problem.gradients)
        dense_kept, sparse_kept = (of_theta, of_basis) if kept else (True, True)
        held = line * (
            sources * problem.in_channels * (dense_kept if first else sparse_kept)
            + between * width * (sparse_kept if first else dense_kept)
            + targets * problem.out_channels
        )
        held = held if kept else held / labels
        if kept and problem.has_values:
            held += problem.num_edges * problem.itemsize
        # The rows are written by one small product and read by the next.
        return dense + sparse + Cost(ends * 2, spread + ends * (3 * kept), held)

    def run(self, problem: Problem) -> Tensor:
        out: Tensor | None = None
        for block in problem.edges.pattern.label_blocks:
            out = _added(problem, out, block, _contract_label(problem, block))
        return _zeros(problem) if out is None else out


def _contract_label(problem: Problem, block: LabelBlock) -> Tensor:
    """A_kᵀ X Θ_k for the targets with edges of label k: (n, *batch, Q)."""
    if _transforms_first(problem):
        z = _transform(problem, block)
        return multiply(block.csr, problem.edges, z, block.order, problem.aggr)
    x = problem.features.index_select(0, block.source)
    h = multiply(block.csr, problem.edges, x, block.order, problem.aggr)
    return problem.collect_label(h, block.label)


def _transforms_first(problem: Problem) -> bool:
    return problem.aggr in LINEAR and problem.narrows


def _transform(problem: Problem, block: LabelBlock) -> Tensor:
    """X Θ_k for the sources with edges of label k: (m, *batch, Q)."""
    x, source = problem.x, block.source
    if isinstance(x, SparseMatrix):
        return problem.transform_label(block.label).index_select(0, source)
    # Without features, source m takes row m of Θ_k.
    rows = source.long() if x is None else x.index_select(0, source)
    return Problem(problem.basis, rows, problem.parameter).transform_label(block.label)


def _added(problem: Problem, out: Tensor | None, block: LabelBlock, part: Tensor) -> Tensor:
    """The sum (N, *batch, Q) of the labels so far, ``out``, and of ``part`` for those of a block.

    The first sum is not in place, so that it is batched under vmap, as parts are.
    """
    if out is not None:
        return out.index_add_(0, block.target, part)
    shape = (problem.basis.size[1], *part.shape[1:])
    return part.new_zeros(shape).index_add(0, block.target, part)


def _zeros(problem: Problem) -> Tensor:
    """The result without edges: zeros (N, *batch, Q) that autograd connects to X and Θ."""
    shape = (problem.basis.size[1], *problem.batch, problem.out_channels)
    theta, x = problem.theta, problem.x
    rows = x.value if isinstance(x, SparseMatrix) else x
    if rows is None or not rows.is_floating_point():
        return theta.new_zeros(shape) + theta[:0].sum()
    rows, theta = autocast_pair(rows, theta)
    return rows.new_zeros(shape) + rows[:0].sum() + theta[:0].sum()


# Comparing labels --------------------------------------------------------------------------------


def _needs_dense_inputs(problem: Problem) -> list[str]:
    return [] if problem.aggr in LINEAR else needs_features(problem)


class CompareLabels(EdgeOrder):
    """max_k (or min_k) of (reduce_m A_k[m, n] X[m]) Θ_k over the labels that reach n.

    Both passes go label by label, so that no tensor of N·K·Q numbers is stored. The first, without
    gradients, stores the best entry and its label for each target and channel. The second sums the
    winning entries over labels and has all derivatives. Of equal labels the lowest wins.
    """

    name = "compare_labels"
    reductions = frozenset(REDUCTIONS)
    label_reductions = frozenset({"max", "min"})
    needs = (_needs_dense_inputs,)
    reads = LabelByLabel.reads

    def cost(self, problem: Problem) -> Cost:
        """Twice the cost of ``label_by_label``, and the best entries with their labels."""
        once = LabelByLabel().cost(problem)
        width = float(problem.out_channels * problem.num_columns)
        pairs, targets = problem.num_target_pairs * width, problem.basis.size[1] * width
        compared = moving(*(pairs * problem.itemsize,) * 6)
        held = targets * (problem.itemsize + 4)
        if not any(problem.gradients):
            return Cost.of(once.forward + compared, memory=once.memory + held)
        again = Cost(once.forward + compared, compared, held + pairs)
        return once + Cost.of(compared) + again

    def run(self, problem: Problem) -> Tensor:
        with torch.no_grad():
            found = _winners(problem)
        if found is None:
            return _zeros(problem)
        best, winner = found
        if not any(problem.gradients):
            return best.masked_fill(winner < 0, 0.0)
        out: Tensor | None = None
        for block in problem.edges.pattern.label_blocks:
            won = winner.index_select(0, block.target) == block.label
            part = torch.where(won, _contract_label(problem, block), 0.0)
            out = _added(problem, out, block, part)
        assert out is not None  # there are edges
        return out


def _winners(problem: Problem) -> tuple[Tensor, Tensor] | None:
    """The best entries and their labels, (N, *batch, Q); label -1: no edges. None if E = 0."""
    largest = problem.label_aggr == "max"
    best: Tensor | None = None
    winner: Tensor | None = None
    for block in problem.edges.pattern.label_blocks:
        part, to = _contract_label(problem, block), block.target
        if best is None or winner is None:
            shape = (problem.basis.size[1], *part.shape[1:])
            first = torch.zeros_like(part, dtype=torch.int32) + block.label
            # Not in place, because of vmap.
            best = part.new_full(shape, -torch.inf if largest else torch.inf)
            best = best.index_put((to.long(),), part)
            winner = first.new_full(shape, -1).index_put((to.long(),), first)
            continue
        last, label = best.index_select(0, to), winner.index_select(0, to)
        better = (part > last) if largest else (part < last)
        # The first label at a target wins in any case; NaN wins over every number.
        better = better | (label < 0) | (part.isnan() & ~last.isnan())
        best.index_put_((to.long(),), torch.where(better, part, last))
        winner.index_put_((to.long(),), torch.where(better, block.label, label))
    return None if best is None or winner is None else (best, winner)


# Mixing labels -----------------------------------------------------------------------------------


class LabelMixing(EdgeOrder):
    """Σ_b (Σ_k c_kb A_k)ᵀ X V_b for Θ_k = Σ_b c_kb V_b: B sparse products over all edges, not K.

    The values of one b at a time are computed, and again in the backward pass: E numbers, not E·B.
    """

    name = "label_mixing"
    needs = (needs_mixture,)
    reads = ("ends", "by_label")

    def rank_of_edges(self, problem: Problem) -> int:
        return -1 if mixes(problem) else 1

    def cost(self, problem: Problem) -> Cost:
        """M·B·P·Q dense, B·E·min(P, Q) sparse, M·min(P, Q) for each b, and E numbers."""
        count = problem.parameter.num_matrices
        of_x, of_theta, of_basis = problem.gradients
        wanted, first = of_x or of_theta, problem.narrows
        width = problem.out_channels if first else problem.in_channels
        rows = problem.basis.size[0 if first else 1]
        rows_of_all = float(rows * problem.num_columns)
        if first:
            one = Problem(problem.basis, problem.x, Theta(problem.parameter.inner[:1]))
            dense = transform(one, rows_of_all)
        else:
            dense = dense_product(problem, rows_of_all, wanted or of_basis)
        sparse = sparse_product(problem, width, problem.basis.size, wanted if first else of_x)
        back = dense.backward + sparse.backward
        # The gradient of the coefficients samples products at all edges, like that of values.
        if of_theta and not of_basis:
            back = back + sparse.forward
        edges = float(problem.num_edges * problem.itemsize)
        between = float(rows * width * problem.num_columns * problem.itemsize)
        mixed = moving(edges, edges, between)
        learns = wanted or of_basis
        one_matrix = Cost(dense.forward + sparse.forward + mixed, (back + mixed * 2) * learns)
        return one_matrix * count + Cost.of(memory=2.0 * edges + between * (count if learns else 1))

    def run(self, problem: Problem) -> Tensor:
        mixture, edges = problem.parameter, problem.edges
        assert mixture.coefficient is not None  # it needs a mixture
        pattern, out = edges.pattern, None
        entries = pattern.ends, pattern.label, pattern.by_label, edges.value
        for number in range(mixture.num_matrices):
            coefficient = mixture.coefficient[:, number]
            matrix = Theta(mixture.inner[number : number + 1])
            one = Problem(problem.basis, problem.x, matrix)
            if problem.narrows:
                part = mixed_product(*entries, coefficient, one.transform().squeeze(1))
            else:
                h = mixed_product(*entries, coefficient, problem.features)
                part = h if mixture.is_unit else one.collect(h.unsqueeze(1))
            out = part if out is None else out + part
        assert out is not None  # at least one matrix
        return out
