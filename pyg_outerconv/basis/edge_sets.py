"""The explicit edge sets within a basis, and how to replace them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from .base import Basis
from .edges import EdgeBasis


def edge_sets(basis: Basis) -> list[EdgeBasis]:
    """The distinct edge sets within a basis, in order; a rule has none."""
    return _distinct(_flatten(basis)[0])


def with_edge_sets(basis: Basis, change: Callable[[list[EdgeBasis]], list[EdgeBasis]]) -> Basis:
    """The basis with its edge sets replaced by ``change``, which returns as many as it gets."""
    leaves, spec = _flatten(basis)
    own = _distinct(leaves)
    new = {id(old): made for old, made in zip(own, change(own), strict=True)}
    made: Basis = tree_unflatten([new.get(id(leaf), leaf) for leaf in leaves], spec)
    return made


def outline(basis: Basis) -> int:
    """A checksum of the tree of kinds of basis and of the number of labels of each edge set.

    ``outline >> 32`` is the number of edge sets. The checksum depends on whether values are ones,
    but not on nodes, edges or other values.
    """
    sets: dict[int, int] = {}

    def describe(part: Basis) -> str:
        if isinstance(part, EdgeBasis):
            number = sets.setdefault(id(part), len(sets))
            return f"{number}: {part.num_bases}{' ones' if part.dtype is None else ''}"
        return f"{type(part).__name__}({', '.join(map(describe, _parts(part)))})"

    text = describe(basis)
    return len(sets) << 32 | zlib.crc32(text.encode())


def differ_in_edges(first: Basis, second: Basis) -> bool:
    """Whether two bases are equal except for their edge sets."""
    (ours, spec), (theirs, other) = _flatten(first), _flatten(second)
    if spec != other or outline(first) != outline(second):
        return False
    pairs = zip(ours, theirs, strict=True)
    return all(_is_set(one) or torch.equal(one, another) for one, another in pairs)


def _flatten(basis: Basis) -> tuple[list[Any], TreeSpec]:
    """The edge sets and the tensors of the other parts, as pytree leaves; see :mod:`.pytree`."""
    return tree_flatten(basis, is_leaf=_is_set)


def _distinct(leaves: list[Any]) -> list[EdgeBasis]:
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, EdgeBasis)}.values())


def _is_set(part: Any) -> bool:
    return isinstance(part, EdgeBasis)


def _parts(basis: Basis) -> list[Basis]:
    """The bases among the fields of a basis."""
    found: list[Basis] = []
    for field in fields(basis):  # type: ignore[arg-type]
        value = getattr(basis, field.name)
        listed = value if isinstance(value, tuple) else (value,)
        found += [one for one in listed if isinstance(one, Basis)]
    return found
