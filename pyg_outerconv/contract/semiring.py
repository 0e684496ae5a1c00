"""Split a contraction into problems, by its reductions over inputs and over labels.

With a sum over labels each leaf of the basis is one problem. With a max or min over labels the
whole basis is one problem, because labels of all its parts are compared at a target.
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
    """The problems whose results add up to the contraction; the first one has the bias.

    Raises:
        ValueError: a reduction is unknown, or labels are compared and the basis hides its edges.
    """
    if reduce not in REDUCTIONS:
        raise RefusedValue(unknown("reduction", reduce, REDUCTIONS))
    if label_reduce not in LABEL_REDUCTIONS:
        raise RefusedValue(unknown("reduction over labels", label_reduce, LABEL_REDUCTIONS))
    theta = as_theta(theta)
    found: list[Problem] = []
    if label_reduce == "sum":
        for leaf, part in basis.absorb(theta, reduce):
            known = values if leaf is basis else None  # absorbing may have changed Θ
            first = None if found else bias
            found.append(Problem(leaf, x, part, reduce, "sum", first, known))
            if part.bias is not None:
                found += _value_bias(found[-1])
    else:
        x, theta = _with_bias_channel(x, theta)
        found.append(Problem(whole(basis, label_reduce), x, theta, reduce, label_reduce, bias))
    return found


def _with_bias_channel(x: Features, theta: Theta) -> tuple[Features, Theta]:
    """X with one more channel of ones, and Θ with the bias of values as its row for that channel.

    Raises:
        ValueError: the features are not dense.
    """
    if not isinstance(theta, ValueOutput) or theta.bias is None:
        return x, theta
    of_bias = theta.full_bias()
    assert of_bias is not None
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise RefusedValue(
            refusal("comparing labels with a bias of values needs dense x", "dense features", x)
        )
    wider = DenseTheta(torch.cat([theta.full(), of_bias], 2))
    return torch.cat([x, torch.ones_like(x[..., :1])], -1), wider


def _value_bias(problem: Problem) -> list[Problem]:
    """The problem that adds the bias of values, if the orders of the leaf do not add it.

    Its X is a channel of ones, its Θ_h = b_h O_h.
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
    """The basis as a single leaf of explicit or implicit edges.

    Raises:
        ValueError: a part of the basis hides its edges.
    """
    part = basis.hidden()
    if part is not None:
        raise hidden_edges(f"{label_reduce} over labels leaves out labels without edges", part)
    return basis.whole()


def check_inputs(problem: Problem) -> None:
    """Check that the inputs of a label can be compared or counted.

    Raises:
        ValueError: the basis hides its edges (powers, products), or features to be compared by max
            or min are not dense.
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
        what = f"{problem.reduce} over the inputs of a label counts or compares its edges"
        raise hidden_edges(what, problem.basis)


def hidden_edges(what: str, basis: Basis) -> RefusedValue:
    """The error for a basis that hides its edges where explicit edges are required."""
    return RefusedValue(
        refusal(
            f"{what}, so edges must be explicit",
            "an explicit basis: basis.edges(), or the family Explicit(...) in a layer",
            repr(basis),
        )
    )
