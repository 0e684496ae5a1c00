"""The orders there are, and which one solves a leaf: the cheapest that may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..basis.algebra import Composed
from ..basis.attended import Attended
from ..basis.base import Basis
from ..basis.cache import recall
from ..basis.edges import EdgeBasis
from ..basis.heads import Heads
from ..basis.on_demand import OnDemand
from ..basis.polynomial import Polynomial
from ..errors import RefusedValue, refusal, unknown
from ..kernels.dispatch import forced
from ..theta import ValueOutput
from .cost import Cost
from .features import SparseFeatures
from .machine import constants
from .order import ORDERS, Order, orders_of
from .problem import Problem

PLANS = 64  # choices that are kept for one pattern or rule


@dataclass(frozen=True)
class Candidate:
    """An order, why it may not solve a problem, and what it would cost if it may.

    Attributes:
        order: which.
        reasons: why not; empty if it may.
        cost: None where it may not.
        seconds: the predicted time; infinite where it may not.
    """

    order: Order
    reasons: tuple[str, ...]
    cost: Cost | None
    seconds: float


def candidates(
    problem: Problem, max_memory: int | None = None, orders: Sequence[Order] | None = None
) -> list[Candidate]:
    """Every order of the basis's kind, or those given, with reasons or a cost.

    Illegal ones are never costed.
    """
    speeds = constants(problem.device.type, problem.dtype)
    found = []
    for order in orders or orders_of(type(problem.basis)):
        reasons = order.why_not(problem)
        cost = None if reasons else order.cost(problem)
        if cost is not None and (why := _too_much(cost, max_memory)):
            reasons, cost = [why], None
        seconds = float("inf") if cost is None else cost.work.seconds(speeds)
        found.append(Candidate(order, tuple(reasons), cost, seconds))
    return found


def choose_order(
    problem: Problem, wanted: str | None = None, max_memory: int | None = None
) -> Order:
    """The order to take for one leaf: the wanted one if it is legal, else the cheapest legal one.

    Raises:
        ValueError: ``wanted`` is unknown, or would hold more than ``max_memory``; or no order may
            solve the problem, then all reasons are given.
    """
    check_order(wanted)
    if wanted is not None and not ORDERS[wanted].why_not(problem):
        if max_memory is not None and (why := _too_much(ORDERS[wanted].cost(problem), max_memory)):
            raise RefusedValue(f"order {wanted!r} {why}")
        return ORDERS[wanted]
    if torch.compiler.is_compiling():
        return _choose_to_compile(problem, max_memory)
    plans = _plans(problem)
    if plans is None:
        legal = _legal(problem)
        if len(legal) == 1 and max_memory is None:
            return legal[0]
        return _cheapest(candidates(problem, max_memory), problem)
    key = _key(problem, max_memory)
    name: str = recall(
        plans, key, lambda: _cheapest(candidates(problem, max_memory), problem).name, PLANS
    )
    return ORDERS[name]


def check_order(order: str | None) -> None:
    """Refuse a name that no order has. Raises ValueError."""
    if order is not None and order not in ORDERS:
        raise RefusedValue(unknown("contraction order", order, ORDERS))


def check_memory(max_memory: int | None) -> None:
    """Refuse a bound that is not a number of bytes. Raises ValueError."""
    if max_memory is not None and (not isinstance(max_memory, int) or max_memory < 0):
        raise RefusedValue(
            refusal("max_memory must be a number of bytes", "an integer >= 0", repr(max_memory))
        )


def _too_much(cost: Cost, max_memory: int | None) -> str | None:
    if max_memory is None or cost.memory <= max_memory:
        return None
    return f"holds {cost.memory:.0f} bytes, more than max_memory={max_memory}"


def _cheapest(found: list[Candidate], problem: Problem) -> Order:
    # Written out, because torch.compile cannot read min() with a key.
    best, least = None, float("inf")
    for candidate in found:
        if not candidate.reasons and (best is None or candidate.seconds < least):
            best, least = candidate.order, candidate.seconds
    if best is None:
        lines = "\n  ".join(f"{c.order.name}: {'; '.join(c.reasons)}" for c in found)
        raise RefusedValue(f"no contraction order solves {problem.basis!r}\n  {lines}")
    return best


def _legal(problem: Problem) -> list[Order]:
    return [order for order in orders_of(type(problem.basis)) if not order.why_not(problem)]


def _ready(problem: Problem) -> list[Order]:
    return [order for order in _legal(problem) if order.is_prepared(problem)]


def _choose_to_compile(problem: Problem, max_memory: int | None) -> Order:
    """What a compiler can go through: orders whose matrices are there, or are made in the graph.

    Where none but the latter would do, channels decide alone: costs would tie the graph to the
    numbers of nodes and edges that it is traced with.
    """
    ready = _ready(problem)
    if max_memory is None:
        plain = _of_known_shapes(problem)
        others = [order for order in ready if order not in plain and order.name != "dense"]
        if plain and not others:
            return plain[0]
        if len(ready) == 1:  # a cost may be none that a compiler reads
            return ready[0]
    return _cheapest(_readable(problem, max_memory), problem)


def _of_known_shapes(problem: Problem) -> list[Order]:
    """The orders whose matrices are of known shapes whatever edges there are, the best one first.

    Compact forms are as large as there are pairs of a node and a label.
    """
    names = ["transform_first", "propagate_first"]
    if isinstance(problem.basis, Polynomial):
        names = ["recurrence_clenshaw", "recurrence_forward"]
    elif not isinstance(problem.basis, EdgeBasis):
        return []
    if problem.mixture is not None:
        return []
    names = names if problem.narrows else names[::-1]
    return [ORDERS[name] for name in names if not ORDERS[name].why_not(problem)]


def _readable(problem: Problem, max_memory: int | None) -> list[Candidate]:
    """Of orders, those that a compiler can go through without sorting edges, if there are any.

    The others are not costed, which would count their pairs.
    """
    ready = _ready(problem)
    found = candidates(problem, max_memory, ready) if ready else []
    legal_ones = [candidate for candidate in found if not candidate.reasons]
    return legal_ones or candidates(problem, max_memory)


def _plans(problem: Problem) -> dict[tuple[object, ...], str] | None:
    """What was chosen before for these edges; choosing costs as much as a small convolution."""
    basis = problem.basis
    if isinstance(basis, Polynomial):
        return basis.operator.pattern.plans
    if isinstance(basis, OnDemand | Composed | Attended):
        return basis.plans
    return basis.pattern.plans if isinstance(basis, EdgeBasis | Heads) else None


def _key(problem: Problem, max_memory: int | None) -> tuple[object, ...]:
    x, mixture = problem.x, problem.mixture
    kind = (
        ("sparse", x.num_entries)
        if isinstance(x, SparseFeatures)
        else (x is None, problem.has_features, problem.num_columns)
    )
    return (
        _kind(problem.basis),
        tuple(problem.parameter.shape),
        None if mixture is None else mixture.num_matrices,
        _form(problem.of_heads),
        kind,
        problem.dtype,
        problem.gradients,
        problem.reduce,
        problem.label_reduce,
        problem.is_identity,
        max_memory,
        constants(problem.device.type, problem.dtype),
        forced(),
    )


def _form(theta: ValueOutput | None) -> object:
    """What a choice depends on of values and outputs."""
    if theta is None:
        return None
    return theta.value.size(2), theta.output is None, theta.adds, theta.bias is None


def _kind(basis: Basis) -> object:
    """What a choice depends on beside the edges."""
    if isinstance(basis, Heads):
        return Heads, tuple(basis.value.shape[1:])
    if not isinstance(basis, Attended):
        return type(basis)
    softmax = basis.normalise.is_softmax, basis.normalise.dropped > 0
    biased = basis.bias is not None, basis.present is not None
    return Attended, tuple(basis.query.shape[1:]), softmax, biased
