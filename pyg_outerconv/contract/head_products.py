"""What orders of heads have in common: what each head propagates, and what becomes of it."""

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
    """The basis."""
    assert isinstance(problem.basis, MultiHeadEdges | AttentionBasis)  # what these orders solve
    return problem.basis


def value_width(problem: Problem) -> int:
    """V: the channels at which a head is propagated after its values were made."""
    theta = problem.of_heads
    return problem.out_channels if theta is None else theta.value.size(2)


def making_values(problem: Problem) -> tuple[Work, Work]:
    """Forward and backward of what happens to channels when values are made first."""
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
        # What heads give always wants a gradient where anything does.
        forward, backward = forward + after, backward + after * (2.0 * any(problem.gradients))
    return forward, backward


def values(problem: Problem) -> Tensor:
    """What each head propagates, made by Θ: (M, *batch, H, V)."""
    theta = problem.of_heads
    if problem.values is not None:
        return problem.values
    if theta is not None:
        return values_of(theta, problem.x)
    return problem.transform().movedim(1, -2)


def sum_few(basis: Basis, x: Features, theta: ValueOutput, made: Tensor | None) -> Tensor | None:
    """Y (N, *batch, Q) of heads on so few edges that these are in no order, without any choice.

    Args:
        basis: the shares; None is returned where they are others.
        x: (M, *batch, P).
        theta: values and outputs of heads.
        made: (M, *batch, H, V) the values, if they are known.
    """
    if not isinstance(basis, MultiHeadEdges) or not basis.is_listed or not isinstance(x, Tensor):
        return None
    fits = x.is_floating_point() and x.size(-1) == theta.value.size(1)
    if not fits or torch.is_autocast_enabled(x.device.type):
        return None
    return theta.collect(basis.times(values_of(theta, x) if made is None else made))


def collect_values(problem: Problem, received: Tensor) -> Tensor:
    """Y (N, *batch, Q) of what heads received (N, *batch, H, V)."""
    theta = problem.of_heads
    return received.sum(-2) if theta is None else theta.collect(received)


def features(problem: Problem) -> Tensor:
    """X for every head: (M, *batch, H, P), a view."""
    x = problem.features
    return x.unsqueeze(-2).expand(*x.shape[:-1], problem.num_labels, -1)


def collect_features(problem: Problem, received: Tensor) -> Tensor:
    """Y (N, *batch, Q) of the features that heads received (N, *batch, H, P)."""
    return problem.collect(received.movedim(-2, 1))


def why_no_batch(problem: Problem) -> list[str]:
    """A reason where features have another batch than the content of the basis."""
    batch = heads_of(problem).batch
    if batch in ((), problem.batch):
        return []
    return [f"the basis is of a batch of {batch}, and x of {problem.batch}"]


def needs_no_bias(problem: Problem) -> list[str]:
    """A reason where values have a bias, which features that were propagated have no room for."""
    theta = problem.of_heads
    return ["needs values without a bias"] if theta is not None and theta.bias is not None else []


def has_edges(problem: Problem) -> bool:
    """Whether the edges and the matrix of a support are made, so that a compiler can go on."""
    basis = heads_of(problem)
    if not basis.has_edges:
        return False
    pattern = basis.pattern
    return ("by_target" if pattern.num_labels == 1 else "by_both") in vars(pattern)
