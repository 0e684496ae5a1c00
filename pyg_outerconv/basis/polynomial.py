"""Polynomials of one operator (walks, Chebyshev), as a rule that stores no powers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import RefusedValue, unknown
from ..signatures import check_type, typed
from .algebra import Stacked, selection, transposed
from .base import Basis, picked
from .edge_products import combine, compose_edges, identity_edges
from .edge_sets import reached, with_edges
from .edges import EdgeBasis
from .products import diagonal_block

Step = Callable[[Tensor, float], Tensor]
"""A function from x (N, ...) and c to c Aᵀ x, for the operator A of a polynomial, or to c x A."""


Numbers = float | tuple[float, ...]
"""One number for every k, or the numbers of k = 1, 2, …"""

Factors = tuple[float, float, float]
"""α, β and γ of one step of a recurrence."""


@dataclass(frozen=True)
class Recurrence:
    """Three terms: p₀ = 1, p₁(a) = s·a + t, p_{k+1}(a) = (α_k·a + β_k)·p_k(a) − γ_k·p_{k−1}(a).

    Attributes:
        name: its name.
        first: s.
        alpha: α, one number, or a tuple of α₁, α₂, …; so are β and γ.
        gamma: γ.
        shift: t.
        beta: β.
    """

    name: str
    first: float
    alpha: Numbers
    gamma: Numbers
    shift: float = 0.0
    beta: Numbers = 0.0

    @staticmethod
    def of(name: str, factors: Callable[[int], Factors], num_terms: int) -> Recurrence:
        """The recurrence of the first terms by a function of k ≥ 1 like :meth:`factors`."""
        (first, shift, _), *later = [factors(k) for k in range(1, max(num_terms, 2))]
        alpha, beta, gamma = zip(*later, strict=True) if later else ((), (), ())
        return Recurrence(name, first, alpha, gamma, shift, beta)

    def __repr__(self) -> str:
        return self.name

    def factors(self, k: int) -> Factors:
        """α, β and γ of p_k = (α·a + β)·p_{k−1} − γ·p_{k−2}, for k ≥ 1."""
        if k == 1:
            return self.first, self.shift, 0.0
        return _at(self.alpha, k), _at(self.beta, k), _at(self.gamma, k)

    def most_terms(self) -> int | None:
        """How many terms it has numbers for; None if for all."""
        counts = [len(one) for one in (self.alpha, self.beta, self.gamma) if type(one) is tuple]
        return min(counts) + 2 if counts else None

    def at(self, factor: float, shift: float, num_terms: int) -> Recurrence:
        """The recurrence of the first terms of p_k(c·a + d), for ``factor`` c and ``shift`` d."""

        def factors(k: int) -> Factors:
            alpha, beta, gamma = self.factors(k)
            return alpha * factor, beta + alpha * shift, gamma

        return Recurrence.of(self.name, factors, num_terms)


def _at(numbers: Numbers, k: int) -> float:
    """The number of the step to p_k."""
    return numbers[k - 2] if isinstance(numbers, tuple) else numbers


MONOMIAL = Recurrence("monomial", first=1.0, alpha=1.0, gamma=0.0)
CHEBYSHEV = Recurrence("chebyshev", first=1.0, alpha=2.0, gamma=1.0)
RECURRENCES = {recurrence.name: recurrence for recurrence in (MONOMIAL, CHEBYSHEV)}


def combined(ahead: Tensor, here: Tensor, last: Tensor | None, beta: float, gamma: float) -> Tensor:
    """``ahead`` + β·``here`` − γ·``last``, where ``last`` is None before there is one."""
    if beta:
        ahead = torch.add(ahead, here, alpha=beta)
    if last is not None and gamma:
        ahead = torch.sub(ahead, last, alpha=gamma)
    return ahead


def step_of(operator: EdgeBasis, dtype: torch.dtype, few: int | None = None) -> Step:
    """The function (x, c) → c Aᵀ x; values that are ones get the given dtype.

    ``few``: see :meth:`EdgeBasis.propagate_rows`.
    """
    last = [(1.0, operator)]  # many terms may have a factor each, which are not kept

    def step(x: Tensor, factor: float) -> Tensor:
        if factor != last[0][0]:  # scaling the E values is cheaper than scaling x
            last[0] = factor, operator if factor == 1.0 else operator.times(factor, dtype)
        return last[0][1].propagate_rows(x, few=few)

    return step


@dataclass(frozen=True, eq=False, repr=False)
class OfOperator(Basis):
    """Polynomials of one square matrix, the ``operator``, which is explicit, with one label."""

    hides_edges: ClassVar[bool] = True

    operator: EdgeBasis

    def __post_init__(self) -> None:
        size = self.operator.size
        if self.operator.num_bases != 1 or size[0] != size[1]:
            raise RefusedValue(
                "a polynomial needs one square matrix",
                "1 label, M = N",
                f"{self.operator.num_bases} labels, size {size}",
            )

    @property
    def size(self) -> tuple[int, int]:
        return self.operator.size


@with_edges.register
def _(
    basis: OfOperator, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
) -> OfOperator:
    return replace(basis, operator=change(basis.operator))


@diagonal_block.register
def _(basis: OfOperator, nodes: Tensor) -> OfOperator:
    return replace(basis, operator=basis.operator.restricted(nodes, nodes))


@transposed.register
def _(basis: OfOperator) -> OfOperator:
    return replace(basis, operator=basis.operator.transposed_edges())


@partial(typed, but=("recurrence",))
@dataclass(frozen=True, eq=False, repr=False)
class Polynomial(OfOperator):
    """A_k = p_k(A) for k = 0, …, K − 1 and one square matrix A.

    Only the edges of A are stored: the third power of a citation graph is nearly dense.

    Attributes:
        operator: A, explicit, with one label.
        recurrence: the recurrence of p_k, or its name, 'monomial' or 'chebyshev'.
        num_terms: the number of terms p_0, …, K of them if all are labels.
        kept: the terms that are labels, ascending; None if all are. The others are passed through
            alone, so that what their edges carry does not arrive.

    Raises:
        ValueError: the operator is not one square matrix, K < 1, or the name is unknown.
    """

    is_leaf: ClassVar[bool] = True

    recurrence: Recurrence
    num_terms: int
    kept: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.recurrence, str):
            if self.recurrence not in RECURRENCES:
                raise RefusedValue(unknown("recurrence", self.recurrence, RECURRENCES))
            object.__setattr__(self, "recurrence", RECURRENCES[self.recurrence])
        elif not isinstance(self.recurrence, Recurrence):
            check_type("Polynomial", "recurrence", self.recurrence, Recurrence | str)
        super().__post_init__()
        if self.num_terms < 1:
            raise RefusedValue("a polynomial basis needs a term", "num_terms >= 1", self.num_terms)
        most = self.recurrence.most_terms()
        if most is not None and self.num_terms > most:
            rule = f"the recurrence {self.recurrence.name!r} has numbers for some terms"
            raise RefusedValue(rule, f"num_terms <= {most}", self.num_terms)

    @staticmethod
    def of(operator: EdgeBasis, recurrence: Recurrence, num_terms: int) -> Polynomial:
        """The polynomial of an operator and of numbers that fit by the way they were made."""
        polynomial = object.__new__(Polynomial)
        own = vars(polynomial)
        own["operator"], own["recurrence"], own["num_terms"] = operator, recurrence, num_terms
        return polynomial

    @property
    def labels(self) -> Sequence[int]:
        """The k of each label."""
        return range(self.num_terms) if self.kept is None else self.kept

    @property
    def num_bases(self) -> int:
        return len(self.labels)

    def plan_key(self) -> tuple[Hashable, ...]:
        return self.recurrence, self.num_terms, self.kept, *self.operator.plan_key()

    def powers(self) -> list[EdgeBasis]:
        """The edges of p_k(A) for each label, by sparse products."""
        dtype = self.dtype or torch.get_default_dtype()
        operator = self.operator.with_values(self.operator.values(dtype))
        terms = [identity_edges(self.size, dtype, self.device)]
        for k in range(1, self.num_terms):
            alpha, beta, gamma = self.recurrence.factors(k)
            parts = [(alpha, compose_edges(terms[-1], operator))]
            if beta:
                parts.append((beta, terms[-1]))
            if gamma:
                parts.append((-gamma, terms[-2]))
            terms.append(combine(parts))
        return [terms[k] for k in self.labels]

    def edges(self) -> EdgeBasis:
        """The edges of all terms; up to K·N² of them."""
        return Stacked(tuple(self.powers())).edges()

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        operator = self.operator.to_dense(dtype)[0]
        one = torch.eye(*self.size).to(operator)
        return torch.stack([*self.terms(one, lambda x, factor: factor * (x @ operator))])

    def step(self, dtype: torch.dtype, few: int | None = None) -> Step:
        """The function (x, c) → c Aᵀ x; see :func:`step_of`."""
        return step_of(self.operator, dtype, few)

    def terms(self, x: Tensor, step: Step) -> Iterator[Tensor]:
        """Yield h_k = p_k(A)ᵀ X for each label, term by term, by ``step``."""
        last, here = None, x
        if 0 in self.labels:
            yield here
        for k in range(1, self.num_terms):
            alpha, beta, gamma = self.recurrence.factors(k)
            last, here = here, combined(step(here, alpha), here, last, beta, gamma)
            if k in self.labels:
                yield here

    def propagate(self, x: Tensor) -> Tensor:
        return torch.stack(list(self.terms(x, self.step(x.dtype))), dim=1)


@picked.register
def _(basis: Polynomial, labels: Sequence[int]) -> Basis | None:
    """The polynomials up to the highest selected one; None if all labels are."""
    terms = [basis.labels[label] for label in labels]
    kept = sorted(set(terms))
    if len(kept) == basis.num_bases:
        return None
    few = replace(basis, num_terms=kept[-1] + 1, kept=tuple(kept))
    return few if terms == kept else selection(few, [kept.index(k) for k in terms])


@reached.register
def _(basis: Polynomial, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    """Step by step; a term of the recurrence also has the edges of those it adds or subtracts."""
    out, terms = torch.zeros_like(seen), [seen]
    labels = [basis.labels[label] for label in labels]
    for k in range(max(labels, default=-1) + 1):
        if k:
            ahead = reached(basis.operator, terms[-1], [0], transposed)
            _, beta, gamma = basis.recurrence.factors(k)
            ahead = ahead | terms[-1] if beta else ahead
            terms.append(ahead | terms[-2] if gamma else ahead)
        if k in labels:
            out = out | terms[-1]
    return out
