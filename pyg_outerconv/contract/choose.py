"""Which order solves a leaf: of those that may the one that suits best, found once for a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..basis.edges import EdgeBasis
from ..basis.polynomial import Polynomial
from ..cache import use_last
from ..errors import RefusedValue, refusal, unknown
from ..graph.sparse_features import Features
from ..kernels.dispatch import forced
from .cost import Cost
from .machine import constants
from .order import EXPLICIT, ORDERS, Order, orders_of
from .orders.all_edges import is_one_each
from .problem import Problem

CLASSES = 512  # of which choices are kept

_choices: dict[tuple[object, ...], Order] = {}  # those that were found last


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
    speeds = constants(problem.device.type)
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
    """The order to take for one leaf: the wanted one if it may, else that of the least rank.

    What is found is kept for problems of its class: graphs of about one size, alike in all else.

    Raises:
        ValueError: ``wanted`` would hold more than ``max_memory``; or no order may solve the
            problem, then all reasons are given.
    """
    if wanted is not None and not ORDERS[wanted].why_not(problem):
        if max_memory is not None and (why := _too_much(ORDERS[wanted].cost(problem), max_memory)):
            raise RefusedValue(f"order {wanted!r} {why}")
        return ORDERS[wanted]
    if torch.compiler.is_compiling():
        return _choose_to_compile(problem, max_memory)
    if max_memory is not None:  # which is of this graph, not of its class
        return _best(_legal(problem), problem, max_memory)
    key = _key(problem)
    found = _choices.get(key)
    if found is None:
        found = _best(_legal(problem), problem)
        use_last(_choices, key, found, CLASSES)
    return found


def known_order(problem: Problem) -> Order | None:
    """The order of a problem of a basis that is its own only leaf, if one was chosen for its class.

    Shapes, types and places are part of what a choice is kept by, but for the number of nodes: of
    a problem whose order is known all of it fits, as it did when the order was chosen.
    """
    x = problem.x
    if type(x) is not Tensor or not x.is_floating_point() or x.dim() < 2:
        return None
    if x.size(0) != problem.basis.size[0] or problem.parameter.bias is not None:
        return None
    return None if torch.compiler.is_compiling() else _choices.get(_key(problem))


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


def _best(orders: list[Order], problem: Problem, max_memory: int | None = None) -> Order:
    """Of orders that may, the one of the least rank; of these the cheapest."""
    if max_memory is not None:
        orders = [order for order in orders if not _too_much(order.cost(problem), max_memory)]
    if not orders:
        found = candidates(problem, max_memory)
        lines = "\n  ".join(f"{c.order.name}: {'; '.join(c.reasons)}" for c in found)
        raise RefusedValue(f"no contraction order solves {problem.basis!r}\n  {lines}")
    # Written out, because torch.compile cannot read min() with a key.
    best: list[Order] = []
    least = None
    for order in orders:
        rank = order.rank(problem)
        if least is None or rank < least:
            best, least = [], rank
        if rank == least:
            best.append(order)
    if len(best) == 1:
        return best[0]
    speeds, taken, time = constants(problem.device.type), best[0], float("inf")
    for order in best:
        seconds = order.cost(problem).work.seconds(speeds)
        if seconds < time:
            taken, time = order, seconds
    return taken


def _legal(problem: Problem) -> list[Order]:
    return [order for order in orders_of(type(problem.basis)) if not order.why_not(problem)]


def _choose_to_compile(problem: Problem, max_memory: int | None) -> Order:
    """What a compiler can go through: orders whose matrices are there, or are made in the graph.

    Where none but the latter would do, channels decide alone: edges that were compared would tie
    the graph to the numbers that it is traced with.
    """
    legal = _legal(problem)
    ready = [order for order in legal if order.is_prepared(problem)]
    if max_memory is None:
        plain = _of_known_shapes(legal, problem)
        if plain and all(order in plain for order in ready):
            return plain[0]
        if len(ready) == 1:  # a cost may be none that a compiler reads
            return ready[0]
    return _best(ready or legal, problem, max_memory)


def _of_known_shapes(orders: list[Order], problem: Problem) -> list[Order]:
    """Those whose matrices are of known shapes whatever edges there are, the best one first.

    Compact forms are as large as there are pairs of a node and a label.
    """
    if problem.mixture is not None or not isinstance(problem.basis, EdgeBasis | Polynomial):
        return []
    first = problem.narrows
    plain = [order for order in orders if order.transforms is not None]
    return [one for one in plain if one.transforms == first] + [
        one for one in plain if one.transforms != first
    ]


def _key(problem: Problem) -> tuple[object, ...]:
    """All that a choice depends on: what may solve a problem exactly, and sizes up to a factor.

    And all that :func:`check_shapes` looks at, but for M.
    """
    basis, theta, x = problem.basis, problem.parameter, problem.x
    one_each = problem.reduce != problem.label_reduce and isinstance(basis, EXPLICIT)
    device = theta.device
    return (
        type(basis),
        basis.shape_class(),
        basis.dtype,
        basis.device,
        theta.form(),
        theta.dtype,
        device,
        *_features(x),
        problem.gradients,
        problem.reduce,
        problem.label_reduce,
        one_each and problem.unit is not None and is_one_each(problem),
        forced(),
        device.type != "meta" and torch.is_autocast_enabled(device.type),
    )


def _features(x: Features) -> tuple[object, ...]:
    if isinstance(x, Tensor):
        if x.is_floating_point():
            return x.dtype, x.device, x.shape[1:]
        return ("indices",)
    return ("none",) if x is None else ("sparse", x.num_entries.bit_length())
