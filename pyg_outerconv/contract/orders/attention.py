"""Attention, and edges of several heads: by products for each head, or by one primitive."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import ClassVar

from torch import Tensor

from ...basis.additive_attention import AdditiveAttentionBasis
from ...basis.attention_basis import AttentionBasis
from ...basis.implicit_edges import DenseRule, ExtraOperands
from ...basis.multi_head_edges import MultiHeadEdges
from ..cost import Cost, Operations, Steps, sparse_product
from ..heads import collect_values, needs_batch, steps_of_values, values
from ..order import Order, Pair, needs_features
from ..problem import Problem


def _needs_no_bias(problem: Problem) -> list[str]:
    return [] if problem.parameter.bias is None else ["needs values without a bias"]


class HeadOrder(Order):
    """A pair of orders in which the matrix A_h of each head is applied to rows of that head.

    With Θ first the rows are the values of each head, X V_h + b_h or X Θ_h; else they are features
    X, and Θ_h is applied to what each head receives.
    """

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the edges of a support and their matrix are cached, as torch.compile requires."""
        basis = _heads(problem)
        if not basis.has_edges:
            return False
        pattern = basis.pattern
        return ("by_target" if pattern.num_labels == 1 else "by_both") in vars(pattern)

    @abstractmethod
    def send(self, steps: Steps, width: int) -> None:
        """Add the steps of :meth:`propagate` with C = width."""

    @abstractmethod
    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head: (M, *batch, H, C) to (N, *batch, H, C)."""

    def lacks(self, problem: Problem) -> list[str]:
        """Requires a fitting batch; of features also dense ones, and values without a bias."""
        if self.theta_first:
            return needs_batch(problem) + super().lacks(problem)
        reasons = needs_features(problem) + needs_batch(problem)
        return reasons or super().lacks(problem) + _needs_no_bias(problem)

    def steps(self, problem: Problem) -> Steps:
        """The values and their propagation at width V; or at width P, then N·H·P·Q dense."""
        if self.theta_first:
            return steps_of_values(problem, self.send)
        rows = _received(problem)
        self.send(steps := Steps(problem), problem.in_channels)
        steps.learns = any(problem.gradients)
        memory = rows * problem.in_channels * problem.itemsize
        return steps.theta(rows).work("rows of heads", Operations(), memory=memory)

    def run(self, problem: Problem) -> Tensor:
        if self.theta_first:
            return collect_values(problem, self.propagate(problem, values(problem)))
        x = problem.features
        of_heads = x.unsqueeze(-2).expand(*x.shape[:-1], problem.num_labels, -1)
        return problem.collect(self.propagate(problem, of_heads).movedim(-2, 1))


def _received(problem: Problem) -> float:
    """The number of rows that heads receive: one for each target, item and head."""
    return float(problem.basis.size[1] * problem.num_labels * problem.num_columns)


Heads = MultiHeadEdges | AttentionBasis | AdditiveAttentionBasis


def _heads(problem: Problem) -> Heads:
    """The basis of the problem, with its type narrowed to a basis of heads."""
    assert isinstance(problem.basis, Heads)  # what these orders solve
    return problem.basis


def _needs_softmax(problem: Problem) -> list[str]:
    normalise = problem.of(AttentionBasis).normalise
    return [] if normalise.is_softmax else [f"normalises by softmax only, not by {normalise}"]


# A sparse product for each head ------------------------------------------------------------------

# Passes over E·H numbers: scores, maxima, exponentials, sums, a copy of each head.
PASSES = 8.0


class ProductOfEachHead(HeadOrder):
    """Compute the shares of all edges, then a sparse product for each head."""

    pair: ClassVar[Pair] = {
        "heads_transform_first": {"theta_first": True},
        "heads_propagate_first": {"propagates": True},
    }
    solves = (MultiHeadEdges, AttentionBasis, AdditiveAttentionBasis)
    knows_shapes = True

    def send(self, steps: Steps, width: int) -> None:
        """The shares of edges, and E·H·width sparse."""
        problem, basis = steps.problem, _heads(steps.problem)
        if isinstance(basis, AttentionBasis):
            _add_shares(steps, basis, basis.query.size(-1))
        elif isinstance(basis, AdditiveAttentionBasis):
            _add_shares(steps, basis, 1)
        one = sparse_product(problem, width, basis.size, steps.learns, float(basis.num_edges))
        memory_cost = Cost.of(memory=_received(problem) * width * problem.itemsize)
        steps.add("Aᵀ of each head", one * (problem.num_labels // basis.num_labels) + memory_cost)

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        return _heads(problem).times(x)


def _add_shares(
    steps: Steps, basis: AttentionBasis | AdditiveAttentionBasis, channels: int
) -> None:
    """The shares of all edges, whose scores read so many channels of both ends."""
    problem = steps.problem
    columns = float(problem.num_labels // basis.num_labels * problem.num_columns)
    entries = basis.num_edges * columns
    line = float(channels * problem.itemsize)
    sources = basis.size[0] * line * columns
    sample = Operations(gathers=((entries * line, sources),), calls=columns)
    size = entries * problem.itemsize
    passes = Operations(moves=((PASSES * size, size),), calls=4)
    steps.work("scores", sample, 2.0 * basis.learns)
    steps.work("shares", passes, basis.learns, 4.0 * size)


# One primitive -----------------------------------------------------------------------------------


def _needs_no_dropout(problem: Problem) -> list[str]:
    return ["has no dropout"] if problem.of(AttentionBasis).normalise.dropped else []


class Attend(HeadOrder):
    """Scores, softmax and sum by the primitive ``attend``.

    Without a bias one product serves all heads on a CPU, and shares are kept for the backward pass;
    else that computes them again. On a GPU one kernel serves all heads.
    """

    pair: ClassVar[Pair] = {
        "attend_transform_first": {"theta_first": True},
        "attend_propagate_first": {"propagates": True},
    }
    solves = (AttentionBasis,)
    needs = (_needs_softmax, _needs_no_dropout)

    def send(self, steps: Steps, width: int) -> None:
        """E·H·(D + width) numbers gathered; at least twice as much in the backward pass."""
        problem, basis = steps.problem, steps.problem.of(AttentionBasis)
        columns = float(problem.num_labels // basis.num_labels * problem.num_columns)
        line = float((basis.query.size(-1) + width) * problem.itemsize)
        vector = float(basis.num_edges * problem.itemsize)
        on_gpu = not basis.query.is_cpu
        keeps = not on_gpu and basis.bias is None and basis.present is None
        work = Operations(
            gathers=((basis.num_edges * columns * line, basis.size[0] * line),),
            moves=((6.0 * vector * columns, vector),),
            calls=4 if keeps or on_gpu else 4 * columns,
        )
        # On an H100 kernels of the backward pass take 2.1 times as long as that of the forward one.
        back = 2.0 if keeps else 2.1 if on_gpu else 2.5
        memory = columns * vector if keeps else 4.0 * vector
        steps.work("attention", work, back * any(problem.gradients), memory)

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        return problem.of(AttentionBasis).attend(x)


class AttendEnds(Order):
    """Values, scores of one number for each end, and sums of values by ``attend_ends``.

    These are values of the features and by the matrices that the scores are made of, as in a layer
    of GAT; any others take the shares of edges, and a sparse product for each head.
    """

    name = "attend_ends"
    solves = (AdditiveAttentionBasis,)
    theta_first = knows_shapes = True

    def rank(self, problem: Problem) -> int:
        """It is taken where nothing else is asked for."""
        return 0

    def steps(self, problem: Problem) -> Steps:
        """N·P·H·(V + 2) dense, and E·H·V gathered; twice as much in the backward pass."""
        basis = problem.of(AdditiveAttentionBasis)
        heads, rows, width = basis.value.shape
        nodes, entries = float(basis.size[0] * heads), float(basis.over.num_edges * heads)
        line = width * problem.itemsize
        size = entries * problem.itemsize
        work = Operations(
            2.0 * nodes * rows * (width + 2),
            gathers=((entries * line, nodes * line),),
            moves=((PASSES * size, size),),
            calls=4,
        )
        back = 2.0 * any(problem.gradients)
        return Steps(problem).work("values, scores and sums", work, back, 4.0 * size)

    def run(self, problem: Problem) -> Tensor:
        basis, theta = problem.basis, problem.parameter
        assert isinstance(basis, AdditiveAttentionBasis)  # it solves no other
        if theta.heads is not None and basis.x is problem.x and basis.value is theta.value:
            return theta.collect(basis.sums())
        return collect_values(problem, basis.times(values(problem)))


# Dense blocks ------------------------------------------------------------------------------------

# Its time over that of a tall dense product with equal flops: torch's kernel stays in caches.
SHARE = 0.75
# Work of the backward pass over that of the forward pass: scores again, and four products.
BACKWARD = 2.5
# Calls for a window: a few lists of tiles, which all heads share.
CALLS_OF_A_WINDOW = 16.0
# Flops for each score: exponentials, maxima, sums.
FLOPS_OF_A_SCORE = 32.0


def _needs_rule(problem: Problem) -> list[str]:
    """Reasons if the support is no band or blocks, or does not take the bias, mask or dropout."""
    over = problem.of(AttentionBasis).over
    if not isinstance(over, DenseRule):
        return [f"needs a support that is a band or blocks, not a {type(over).__name__}"]
    return over.lacks(_additions(problem))


def _rule(problem: Problem) -> DenseRule:
    over = problem.of(AttentionBasis).over
    assert isinstance(over, DenseRule)  # as _needs_rule says
    return over


def _additions(problem: Problem) -> ExtraOperands:
    """Whether scores have a bias, a mask, a bias that requires gradients, and dropout."""
    basis = problem.of(AttentionBasis)
    learns = basis.bias is not None and basis.bias.requires_grad
    has = basis.bias is not None, basis.present is not None
    return ExtraOperands(*has, learns, basis.normalise.dropped > 0)


class DenseAttention(HeadOrder):
    """Attention by dense blocks of nodes, without a sparse matrix.

    Full and causal attention are torch's ``scaled_dot_product_attention``; windows are cut into
    blocks; blocks of one size are one batch.
    """

    pair: ClassVar[Pair] = {
        "dense_attention_transform_first": {"theta_first": True},
        "dense_attention_propagate_first": {},
    }
    solves = (AttentionBasis,)
    needs = (_needs_softmax, _needs_rule)
    knows_shapes = True

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the nodes are sorted by blocks already."""
        return _rule(problem).is_sorted

    def send(self, steps: Steps, width: int) -> None:
        """2·pairs·H·(D + width) flops, for all pairs in the blocks."""
        problem, basis = steps.problem, steps.problem.of(AttentionBasis)
        pairs = _rule(problem).pairs(_additions(problem))
        columns = float(problem.num_labels * problem.num_columns)
        calls = CALLS_OF_A_WINDOW * pairs.windows if pairs.windows else 1.0
        channels = basis.query.size(-1) + width
        flops = SHARE * pairs.seen * columns * (2.0 * channels + FLOPS_OF_A_SCORE)
        scores = pairs.stored * columns * problem.itemsize
        nodes = float(sum(basis.size)) * columns * channels * problem.itemsize
        work = Operations(flops, moves=((4.0 * scores, scores), (nodes, nodes)), calls=calls)
        back = BACKWARD * any(problem.gradients)
        steps.work("attention by blocks", work, back, 2.0 * scores + nodes)

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        basis = problem.of(AttentionBasis)
        kernel = partial(
            _rule(problem).attend,
            source_mask=_mask(basis, problem.batch),
            scale=basis.factor,
            dropout_p=basis.normalise.dropped,
        )
        return basis.attend_by(kernel, x, masked=False)


def _mask(basis: AttentionBasis, batch: tuple[int, ...]) -> Tensor | None:
    """Booleans (M, B·H): which sources are present."""
    if basis.present is None:
        return None
    there = basis.seen_sources()
    there = there.view(*there.shape, *(1,) * (len(batch) + 2 - there.dim()))
    return there.expand(there.size(0), *batch, basis.num_bases).flatten(1)
