"""The plan of a contraction: an order for each leaf, chosen for a key, kept, run and printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.polynomial import Polynomial
from ..errors import RefusedValue
from ..graph.sparse_matrix import Features
from ..kernels import edge_sums
from ..kernels.mode import Mode
from ..memo import Memo
from ..signatures import is_integer, typed
from ..theta import ThetaValue, add_bias
from .cost import Cost, constants
from .heads import value_width
from .order import EXPLICIT, ORDERS, Order, is_traced, orders_of
from .problem import Problem, check_inputs, check_kinds, check_shapes, problems


def contract(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    order: str | None = None,
    *,
    aggr: str = "sum",
    label_aggr: str = "sum",
    max_memory: int | None = None,
    bias: Tensor | None = None,
    values: Tensor | None = None,
) -> Tensor:
    """Y = Σ_k A_kᵀ X Θ_k, each leaf of the basis by the order chosen for it.

    ``Y[n] = label_reduce_k ((reduce_m A[k, m, n] X[m]) Θ_k) + bias``: the reduction over inputs
    comes before Θ_k. Where labels are compared (max, min), labels without an edge at n are left
    out, and the lowest of equal labels takes the gradient. The row of a target without edges is the
    bias, or zero without one.

    Args:
        basis: K matrices of size M × N.
        x: (M, *batch, P), :class:`SparseFeatures`, integers (M,), or None; see :class:`Problem`.
        theta: (K, G, P/G, Q/G), or a :class:`Theta`.
        order: the name of the order for every leaf that it can solve.
        aggr: over the inputs m of each label: 'sum', 'mean', 'max' or 'min'.
        label_aggr: over the labels k of each target: 'sum', 'max' or 'min'. For max and min the
            whole basis is turned into explicit edges.
        max_memory: bytes that an order may allocate beside input, output and their gradients.
        bias: (Q,) added to every row of Y.
        values: (M, *batch, H, V) the values X V_h + b_h, if Θ is values and outputs of heads and
            the caller has computed them already.

    Returns:
        (N, *batch, Q), in memory of its own.

    Raises:
        ValueError: shapes do not fit; the order or a reduction is unknown; the order solves no
            leaf; no order solves a leaf; or inputs or labels are to be compared and the basis hides
            its edges.
        TypeError: x, Θ and the basis differ in dtype, and autocast is off.
    """
    check_kinds(basis, x, theta, bias)
    check_order(order)
    check_memory(max_memory)
    return solve(Problem(basis, x, theta, aggr, label_aggr, bias, values), order, max_memory)


def solve(problem: Problem, order: str | None = None, max_memory: int | None = None) -> Tensor:
    """:func:`contract` for layers, whose options are checked; shapes are where no plan has them."""
    x, theta, basis = problem.x, problem.parameter, problem.basis
    if (
        order is None
        and max_memory is None
        and basis.is_leaf
        and problem.aggr == problem.label_aggr == "sum"
        and type(x) is Tensor
        and not problem.mode.compiles
        and theta.coefficient is None
        and theta.bias is None
        and x.is_floating_point()
        and x.dim() > 1
        and x.size(0) == basis.size[0]  # no key of a plan contains it
        and not x.is_meta
    ):  # one step: nothing is split off the leaf
        plan: Plan = PLANS.get(plan_key(problem), partial(make_plan, problem))
        problem.few = plan.few
        out = plan.order.run(problem)
        if problem.bias is None or plan.order.adds_bias:
            return out
        return add_bias(out, problem.bias, own=True)
    check_shapes(problem)
    parts = problems(problem)
    chosen = _choose(parts, order, max_memory)
    total: Tensor | None = None
    for part, taken in zip(parts, chosen, strict=True):
        out = taken.run(part)
        if part.x is None:  # the result may be Θ itself, and callers may change it in place
            out = out.clone()
        if part.bias is not None and not taken.adds_bias:
            out = add_bias(out, part.bias, own=True)
        total = out if total is None else total + out
    assert total is not None  # a basis has at least one leaf
    return total


def _choose(parts: list[Problem], order: str | None, max_memory: int | None) -> list[Order]:
    """The order of each problem; a requested order must be able to solve at least one."""
    for problem in parts:
        if problem.aggr != "sum":
            check_inputs(problem)
    chosen = [choose_order(problem, order, max_memory) for problem in parts]
    if order is not None and all(taken.name != order for taken in chosen):
        reasons = [reason for problem in parts for reason in ORDERS[order].why_not(problem)]
        raise RefusedValue(
            f"order {order!r} cannot solve this problem: {'; '.join(dict.fromkeys(reasons))}"
        )
    return chosen


# The plan of a key --------------------------------------------------------------------------------


MOST_PLANS = 512
PLANS = Memo(MOST_PLANS, holds_tensors=False)
"""The plan of each key, see :func:`plan_key`."""


@dataclass(frozen=True)
class Plan:
    """What is decided for all problems with one key; it refers to no tensor, graph or layer.

    Attributes:
        order: the contraction order.
        few: up to so many edges times channels, sums are taken over edges as they were listed; -1
            where they never are.
        mode: what surrounds these calls.
    """

    order: Order
    few: int
    mode: Mode

    def __str__(self) -> str:
        unsorted = f"unsorted edges up to E x C = {self.few:,}" if self.few >= 0 else "sorted edges"
        return f"{self.order.name}; {unsorted}; {self.mode}"


@dataclass(frozen=True)
class Candidate:
    """An order with its cost and predicted time in seconds, or the reasons why it is illegal."""

    order: Order
    reasons: tuple[str, ...]
    cost: Cost | None
    seconds: float  # infinite if illegal


def candidates(
    problem: Problem, max_memory: int | None = None, orders: Sequence[Order] | None = None
) -> list[Candidate]:
    """Every order for this kind of basis, or each of ``orders``, with its cost or its reasons.

    Orders that cannot solve the problem are not costed.
    """
    speeds = constants(problem.device.type)
    order_candidates = []
    for order in orders or orders_of(type(problem.basis)):
        reasons = order.why_not(problem)
        cost = None if reasons else order.cost(problem)
        if cost is not None and (why := _exceeds(cost, max_memory)):
            reasons, cost = [why], None
        seconds = float("inf") if cost is None else cost.work.seconds(speeds)
        order_candidates.append(Candidate(order, tuple(reasons), cost, seconds))
    return order_candidates


def choose_order(
    problem: Problem, wanted: str | None = None, max_memory: int | None = None
) -> Order:
    """The order for one leaf: ``wanted`` if it can solve the problem, else the best-ranked one.

    The choice is cached for all problems with one key: graphs of about the same size, with equal
    channels, dtypes, devices and reductions.
    """
    if wanted is not None and not ORDERS[wanted].why_not(problem):
        if max_memory is not None and (why := _exceeds(ORDERS[wanted].cost(problem), max_memory)):
            raise RefusedValue(f"order {wanted!r} {why}")
        return ORDERS[wanted]
    if not problem.has_numbers:
        return _choose_to_compile(problem, max_memory)
    if max_memory is not None:  # the bound is for this graph, not for its shape class
        return _best(_legal(problem), problem, max_memory)
    plan: Plan = PLANS.get(plan_key(problem), partial(make_plan, problem, checked=True))
    return plan.order


def make_plan(problem: Problem, checked: bool = False) -> Plan:
    """The plan of a problem, after a check of its shapes if they are not ``checked``.

    The key of a plan contains all shapes, dtypes and devices but the number of nodes, so that
    shapes of a problem with a plan need no further check.
    """
    if not checked:
        check_shapes(problem)
    return plan_with(_best(_legal(problem), problem), problem)


def plan_with(order: Order, problem: Problem) -> Plan:
    """The plan of a problem that an order was chosen for."""
    x = problem.x
    few = edge_sums.most(x, problem.mode) if isinstance(x, Tensor) else -1
    return Plan(order, few, problem.mode)


def check_order(order: str | None) -> None:
    """Raise ValueError if no order has this name."""
    if order is not None:
        ORDERS.require(order)


def check_memory(max_memory: int | None) -> None:
    """Raise ValueError if the bound is not a number of bytes."""
    if max_memory is not None and (not is_integer(max_memory) or max_memory < 0):
        rule = "max_memory must be a number of bytes"
        raise RefusedValue(rule, "an integer >= 0", repr(max_memory))


def _exceeds(cost: Cost, max_memory: int | None) -> str | None:
    """The reason why the order is ruled out by ``max_memory``, or None."""
    if max_memory is None or cost.memory <= max_memory:
        return None
    return f"allocates {cost.memory:.0f} bytes, more than max_memory={max_memory}"


def _best(orders: list[Order], problem: Problem, max_memory: int | None = None) -> Order:
    """The legal order of least rank; among orders of equal rank, the cheapest."""
    if max_memory is not None:
        orders = [order for order in orders if not _exceeds(order.cost(problem), max_memory)]
    if not orders:
        order_candidates = candidates(problem, max_memory)
        lines = "\n  ".join(f"{c.order.name}: {'; '.join(c.reasons)}" for c in order_candidates)
        if not order_candidates:
            kind = type(problem.basis).__name__
            raise RefusedValue(
                f"a leaf is solved by an order that names its kind, and none names {kind}",
                "an order with it in `solves`, or is_leaf = False, for a contraction by its edges",
                repr(problem.basis),
            )
        raise RefusedValue(f"no contraction order solves {problem.basis!r}\n  {lines}")
    ranks = [order.rank(problem) for order in orders]
    least = min(ranks)
    best = [order for order, rank in zip(orders, ranks, strict=True) if rank == least]
    if len(best) == 1:
        return best[0]
    # A loop, because torch.compile cannot trace min() with a key.
    speeds, taken, time = constants(problem.device.type), best[0], float("inf")
    for order in best:
        seconds = order.cost(problem).work.seconds(speeds)
        if seconds < time:
            taken, time = order, seconds
    return taken


def _legal(problem: Problem) -> list[Order]:
    return [order for order in orders_of(type(problem.basis)) if not order.why_not(problem)]


def _choose_to_compile(problem: Problem, max_memory: int | None) -> Order:
    """The order under torch.compile: its matrices are cached already, or of known shapes.

    If only orders of the second kind are left, the channels alone decide: comparing numbers of
    edges would tie the compiled graph to the sizes it was traced with.
    """
    legal = _legal(problem)
    ready = [order for order in legal if order.is_prepared(problem)]
    if max_memory is None:
        heads = problem.basis.has_heads
        plain = _of_known_shapes((ready or legal) if heads else legal, problem)
        if plain and (heads or all(order in plain for order in ready)):
            return plain[0]
        if len(ready) == 1:  # the compiler may not be able to trace its cost
            return ready[0]
    return _best(ready or legal, problem, max_memory)


def _of_known_shapes(orders: list[Order], problem: Problem) -> list[Order]:
    """The orders whose matrices have shapes that do not depend on the edges, the best one first.

    Compact forms are not among them: they have a row for each (node, label) pair with edges.
    """
    basis, heads = problem.basis, problem.basis.has_heads
    if not heads and (problem.mixture is not None or not isinstance(basis, EdgeBasis | Polynomial)):
        return []
    ways: tuple[list[Order], list[Order]] = ([], [])
    for order in orders:
        if order.knows_shapes:
            ways[order.theta_first].append(order)
    # A branch: channels may be symbols, and what they are like is no boolean to compare or to keep.
    if value_width(problem) <= problem.in_channels if heads else problem.narrows:
        return ways[True] + ways[False]
    return ways[False] + ways[True]


def plan_key(problem: Problem) -> tuple[object, ...]:
    """All that a plan depends on, with numbers of nodes and edges rounded.

    It contains all that :func:`.check_shapes` compares, but for M, and all that surrounds the call.
    """
    basis, theta, x = problem.basis, problem.parameter, problem.x
    one_each = problem.aggr != problem.label_aggr and isinstance(basis, EXPLICIT)
    one_each = one_each and problem.factor is not None and problem.is_one_each
    device, mode = theta.device, problem.mode
    of_x: tuple[object, ...] = ("none",)
    if isinstance(x, Tensor):
        of_x = ("indices",)
        if x.is_floating_point():
            of_x = type(x), x.dtype, x.device, x.shape[1:], x.requires_grad
    elif x is not None:
        of_x = "sparse", x.num_entries.bit_length(), x.value.requires_grad
    return (
        type(basis),
        *basis.plan_key(),
        theta.form,
        theta.dtype,
        device,
        theta.requires_grad,
        *of_x,
        problem.aggr,
        problem.label_aggr,
        one_each,
        mode,
        mode.traces and is_traced(problem),
        device.type != "meta" and torch.is_autocast_enabled(device.type),
        edge_sums.MOST,
    )


# As a table ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A leaf, printed, its plan, and its orders: the chosen one first, illegal ones last.

    ``words`` says what the chosen order does, step by step.
    """

    leaf: str
    plan: Plan
    candidates: list[Candidate]
    words: str

    @property
    def chosen(self) -> str:
        """The name of the chosen order."""
        return self.candidates[0].order.name


