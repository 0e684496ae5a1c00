"""The convolution by messages, one for each edge, for explainers, hooks and ``fuse=False``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.conv import MessagePassing

from ..basis import Basis, ChannelPolynomial, EdgeBasis, Eye, Polynomial
from ..basis.multi_head_edges import item
from ..contract import Problem
from ..contract.order import needs_features
from ..contract.orders.dense import PerNode
from ..contract.orders.polynomials import sum_channels, sum_clenshaw, sum_forward
from ..contract.problem import LINEAR, check_inputs, check_shapes, problems
from ..errors import RefusedValue
from ..graph import Features
from ..kernels.edge_lists import first_of_best
from ..theta import ThetaValue
from .call import nodes_first
from .checks import COMPARISONS

if TYPE_CHECKING:
    from .outer_conv import OuterConv


def convolve_by_messages(conv: OuterConv, basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
    """Y (*batch, N, Q) by ``conv.propagate``, equal to the contraction but slower.

    Each explicit edge sends one message, x_m Θ_k times its value, in the order of ``edge_index``;
    messages are reduced within each label, then over labels. For max and min within a label the
    message is x_m times the value, Θ_k is applied after the reduction, and the first of equal
    messages takes the gradient. A polynomial sends messages along the edges of its operator, once
    for each power ≥ 1. The identity sends none, unless the layer's class overrides a step.

    Raises:
        ValueError: inputs or labels are compared and the basis hides its edges.
    """
    whole = Problem(basis, nodes_first(x), theta, conv.reduce, conv.label_reduce)
    check_shapes(whole)
    return _from_leaves(conv, problems(whole)).movedim(0, -2)


def _from_leaves(conv: OuterConv, leaves: Sequence[Problem]) -> Tensor:
    """The sum of the results of all leaves, (N, *batch, Q)."""
    out, *more = [_from_leaf(conv, problem) for problem in leaves]
    return sum(more, out)


def _from_leaf(conv: OuterConv, problem: Problem) -> Tensor:
    if problem.aggr != "sum":
        check_inputs(problem)
    if problem.basis.batch:
        return _from_items(conv, problem)
    basis, messages = problem.basis, Messages(conv, problem)
    if isinstance(basis, Polynomial | ChannelPolynomial):
        return messages.step_by_step(basis)
    return messages.to_itself(basis) if isinstance(basis, Eye) else messages.along(basis.edges())


@dataclass(frozen=True)
class Messages:
    """What targets receive by ``conv.propagate``, (N, *batch, Q)."""

    conv: OuterConv
    problem: Problem

    def along(self, edges: EdgeBasis) -> Tensor:
        """One message for each edge. Edges that a rule made are contracted as another problem."""
        one = self.problem
        if edges is not one.basis:
            whole = Problem(edges, one.x, one.parameter, one.aggr, one.label_aggr)
            return _from_leaves(self.conv, problems(whole))
        return _over_labels(_from_edges(self.conv, edges, one), one)

    def step_by_step(self, polynomial: Polynomial | ChannelPolynomial) -> Tensor:
        """One message for each edge of the operator and each power ≥ 1."""
        operator = polynomial.operator

        def step(h: Tensor, factor: float) -> Tensor:
            return factor * _send(self.conv, operator, operator.index, h)

        sums = sum_forward if self.problem.has_features else sum_clenshaw
        if isinstance(polynomial, ChannelPolynomial):
            sums = sum_channels
        return sums(self.problem, step)

    def to_itself(self, eye: Eye) -> Tensor:
        """No messages, unless the layer's class overrides a step, which then has to be called."""
        if self.conv.sends_own_messages:
            return self.along(eye.edges())
        return PerNode().run(self.problem)


def _from_items(conv: OuterConv, problem: Problem) -> Tensor:
    """The result for a basis with a batch, item by item."""
    leaf, x = problem.basis, problem.x
    if not isinstance(x, Tensor) or problem.batch != leaf.batch:
        raise RefusedValue("the basis must have the batch shape of x", leaf.batch, problem.batch)
    items = []
    for index in product(*map(range, leaf.batch)):
        where: tuple[slice | int, ...] = (slice(None), *index)
        theta, reductions = problem.parameter, (problem.aggr, problem.label_aggr)
        items.append(_from_leaf(conv, Problem(item(leaf, *index), x[where], theta, *reductions)))
    if not items:
        nothing = problem.theta[:0].sum()
        return nothing.expand(leaf.size[1], *leaf.batch, problem.out_channels).clone()
    return torch.stack(items, 1).unflatten(1, leaf.batch)


