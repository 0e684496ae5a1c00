"""The convolution by messages, edge by edge, which explainers and hooks look into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from ..basis import Basis, EdgeBasis, Eye, Polynomial
from ..contract import Problem, check_shapes
from ..contract.order import needs_features
from ..contract.orders.per_node import PerNode
from ..contract.orders.recurrence import sum_clenshaw, sum_forward
from ..contract.problem import LINEAR
from ..contract.semiring import check_inputs, problems
from ..errors import RefusedValue, refusal
from ..graph import Features
from ..theta import ThetaValue
from .checks import COMPARISONS
from .prepare import nodes_first

if TYPE_CHECKING:
    from .outer_conv import OuterConv


def convolve_by_messages(conv: OuterConv, basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
    """Y (*batch, N, Q) by ``conv.propagate``: slow, and equal to the contraction.

    Explicit edges send one message each, x_m Θ_k times the value of the edge, in the order in
    which the edges were given; messages are reduced within each label, then over labels. Where they
    are compared within a label, Θ_k follows: they are x_m times the value, and the first of equal
    ones takes the gradient. A polynomial sends messages along its operator's edges, once for each
    power but the zeroth. Identities send none, unless the class of the layer has steps of its own.

    Raises:
        ValueError: what is sent by a rule that hides its edges is to be compared.
    """
    x = nodes_first(x)
    check_shapes(basis, x, theta)
    leaves = problems(basis, x, theta, conv.reduce, conv.label_reduce)
    return _from_leaves(conv, leaves).movedim(0, -2)


def _from_leaves(conv: OuterConv, leaves: Sequence[Problem]) -> Tensor:
    """What they give together, (N, *batch, Q)."""
    out, *more = [_from_leaf(conv, problem) for problem in leaves]
    return sum(more, out)


def _from_leaf(conv: OuterConv, problem: Problem) -> Tensor:
    if problem.reduce != "sum":
        check_inputs(problem)
    if problem.basis.batch:
        return _from_items(conv, problem)
    return problem.basis.send(Messages(conv, problem))


@dataclass(frozen=True)
class Messages:
    """A :class:`~pyg_outerconv.basis.kind.Sender` by ``conv.propagate``."""

    conv: OuterConv
    problem: Problem

    def along(self, edges: EdgeBasis) -> Tensor:
        """One message for each edge; those of a rule are a problem of their own."""
        one = self.problem
        if edges is not one.basis:
            leaves = problems(edges, one.x, one.parameter, one.reduce, one.label_reduce)
            return _from_leaves(self.conv, leaves)
        return _over_labels(_from_edges(self.conv, edges, one), one)

    def step_by_step(self, polynomial: Polynomial) -> Tensor:
        """One message for each edge of the operator and each power but the zeroth."""
        operator = polynomial.operator

        def step(h: Tensor, factor: float) -> Tensor:
            return factor * _send(self.conv, operator, operator.index, h)

        sums = sum_forward if self.problem.has_features else sum_clenshaw
        return sums(self.problem, step)

    def to_itself(self, eye: Eye) -> Tensor:
        """No message, of which nothing but the values would be seen, where steps are PyG's."""
        if self.conv.sends_own_messages:
            return self.along(eye.edges())
        return PerNode().run(self.problem)


def _from_items(conv: OuterConv, problem: Problem) -> Tensor:
    """What a basis of a batch gives, item by item."""
    leaf, x = problem.basis, problem.x
    if not isinstance(x, Tensor) or problem.batch != leaf.batch:
        raise RefusedValue(
            refusal("a basis of a batch is for that of x", leaf.batch, problem.batch)
        )
    items = []
    for index in product(*map(range, leaf.batch)):
        where: tuple[slice | int, ...] = (slice(None), *index)
        one = replace(problem, basis=leaf.item(*index), x=x[where])
        items.append(_from_leaf(conv, one))
    if not items:
        nothing = problem.theta[:0].sum()
        return nothing.expand(leaf.size[1], *leaf.batch, problem.out_channels).clone()
    return torch.stack(items, 1).unflatten(1, leaf.batch)


def _from_edges(conv: OuterConv, edges: EdgeBasis, problem: Problem) -> Tensor:
    """What each target receives under each label, times Θ_k: (N, K, *batch, Q)."""
    pattern, num_labels = edges.pattern, edges.num_bases
    to = pattern.target * num_labels + pattern.label
    if problem.reduce in LINEAR:
        # Row m·K + k is what source m sends under label k, row n·K + k what target n receives.
        rows = torch.stack([pattern.source * num_labels + pattern.label, to])
        received = _send(conv, edges, rows, problem.transform().flatten(0, 1), num_labels)
        return received.unflatten(0, (edges.size[1], num_labels))
    if reasons := needs_features(problem):
        raise RefusedValue(f"{problem.reduce} over the inputs of a label {reasons[0]}")
    assert isinstance(problem.x, Tensor)
    received = _send(conv, edges, torch.stack([pattern.source, to]), problem.x, num_labels)
    by_label = received.unflatten(0, (edges.size[1], num_labels)).unbind(1)
    out = [problem.collect_label(h, label) for label, h in enumerate(by_label)]
    return torch.stack(out, dim=1)


def _over_labels(received: Tensor, problem: Problem) -> Tensor:
    """Labels summed or compared, but for those without an edge: (N, *batch, Q)."""
    if problem.label_reduce == "sum":
        return received.sum(1)
    pattern, largest = problem.edges.pattern, problem.label_reduce == "max"
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
    given = torch.argsort(edges.pattern.order)  # explainers number messages as edges were given
    if conv.reduce in COMPARISONS and not conv.explain and not _lists_as_given(edges):
        given = torch.arange(edges.num_edges, device=edges.device)  # which is first, the basis says
    index = rows.long()[:, given]
    value = None if edges.value is None else edges.value.to(x.dtype)[given]
    if value is None and conv.sends_own_messages:
        value = x.new_ones(index.size(1))  # users' messages need not know of a basis of ones
    extra = {"edge_origin": _origin(edges)[given].long()} if conv.explain else {}
    size, x = (x.size(0), edges.size[1] * num_labels), x.movedim(0, -2)
    # The edges run from source to target. A layer with the other flow reads its edges, as those of
    # users are, with targets first.
    if conv.flow == "target_to_source":
        index, size = index.flip(0), size[::-1]
    # PyG writes a `propagate` for each class, which the heirs of the class take for the general
    # one; but that alone knows what explainers add, and what steps of heirs ask for.
    general = conv.explain or conv.sends_own_messages
    propagate = MessagePassing.propagate.__get__(conv) if general else conv.propagate
    out = propagate(index, x=x, edge_value=value, size=size, **extra)
    return out.movedim(-2, 0)


def _lists_as_given(edges: EdgeBasis) -> bool:
    """Whether edges of one target and label are in the order in which they were given.

    Those of a transpose are in the order of their other ends. A compiler is told no.
    """
    if torch.compiler.is_compiling():  # which looks at no numbers
        return False
    pattern = edges.pattern
    same = (pattern.target.diff() == 0) & (pattern.label.diff() == 0)
    return not bool((same & (pattern.order.diff() < 0)).any())


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