@dataclass(frozen=True)
class ContractionPath:
    """The plan of each leaf of a basis, and the orders that can solve it, with costs; a table.

    Times are rough predictions of the forward pass, plus the backward pass if gradients are
    required. "held" is the memory allocated beside input, output and their gradients. ``note`` says
    where a layer goes another way than the plan.
    """

    steps: list[Step]
    note: str = ""

    @property
    def chosen(self) -> list[str]:
        """The name of the chosen order of each leaf."""
        return [step.chosen for step in self.steps]

    @property
    def seconds(self) -> float:
        """The predicted time of the chosen orders, in seconds."""
        return sum(step.candidates[0].seconds for step in self.steps)

    def __str__(self) -> str:
        lines = [self.note] if self.note else []
        for step in self.steps:
            lines += [step.leaf, f"  plan: {step.plan}"]
            lines.append(f"  {'order':<26}{'ms':>10}{'Mflop':>10}{'gathered':>12}{'held':>12}")
            for candidate in step.candidates:
                mark = "→ " if candidate.order.name == step.chosen else "  "
                name = f"{mark}{candidate.order.name:<26}"
                if candidate.cost is None:
                    lines.append(f"{name}  no: {'; '.join(candidate.reasons)}")
                    continue
                work = candidate.cost.work
                lines.append(
                    f"{name}{1e3 * candidate.seconds:>10.3f}{work.dense_flops / 1e6:>10.1f}"
                    f"{_size(work.gathered):>12}{_size(candidate.cost.memory):>12}"
                    f"{step.words if mark == '→ ' else ''}"
                )
        return "\n".join(lines)


