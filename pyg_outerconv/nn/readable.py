"""The convolution by messages, edge by edge, which explainers and hooks look into."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from ..basis import Basis, EdgeBasis, Eye, Polynomial
from ..basis.attended import Attended
from ..basis.factored import Factored
from ..basis.heads import Heads
from ..contract import Features, Problem, ThetaValue, check_shapes
from ..contract.order import needs_features
from ..contract.orders.per_node import PerNode
from ..contract.orders.recurrence import sum_clenshaw, sum_forward
from ..contract.problem import LINEAR
from ..contract.semiring import check_inputs, problems
from ..errors import RefusedValue, refusal
from .prepare import nodes_first
from .reductions import COMPARISONS

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
    total: Tensor | None = None
    for problem in problems(basis, x, theta, conv.reduce, conv.label_reduce):
        out = _from_leaf(conv, problem)
        total = out if total is None else total + out
    assert total is not None
    return total.movedim(0, -2)


def _from_leaf(conv: OuterConv, problem: Problem) -> Tensor:
    """What a leaf gives, (N, *batch, Q)."""
    leaf = problem.basis
    check_inputs(problem)
    if isinstance(leaf, Polynomial):
        return _from_polynomial(conv, leaf, problem)
    if isinstance(leaf, Eye) and not conv.sends_own_messages:
        return PerNode().run(problem)  # of which nothing but the values would be seen
    if isinstance(leaf, Heads | Attended | Factored):
        return _from_heads(conv, leaf, problem)
    return _over_labels(_from_edges(conv, leaf.edges(), problem), problem)


def _from_heads(conv: OuterConv, leaf: Heads | Attended | Factored, problem: Problem) -> Tensor:
    """Heads as the edges that they are, each with one label, and for each item of a batch anew."""
    if not leaf.batch:
        given = (leaf.edges(), problem.x, problem.parameter, problem.reduce, problem.label_reduce)
        out, *more = [_from_leaf(conv, part) for part in problems(*given)]
        return sum(more, out)
    x = problem.x
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
