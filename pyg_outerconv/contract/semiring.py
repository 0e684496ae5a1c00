"""The semiring: a reduction over the inputs of a label, and one over labels; what is one problem.

Sums over labels are taken apart, leaf by leaf. Where labels are compared, all of a basis is one
problem, for labels of all its parts meet in a target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..basis.base import Basis
from ..errors import RefusedValue, refusal, unknown
from ..graph.sparse_features import Features
from ..kernels import REDUCTIONS
from ..theta import DenseTheta, Theta, ThetaValue, ValueOutput, as_theta
from .problem import Problem

LABEL_REDUCTIONS = ("sum", "max", "min")


def problems(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    reduce: str = "sum",
    label_reduce: str = "sum",
    bias: Tensor | None = None,
    values: Tensor | None = None,
) -> list[Problem]:
    """The problems whose results add up to a contraction; one where labels are compared.

    The first of them has the bias.

    Raises:
        ValueError: a reduction is unknown; or labels are compared of a basis that hides its edges.
    """
    if reduce not in REDUCTIONS:
        raise RefusedValue(unknown("reduction", reduce, REDUCTIONS))
    if label_reduce not in LABEL_REDUCTIONS:
        raise RefusedValue(unknown("reduction over labels", label_reduce, LABEL_REDUCTIONS))
    theta = as_theta(theta)
    found: list[Problem] = []
    if label_reduce == "sum":
        for leaf, part in basis.absorb(theta, reduce):
            known = values if leaf is basis else None  # of another leaf Θ may be another one
            first = None if found else bias
            found.append(Problem(leaf, x, part, reduce, "sum", first, known))
            if part.bias is not None:
                found += _of_bias(found[-1])
    else:
        x, theta = _with_bias(x, theta)
        found.append(Problem(whole(basis, label_reduce), x, theta, reduce, label_reduce, bias))
    return found


def _with_bias(x: Features, theta: Theta) -> tuple[Features, Theta]:
    """A bias of values as one more channel of X, which is 1.

    Raises:
        ValueError: there are no dense features that could have one more.
    """
    if not isinstance(theta, ValueOutput) or theta.bias is None:
        return x, theta
    of_bias = theta.full_bias()
    assert of_bias is not None
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise RefusedValue(
            refusal("a bias of values that are compared is a channel of x", "dense features", x)
        )
    wider = DenseTheta(torch.cat([theta.full(), of_bias], 2))
    return torch.cat([x, torch.ones_like(x[..., :1])], -1), wider


def _of_bias(problem: Problem) -> list[Problem]:
    """What a bias of values adds, where the orders of a leaf know nothing of one.

    It is a channel of X that is 1, with Θ_h = b_h O_h.
    """
    theta = problem.of_heads
    if theta is None or theta.bias is None or problem.basis.has_heads:
        return []
    ones = theta.bias.new_ones((problem.basis.size[0], *(1,) * len(problem.batch), 1))
    x = ones.expand(-1, *problem.batch, 1)
    of_bias = theta.full_bias()
    assert of_bias is not None
    return [Problem(problem.basis, x, DenseTheta(of_bias), problem.reduce)]


def whole(basis: Basis, label_reduce: str) -> Basis:
    """The basis as one set of edges, or as the rule that counts them.

    Raises:
        ValueError: a part of the basis hides its edges.
    """
    part = basis.hidden()
    if part is not None:
        raise hidden_edges(f"{label_reduce} over labels leaves out those without an edge", part)
    return basis.whole()


def check_inputs(problem: Problem) -> None:
    """Refuse inputs of a label that cannot be compared or counted.

    Raises:
        ValueError: the leaf is a power or a product, which hides its inputs, and they are not
            added; or features are to be compared that are not dense.
    """
    if problem.reduce in ("max", "min") and not problem.has_features:
        raise RefusedValue(
            refusal(
                f"{problem.reduce} over the inputs of a label needs dense node features, "
                "whose zeros are compared too",
                "a dense x",
                "none" if problem.x is None else type(problem.x).__name__,
            )
        )
    if problem.basis.hides_edges:
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
