"""Max and min over labels in two passes: find the winning label, then sum the winners' rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernels import REDUCTIONS
from ..cost import Cost, moving
from ..order import EXPLICIT, Order, has_made, needs_features
from ..problem import LINEAR, Problem
from .label_by_label import LabelByLabel, contract_label, zeros


class CompareLabels(Order):
    """max_k (or min_k) of (reduce_m A_k[m, n] X[m]) Θ_k over the labels that reach n.

    Both passes go label by label, so that no tensor of N·K·Q numbers is stored. The first, without
    gradients, stores the best entry and its label for each target and channel. The second sums the
    winning entries over labels and has all derivatives. Of equal labels the lowest wins.
    """

    name = "compare_labels"
    solves = EXPLICIT
    reductions = frozenset(REDUCTIONS)
    label_reductions = frozenset({"max", "min"})

    def lacks(self, problem: Problem) -> list[str]:
        """Requires features if the reduction over inputs is not linear."""
        return [] if problem.reduce in LINEAR else needs_features(problem)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
        return has_made(problem, "label_blocks", "num_source_pairs", "num_target_pairs")

    def cost(self, problem: Problem) -> Cost:
        """Twice the cost of ``label_by_label``, and the best entries with their labels."""
        once = LabelByLabel().cost(problem)
        width = float(problem.out_channels * problem.num_columns)
        pairs, targets = problem.num_target_pairs * width, problem.basis.size[1] * width
        compared = moving(*(pairs * problem.itemsize,) * 6)
        held = targets * (problem.itemsize + 4)
        if not any(problem.gradients):
            return Cost(once.forward + compared, memory=once.memory + held)
        forward, back = once.forward * 2 + compared * 2, once.backward + compared
        return Cost(forward, back, once.memory + held + pairs)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        with torch.no_grad():
            found = _winners(problem)
        if found is None:
            return zeros(problem)
        best, winner = found
        if not any(problem.gradients):
            return best.masked_fill(winner < 0, 0.0)
        out: Tensor | None = None
        for block in problem.edges.pattern.label_blocks:
            part = contract_label(problem, block)
            won = winner.index_select(0, block.target) == block.label
            part = torch.where(won, part, 0.0)
            if out is None:  # not in place, so that the result is batched under vmap, as parts are
                out = torch.zeros_like(best).index_add(0, block.target, part)
            else:
                out.index_add_(0, block.target, part)
        assert out is not None  # there are edges
        return out


def _winners(problem: Problem) -> tuple[Tensor, Tensor] | None:
    """The best entries and their labels, (N, *batch, Q); label -1: no edges. None if E = 0."""
    largest = problem.label_reduce == "max"
    best: Tensor | None = None
    winner: Tensor | None = None
    for block in problem.edges.pattern.label_blocks:
        part, to = contract_label(problem, block), block.target
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
