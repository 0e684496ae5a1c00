"""Lowering to torch's attention, or to products of blocks, where a support is a rule."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...basis.attended import Attended
from ...basis.heads import by_head, by_label, one_type
from ...basis.support.band import Band
from ...basis.support.cliques import Cliques
from ...kernels import attend_all, attend_band, attend_cliques
from ...kernels.band import rows_of_block
from ...kernels.dense_attention import is_small
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
    cut into blocks; cliques of one size go to torch together.
    """

    solves = (Attended,)

    def needs(self, problem: Problem) -> list[str]:
        """A softmax of scaled products over a band or over cliques."""
        return needs_softmax(problem) + needs_rule(problem)

    def is_prepared(self, problem: Problem) -> bool:
        """Whether blocks are sorted."""
        return _is_sorted(problem)

    def propagating(self, problem: Problem, width: int) -> tuple[Work, Work, float]:
        """2·pairs·H·(D + width) flops, for all pairs that blocks have."""
        return _attending(problem, width)

    def propagate(self, problem: Problem, x: Tensor) -> Tensor:
        """See :class:`HeadOrder`."""
        return _attended(problem, x)


class DenseAttentionTransformFirst(DenseAttention, TransformHeadsFirst):
    """The values of each head first, then attention of blocks."""

    name = "dense_attention_transform_first"


class DenseAttentionPropagateFirst(DenseAttention, PropagateHeadsFirst):
    """Attention of blocks on X itself, then Θ_h."""

    name = "dense_attention_propagate_first"


def needs_rule(problem: Problem) -> list[str]:
    """Reasons where the support is no rule that blocks follow, or scores have too much beside."""
    basis = problem.of(Attended)
    over = basis.over
    if not isinstance(over, Band | Cliques):
        return [f"needs a support that is a band or cliques, not a {type(over).__name__}"]
    reasons = []
    if basis.bias is not None and not (isinstance(over, Band) and over.is_complete):
        reasons.append("adds a bias to the scores of all pairs alone, not to those of a rule")
    if basis.present is not None and isinstance(over, Cliques):
        reasons.append("sees all sources of a clique, and some are not present")
    return reasons


def _attended(problem: Problem, value: Tensor) -> Tensor:
    """Σ_m of the shares times what heads propagate: (M, *batch, H, C) to (N, *batch, H, C)."""
    basis = problem.of(Attended)
    query, key = basis.with_batch(problem.batch)
    query, key, value = (by_label(part, basis.num_labels) for part in one_type(query, key, value))
    over, scale, dropped = basis.over, basis.factor, basis.normalise.dropped
    if isinstance(over, Cliques):
        out = attend_cliques(query, key, value, over.sorted_blocks, scale=scale, dropout_p=dropped)
    else:
        assert isinstance(over, Band)
        mask = _mask(basis, problem.batch)
        if over.is_complete:
            bias = _bias(basis, problem.batch, query)
            out = attend_all(
                query, key, value, bias, source_mask=mask, scale=scale, dropout_p=dropped
            )
        else:
            out = attend_band(
                query,
                key,
                value,
                left=over.left,
                right=over.right,
                offset=over.offset,
                dilation=over.dilation,
                source_mask=mask,
                scale=scale,
                dropout_p=dropped,
            )
    return by_head(out, basis.num_labels, basis.num_bases, problem.batch)


def _bias(basis: Attended, batch: tuple[int, ...], like: Tensor) -> Tensor | None:
    """(N, M, B·H) of the edges of all pairs, which are in the order of a dense matrix."""
    if basis.bias is None:
        return None
    bias, (sources, targets) = basis.bias.to(like.dtype), basis.size
    if not basis.batch:
        bias = bias.view(bias.size(0), *(1,) * len(batch), bias.size(-1))
    bias = bias.expand(bias.size(0), *batch, basis.num_bases)
    return bias.reshape(targets, sources, like.size(1))


def _mask(basis: Attended, batch: tuple[int, ...]) -> Tensor | None:
    """(M, B·H) booleans: the sources that there are."""
    if basis.present is None:
        return None
    there = basis.seen_sources()
    there = there.view(*there.shape, *(1,) * (len(batch) + 2 - there.dim()))
    return there.expand(there.size(0), *batch, basis.num_bases).flatten(1)


def _is_sorted(problem: Problem) -> bool:
    over = problem.of(Attended).over
    return not isinstance(over, Cliques) or bool(over.sorted_once)


# What it costs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a target and a source that are looked at, and held; in how many calls, how fast."""

    seen: float
    held: float
    calls: float = 1.0
    share: float = SHARE


def _pairs(problem: Problem) -> _Pairs:
    basis = problem.of(Attended)
    over, (sources, targets) = basis.over, basis.size
    every = float(sources * targets)
    # torch spells out the shares of all pairs where some are dropped, or where a bias learns.
    learns = basis.bias is not None and basis.bias.requires_grad
    spelled = basis.normalise.dropped > 0 or learns
    if isinstance(over, Cliques):
        edges = float(over.num_edges)
        return _Pairs(edges, edges * spelled)
    assert isinstance(over, Band)
    if over.is_complete or over.left is None or over.right is None:
        edges = every if over.is_complete else float(over.num_edges)
        masked = basis.bias is not None or basis.present is not None
        return _Pairs(every if spelled or masked else edges, every * (spelled or masked))
    if basis.present is None and is_small(sources, targets):
        return _Pairs(every, every * (basis.normalise.dropped > 0))
    first, last = over.steps
    reach = max(last - first, 0)
    pairs = float(targets) * (rows_of_block(reach) + reach)
    jobs = float(basis.num_bases * problem.num_columns * over.dilation)
    return _Pairs(pairs, 0.0, CALLS_OF_A_JOB * jobs, SHARE_OF_WINDOWS)


def _attending(problem: Problem, width: int) -> tuple[Work, Work, float]:
    """Forward and backward of attention in blocks, and the bytes that it holds."""
    basis, pairs = problem.of(Attended), _pairs(problem)
    columns = float(problem.num_labels * problem.num_columns)
    channels = basis.query.size(-1) + width
    flops = pairs.share * pairs.seen * columns * (2.0 * channels + FLOPS_OF_A_SCORE)
    spelled = pairs.held * columns * problem.itemsize
    nodes = float(sum(basis.size)) * columns * channels * problem.itemsize
    work = Work(
        dense_flops=flops, moves=((4.0 * spelled, spelled), (nodes, nodes)), calls=pairs.calls
    )
    return work, work * (BACKWARD * any(problem.gradients)), 2.0 * spelled + nodes
