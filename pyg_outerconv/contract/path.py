"""The contraction: leaves, an order for each, and their sum; and how it comes to choose."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..basis.base import Basis
from ..errors import RefusedValue
from ..graph.sparse_features import Features
from ..theta import Mixture, ThetaValue
from ..theta.bias import add_bias
from .choose import Candidate, candidates, check_memory, check_order, choose_order, known_order
from .order import ORDERS, Order
from .problem import Problem
from .semiring import check_inputs, problems
from .shapes import check_shapes


def contract(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    order: str | None = None,
    *,
    reduce: str = "sum",
    label_reduce: str = "sum",
    max_memory: int | None = None,
    bias: Tensor | None = None,
    values: Tensor | None = None,
) -> Tensor:
    """Y = Σ_k A_kᵀ X Θ_k, each leaf of the basis by the order that suits it best.

    ``Y[n] = label_reduce_k ( reduce_m A[k, m, n] X[m] ) Θ_k``: the matrix Θ_k follows the reduction
    over inputs. A label without an edge at n is left out where labels are compared, and a target
    without any edge is 0; of equal labels the lowest takes the gradient.

    Args:
        basis: K matrices of size M × N.
        x: (M, *batch, P), :class:`SparseFeatures`, integers (M,), or None; see :class:`Problem`.
        theta: (K, G, P/G, Q/G), or a :class:`Mixture`.
        order: the name of the order to take for every leaf that it may solve.
        reduce: over the inputs m of each label: 'sum', 'mean', 'max' or 'min'.
        label_reduce: over the labels k of each target: 'sum', 'max' or 'min'. The last two are of
            explicit edges, which all of the basis then becomes.
        max_memory: bytes that an order may hold beside input, output and their gradients.
        bias: (Q,) added to every row, on the way where an order can.
        values: (M, *batch, H, V) what Θ makes of x, where it is values and outputs of heads, and
            the caller has made them already.

    Returns:
        (N, *batch, Q), in memory of its own.

    Raises:
        ValueError: the shapes do not fit, the order or a reduction is unknown, or no leaf is of
            the order's kind; or no order may solve a leaf; or inputs or labels are compared of a
            basis that hides its edges.
        TypeError: x, Θ and the basis are not of one type, and autocast does not make them so.
    """
    if order is not None or max_memory is not None:
        check_order(order)
        check_memory(max_memory)
    elif basis.is_leaf and reduce == label_reduce == "sum" and not isinstance(theta, Mixture):
        problem = Problem(basis, x, theta, reduce, "sum", bias, values)
        known = known_order(problem)
        if known is not None:
            return _solved(known, problem)
    check_shapes(basis, x, theta)
    parts = problems(basis, x, theta, reduce, label_reduce, bias, values)
    chosen = _choose(parts, order, max_memory)
    out: Tensor | None = None
    for problem, taken in zip(parts, chosen, strict=True):
        part = _solved(taken, problem)
        out = part if out is None else out + part
    assert out is not None  # a basis has at least one leaf
    return out


def _solved(order: Order, problem: Problem) -> Tensor:
    """Y of one leaf, with the bias of the problem."""
    out = order.run(problem)
    if problem.x is None:  # it may be Θ itself, and the result is the caller's to change
        out = out.clone()
    if problem.bias is None or order.adds_bias:
        return out
    return add_bias(out, problem.bias, own=True)


@dataclass(frozen=True)
class Step:
    """How one leaf is contracted: the orders that may, cheapest first, and the one that is taken.

    Where more was asked for, the others follow with their reasons.
    """

    leaf: str
    candidates: list[Candidate]
    chosen: str


@dataclass(frozen=True)
class ContractionPath:
    """The orders that may solve each leaf of a basis: the one that is taken, then the cheapest.

    Times are rough predictions, of a forward pass, and of the backward pass where gradients are
    wanted. Printed, it is a table.

    Attributes:
        steps: one a leaf.
    """

    steps: list[Step]

    @property
    def chosen(self) -> list[str]:
        """The order of each leaf."""
        return [step.chosen for step in self.steps]

    @property
    def seconds(self) -> float:
        """The predicted time of what was chosen."""
        return sum(
            candidate.seconds
            for step in self.steps
            for candidate in step.candidates
            if candidate.order.name == step.chosen
        )

    def __str__(self) -> str:
        lines = []
        for step in self.steps:
            lines.append(step.leaf)
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
                )
        return "\n".join(lines)


def contraction_path(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    order: str | None = None,
    *,
    reduce: str = "sum",
    label_reduce: str = "sum",
    max_memory: int | None = None,
    verbose: bool = False,
) -> ContractionPath:
    """What :func:`contract` would do with these arguments, and what each order would cost.

    Args:
        verbose: add the orders that may not solve a leaf, with every reason.

    Raises:
        ValueError, TypeError: see :func:`contract`.
    """
    check_order(order)
    check_memory(max_memory)
    check_shapes(basis, x, theta)
    parts = problems(basis, x, theta, reduce, label_reduce)
    chosen = _choose(parts, order, max_memory)
    steps = []
    for problem, taken in zip(parts, chosen, strict=True):
        asked = list(ORDERS.values()) if verbose else None
        found = candidates(problem, max_memory, asked)
        legal = [one for one in found if not one.reasons]
        legal.sort(key=lambda one: (one.order.name != taken.name, one.seconds))
        shown = legal + [one for one in found if one.reasons and verbose]
        steps.append(Step(repr(problem.basis), shown, taken.name))
    return ContractionPath(steps)


def _choose(parts: list[Problem], order: str | None, max_memory: int | None) -> list[Order]:
    """The order of each problem; one that was asked for has to be taken somewhere."""
    for problem in parts:
        if problem.reduce != "sum":
            check_inputs(problem)
    chosen = [choose_order(problem, order, max_memory) for problem in parts]
    if order is not None and all(taken.name != order for taken in chosen):
        reasons = [reason for problem in parts for reason in ORDERS[order].why_not(problem)]
        raise RefusedValue(
            f"order {order!r} may not solve this: {'; '.join(dict.fromkeys(reasons))}"
        )
    return chosen


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:.3g} {unit}"
