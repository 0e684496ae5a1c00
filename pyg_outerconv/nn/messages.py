"""Layers by messages, one for each edge: for explainers, PyG's hooks and ``fuse=False``."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import OptTensor

from ..basis import Basis, ChannelPolynomial, EdgeBasis, Eye, Polynomial
from ..basis.multi_head_edges import item
from ..contract import Problem
from ..contract.order import needs_features
from ..contract.orders.dense import PerNode
from ..contract.orders.polynomials import sum_channels, sum_clenshaw, sum_forward
from ..contract.problem import LINEAR, check_inputs, check_shapes, problems
from ..errors import RefusedType, RefusedValue
from ..graph import Features
from ..kernels.edge_lists import first_of_best
from ..theta import ThetaValue
from .call import nodes_first
from .checks import COMPARISONS

if TYPE_CHECKING:
    from .outer_conv import OuterConv

# The arguments that message, aggregate and update of a subclass may have.
OF_MESSAGES = {"x_j", "edge_value", "index", "ptr", "dim_size", "size", "size_i", "size_j"}
OF_MESSAGES |= {"edge_index", "edge_index_i", "edge_index_j"}

Way = Literal["contraction", "fused step", "messages"]
"""How a layer runs: at once, by ``message_and_aggregate`` with its hooks, or message by message."""


class MessageHooks(MessagePassing):
    """A ``MessagePassing`` layer whose fused step is a contraction, with PyG's hooks.

    A subclass that overrides ``message``, ``aggregate`` or ``update`` always runs by messages; how
    often each is called is documented at :func:`convolve_by_messages`. A subclass that
    overrides ``message_and_aggregate`` has it called with the basis, x and Θ.

    Attributes:
        sends_own_messages: whether the class overrides a step of messages.
        has_own_fused_step: whether the class overrides ``message_and_aggregate``.
    """

    sends_own_messages: ClassVar[bool] = False
    has_own_fused_step: ClassVar[bool] = False

    _edge_mask: Tensor | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        steps = {
            "message": MessageHooks.message,
            "aggregate": MessagePassing.aggregate,
            "update": MessagePassing.update,
        }
        own = [name for name, step in steps.items() if getattr(cls, name) is not step]
        cls.sends_own_messages = bool(own)
        for name in own:
            _check_step(cls, name, skip=1 if name == "message" else 2)
        if "message_and_aggregate" in vars(cls):
            _check_fused(cls)
            ours = [base for base in cls.__mro__ if issubclass(base, MessageHooks)]
            defined = ["message_and_aggregate" in vars(base) for base in ours]
            cls.has_own_fused_step = sum(defined) > 1  # OuterConv has one

    def message(self, x_j: Tensor, edge_value: OptTensor) -> Tensor:
        """The message of each edge: its value times the features of its source, (E, C)."""
        return x_j if edge_value is None else edge_value.view(-1, 1) * x_j

    def explain_message(self, inputs: Tensor, edge_origin: Tensor) -> Tensor:
        """Multiply each message by the mask of the edge in ``edge_index`` that it stems from.

        A layer over powers or several edge sets sends several messages along one edge of
        ``edge_index``; each is masked. Messages of edges added by the family are not.
        """
        return inputs * self.edge_mask(edge_origin).view(-1, 1)

    def edge_mask(self, edge_origin: Tensor) -> Tensor:
        """The mask of each edge of a basis, (E,); 1 for edges that the family added.

        Args:
            edge_origin: the column of ``edge_index`` that each edge stems from, -1 for none, (E,).

        Raises:
            ValueError: no mask was set.
        """
        mask = self._edge_mask
        if mask is None:
            raise RefusedValue("there is no edge mask to explain with: set_masks was not called")
        if self._apply_sigmoid:
            mask = mask.sigmoid()
        return torch.cat([mask, mask.new_ones(1)])[edge_origin]

    def _call_fused_step(self, basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
        """Call ``message_and_aggregate`` with its hooks, as PyG's ``propagate`` does."""
        arguments: dict[str, Any] = {"x": x, "theta": theta}
        for pre_hook in self._message_and_aggregate_forward_pre_hooks.values():
            changed = pre_hook(self, (basis, arguments))
            basis, arguments = (basis, arguments) if changed is None else changed
        out = self.message_and_aggregate(basis, **arguments)
        for hook in self._message_and_aggregate_forward_hooks.values():
            changed = hook(self, (basis, arguments), out)
            out = out if changed is None else changed
        return out


