"""The contraction of a basis: an order for each leaf, their sum, and the choice as a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from ..basis.base import Basis
from ..errors import RefusedValue
from ..graph.sparse_matrix import Features
from ..kernels.mode import Mode
from ..signatures import typed
from ..theta import ThetaValue, add_bias
from .arguments import check_bias, check_inputs, check_shapes, problems
from .choose import (
    PLANS,
    Candidate,
    Plan,
    candidates,
    check_memory,
    check_order,
    choose_order,
    make_plan,
    plan_key,
    plan_with,
)
from .order import ORDERS, Order
from .problem import Problem


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

    ``Y[n] = label_reduce_k ( reduce_m A[k, m, n] X[m] ) Θ_k + bias``: the reduction over inputs
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
    if bias is not None:
        check_bias(bias, theta)
    check_order(order)
    check_memory(max_memory)
    check_shapes(basis, x, theta)
    return _contract_leaves(basis, x, theta, order, aggr, label_aggr, max_memory, bias, values)


def contracted(
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
    here: Mode | None = None,
) -> Tensor:
    """:func:`contract` for layers, whose options are checked; shapes are, where no plan has them.

    ``here``: what surrounds the call, if the layer has looked.

    Raises:
        TypeError, ValueError: as :func:`contract`.
    """
    if order is None and max_memory is None and basis.is_leaf and aggr == label_aggr == "sum":
        problem = Problem(basis, x, theta, "sum", "sum", bias, values, here)
        if problem.is_one_step:
            plan: Plan = PLANS.get(plan_key(problem), partial(make_plan, problem))
            problem.few, out = plan.few, plan.order.run(problem)
            if bias is None or plan.order.adds_bias:
                return out
            return add_bias(out, bias, own=True)
    check_shapes(basis, x, theta)
    return _contract_leaves(basis, x, theta, order, aggr, label_aggr, max_memory, bias, values)


def _contract_leaves(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    order: str | None,
    aggr: str,
    label_aggr: str,
    max_memory: int | None,
    bias: Tensor | None,
    values: Tensor | None,
) -> Tensor:
    parts = problems(basis, x, theta, aggr, label_aggr, bias, values)
    chosen = _choose(parts, order, max_memory)
    out: Tensor | None = None
    for problem, taken in zip(parts, chosen, strict=True):
        part = _run(taken, problem)
        out = part if out is None else out + part
    assert out is not None  # a basis has at least one leaf
    return out


def _run(order: Order, problem: Problem) -> Tensor:
    """Y (N, *batch, Q) of one leaf, with the bias of the problem."""
    out = order.run(problem)
    if problem.x is None:  # the result may be Θ itself, and callers may change it in place
        out = out.clone()
    if problem.bias is None or order.adds_bias:
        return out
    return add_bias(out, problem.bias, own=True)


@dataclass(frozen=True)
class Step:
    """A leaf, printed, its plan, and its orders: the chosen one first, illegal ones last."""

    leaf: str
    plan: Plan
    candidates: list[Candidate]

    @property
    def chosen(self) -> str:
        """The name of the chosen order."""
        return self.candidates[0].order.name


@dataclass(frozen=True)
class ContractionPath:
    """The plan of each leaf of a basis, and the orders that can solve it, with costs; a table.

    Times are rough predictions of the forward pass, plus the backward pass if gradients are
    required. "held" is the memory allocated beside input, output and their gradients.
    """

    steps: list[Step]

    @property
    def chosen(self) -> list[str]:
        """The name of the chosen order of each leaf."""
        return [step.chosen for step in self.steps]

    @property
    def seconds(self) -> float:
        """The predicted time of the chosen orders, in seconds."""
        return sum(step.candidates[0].seconds for step in self.steps)

    def __str__(self) -> str:
        lines = []
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
    check_order(order)
    check_memory(max_memory)
    check_shapes(basis, x, theta)
    parts = problems(basis, x, theta, aggr, label_aggr)
    chosen = _choose(parts, order, max_memory)
    steps = []
    for problem, taken in zip(parts, chosen, strict=True):
        asked = list(ORDERS.values()) if verbose else None
        found = candidates(problem, max_memory, asked)
        legal = [one for one in found if not one.reasons]
        legal.sort(key=lambda one: (one.order.name != taken.name, one.seconds))
        shown = legal + [one for one in found if one.reasons and verbose]
        steps.append(Step(repr(problem.basis), plan_with(taken, problem), shown))
    return ContractionPath(steps)


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


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:.3g} {unit}"
