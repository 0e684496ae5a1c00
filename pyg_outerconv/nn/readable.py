"""The convolution by messages, edge by edge, which explainers and hooks look into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..basis import Basis, EdgeBasis, Eye, Polynomial
from ..contract import Features, Problem, check_shapes
from ..contract.per_node import PerNode
from ..contract.recurrence import sum_clenshaw, sum_forward
from ..contract.rewrite import leaves
from ..errors import RefusedValue, refusal
from .prepare import nodes_first

if TYPE_CHECKING:
    from .outer_conv import OuterConv


def convolve_by_messages(conv: OuterConv, basis: Basis, x: Features, theta: Tensor) -> Tensor:
    """Y (*batch, N, Q) by ``conv.propagate``: slow, and equal to the contraction.

    Explicit edges send one message each, x_m Θ_k times the value of the edge, in the order in
    which the edges were given; messages are reduced within each label, then over labels. A
    polynomial sends messages along its operator's edges, once for each power.
    """
    x = nodes_first(x)
    check_shapes(basis, x, theta)
    total: Tensor | None = None
    for leaf, part in leaves(basis, theta):
        problem = Problem(leaf, x, part)
        if isinstance(leaf, EdgeBasis):
            out = _from_edges(conv, leaf, problem)
        elif isinstance(leaf, Polynomial):
            out = _from_polynomial(conv, leaf, problem)
        else:
            assert isinstance(leaf, Eye)
            out = PerNode().run(problem)
        total = out if total is None else total + out
    assert total is not None
    return total.movedim(0, -2)


def _from_edges(conv: OuterConv, edges: EdgeBasis, problem: Problem) -> Tensor:
    # Row m·K + k is what source m sends under label k, row n·K + k what target n receives.
    pattern, num_labels = edges.pattern, edges.num_bases
    rows = pattern.index * num_labels + pattern.label
    received = _send(conv, edges, rows, problem.transform().flatten(0, 1), num_labels)
    return received.unflatten(0, (edges.size[1], num_labels)).sum(1)


def _from_polynomial(conv: OuterConv, basis: Polynomial, problem: Problem) -> Tensor:
    def step(h: Tensor, factor: float) -> Tensor:
        return factor * _send(conv, basis.operator, basis.operator.index, h)

    if problem.has_features:
        return sum_forward(problem, step)
    return sum_clenshaw(problem, step)


def _send(
    conv: OuterConv, edges: EdgeBasis, rows: Tensor, x: Tensor, num_labels: int = 1
) -> Tensor:
    """Messages along ``edges`` between ``rows`` (2, E) of x (M·K, *batch, C) and of the result.

    Returns (N·K, *batch, C).
    """
    given = torch.argsort(edges.pattern.order)  # explainers number messages as edges were given
    index = rows.long()[:, given]
    value = None if edges.value is None else edges.value.to(x.dtype)[given]
    extra = {"edge_origin": _origin(edges)[given].long()} if conv.explain else {}
    size, x = (x.size(0), edges.size[1] * num_labels), x.movedim(0, -2)
    ends = x if size[0] == size[1] else (x, None)
    # The edges run from source to target whatever the layer's flow; PyG's two ways to collect a
    # pair disagree for the other flow.
    flow, conv.flow = conv.flow, "source_to_target"
    try:
        out = conv.propagate(index, x=ends, edge_value=value, size=size, **extra)
    finally:
        conv.flow = flow
    return out.movedim(-2, 0)


def _origin(edges: EdgeBasis) -> Tensor:
    if edges.pattern.origin is None:
        raise RefusedValue(
            refusal(
                "an explanation masks the edges that were given, and every edge "
                "of the basis must stem from one",
                "a basis made of edges",
                f"{edges!r}, whose edges are products or were stored",
            )
        )
    return edges.pattern.origin