def _check_step(cls: type, name: str, skip: int) -> None:
    """Raise TypeError if an overridden step requires an argument that messages do not have."""
    parameters = list(inspect.signature(getattr(cls, name)).parameters.values())[skip:]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for one in parameters:
        needed = one.kind in named and one.default is inspect.Parameter.empty
        if needed and one.name not in OF_MESSAGES:
            raise RefusedType(
                f"{cls.__name__}.{name} is called with what is sent along edges",
                f"some of {', '.join(sorted(OF_MESSAGES))}",
                one.name,
            )


def _check_fused(cls: Any) -> None:
    """Raise TypeError if ``message_and_aggregate`` does not take the basis, x and theta."""
    try:
        inspect.signature(cls.message_and_aggregate).bind(None, None, x=None, theta=None)
    except TypeError as error:
        raise RefusedType(
            f"{cls.__name__}.message_and_aggregate is called with the basis, x and theta",
            "message_and_aggregate(self, edge_index, x, theta)",
            str(error).removeprefix("got "),
        ) from error


# The convolution ---------------------------------------------------------------------------------


def convolve_by_messages(conv: OuterConv, basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
    """Y (*batch, N, Q) by ``conv.propagate``, equal to the contraction but slower.

    Each explicit edge sends one message, x_m Θ_k times its value, in the order of ``edge_index``;
    messages are reduced within each label, then over labels. For max and min within a label the
    message is x_m times the value, Θ_k is applied after the reduction, and the first of equal
    messages takes the gradient. A polynomial sends messages along the edges of its operator, once
    for each power ≥ 1. The identity sends none, unless the layer's class overrides a step.
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
    basis = problem.basis
    if isinstance(basis, Polynomial | ChannelPolynomial):
        return _step_by_step(conv, problem, basis)
    if isinstance(basis, Eye) and not conv.sends_own_messages:
        return PerNode().run(problem)
    edges = basis.edges()
    if edges is basis:
        return _over_labels(_from_edges(conv, edges, problem), problem)
    # Edges that a rule made are contracted as another problem.
    rest = problem.x, problem.parameter, problem.aggr, problem.label_aggr
    return _from_leaves(conv, problems(Problem(edges, *rest)))


def _step_by_step(
    conv: OuterConv, problem: Problem, polynomial: Polynomial | ChannelPolynomial
) -> Tensor:
    """One message for each edge of the operator and each power ≥ 1."""
    operator = polynomial.operator

    def step(h: Tensor, factor: float) -> Tensor:
        return factor * _send(conv, operator, operator.index, h)

    if isinstance(polynomial, ChannelPolynomial):
        return sum_channels(problem, step)
    return (sum_forward if problem.has_features else sum_clenshaw)(problem, step)


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
    has_edges = torch.zeros(received.shape[:2], dtype=torch.bool, device=received.device)
    has_edges[pattern.target.long(), pattern.label.long()] = True
    has_edges = has_edges.view(*has_edges.shape, *(1,) * (received.dim() - 2))
    filled = received.masked_fill(~has_edges, -torch.inf if largest else torch.inf)
    best = filled.max(1).values if largest else filled.min(1).values
    return best.masked_fill(~has_edges.any(1), 0.0)


def _send(
    conv: OuterConv, edges: EdgeBasis, rows: Tensor, x: Tensor, num_labels: int = 1
) -> Tensor:
    """Messages along ``edges`` between ``rows`` (2, E) of x (M·K, *batch, C) and of the result.

    Returns (N·K, *batch, C).
    """
    permutation = torch.argsort(edges.pattern.order)  # explainers expect the order of edge_index
    if conv.reduce in COMPARISONS and not conv.explain and not _keeps_order(edges):
        # The first of equal messages is the first edge in the order of the basis.
        permutation = torch.arange(edges.num_edges, device=edges.device)
    index = rows.long()[:, permutation]
    value = None if edges.value is None else edges.value.to(x.dtype)[permutation]
    if value is None and conv.sends_own_messages:
        value = x.new_ones(index.size(1))  # so that users' messages need not handle None
    extra = {"edge_origin": _origin(edges)[permutation].long()} if conv.explain else {}
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
