"""Supports: families of one label whose values are all 1, and the cache of their bases."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ...attention.queries import Content, Placed, narrowed
from ...basis.base import Basis
from ...basis.edges import EdgeBasis
from ...basis.implicit_edges import Edges, counted
from ...graph.cells import Cells
from ...graph.structure import Structure
from ...kernels.capture import is_capturing, stream_on
from ...kernels.lasting import lasting
from ...memo import Memo
from ..family import Family
from ..options import settle


class Support(Family):
    """A family of one label with the value 1 on every edge: the sources that a target sees.

    It reads any structure; most supports read only the number of nodes and the graph of each
    (``batch``). Nodes of different graphs never see each other, and the place of a node in a
    sequence is its place in its graph. The basis is a rule where possible, else edges.
    """

    reads: type[Structure] = Structure
    reads_beside: tuple[str, ...] = ()
    symmetries: tuple[str, ...] = ()

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether nodes alone are enough."""
        return self.reads is Structure


class SupportOfAxes(Support):
    """A support of sequences and of grids, with options ``per_axis`` for all axes or for each."""

    per_axis: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        settle(self, self.per_axis)
        super().__post_init__()

    @property
    def num_axes(self) -> int | None:
        """D, where an option has a value for each axis."""
        values = [getattr(self, name) for name in self.per_axis]
        return next((len(value) for value in values if isinstance(value, tuple)), None)

    @property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """Cells, where options are for several axes, else any structure."""
        return Cells if (self.num_axes or 1) > 1 else Structure


_of_tensors = Memo()
_kept = Memo()
_of_numbers: WeakValueDictionary[Hashable, Edges] = WeakValueDictionary()


def cached_support(
    family: Family, structure: Structure, cache: Memo, content: Content | None = None
) -> Edges:
    """The basis of a support, cached for all layers on the same structure.

    Bases of tensors are cached as long as these exist, unmodified; bases of numbers alone as long
    as ``cache``, that of a layer, has them; those of features are not.
    """
    if isinstance(structure, Placed):
        return narrowed(cached_support(family, structure.whole, cache), structure.place)

    def make() -> Edges:
        basis = family.basis_with(structure, None, content)
        return basis if isinstance(basis, EdgeBasis) else counted(basis)

    cache_key = None if torch.compiler.is_compiling() else _cache_key(family, structure)
    if cache_key is None:
        return make()
    tensors, key = cache_key
    if all(tensor is None for tensor in tensors):
        support = cache.get((family, key), lambda: _shared((family, key), make))
    else:
        support = _of_tensors.get((family, key), make, *tensors)
    return support  # type: ignore[no-any-return]


def kept_basis(family: Family, structure: Structure, dtype: torch.dtype | None) -> Basis:
    """The basis of a family without parameters, kept for as long as the structure's tensors exist.

    Beside families of features, which are made at every call, it is made once for a graph.
    """

    def make() -> Basis:
        return family.basis_on(structure, dtype)

    cache_key = None if isinstance(structure, Placed) else _cache_key(family, structure)
    tensors, key = cache_key or ((), None)
    made_of = [tensor for tensor in tensors if tensor is not None]
    if not made_of or any(tensor.requires_grad for tensor in made_of):
        return make()
    key = (family, key, dtype, torch.get_default_dtype())
    return _kept.get(key, make, *tensors)  # type: ignore[no-any-return]


def _shared(key: Hashable, make: Callable[[], Edges]) -> Edges:
    if is_capturing():
        with lasting():
            return make()
    key = key, stream_on(None)
    support = _of_numbers.get(key)
    if support is None:
        with lasting():
            support = _of_numbers[key] = make()
    return support


def _cache_key(
    family: Family, structure: Structure
) -> tuple[tuple[Tensor | None, ...], Hashable] | None:
    """The tensors and the value that a basis depends on; None if it cannot be cached."""
    dependencies = structure.made_of()
    if dependencies is None or family.makes_use_of("x"):
        return None
    own, key = dependencies
    attr, pos = getattr(structure, "edge_attr", None), getattr(structure, "pos", None)
    attr = None if attr is None or not family.makes_use_of("edge_attr") else attr
    pos = None if pos is None or not family.makes_use_of("pos") else pos
    return (*own, attr, *(pos if pos is not None else (None, None))), key
