"""Linear combinations of families: Scale, Add, Sub, and Select."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from ..attention.queries import Content
from ..basis.algebra import Stacked
from ..basis.base import Basis
from ..equations import row
from ..errors import RefusedValue
from ..memo import constant
from .combinators import OfFamily, OfTwo, of_one_type
from .family import Family
from .gcn import GCN
from .nodes import Identity
from .options import settle


@row("Filters", "c_k A_k", "", option="`Scale`")
@dataclass(frozen=True)
class Scale(OfFamily):
    r"""The matrices of a family times numbers.

    .. math:: c_k A_k

    Args:
        family (Family, optional): the family. (default: ``GCN()``)
        factor (float or tuple, optional): c, one number for all labels, or a number for each.
            (default: ``1.0``)

    Raises:
        ValueError: a number is not finite, or there are not as many as labels.
    """

    equation = "c_k A_k of the family"

    family: Family = field(default_factory=GCN)
    factor: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.factor, list):
            object.__setattr__(self, "factor", tuple(self.factor))
        super().__post_init__()
        if not all(map(math.isfinite, self._factors)):
            raise RefusedValue("factors of Scale are numbers", "finite", self.factor)
        if len(self._factors) != self.family.num_bases:
            rule = f"Scale has one factor, or one for each label of {self.family}"
            raise RefusedValue(rule, self.family.num_bases, len(self._factors))

    @property
    def _factors(self) -> tuple[float, ...]:
        """c_k of each label."""
        factor = self.factor
        return factor if isinstance(factor, tuple) else (factor,) * self.family.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        factors = zip(self._factors, self.family.labels, strict=True)
        return tuple(f"{factor:g} times {label}" for factor, label in factors)

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The family's basis, scaled."""
        basis = self.family.basis_with(structure, dtype, content)
        dtype = basis.dtype or dtype or torch.get_default_dtype()
        return basis.scale(constant(self.factor, dtype, basis.device))


class _Weighted(OfTwo):
    """A weighted sum of two families with equal numbers of labels, label by label."""

    between: ClassVar[str]
    weights: ClassVar[tuple[float, float]]

    def __post_init__(self) -> None:
        super().__post_init__()
        first, second = (family.num_bases for family in self.families)
        if first != second:
            rule = f"{type(self).__name__} combines families label by label"
            raise RefusedValue(rule, f"{first} labels of both", second)

    @property
    def num_bases(self) -> int:
        """K, that of each family."""
        return self.first.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        pairs = zip(self.first.labels, self.second.labels, strict=True)
        return tuple(f"{first} {self.between} {second}" for first, second in pairs)

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """Both bases as a stack, whose labels are mixed."""
        parts = [family.basis_with(structure, dtype, content) for family in self.families]
        both = Stacked(of_one_type(*parts))
        dtype = both.dtype or dtype or torch.get_default_dtype()
        one = torch.eye(self.num_bases, dtype=dtype, device=both.device)
        return both.mix(torch.cat([weight * one for weight in self.weights], dim=1))


@row("Filters", "A_k + B_k", "", option="`Add`")
@dataclass(frozen=True)
class Add(_Weighted):
    r"""The sums of two families' matrices, label by label, with one Θ_k for both.

    .. math:: A^{(1)}_k + A^{(2)}_k

    A :class:`Stack` has a Θ for each of the two. ``Add(Relation(1, None), Identity())`` is the
    neighbourhood with itself, as in GIN.

    Args:
        first (Family, optional): the first family. (default: ``GCN()``)
        second (Family, optional): the second family, with as many labels.
            (default: ``Identity()``)

    Raises:
        TypeError: the two read structures of different kinds.
        ValueError: they differ in their numbers of labels; when a basis is made, as the families
            do.
    """

    equation = "A_k of the first + A_k of the second"
    between = "plus"
    weights = (1.0, 1.0)

    first: Family = field(default_factory=GCN)
    second: Family = field(default_factory=Identity)


@row("Filters", "A_k − B_k", "", option="`Sub`")
@dataclass(frozen=True)
class Sub(_Weighted):
    r"""The differences of two families' matrices, label by label.

    .. math:: A^{(1)}_k - A^{(2)}_k

    ``Sub(Identity(), GCN())`` is :class:`HighPass`, ``Sub(GCN(), Walk(2, "sym", powers=(2,)))`` a
    band-pass filter: the difference between one step and two.

    Args:
        first (Family, optional): the family to subtract from. (default: ``Identity()``)
        second (Family, optional): the family that is subtracted, with as many labels.
            (default: ``GCN()``)

    Raises:
        TypeError: the two read structures of different kinds.
        ValueError: they differ in their numbers of labels; when a basis is made, as the families
            do.
    """

    equation = "A_k of the first - A_k of the second"
    between = "minus"
    weights = (1.0, -1.0)

    first: Family = field(default_factory=Identity)
    second: Family = field(default_factory=GCN)


@row("Filters", "A_k for k of a list", "", option="`Select`")
@dataclass(frozen=True)
class Select(OfFamily):
    r"""Some of the matrices of a family.

    .. math:: (A_{k_0}, A_{k_1}, \dots)

    Args:
        family (Family, optional): the family. (default: ``GCN()``)
        keep (tuple, optional): k_0, k_1, …, each from 0 to K − 1. (default: ``(0,)``)

    Raises:
        ValueError: no label is selected, or one is out of range.
    """

    equation = "A_k of the family, for some k"
    keeps_labels = False

    family: Family = field(default_factory=GCN)
    keep: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        settle(self, ("keep",))
        super().__post_init__()
        count = self.family.num_bases
        if not self.keep or not all(0 <= k < count for k in self.keep):
            rule = f"Select keeps labels of {self.family}"
            raise RefusedValue(rule, f"one or more of 0 to {count - 1}", self.keep)

    @property
    def num_bases(self) -> int:
        """K, the number of selected labels."""
        return len(self.keep)

    @property
    def labels(self) -> tuple[str, ...]:
        there = self.family.labels
        return tuple(there[k] for k in self.keep)

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The selected matrices; nothing is computed for the others."""
        return self.family.basis_with(structure, dtype, content).select(list(self.keep))
