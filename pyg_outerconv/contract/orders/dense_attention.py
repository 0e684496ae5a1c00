"""Lowering to torch's attention, or to products of blocks, where a support is a rule."""

from __future__ import annotations

from torch import Tensor

from ...basis.attention_basis import AttentionBasis
from ...basis.dense_rule import Beside, DenseRule
from ...basis.multi_head_edges import by_head, by_label, same_dtype
from ..cost import Work
from ..head_order import HeadOrder, PropagateHeadsFirst, TransformHeadsFirst
from ..problem import Problem
from .attend import needs_softmax

# Of the time of a tall product with as many flops: torch's kernel works in caches, and products of
# the blocks of a window are small ones.
SHARE, SHARE_OF_WINDOWS = 0.75, 1.5
# What backward does, of what forward does: scores again, and their products with four operands.
BACKWARD = 2.5
# A window goes head by head and item by item, each by several small operations.
CALLS_OF_A_JOB = 4.0
# Passes over the scores, in flops each: exponentials, maxima, sums.
FLOPS_OF_A_SCORE = 32.0


class DenseAttention(HeadOrder):
    """By attention of blocks of nodes, without a sparse matrix.

    All pairs, and all before a target, are torch's ``scaled_dot_product_attention``; windows are
    cut into blocks; blocks of one size go to torch together.
    """

    solves = (AttentionBasis,)

    def needs(self, problem: Problem) -> list[str]:
        """A softmax of scaled products over a band or over blocks."""
        return needs_softmax(problem) + needs_rule(problem)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether blocks are sorted."""
        return _rule(problem).is_sorted

    def propagating(self, problem: Problem, width: int) -> tuple[Work, Work, float]:
        """2·pairs·H·(D + width) flops, for all pairs that blocks have."""
        return _attending(problem, width)

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """See :class:`HeadOrder`."""
        return _attend(problem, x)


class DenseAttentionTransformFirst(DenseAttention, TransformHeadsFirst):
    """The values of each head first, then attention of blocks."""

    name = "dense_attention_transform_first"


class DenseAttentionPropagateFirst(DenseAttention, PropagateHeadsFirst):
    """Attention of blocks on X itself, then Θ_h."""

    name = "dense_attention_propagate_first"


def needs_rule(problem: Problem) -> list[str]:
    """Reasons where the support is no rule that blocks follow, or scores have too much beside."""
    over = problem.of(AttentionBasis).over
    if not isinstance(over, DenseRule):
        return [f"needs a support that is a band or blocks, not a {type(over).__name__}"]
    return over.lacks(_beside(problem))


def _rule(problem: Problem) -> DenseRule:
    over = problem.of(AttentionBasis).over
    assert isinstance(over, DenseRule)  # as needs_rule says
    return over


def _beside(problem: Problem) -> Beside:
    basis = problem.of(AttentionBasis)
    learns = basis.bias is not None and basis.bias.requires_grad
    has = basis.bias is not None, basis.present is not None
    return Beside(*has, learns, basis.normalise.dropped > 0)


def _attend(problem: Problem, value: Tensor) -> Tensor:
    """Σ_m of the shares times what heads propagate: (M, *batch, H, C) to (N, *batch, H, C)."""
    basis, batch = problem.of(AttentionBasis), problem.batch
    query, key = basis.with_batch(batch)
    query, key, value = (by_label(part, basis.num_labels) for part in same_dtype(query, key, value))
    beside = _bias(basis, batch, query), _mask(basis, batch)
    options = basis.factor, basis.normalise.dropped
    out = _rule(problem).attend(query, key, value, *beside, *options)
    return by_head(out, basis.num_labels, basis.num_bases, batch)


def _bias(basis: AttentionBasis, batch: tuple[int, ...], like: Tensor) -> Tensor | None:
    """(E, B·H) what is added to the scores of edges."""
    if basis.bias is None:
        return None
    bias = basis.bias.to(like.dtype)
    if not basis.batch:
        bias = bias.view(bias.size(0), *(1,) * len(batch), bias.size(-1))
    return bias.expand(bias.size(0), *batch, basis.num_bases).reshape(bias.size(0), like.size(1))


def _mask(basis: AttentionBasis, batch: tuple[int, ...]) -> Tensor | None:
    """(M, B·H) booleans: the sources that there are."""
    if basis.present is None:
        return None
    there = basis.seen_sources()
    there = there.view(*there.shape, *(1,) * (len(batch) + 2 - there.dim()))
    return there.expand(there.size(0), *batch, basis.num_bases).flatten(1)


# What it costs ------------------------------------------------------------------------------------


def _attending(problem: Problem, width: int) -> tuple[Work, Work, float]:
    """Forward and backward of attention in blocks, and the bytes that it holds."""
    basis, pairs = problem.of(AttentionBasis), _rule(problem).pairs(_beside(problem))
    columns = float(problem.num_labels * problem.num_columns)
    calls = CALLS_OF_A_JOB * columns * pairs.windows if pairs.windows else 1.0
    share = SHARE_OF_WINDOWS if pairs.windows else SHARE
    channels = basis.query.size(-1) + width
    flops = share * pairs.seen * columns * (2.0 * channels + FLOPS_OF_A_SCORE)
    spelled = pairs.held * columns * problem.itemsize
    nodes = float(sum(basis.size)) * columns * channels * problem.itemsize
    work = Work(dense_flops=flops, moves=((4.0 * spelled, spelled), (nodes, nodes)), calls=calls)
    return work, work * (BACKWARD * any(problem.gradients)), 2.0 * spelled + nodes
