"""Bases that layers with ``cached=True`` keep and share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..basis import Basis
from ..basis.any_structure import AnyStructure
from ..basis.cache import IdentityCache, ValueCache

bases = IdentityCache()
rules = ValueCache(64)


def kept_basis(
    kind: type[AnyStructure],
    given: Any,
    beside: tuple[Tensor | None, ...],
    key: tuple[Any, ...],
    make: Callable[[], Basis],
) -> Basis:
    """The basis that was made of the same structure before, or a new one, which is then kept.

    Rules for shapes, which are no tensors, are kept by value: the last few of them.
    """
    known, value = kind.identity(given)
    anchors = [part for part in known if part is not None]
    others = tuple(part for part in (*known[1:], *beside) if part is not None)
    if not all(isinstance(part, Tensor) for part in (*anchors, *others)):
        return make()
    if any(part.requires_grad for part in (*anchors, *others)):
        return make()
    if not (anchors or others):
        return rules.get((*key, value), make)
    basis: Basis = bases.get((*anchors, *others)[0], (*known[1:], *beside), (*key, value), make)
    return basis
