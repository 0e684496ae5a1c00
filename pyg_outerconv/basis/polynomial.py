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
from .algebra import Selected, Stacked, transposed
from .base import Basis
from .edge_products import combine, compose_edges, identity_edges
from .edge_sets import reached, with_edges
from .edges import EdgeBasis
from .products import diagonal_block

Step = Callable[[Tensor, float], Tensor]
"""A function from x (N, ...) and c to c Aᵀ x, for the operator A of a polynomial, or to c x A."""


@dataclass(frozen=True)
class Recurrence:
    """A three-term recurrence: p₀ = 1, p₁(a) = s·a, p_{k+1}(a) = α·a·p_k(a) − γ·p_{k−1}(a).

    Attributes:
        name: its name.
        first: s.
        alpha: α.
        gamma: γ.
    """

    name: str
    first: float
    alpha: float
    gamma: float


MONOMIAL = Recurrence("monomial", first=1.0, alpha=1.0, gamma=0.0)
CHEBYSHEV = Recurrence("chebyshev", first=1.0, alpha=2.0, gamma=1.0)
RECURRENCES = {recurrence.name: recurrence for recurrence in (MONOMIAL, CHEBYSHEV)}


@partial(typed, but=("recurrence",))
@dataclass(frozen=True, eq=False, repr=False)
class Polynomial(Basis):
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

    hides_edges: ClassVar[bool] = True
    is_leaf: ClassVar[bool] = True

    operator: EdgeBasis
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
        size = self.operator.size
        if self.operator.num_bases != 1 or size[0] != size[1]:
            raise RefusedValue(
                "a polynomial needs one square matrix",
                "1 label, M = N",
                f"{self.operator.num_bases} labels, size {size}",
            )
        if self.num_terms < 1:
            raise RefusedValue("a polynomial basis needs a term", "num_terms >= 1", self.num_terms)

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

    @property
    def size(self) -> tuple[int, int]:
        return self.operator.size

    def plan_key(self) -> tuple[Hashable, ...]:
        return self.recurrence, self.num_terms, self.kept, *self.operator.plan_key()

    def powers(self) -> list[EdgeBasis]:
        """The edges of p_k(A) for each label, by sparse products."""
        dtype = self.dtype or torch.get_default_dtype()
        operator = self.operator.with_values(self.operator.values(dtype))
        terms = [identity_edges(self.size, dtype, self.device)]
        rule = self.recurrence
        for k in range(1, self.num_terms):
            product = compose_edges(terms[-1], operator)
            parts = [(rule.first if k == 1 else rule.alpha, product)]
            if k > 1 and rule.gamma:
                parts.append((-rule.gamma, terms[-2]))
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
        """The function (x, c) → c Aᵀ x; values that are ones get the given dtype.

        ``few``: see :meth:`EdgeBasis.propagate_rows`.
        """
        operator = self.operator
        scaled = {1.0: operator}

        def step(x: Tensor, factor: float) -> Tensor:
            if factor not in scaled:  # scaling the E values is cheaper than scaling x
                scaled[factor] = operator.times(factor, dtype)
            return scaled[factor].propagate_rows(x, few=few)

        return step

    def terms(self, x: Tensor, step: Step) -> Iterator[Tensor]:
        """Yield h_k = p_k(A)ᵀ X for each label: h_{k+1} = α Aᵀ h_k − γ h_{k−1}, by ``step``."""
        rule, last, here = self.recurrence, None, x
        if 0 in self.labels:
            yield here
        for k in range(1, self.num_terms):
            ahead = step(here, rule.first if k == 1 else rule.alpha)
            if last is not None and rule.gamma:
                ahead = torch.sub(ahead, last, alpha=rule.gamma)
            last, here = here, ahead
            if k in self.labels:
                yield here

    def propagate(self, x: Tensor) -> Tensor:
        return torch.stack(list(self.terms(x, self.step(x.dtype))), dim=1)

    def picked(self, labels: Sequence[int]) -> Basis | None:
        """The polynomials up to the highest selected one; None if all labels are."""
        terms = [self.labels[label] for label in labels]
        kept = sorted(set(terms))
        if len(kept) == self.num_bases:
            return None
        few = replace(self, num_terms=kept[-1] + 1, kept=tuple(kept))
        return few if terms == kept else Selected.kept(few, [kept.index(k) for k in terms])

    def __repr__(self) -> str:
        return f"Polynomial({self._head()}, {self.recurrence.name} in {self.operator!r})"


@with_edges.register
def _(
    basis: Polynomial, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
) -> Polynomial:
    return replace(basis, operator=change(basis.operator))


@diagonal_block.register
def _(basis: Polynomial, nodes: Tensor) -> Polynomial:
    return replace(basis, operator=basis.operator.restricted(nodes, nodes))


@transposed.register
def _(basis: Polynomial) -> Polynomial:
    return replace(basis, operator=basis.operator.transposed_edges())


@reached.register
def _(basis: Polynomial, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    """Step by step; a term of the recurrence also has the edges of the one it subtracts."""
    out, terms = torch.zeros_like(seen), [seen]
    labels = [basis.labels[label] for label in labels]
    for k in range(max(labels, default=-1) + 1):
        if k:
            ahead = reached(basis.operator, terms[-1], [0], transposed)
            lower = k > 1 and bool(basis.recurrence.gamma)
            terms.append(ahead | terms[-2] if lower else ahead)
        if k in labels:
            out = out | terms[-1]
    return out
