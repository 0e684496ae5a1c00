"""The semiring: a reduction over the inputs of a label, and one over labels; what is one problem.

Sums over labels are taken apart, leaf by leaf. Where labels are compared, all of a basis is one
problem, for labels of all its parts meet in a target.
"""

from __future__ import annotations

from ..basis.algebra import Derived, Stacked
from ..basis.base import Basis
from ..basis.on_demand import OnDemand
from ..errors import RefusedValue, refusal, unknown
from ..kernels import REDUCTIONS
from .features import Features
from .mixture import ThetaValue
from .problem import Problem
from .rewrite import leaves

LABEL_REDUCTIONS = ("sum", "max", "min")


def problems(
    basis: Basis, x: Features, theta: ThetaValue, reduce: str = "sum", label_reduce: str = "sum"
) -> list[Problem]:
    """The problems whose results add up to a contraction; one where labels are compared.

    Raises:
        ValueError: a reduction is unknown; or labels are compared of a basis that hides its edges.
    """
    if reduce not in REDUCTIONS:
        raise RefusedValue(unknown("reduction", reduce, REDUCTIONS))
    if label_reduce not in LABEL_REDUCTIONS:
        raise RefusedValue(unknown("reduction over labels", label_reduce, LABEL_REDUCTIONS))
    if label_reduce == "sum":
        return [Problem(leaf, x, part, reduce) for leaf, part in leaves(basis, theta, reduce)]
    return [Problem(whole(basis, label_reduce), x, theta, reduce, label_reduce)]


def whole(basis: Basis, label_reduce: str) -> Basis:
    """The basis as one set of edges, or as the rule that counts them.

    Raises:
        ValueError: a part of the basis hides its edges.
    """
    part = _hidden(basis)
    if part is not None:
        raise hidden_edges(f"{label_reduce} over labels leaves out those without an edge", part)
    return basis if isinstance(basis, OnDemand) else basis.edges()


def check_inputs(problem: Problem) -> None:
    """Refuse a reduction over the inputs of a label of a leaf that hides which inputs these are.

    Raises:
        ValueError: the leaf is a power or a product, and its inputs are not added.
    """
    if problem.reduce != "sum" and problem.basis.hides_edges:
        what = f"{problem.reduce} over the inputs of a label counts or compares edges"
        raise hidden_edges(what, problem.basis)


def hidden_edges(what: str, basis: Basis) -> RefusedValue:
    """What is raised where edges have to be known and a rule hides them."""
    return RefusedValue(
        refusal(
            f"{what}, which have to be known",
            "an explicit basis: basis.edges(), or the family Explicit(...) in a layer",
            repr(basis),
        )
    )


def _hidden(basis: Basis) -> Basis | None:
    """The part of a basis that hides its edges, if there is one."""
    if basis.hides_edges:
        return basis
    if isinstance(basis, Derived):
        return _hidden(basis.base)
    parts = basis.parts if isinstance(basis, Stacked) else ()
    return next((found for part in parts if (found := _hidden(part)) is not None), None)
