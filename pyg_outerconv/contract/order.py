"""The base classes of contraction orders: which problems an order solves, its cost, and its run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..errors import RefusedType
from ..registry import Named, Registry
from .cost import Cost, Steps
from .problem import Problem

EXPLICIT = (EdgeBasis, ImplicitEdges)
"""The kinds of basis with explicit edges, or with edges that are made on demand."""

ORDERS: Registry[Order] = Registry("contraction order", objects=True)
"""All contraction orders by name."""

Need = Callable[[Problem], list[str]]
"""Reasons why a problem does not meet a requirement; empty if it does."""

Pair = dict[str, dict[str, Any]]
"""The names of two orders of one class, and the attributes in which they differ."""

_of_kind: dict[type[Basis], list[Order]] = {}


class Order(Named, ABC, registry=ORDERS):
    """A way to contract a leaf: which product comes first, and in which compact form.

    Defining a subclass with a ``name`` registers an instance of it in :data:`ORDERS`; one with a
    ``pair`` registers two, which apply Θ and A in either order.

    Attributes:
        name: the name by which users ask for it.
        pair: the names of two orders, and the attributes in which they differ.
        theta_first: whether Θ is applied first.
        solves: the kinds of basis it can contract; it is offered no other.
        needs: what a problem of these kinds must meet.
        reductions: the reductions over the inputs of a label that it computes. Θ comes after a
            reduction that is not linear, so an order that transforms first cannot do max or min.
        label_reductions: the reductions over the labels of a target that it computes.
        adds_bias: whether :meth:`run` adds the bias of the problem.
        propagates: whether it computes A_kᵀ X as an intermediate result; with Q = 0, only that.
        knows_shapes: whether the shapes of its matrices do not depend on which edges there are, as
            those of compact forms do; said by orders that apply Θ first or last.
    """

    name: str
    pair: ClassVar[Pair] = {}
    theta_first: bool = False
    solves: ClassVar[tuple[type[Basis], ...]]
    needs: ClassVar[tuple[Need, ...]] = ()
    reductions: ClassVar[frozenset[str]] = frozenset({"sum"})
    label_reductions: ClassVar[frozenset[str]] = frozenset({"sum"})
    adds_bias: ClassVar[bool] = False
    propagates: bool = False
    knows_shapes: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pair = vars(cls).get("pair", {})
        if ("name" in vars(cls) or pair) and cls.steps is Order.steps:
            raise RefusedType("an order says what it costs", "its steps", cls.__name__)
        super().__init_subclass__(**kwargs)
        for name, attributes in pair.items():
            ORDERS[name] = cls()
            vars(ORDERS[name]).update(attributes, name=name)
        _of_kind.clear()

    def why_not(self, problem: Problem) -> list[str]:
        """The reasons why this order cannot solve ``problem``; empty if it can."""
        if not isinstance(problem.basis, self.solves):
            kinds = " and ".join(kind.__name__ for kind in self.solves)
            kind = f"solves {kinds}, not a {type(problem.basis).__name__}"
            return [kind, *self._reduction_reasons(problem)]
        return self._reduction_reasons(problem) + self.lacks(problem)

    def rank(self, problem: Problem) -> int:
        """How well the order suits a problem it can solve, from sizes alone; the least wins.

        Costs are compared only among orders of equal least rank: 1 if nothing is known of it, 0 and
        less where the rule is sure, 2 for one that is taken only if it is asked for.
        """
        return 1

    def lacks(self, problem: Problem) -> list[str]:
        """The requirements that a problem of these kinds does not meet, one text each."""
        return [reason for need in self.needs for reason in need(problem)]

    def _reduction_reasons(self, problem: Problem) -> list[str]:
        """A reason for each reduction of the problem that this order does not compute."""
        reasons = []
        if problem.aggr not in self.reductions:
            why = (
                "the basis holds no edges, which basis.edges() and the family Explicit(...) make"
                if problem.basis.hides_edges
                else "a mean divides the sum of each label, which it does not compute; "
                "basis.mean() divides values"
                if problem.aggr == "mean"
                else "Θ must come after a reduction that is not linear"
            )
            here = ", ".join(sorted(self.reductions))
            reasons.append(f"reduces with {here}, not with {problem.aggr}: {why}")
        if problem.label_aggr not in self.label_reductions:
            here = ", ".join(sorted(self.label_reductions))
            reasons.append(f"reduces labels with {here}, not with {problem.label_aggr}")
        return reasons

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the parts of the pattern it reads are cached, as torch.compile requires."""
        return True

    @abstractmethod
    def steps(self, problem: Problem) -> Steps:
        """What it does with a problem that it can solve, with the cost of each step."""

    def cost(self, problem: Problem) -> Cost:
        """The cost of a problem that the order can solve: that of its steps."""
        return self.steps(problem).cost

    @abstractmethod
    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""


