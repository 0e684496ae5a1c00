"""The contraction: leaves, the cheapest legal order for each, and their sum."""

from __future__ import annotations

import torch
from torch import Tensor

from ..basis.base import Basis
from ..errors import RefusedType, RefusedValue, refusal, unknown
from .order import Order
from .per_node import PerNode
from .problem import Problem
from .propagate_first import PropagateFirst
from .recurrence import Clenshaw, Forward
from .rewrite import leaves
from .transform_first import TransformFirst

ORDERS: dict[str, Order] = {
    order.name: order
    for order in (TransformFirst(), PropagateFirst(), Forward(), Clenshaw(), PerNode())
}


def contract(basis: Basis, x: Tensor | None, theta: Tensor, order: str | None = None) -> Tensor:
    """Y = Σ_k A_kᵀ X Θ_k, each leaf of the basis by the cheapest order that may solve it.

    Args:
        basis: K matrices of size M × N.
        x: (M, *batch, P), integers (M,), or None; see :class:`Problem`.
        theta: (K, G, P/G, Q/G).
        order: the name of the order to take for every leaf that it may solve.

    Returns:
        (N, *batch, Q).

    Raises:
        ValueError: the shapes do not fit, the order is unknown, or no leaf is of its kind.
        TypeError: x, Θ and the basis are not of one type, and autocast does not make them so.
    """
    check_shapes(basis, x, theta)
    problems = [Problem(leaf, x, part) for leaf, part in leaves(basis, theta)]
    chosen = [choose_order(problem, order) for problem in problems]
    if order is not None and all(taken.name != order for taken in chosen):
        reasons = [reason for problem in problems for reason in ORDERS[order].why_not(problem)]
        raise RefusedValue(
            f"order {order!r} may not solve this: {'; '.join(dict.fromkeys(reasons))}"
        )
    out: Tensor | None = None
    for problem, taken in zip(problems, chosen, strict=True):
        part = taken.run(problem)
        out = part if out is None else out + part
    assert out is not None  # a basis has at least one leaf
    return out


def choose_order(problem: Problem, wanted: str | None = None) -> Order:
    """The order to take for one leaf: the wanted one if it is legal, else the cheapest legal one.

    Raises:
        ValueError: ``wanted`` is unknown, or no order may solve the problem; all reasons are given.
    """
    if wanted is not None and wanted not in ORDERS:
        raise RefusedValue(unknown("contraction order", wanted, ORDERS))
    refusals = {name: order.why_not(problem) for name, order in ORDERS.items()}
    legal = [ORDERS[name] for name, reasons in refusals.items() if not reasons]
    if not legal:
        lines = "\n  ".join(f"{name}: {'; '.join(why)}" for name, why in refusals.items())
        raise RefusedValue(f"no contraction order solves {problem.basis!r}\n  {lines}")
    for order in legal:
        if order.name == wanted:
            return order
    # Written out, because torch.compile cannot read min() with a key.
    best, least = legal[0], legal[0].cost(problem).time
    for order in legal[1:]:
        time = order.cost(problem).time
        if time < least:
            best, least = order, time
    return best


def check_shapes(basis: Basis, x: Tensor | None, theta: Tensor) -> None:
    """Refuse a contraction whose parts do not fit; see :func:`contract`.

    Raises:
        ValueError: the shapes do not fit, or indices are out of range.
        TypeError: the types differ, and autocast does not make them one.
    """
    if theta.dim() != 4 or theta.size(0) != basis.num_bases:
        raise RefusedValue(
            refusal(
                "theta needs a matrix for each label",
                f"({basis.num_bases}, G, P/G, Q/G)",
                tuple(theta.shape),
            )
        )
    num_sources, in_channels = basis.size[0], theta.size(1) * theta.size(2)
    if x is None or not x.is_floating_point():
        if theta.size(1) != 1:
            raise RefusedValue(
                refusal(
                    "without features the rows of theta are the embedding, "
                    "which needs full matrices",
                    "G = 1",
                    theta.size(1),
                )
            )
        if x is None and num_sources != in_channels:
            raise RefusedValue(
                refusal(
                    "without features theta needs a row for each source",
                    f"{num_sources} in_channels",
                    in_channels,
                )
            )
        if x is not None and x.shape != (num_sources,):
            raise RefusedValue(
                refusal(
                    "indices of sources must be one for each", f"({num_sources},)", tuple(x.shape)
                )
            )
        if x is not None and x.numel() and not 0 <= int(x.min()) <= int(x.max()) < in_channels:
            raise RefusedValue(
                refusal(
                    "indices of sources must be rows of theta",
                    f"[0, {in_channels})",
                    f"[{int(x.min())}, {int(x.max())}]",
                )
            )
    elif x.dim() < 2 or x.size(0) != num_sources or x.size(-1) != in_channels:
        raise RefusedValue(
            refusal(
                "x must have a row for each source and a column for each channel",
                f"({num_sources}, {in_channels})",
                tuple(x.shape),
            )
        )
    of_x = x if x is not None and x.is_floating_point() else theta
    if torch.is_autocast_enabled(of_x.device.type):
        return
    if of_x.dtype != theta.dtype:
        raise RefusedType(refusal("x must have the type of theta", theta.dtype, of_x.dtype))
    if basis.dtype not in (None, of_x.dtype):
        raise RefusedType(
            refusal(
                "the basis must have the type of x; basis.to(x.dtype) casts it",
                of_x.dtype,
                basis.dtype,
            )
        )
