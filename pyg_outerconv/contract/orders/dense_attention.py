"""Lower attention over a band or blocks to torch's attention, or to products of dense blocks."""

from __future__ import annotations

from torch import Tensor

from ...basis.attention_basis import AttentionBasis
from ...basis.implicit_edges import DenseRule, ExtraOperands
from ...basis.multi_head_edges import by_head, by_label, same_dtype
from ..cost import Work
from ..head_order import HeadOrder, PropagateHeadsFirst, TransformHeadsFirst
from ..problem import Problem
from .attend import needs_softmax

# Its time over that of a tall dense product with equal flops: torch's kernel stays in caches, while
# the products of the blocks of a window are small.
SHARE, SHARE_OF_WINDOWS = 0.75, 1.5
# Work of the backward pass over that of the forward pass: scores again, and four products.
BACKWARD = 2.5
# Calls for one head and one item of a batch in a window.
CALLS_OF_A_JOB = 4.0
# Flops for each score: exponentials, maxima, sums.
FLOPS_OF_A_SCORE = 32.0


class DenseAttention(HeadOrder):
    """Attention by dense blocks of nodes, without a sparse matrix.

    Full and causal attention are torch's ``scaled_dot_product_attention``; windows are cut into
    blocks; blocks of one size are one batch.
    """

    solves = (AttentionBasis,)

    def needs(self, problem: Problem) -> list[str]:
        """Requires a softmax of scaled products over a band or blocks."""
        return needs_softmax(problem) + needs_rule(problem)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the nodes are sorted by blocks already."""
        return _rule(problem).is_sorted

    def propagating(self, problem: Problem, width: int) -> tuple[Work, Work, float]:
        """2·pairs·H·(D + width) flops, for all pairs in the blocks."""
        return _attending(problem, width)

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """A_hᵀ X_h for each head: (M, *batch, H, C) to (N, *batch, H, C)."""
        return _attend(problem, x)


class DenseAttentionTransformFirst(DenseAttention, TransformHeadsFirst):
    """Compute the values of each head, then attention by blocks."""

    name = "dense_attention_transform_first"


class DenseAttentionPropagateFirst(DenseAttention, PropagateHeadsFirst):
    """Attention by blocks with X as the values, then Θ_h."""

    name = "dense_attention_propagate_first"


def needs_rule(problem: Problem) -> list[str]:
    """Reasons if the support is no band or blocks, or does not take the bias, mask or dropout."""
    over = problem.of(AttentionBasis).over
    if not isinstance(over, DenseRule):
        return [f"needs a support that is a band or blocks, not a {type(over).__name__}"]
    return over.lacks(_additions(problem))


def _rule(problem: Problem) -> DenseRule:
    over = problem.of(AttentionBasis).over
    assert isinstance(over, DenseRule)  # as needs_rule says
    return over


def _additions(problem: Problem) -> ExtraOperands:
    """Whether scores have a bias, a mask, a bias that requires gradients, and dropout."""
    basis = problem.of(AttentionBasis)
    learns = basis.bias is not None and basis.bias.requires_grad
    has = basis.bias is not None, basis.present is not None
    return ExtraOperands(*has, learns, basis.normalise.dropped > 0)


def _attend(problem: Problem, value: Tensor) -> Tensor:
    """Σ_m share[m, n] value[m] for each head: (M, *batch, H, C) to (N, *batch, H, C)."""
    basis, batch = problem.of(AttentionBasis), problem.batch
    query, key = basis.with_batch(batch)
    query, key, value = (by_label(part, basis.num_labels) for part in same_dtype(query, key, value))
    beside = _bias(basis, batch, query), _mask(basis, batch)
    options = basis.factor, basis.normalise.dropped
    out = _rule(problem).attend(query, key, value, *beside, *options)
    return by_head(out, basis.num_labels, basis.num_bases, batch)


def _bias(basis: AttentionBasis, batch: tuple[int, ...], like: Tensor) -> Tensor | None:
    """The bias of the scores of edges, (E, B·H)."""
    if basis.bias is None:
        return None
    bias = basis.bias.to(like.dtype)
    if not basis.batch:
        bias = bias.view(bias.size(0), *(1,) * len(batch), bias.size(-1))
    return bias.expand(bias.size(0), *batch, basis.num_bases).reshape(bias.size(0), like.size(1))


def _mask(basis: AttentionBasis, batch: tuple[int, ...]) -> Tensor | None:
    """Booleans (M, B·H): which sources are present."""
    if basis.present is None:
        return None
    there = basis.seen_sources()
    there = there.view(*there.shape, *(1,) * (len(batch) + 2 - there.dim()))
    return there.expand(there.size(0), *batch, basis.num_bases).flatten(1)


# Cost ---------------------------------------------------------------------------------------------


def _attending(problem: Problem, width: int) -> tuple[Work, Work, float]:
    """Forward and backward work of attention by blocks, and the bytes that it allocates."""
    basis, pairs = problem.of(AttentionBasis), _rule(problem).pairs(_additions(problem))
    columns = float(problem.num_labels * problem.num_columns)
    calls = CALLS_OF_A_JOB * columns * pairs.windows if pairs.windows else 1.0
    share = SHARE_OF_WINDOWS if pairs.windows else SHARE
    channels = basis.query.size(-1) + width
    flops = share * pairs.seen * columns * (2.0 * channels + FLOPS_OF_A_SCORE)
    spelled = pairs.held * columns * problem.itemsize
    nodes = float(sum(basis.size)) * columns * channels * problem.itemsize
    work = Work(dense_flops=flops, moves=((4.0 * spelled, spelled), (nodes, nodes)), calls=calls)
    return work, work * (BACKWARD * any(problem.gradients)), 2.0 * spelled + nodes
