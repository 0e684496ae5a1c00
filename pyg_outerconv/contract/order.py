"""What a contraction order is: which problems it may solve, at what cost, and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..kernels.dispatch import forced, get_backend
from ..kernels.grouped import known_groups
from ..theta.autocast import autocast_pair
from .cost import Cost
from .problem import Problem

EXPLICIT = (EdgeBasis, ImplicitEdges)
"""The kinds of basis that have explicit edges, or make them when asked."""

ORDERS: dict[str, Order] = {}
"""Every order that there is, by name."""

_of_kind: dict[type[Basis], list[Order]] = {}


class Order(ABC):
    """A way to contract a leaf: which product comes first, and in what compact form.

    A class below it that has a name is an order from then on: :data:`ORDERS` holds one of it.

    Attributes:
        name: what users call it.
        solves: the kinds of basis that it knows; it is asked for no other.
        reductions: over the inputs of a label, for which it is right. Θ follows a reduction that is
            not linear, so transforming first is wrong for max and min.
        label_reductions: over the labels of a target, for which it is right.
        adds_bias: whether it adds the problem's bias on its way.
        propagates: whether it makes A_kᵀ X on its way, and nothing else where Q = 0.
        transforms: of orders whose matrices are of known shapes whatever edges there are, whether Θ
            comes first.
    """

    name: ClassVar[str]
    solves: ClassVar[tuple[type[Basis], ...]]
    reductions: ClassVar[frozenset[str]] = frozenset({"sum"})
    label_reductions: ClassVar[frozenset[str]] = frozenset({"sum"})
    adds_bias: ClassVar[bool] = False
    propagates: ClassVar[bool] = False
    transforms: ClassVar[bool | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            ORDERS[cls.name] = cls()
            _of_kind.clear()

    def why_not(self, problem: Problem) -> list[str]:
        """Every reason why this order may not solve ``problem``; empty means that it may."""
        if not isinstance(problem.basis, self.solves):
            kinds = " and ".join(kind.__name__ for kind in self.solves)
            kind = f"solves {kinds}, not a {type(problem.basis).__name__}"
            return [kind, *self._other_reductions(problem)]
        return self._other_reductions(problem) + self.lacks(problem)

    def rank(self, problem: Problem) -> int:
        """How well it suits, from sizes that are known without counting; the least is taken.

        Asked only where :meth:`why_not` has no reason. Of orders of one rank the cheapest is taken,
        so that nothing is costed where one has the least.
        """
        return 1

    def lacks(self, problem: Problem) -> list[str]:
        """What a problem of its kind lacks that it needs, a reason each."""
        return []

    def _other_reductions(self, problem: Problem) -> list[str]:
        reasons = []
        if problem.reduce not in self.reductions:
            why = (
                "the basis holds no edges, which basis.edges() and the family Explicit(...) make"
                if problem.basis.hides_edges
                else "a mean divides each label's sum, which it does not hold; "
                "basis.mean() divides values"
                if problem.reduce == "mean"
                else "Θ follows a reduction that is not linear"
            )
            here = ", ".join(sorted(self.reductions))
            reasons.append(f"reduces with {here}, not with {problem.reduce}: {why}")
        if problem.label_reduce not in self.label_reductions:
            here = ", ".join(sorted(self.label_reductions))
            reasons.append(f"reduces labels with {here}, not with {problem.label_reduce}")
        return reasons

    def is_prepared(self, problem: Problem) -> bool:
        """Whether what it needs of the pattern is there already, so that a compiler can go on."""
        return True

    @abstractmethod
    def cost(self, problem: Problem) -> Cost:
        """What it would cost. Asked only where :meth:`why_not` has no reason."""

    @abstractmethod
    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""


def orders_of(kind: type[Basis]) -> list[Order]:
    """The orders that know a kind of basis, by name."""
    if kind not in _of_kind:
        by_name = [ORDERS[name] for name in sorted(ORDERS)]
        _of_kind[kind] = [order for order in by_name if issubclass(kind, order.solves)]
    return _of_kind[kind]


def needs_features(problem: Problem) -> list[str]:
    """A reason where there are no dense features to propagate."""
    if problem.has_features:
        return []
    return ["needs dense node features, and there are none to propagate"]


def needs_mixture(problem: Problem) -> list[str]:
    """A reason where Θ is not a mixture of some matrices."""
    mixture = problem.mixture
    if mixture is None:
        return ["needs a mixture of matrices, and Θ has one of its own for each label"]
    return [] if mixture.num_matrices else ["needs a mixture of at least one matrix"]


def needs_grouped_products() -> list[str]:
    """A reason where the backend that was asked for has no products by groups of rows."""
    asked = forced()
    if asked is None or "grouped_matmul" in get_backend(asked).primitives:
        return []
    return [f"needs the kernel grouped_matmul, which backend {asked!r}, asked for, does not have"]


def has_made(problem: Problem, *names: str) -> bool:
    """Whether the pattern has made these of its cached properties."""
    if not problem.basis.has_edges:
        return False
    return all(name in vars(problem.edges.pattern) for name in names)


def each_of_batch(problem: Problem, run: Callable[[Tensor], Tensor]) -> Tensor:
    """``run`` on every (M, P) of a batch (M, *batch, P): (N, *batch, Q)."""
    assert isinstance(problem.x, Tensor)
    if problem.x.dim() == 2:
        return run(problem.x)
    wide = problem.x.flatten(1, -2)
    if wide.size(1) == 0:  # nothing to do, but autograd still wants to hear of it
        return run(wide.sum(1)).unsqueeze(1)[:, :0].unflatten(1, problem.batch)
    out = torch.stack([run(item) for item in wide.unbind(1)], dim=1)
    return out.unflatten(1, problem.batch)


def grouped(
    x: Tensor,
    ptr: Tensor,
    theta: Tensor,
    gather: Tensor | None = None,
    scatter: Tensor | None = None,
    num_rows: int | None = None,
) -> Tensor:
    """:func:`.grouped_matmul` with a matrix for each label, block-diagonal if G > 1.

    ``theta`` (K, G, P/G, Q/G). Under autocast in its type, as a dense product is.
    """
    x, theta = autocast_pair(x, theta)
    if theta.size(1) == 1:
        return known_groups(x, ptr, theta[:, 0], gather, scatter, num_rows)
    blocks = x.unflatten(-1, theta.shape[1:3]).unbind(1)
    outs = [
        known_groups(block, ptr, theta[:, number], gather, scatter, num_rows)
        for number, block in enumerate(blocks)
    ]
    return torch.cat(outs, dim=-1)