def _from_edges(conv: OuterConv, edges: EdgeBasis, problem: Problem) -> Tensor:
    """The reduced messages of each target and label, times Θ_k: (N, K, *batch, Q)."""
    pattern, num_labels = edges.pattern, edges.num_bases
    to = pattern.target * num_labels + pattern.label
    if problem.aggr in LINEAR:
        # Row m·K + k is source m under label k, row n·K + k is target n under label k.
        rows = torch.stack([pattern.source * num_labels + pattern.label, to])
        received = _send(conv, edges, rows, problem.transform().flatten(0, 1), num_labels)
        return received.unflatten(0, (edges.size[1], num_labels))
    if reasons := needs_features(problem):
        raise RefusedValue(f"{problem.aggr} over the inputs of a label {reasons[0]}")
    assert isinstance(problem.x, Tensor)
    received = _send(conv, edges, torch.stack([pattern.source, to]), problem.x, num_labels)
    by_label = received.unflatten(0, (edges.size[1], num_labels)).unbind(1)
    out = [problem.collect_label(h, label) for label, h in enumerate(by_label)]
    return torch.stack(out, dim=1)


def _over_labels(received: Tensor, problem: Problem) -> Tensor:
    """Reduce over labels; max and min leave out labels without edges: (N, *batch, Q)."""
    if problem.label_aggr == "sum":
        return received.sum(1)
    pattern, largest = problem.edges.pattern, problem.label_aggr == "max"
    found = torch.zeros(received.shape[:2], dtype=torch.bool, device=received.device)
    found[pattern.target.long(), pattern.label.long()] = True
    found = found.view(*found.shape, *(1,) * (received.dim() - 2))
    filled = received.masked_fill(~found, -torch.inf if largest else torch.inf)
    best = filled.max(1).values if largest else filled.min(1).values
    return best.masked_fill(~found.any(1), 0.0)


def _send(
    conv: OuterConv, edges: EdgeBasis, rows: Tensor, x: Tensor, num_labels: int = 1
) -> Tensor:
    """Messages along ``edges`` between ``rows`` (2, E) of x (M·K, *batch, C) and of the result.

    Returns (N·K, *batch, C).
    """
    given = torch.argsort(edges.pattern.order)  # explainers expect the order of edge_index
    if conv.reduce in COMPARISONS and not conv.explain and not _keeps_order(edges):
        # The first of equal messages is the first edge in the order of the basis.
        given = torch.arange(edges.num_edges, device=edges.device)
    index = rows.long()[:, given]
    value = None if edges.value is None else edges.value.to(x.dtype)[given]
    if value is None and conv.sends_own_messages:
        value = x.new_ones(index.size(1))  # so that users' messages need not handle None
    extra = {"edge_origin": _origin(edges)[given].long()} if conv.explain else {}
    size, x = (x.size(0), edges.size[1] * num_labels), x.movedim(0, -2)
    # Edges run from source to target; with flow='target_to_source' propagate expects targets first.
    if conv.flow == "target_to_source":
        index, size = index.flip(0), size[::-1]
    # PyG generates a `propagate` for each class, which subclasses inherit. Only the general one
    # knows the arguments of explainers and of steps that a subclass overrides.
    general = conv.explain or conv.sends_own_messages
    propagate = MessagePassing.propagate.__get__(conv) if general else conv.propagate
    out = propagate(index, x=x, edge_value=value, size=size, **extra)
    return out.movedim(-2, 0)


def _keeps_order(edges: EdgeBasis) -> bool:
    """Whether edges of one target and label are in the order of ``edge_index``.

    In a transpose they are not. Under a compiler, which reads no numbers, the answer is False.
    """
    if torch.compiler.is_compiling():
        return False
    pattern = edges.pattern
    same = (pattern.target.diff() == 0) & (pattern.label.diff() == 0)
    return not bool((same & (pattern.order.diff() < 0)).any())


def _origin(edges: EdgeBasis) -> Tensor:
    if edges.pattern.origin is None:
        raise RefusedValue(
            "an explanation masks the edges that were given, and every edge "
            "of the basis must stem from one",
            "a basis made of edges",
            f"{edges!r}, whose edges are products or were stored",
        )
    return edges.pattern.origin


class FirstOfEqual(Aggregation):
    """The maximum or minimum of the messages of each row and channel; 0 without messages.

    Of equal messages the first takes the whole gradient; PyG's aggregations share it among them.
    NaN wins over every number.

    Args:
        aggr: 'max' or 'min'.
    """

    def __init__(self, aggr: str) -> None:
        super().__init__()
        self.aggr = aggr

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        """Reduce messages ``x`` (*, E, C) to rows ``index`` (E,): (*, N, C)."""
        self.assert_index_present(index)
        assert index is not None
        x = x.movedim(dim, 0)
        rows = dim_size if dim_size is not None else int(index.max()) + 1 if index.numel() else 0
        if not x.size(0):
            return (x.new_zeros(rows, *x.shape[1:]) + x.sum(0)).movedim(0, dim)
        first = first_of_best(x, index, rows, self.aggr)
        out = torch.where(first < len(x), x.gather(0, first.clamp(max=len(x) - 1)), 0.0)
        return out.movedim(0, dim)