@partial(typed, but=("order", "aggr", "label_aggr", "max_memory"))
def contraction_path(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    order: str | None = None,
    *,
    aggr: str = "sum",
    label_aggr: str = "sum",
    max_memory: int | None = None,
    verbose: bool = False,
) -> ContractionPath:
    """The orders that :func:`contract` would choose for these arguments, and their costs.

    Args:
        basis, x, theta, order, aggr, label_aggr, max_memory: as in :func:`contract`.
        verbose: also list the orders that cannot solve a leaf, with every reason.

    Raises:
        ValueError, TypeError: as :func:`contract`.
    """
    check_kinds(basis, x, theta)
    check_order(order)
    check_memory(max_memory)
    whole = Problem(basis, x, theta, aggr, label_aggr)
    check_shapes(whole)
    parts = problems(whole)
    chosen = _choose(parts, order, max_memory)
    steps = []
    for problem, taken in zip(parts, chosen, strict=True):
        asked = list(ORDERS.values()) if verbose else None
        order_candidates = candidates(problem, max_memory, asked)
        legal = [one for one in order_candidates if not one.reasons]
        legal.sort(key=lambda one: (one.order.name != taken.name, one.seconds))
        shown = legal + [one for one in order_candidates if one.reasons and verbose]
        words = f"  {', '.join(does for does, _ in taken.steps(problem).parts)}"
        steps.append(Step(repr(problem.basis), plan_with(taken, problem), shown, words))
    return ContractionPath(steps)


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:.3g} {unit}"