class EdgeOrder(Order):
    """An order over explicit edges, or edges that are made on demand.

    Attributes:
        reads: the cached properties of the pattern that it reads. What needs numbers of the data is
            one of them: ``run`` reads none, so that the order compiles and exports.
    """

    solves = EXPLICIT
    reads: ClassVar[tuple[str, ...]] = ()

    def lacks(self, problem: Problem) -> list[str]:
        reasons = super().lacks(problem)
        if problem.mode.traces and not _OF_NUMBERS.isdisjoint(self.reads) and is_traced(problem):
            reasons.append("torch.jit.trace keeps how many pairs this graph has, for all others")
        return reasons

    def rank(self, problem: Problem) -> int:
        """The rank by the plain rule, which applies to explicit edges; else 1."""
        return self.rank_of_edges(problem) if isinstance(problem.basis, EdgeBasis) else 1

    def rank_of_edges(self, problem: Problem) -> int:
        """The rank if the basis has explicit edges: 0 for the order that suits most problems."""
        return 1

    def is_prepared(self, problem: Problem) -> bool:
        """Whether the cached properties that it reads have been computed."""
        if not problem.counted.has_edges:
            return False
        cached_properties = vars(problem.edges.pattern)
        return all(name in cached_properties for name in self.reads)


# Properties of a pattern whose sizes depend on which edges there are.
_OF_NUMBERS = {"label_blocks", "source_pairs", "target_pairs"}


def is_traced(problem: Problem) -> bool:
    """Whether edges are arguments of what torch.jit traces now, not constants or buffers."""
    if not isinstance(problem.basis, EdgeBasis):
        return False
    pattern = problem.basis.pattern
    ends = pattern.source if pattern.listed is None else pattern.listed
    values: list[Any] = [torch._C._get_value_trace(ends)]  # type: ignore[attr-defined]
    names = set()
    for value in values:
        node = value.node()
        if node.kind() == "prim::Param":
            return True
        of_layer = node.kind() in ("prim::GetAttr", "aten::size")  # buffers, numbers of nodes
        if not of_layer and value.debugName() not in names:
            names.add(value.debugName())
            values += node.inputs()
    return False


def orders_of(kind: type[Basis]) -> list[Order]:
    """The orders that solve a kind of basis, sorted by name."""
    compiles = torch.compiler.is_compiling()
    if not compiles and kind in _of_kind:
        return _of_kind[kind]
    by_name = [ORDERS[name] for name in sorted(ORDERS)]
    orders = [order for order in by_name if issubclass(kind, order.solves)]
    if not compiles:  # which would guard on what is cached, and compile each model a second time
        _of_kind[kind] = orders
    return orders


def needs_features(problem: Problem) -> list[str]:
    """A reason if the problem has no dense features to propagate."""
    return [] if problem.has_features else ["needs dense node features to propagate"]


def needs_matrices(problem: Problem) -> list[str]:
    """A reason if Θ is not a mixture of at least one matrix."""
    mixture = problem.mixture
    if mixture is None:
        return ["needs Θ as a mixture of a few matrices, not one matrix for each label"]
    return [] if mixture.num_matrices else ["needs a mixture of at least one matrix"]


def needs_mixture(problem: Problem) -> list[str]:
    """A reason if Θ is no such mixture, or has filters, which no edge can have."""
    reasons = needs_matrices(problem)
    if not reasons and problem.parameter.has_filters:
        return ["mixes labels alike for all channels, and Θ has a filter for each"]
    return reasons


def needs_identity(problem: Problem) -> list[str]:
    """A reason if Θ is not c I, or not I where labels are compared."""
    if problem.factor is None:
        return ["needs Θ_k = c I with one number c for all labels"]
    if problem.label_aggr != "sum" and problem.factor != 1.0:
        return [f"needs Θ_k = I for {problem.label_aggr} over labels"]
    return []
