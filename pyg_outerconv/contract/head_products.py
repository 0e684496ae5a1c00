"""Helpers of the orders for heads: values before propagation, outputs after it, and their work."""

from __future__ import annotations

import torch
from torch import Tensor

from ..basis.attention_basis import AttentionBasis
from ..basis.base import Basis
from ..basis.multi_head_edges import MultiHeadEdges
from ..graph.sparse_features import Features, SparseFeatures
from ..theta import ValueOutput
from .cost import Work
from .problem import Problem
from .values import values_of
from .work import transform


def heads_of(problem: Problem) -> MultiHeadEdges | AttentionBasis:
    """The basis of the problem, with its type narrowed to a basis of heads."""
    assert isinstance(problem.basis, MultiHeadEdges | AttentionBasis)  # what these orders solve
    return problem.basis


def value_width(problem: Problem) -> int:
    """V: the number of channels of the values of one head."""
    theta = problem.of_heads
    return problem.out_channels if theta is None else theta.value.size(2)


def making_values(problem: Problem) -> tuple[Work, Work]:
    """Forward and backward work of the products with Θ, if values are made first."""
    theta, sources = problem.of_heads, float(problem.basis.size[0] * problem.num_columns)
    if theta is None:
        return transform(problem, sources * problem.num_labels)
    of_x, of_theta, _ = problem.gradients
    width, heads = theta.value.size(2), problem.num_labels
    flops = 2.0 * sources * problem.in_channels * heads * width
    if isinstance(problem.x, SparseFeatures):
        flops = 2.0 * problem.x.num_entries * heads * width
    forward = Work(dense_flops=flops, calls=1)
    backward = forward * (of_x + of_theta)
    if theta.output is not None:
        targets = float(problem.basis.size[1] * problem.num_columns)
        after = Work(dense_flops=2.0 * targets * heads * width * problem.out_channels, calls=1)
        # The outputs of heads require gradients if anything does.
        forward, backward = forward + after, backward + after * (2.0 * any(problem.gradients))
    return forward, backward


def values(problem: Problem) -> Tensor:
    """The values of each head, X V_h + b_h or X Θ_h: (M, *batch, H, V)."""
    theta = problem.of_heads
    if problem.values is not None:
        return problem.values
    if theta is not None:
        return values_of(theta, problem.x)
    return problem.transform().movedim(1, -2)


def sum_few(basis: Basis, x: Features, theta: ValueOutput, made: Tensor | None) -> Tensor | None:
    """Y (N, *batch, Q) of heads on a graph so small that its edges are not sorted, else None.

    No order is chosen: edges are gathered and scattered.

    Args:
        basis: the shares of all heads.
        x: (M, *batch, P).
        theta: values and outputs of heads.
        made: (M, *batch, H, V) the values, if the caller has them already.

    Returns:
        None if the shares are of another basis, or the features are not dense or do not fit.
    """
    if not isinstance(basis, MultiHeadEdges) or not basis.is_listed or not isinstance(x, Tensor):
        return None
    fits = x.is_floating_point() and x.size(-1) == theta.value.size(1)
    if not fits or torch.is_autocast_enabled(x.device.type):
        return None
    return theta.collect(basis.times(values_of(theta, x) if made is None else made))


def collect_values(problem: Problem, received: Tensor) -> Tensor:
    """Y (N, *batch, Q) from the values received by each head, (N, *batch, H, V)."""
    theta = problem.of_heads
    return received.sum(-2) if theta is None else theta.collect(received)


def features(problem: Problem) -> Tensor:
    """X repeated for each head as a view: (M, *batch, H, P)."""
    x = problem.features
    return x.unsqueeze(-2).expand(*x.shape[:-1], problem.num_labels, -1)


def collect_features(problem: Problem, received: Tensor) -> Tensor:
    """Y (N, *batch, Q) from the features received by each head, (N, *batch, H, P)."""
    return problem.collect(received.movedim(-2, 1))


def why_no_batch(problem: Problem) -> list[str]:
    """A reason if the features have another batch shape than the basis."""
    batch = heads_of(problem).batch
    if batch in ((), problem.batch):
        return []
    return [f"the basis has batch shape {batch}, and x has {problem.batch}"]


def needs_no_bias(problem: Problem) -> list[str]:
    """A reason if the values have a bias, which cannot be added to propagated features."""
    theta = problem.of_heads
    return ["needs values without a bias"] if theta is not None and theta.bias is not None else []


def has_edges(problem: Problem) -> bool:
    """Whether the edges of a support and their matrix are cached, as torch.compile requires."""
    basis = heads_of(problem)
    if not basis.has_edges:
        return False
    pattern = basis.pattern
    return ("by_target" if pattern.num_labels == 1 else "by_both") in vars(pattern)
