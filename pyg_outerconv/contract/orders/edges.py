"""Orders for explicit edges: all labels in one sparse product, label by label, or mixed first.

The result between two products has a row for each (node, label) pair, or only for pairs with edges:
the compact form, the compact materialisation of Wu et al., *Hector*, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from ...basis.edges import multiply
from ...basis.pairs import LabelBlock
from ...graph.sparse_matrix import SparseMatrix
from ...kernels import REDUCTIONS
from ...kernels.dispatch import forced, get_backend
from ...kernels.grouped import known_groups
from ...kernels.products import mixed_product
from ...theta import Theta, autocast_pair
from ..cost import (
    Cost,
    Operations,
    Steps,
    dense_product,
    moving,
    picking_in_turn,
    sparse_product,
)
from ..order import EXPLICIT, EdgeOrder, Pair, needs_features, needs_identity, needs_mixture
from ..problem import LINEAR, Problem
from ..rule import mixes, rank_of_form


class TwoProducts(EdgeOrder):
    """Σ_k A_kᵀ X Θ_k by a sparse product and one with Θ.

    Θ first is cheap if Q < P or K is small, A first if P < Q.

    Attributes:
        compact: whether the result between the two lists only (node, label) pairs with edges.
    """

    pair: ClassVar[Pair] = {
        "transform_first": {"theta_first": True, "reads": ("by_target",)},
        "propagate_first": {
            "propagates": True,
            "adds_bias": True,
            "reductions": frozenset(REDUCTIONS),
            "needs": (needs_features,),
            "reads": ("by_target_label",),
        },
    }
    compact: ClassVar[bool] = False
    knows_shapes = True

    def rank_of_edges(self, problem: Problem) -> int:
        return rank_of_form(problem, theta_first=self.theta_first, compact=self.compact)

    def steps(self, problem: Problem) -> Steps:
        """E·min(P, Q) sparse, a dense product for each pair, and the pairs between the two."""
        steps, first, (sources, targets) = Steps(problem), self.theta_first, problem.basis.size
        pairs = float((sources if first else targets) * problem.num_labels)
        if self.compact:
            pairs = problem.num_pairs(at_target=not first)
        # Blocks of Θ are multiplied one by one, each with a copy of its columns.
        copies = 1 + (self.compact and problem.num_blocks > 1)
        width = problem.out_channels if first else problem.in_channels
        rows, ends = pairs * problem.num_columns, (pairs, targets) if first else (sources, pairs)
        of_theta = problem.gradients[1]
        if first:
            taken = rows * problem.in_channels * problem.has_features
            back = steps.learns + of_theta
            steps.transform(rows).hold(rows * width, copies).sparse(width, ends)
            return self._picked(steps, taken, back)
        back = steps.sparse(width, ends).hold(rows * width, copies).learns + of_theta
        copied = problem.num_edges * (problem.basis.dtype is not None)  # in the order of pairs
        return self._picked(steps.theta(rows), rows * problem.out_channels, back, copied)

    def _picked(self, steps: Steps, numbers: float, back: float, copied: float = 0.0) -> Steps:
        """Add rows of so many numbers that compact forms gather or scatter, label by label."""
        if not self.compact:
            return steps
        problem = steps.problem
        groups, itemsize = problem.num_labels * problem.num_blocks, problem.itemsize
        picks = picking_in_turn(numbers * itemsize, groups)
        return steps.work("rows of pairs", picks, back, copied * itemsize)

    def run(self, problem: Problem) -> Tensor:
        basis, x = problem.basis, problem.x
        assert isinstance(basis, EXPLICIT)  # it solves no other
        if not self.theta_first:
            assert isinstance(x, Tensor)  # it needs features
            h = basis.propagate_rows(x, problem.aggr, problem.few)
            return problem.parameter.combine(h, basis.size[1], problem.bias)
        z = problem.transform()
        # Autocast makes z of another type than the plan was made for.
        few = problem.few if isinstance(x, Tensor) and x.dtype == z.dtype else None
        return basis.gather(z, few)


# Compact forms -----------------------------------------------------------------------------------


def _needs_grouped_products(problem: Problem) -> list[str]:
    """A reason if the requested backend has no grouped products, which features need."""
    asked = forced()
    if not problem.has_features or asked is None:
        return []
    if "grouped_matmul" in get_backend(asked).primitives:
        return []
    return [f"needs the primitive grouped_matmul, which the backend {asked!r} does not have"]


def _needs_rows(problem: Problem) -> list[str]:
    if isinstance(problem.x, SparseMatrix):
        return ["needs dense features or indices to take rows of X"]
    return []


class Compact(TwoProducts):
    """The two products over (node, label) pairs with edges, sources with Θ first, else targets.

    Both are cheap if K is large.
    """

    pair: ClassVar[Pair] = {
        "transform_first_compact": {
            "theta_first": True,
            "needs": (_needs_rows, _needs_grouped_products),
            "reads": ("source_pairs", "num_source_pairs"),
        },
        "propagate_first_compact": {
            "reductions": frozenset(REDUCTIONS),
            "needs": (needs_features, _needs_grouped_products),
            "reads": ("target_pairs", "num_target_pairs"),
        },
    }
    compact, knows_shapes = True, False

    def run(self, problem: Problem) -> Tensor:
        edges, theta, x = problem.edges, problem.theta, problem.x
        pattern, num_targets = edges.pattern, problem.basis.size[1]
        pairs = pattern.source_pairs if self.theta_first else pattern.target_pairs

        def of_item(item: Tensor) -> Tensor:
            if self.theta_first:
                z = grouped(item, pairs.ptr, theta, gather=pairs.node)
                return multiply(pairs.csr, edges, z)
            h = multiply(pairs.csr, edges, item, pairs.order, problem.aggr)
            return grouped(h, pairs.ptr, theta, scatter=pairs.node, num_rows=num_targets)

        if problem.has_features:
            return each_of_batch(problem, of_item)
        # Row m of X Θ_k is a row of Θ_k.
        node = pairs.node.long()
        row = x.index_select(0, node) if isinstance(x, Tensor) else node
        labels = node.new_ones(pairs.ptr.numel() - 1).cumsum(0) - 1
        label = labels.repeat_interleave(pairs.ptr.diff().long(), output_size=node.numel())
        z = theta[:, 0].flatten(0, 1).index_select(0, label * theta.size(2) + row)
        return multiply(pairs.csr, edges, z)


def each_of_batch(problem: Problem, run: Callable[[Tensor], Tensor]) -> Tensor:
    """``run`` on every (M, P) of a batch (M, *batch, P): (N, *batch, Q)."""
    x = problem.features
    if x.dim() == 2:
        return run(x)
    wide = x.flatten(1, -2)
    if wide.size(1) == 0:  # an empty batch, whose result still needs a gradient function
        return run(wide.sum(1)).unsqueeze(1)[:, :0].unflatten(1, problem.batch)
    out = torch.stack([run(item) for item in wide.unbind(1)], dim=1)
    return out.unflatten(1, problem.batch)


def grouped(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
    num_rows: int | None = None,
) -> Tensor:
    """:func:`.grouped_matmul` with Θ (K, G, P/G, Q/G), a matrix for each label; block-diagonal.

    Under autocast it runs in autocast's dtype, like a dense product.
    """
    x, theta = autocast_pair(x, theta)
    if theta.size(1) == 1:
        return known_groups(x, ptr, theta[:, 0], gather, scatter, num_rows)
    blocks = x.unflatten(-1, theta.shape[1:3]).unbind(1)
    outs = [
        known_groups(block, ptr, theta[:, number], gather, scatter, num_rows)
        for number, block in enumerate(blocks)
    ]
    return torch.cat(outs, dim=-1)


# One set of edges --------------------------------------------------------------------------------


def _needs_one_reduction(problem: Problem) -> list[str]:
    if problem.aggr == problem.label_aggr or needs_features(problem) or needs_identity(problem):
        return []
    if problem.is_one_each:  # last, because it counts pairs
        return []
    return [
        f"needs one reduction, or at most one edge for each target and label, not "
        f"{problem.aggr} within labels, then {problem.label_aggr}"
    ]


class AllEdges(EdgeOrder):
    """reduce_{k, m} A_k[m, n] X[m] for Θ_k = I: edges of all labels are one set.

    Inputs and labels must have the same reduction, unless each (target, label) has at most one edge
    (pooling). Sums also allow Θ_k = c I. Of equal entries the one with the lowest label takes the
    gradient.
    """

    name = "all_edges"
    reductions = frozenset(REDUCTIONS)
    label_reductions = frozenset({"sum", "max", "min"})
    needs = (needs_features, needs_identity, _needs_one_reduction)
    reads = ("ends",)

    def rank_of_edges(self, problem: Problem) -> int:
        """Best, because it does not tell labels apart."""
        return -2

    def steps(self, problem: Problem) -> Steps:
        """E·P sparse; for max and min also the index of the winning edge, N·P numbers."""
        of_x, _, of_basis = problem.gradients
        width, (sources, targets) = problem.in_channels, problem.basis.size
        steps = Steps(problem).sparse(width, (sources, targets))
        if problem.label_aggr == "sum":
            return steps
        # Winning edges are looked up, and their gradients scattered, row by row of the result.
        rows = float(targets * width * problem.num_columns)
        pick = rows * problem.itemsize, float(sources * width * problem.itemsize)
        lookups = Operations(picks=(pick,), moves=((8.0 * rows, 8.0 * rows),) * 3, calls=6)
        memory = 16.0 * rows + 8.0 * problem.num_edges  # indices of torch are int64
        return steps.work("winning edges", lookups, of_x + of_basis, memory)

    def run(self, problem: Problem) -> Tensor:
        edges, factor = problem.edges, problem.factor
        out = multiply(edges.pattern.ends, edges, problem.features, aggr=problem.label_aggr)
        return out if factor is None or factor == 1.0 else out * factor


# Label by label -----------------------------------------------------------------------------------


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

    def steps(self, problem: Problem) -> Steps:
        """E·min(P, Q) sparse, the smaller dense product, and the rows of one label at a time."""
        sources, targets = problem.num_pairs(at_target=False), problem.num_pairs(at_target=True)
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
        memory = line * (
            sources * problem.in_channels * (dense_kept if first else sparse_kept)
            + between * width * (sparse_kept if first else dense_kept)
            + targets * problem.out_channels
        )
        memory = memory if kept else memory / labels
        if kept and problem.basis.dtype is not None:
            memory += problem.num_edges * problem.itemsize
        steps = Steps(problem).add("Θ, label by label", dense).add("Aᵀ, label by label", sparse)
        # The rows are written by one small product and read by the next.
        return steps.add("rows of labels", Cost(ends * 2, spread + ends * (3 * kept), memory))

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

    def steps(self, problem: Problem) -> Steps:
        """Twice the cost of ``label_by_label``, and the best entries with their labels."""
        once, steps = LabelByLabel().cost(problem), Steps(problem)
        width = float(problem.out_channels * problem.num_columns)
        pairs, targets = problem.num_pairs(at_target=True) * width, problem.basis.size[1] * width
        compared = moving(*(pairs * problem.itemsize,) * 6)
        memory = targets * (problem.itemsize + 4)
        if not any(problem.gradients):
            return steps.work("all labels", once.forward + compared, 0.0, once.memory + memory)
        steps.add("winners", Cost.of(once.forward + compared, memory=memory + pairs))
        again = Cost(once.forward + compared, once.backward + compared, once.memory)
        return steps.add("their sum", again)

    def run(self, problem: Problem) -> Tensor:
        with torch.no_grad():
            winners = _winners(problem)
        if winners is None:
            return _zeros(problem)
        best, winner = winners
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

    def steps(self, problem: Problem) -> Steps:
        """M·B·P·Q dense, B·E·min(P, Q) sparse, M·min(P, Q) for each b, and E numbers."""
        count, first = problem.parameter.num_matrices, problem.narrows
        of_x, of_theta, of_basis = problem.gradients
        learns = any(problem.gradients)
        width = problem.out_channels if first else problem.in_channels
        rows = float(problem.basis.size[0 if first else 1] * problem.num_columns)
        one = Steps(Problem(problem.basis, problem.x, Theta(problem.parameter.inner[:1])))
        one.learns = of_x
        if first:
            one.transform(rows)
            one.learns = one.learns or of_theta
        one.sparse(width, problem.basis.size)
        if of_theta and not of_basis:
            # The gradient of the coefficients samples products at all edges, like that of values.
            one.add("coefficients", Cost(Operations(), one.parts[-1][1].forward))
        if not first:
            one.learns = learns
            one.theta(rows)
        edges = float(problem.num_edges * problem.itemsize)
        between = rows * width * problem.itemsize
        one.work("mixed values", moving(edges, edges, between), 2.0 * learns)
        memory_cost = Cost.of(memory=2.0 * edges + between * (count if learns else 1))
        return Steps(problem).add(f"{count} matrices", one.cost * count + memory_cost)

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
