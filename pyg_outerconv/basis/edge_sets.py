"""The sets of explicit edges that a basis is made of, and the same basis made of others."""

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
    """The sets of edges that there are in a basis, in order, each once; a rule has none."""
    return _distinct(_taken_apart(basis)[0])


def with_edge_sets(basis: Basis, change: Callable[[list[EdgeBasis]], list[EdgeBasis]]) -> Basis:
    """The basis with other sets of edges in the place of its own; ``change`` makes as many."""
    leaves, spec = _taken_apart(basis)
    own = _distinct(leaves)
    new = {id(old): made for old, made in zip(own, change(own), strict=True)}
    made: Basis = tree_unflatten([new.get(id(leaf), leaf) for leaf in leaves], spec)
    return made


def outline(basis: Basis) -> int:
    """A number of the kinds of basis that it is made of, and of the labels of each set of edges.

    It says how many sets there are in ``outline >> 32``, and nothing of nodes, edges and values,
    but whether values are ones.
    """
    sets: dict[int, int] = {}

    def told(part: Basis) -> str:
        if isinstance(part, EdgeBasis):
            number = sets.setdefault(id(part), len(sets))
            return f"{number}: {part.num_bases}{' ones' if part.dtype is None else ''}"
        return f"{type(part).__name__}({', '.join(map(told, _parts(part)))})"

    text = told(basis)
    return len(sets) << 32 | zlib.crc32(text.encode())


def differ_in_edges(first: Basis, second: Basis) -> bool:
    """Whether two bases are the same but for their sets of edges."""
    (ours, spec), (theirs, other) = _taken_apart(first), _taken_apart(second)
    if spec != other or outline(first) != outline(second):
        return False
    pairs = zip(ours, theirs, strict=True)
    return all(_is_set(one) or torch.equal(one, another) for one, another in pairs)


def _taken_apart(basis: Basis) -> tuple[list[Any], TreeSpec]:
    """Sets of edges, and tensors of what else the basis is made of; see :mod:`.pytree`."""
    return tree_flatten(basis, is_leaf=_is_set)


def _distinct(leaves: list[Any]) -> list[EdgeBasis]:
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, EdgeBasis)}.values())


def _is_set(part: Any) -> bool:
    return isinstance(part, EdgeBasis)


def _parts(basis: Basis) -> list[Basis]:
    """The bases that a basis is made of."""
    found: list[Basis] = []
    for field in fields(basis):  # type: ignore[arg-type]
        value = getattr(basis, field.name)
        listed = value if isinstance(value, tuple) else (value,)
        found += [one for one in listed if isinstance(one, Basis)]
    return found
