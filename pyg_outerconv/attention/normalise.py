"""Normalisers: f, from scores to values, over the edges that reach a target."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..kernels import CSR, sddmm, segment_softmax, spmm
from ..kernels.edge_sums import Listed
from ..kernels.tiles import exact
from ..registry import Named, Registry

NORMALISERS: Registry[type[Normaliser]] = Registry("normaliser")
"""All normalisers by name."""


class Normaliser(Named, torch.nn.Module, registry=NORMALISERS):
    """f of A_h = f(scores), over the edges that reach a target, for each head.

    In the equations of its kinds s is a score divided by the temperature; all have these arguments.
    If no edge reaches a target, or all its scores are -inf, its values are zeros.

    To add a normaliser, define a subclass with a ``name``, which registers it, and :meth:`values`.

    Attributes:
        name: the name by which layers make it.
        is_stochastic: whether the values of a target that is reached add up to one.
        is_softmax: whether f is the softmax of each row, apart from dropout.

    Args:
        temperature: divisor of the scores.
        dropout: dropout probability of values.

    Raises:
        TypeError: an option is not a number.
        ValueError: the temperature is not positive, or the dropout not in [0, 1).
    """

    name: ClassVar[str]
    is_stochastic: ClassVar[bool] = False
    is_softmax: ClassVar[bool] = False

    def __init__(self, temperature: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        for name, number in (("temperature", temperature), ("dropout", dropout)):
            if not isinstance(number, Real) or isinstance(number, bool):
                raise RefusedType(f"{name} must be a number", "a float", repr(number))
        if not temperature > 0:
            raise RefusedValue("a temperature divides scores", "> 0", temperature)
        if not 0 <= dropout < 1:
            raise RefusedValue("dropout is a share of values", "in [0, 1)", dropout)
        self.temperature, self.dropout = float(temperature), float(dropout)

    @property
    def dropped(self) -> float:
        """The share of values that is dropped now; 0 outside training."""
        return self.dropout if self.training else 0.0

    @abstractmethod
    def values(self, csr: CSR, score: Tensor) -> Tensor:
        """f of scores (E, H) divided by the temperature, without dropout: (E, H)."""

    def forward(self, csr: CSR | Listed, score: Tensor) -> Tensor:
        """The values (E, H), with dropout; a softmax also takes unsorted edges."""
        values = self.values(csr, score)  # type: ignore[arg-type]
        if self.dropped:
            values = torch.nn.functional.dropout(values, self.dropped, training=True)
        return values

    def extra_repr(self) -> str:
        """The options that differ from their defaults."""
        options = {"temperature": (self.temperature, 1.0), "dropout": (self.dropout, 0.0)}
        return ", ".join(
            f"{name}={value}" for name, (value, usual) in options.items() if value != usual
        )


class Softmax(Normaliser):
    """exp(s) / Σ exp(s): shares that add up to one; zeros where no edge reaches a target."""

    name = "softmax"
    page = ("exp s / Σ exp s", "1706.03762, equation 1")
    is_stochastic = is_softmax = True

    def values(self, csr: CSR | Listed, score: Tensor) -> Tensor:
        return segment_softmax(csr, score)


class Sigmoid(Normaliser):
    """1 / (1 + exp(−s)), edge by edge; 0 where the score is -inf."""

    name = "sigmoid"
    page = ("σ(s)", "each edge by itself")

    def values(self, csr: CSR, score: Tensor) -> Tensor:
        return score.sigmoid()


class Unnormalised(Normaliser):
    """s itself, as in linear attention without a denominator; 0 where the score is -inf."""

    name = "identity"
    page = ("s", "Andreoli, section 4: linear attention")

    def values(self, csr: CSR, score: Tensor) -> Tensor:
        return _without_absent(score)


class L1(Normaliser):
    """s / Σ |s|: signed shares whose absolute values add up to one; zeros if all scores are 0."""

    name = "l1"
    page = ("s / Σ \\|s\\|", "2006.16236, equation 4, for scores that are not negative")

    def values(self, csr: CSR, score: Tensor) -> Tensor:
        wide = _without_absent(exact(score))
        total = _of_row(csr, _row_sums(csr, wide.abs()))
        return (wide / total.masked_fill(total == 0, torch.inf)).to(score.dtype)


class SoftmaxPlusOne(Normaliser):
    """exp(s) / (1 + Σ exp(s)): a softmax with one more score, 0, whose share is discarded.

    The shares add up to less than one, and to almost zero where all scores are low. From Miller,
    *Attention Is Off By One* (2023).
    """

    name = "softmax-plus-one"
    page = ("exp s / (1 + Σ exp s)", "a softmax with one more, empty input of score 0")

    def values(self, csr: CSR, score: Tensor) -> Tensor:
        wide = exact(score)
        ones = wide.new_ones(csr.shape[1], 1, 1)
        # Subtracting the maximum of the scores and 0 keeps the exponentials in range.
        highest = spmm(csr, wide.detach(), ones, aggr="max").squeeze(-1).clamp(min=0)
        raised = (wide - _of_row(csr, highest)).exp()
        total = _row_sums(csr, raised) + (-highest).exp()
        return (raised * _of_row(csr, total.reciprocal())).to(score.dtype)


def make_normaliser(spec: Normaliser | str, **options: Any) -> Normaliser:
    """The normaliser that a text names, as :func:`make_score`: ``"softmax(temperature=2.0)"``."""
    normaliser: Normaliser = NORMALISERS.make(spec, **options)
    return normaliser


def _without_absent(score: Tensor) -> Tensor:
    """Scores with 0 in the place of -inf, which marks an absent source."""
    return score.masked_fill(score == -torch.inf, 0.0)


def _row_sums(csr: CSR, value: Tensor) -> Tensor:
    """The sum of each row, (E, H) to (R, H)."""
    return spmm(csr, value, value.new_ones(csr.shape[1], 1, 1)).squeeze(-1)


def _of_row(csr: CSR, x: Tensor) -> Tensor:
    """The number of each entry's row, (R, H) to (E, H)."""
    return sddmm(csr, x, x.new_zeros(csr.shape[1], x.size(1)), op="add")
