"""Assert the laws that a family declares, on random data of the kind that it reads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..attention.queries import Content
from ..basis import Basis
from ..errors import RefusedValue, unknown
from ..families import Family
from ..families.windows import Windows
from ..graph import Cells, Graph
from ..graph.assignment import Assignment
from ..graph.structure import Structure
from ..nn import OuterConv
from ..signatures import typed
from .basis_laws import assert_adjoint, assert_lazy_equals_explicit, assert_transpose
from .layer_laws import (
    assert_permutation_equivariant,
    assert_translation_equivariant,
)

CHANNELS = 3  # of the features that are drawn

Law = Callable[[Family, torch.Generator], None]


@typed
def assert_declared_laws(family: Family, seed: int) -> None:
    """Every law in :attr:`Family.laws` holds on random data drawn with ``seed``.

    Edges have attributes with two columns if the family reads them, and nodes have features with
    :data:`CHANNELS` channels, in float64, if its values depend on features. So modules among its
    options are in float64, and have not met features of other channels; a support of attention
    reads neither types nor weights, as ``Hops()`` does not.

    Raises:
        AssertionError: a law does not hold; the message names it.
        ValueError: the family declares an unknown law.
    """
    for name in family.laws:
        if name not in LAWS:
            raise RefusedValue(unknown("law", name, LAWS))
        try:
            LAWS[name](family, torch.Generator().manual_seed(seed))
        except AssertionError as error:
            raise AssertionError(f"{family} is not {name}: {error}") from error


# Random data -------------------------------------------------------------------------------------


def _integer(high: int, generator: torch.Generator) -> int:
    return int(torch.randint(high, (1,), generator=generator))


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def _relations(family: Family) -> set[int]:
    """The numbers of edge types of a family and its parts."""
    own = {family.num_relations} if hasattr(family, "num_relations") else set()
    return own.union(*map(_relations, family.parts))


def _axes(family: Family) -> set[int]:
    """The numbers of grid axes of a family and its parts."""
    num_axes = getattr(family, "num_axes", None)
    own = set() if num_axes is None else {num_axes}
    return own.union(*map(_axes, family.parts))


def draw_edges(family: Family, generator: torch.Generator) -> Graph:
    """A random directed graph with loops, parallel edges, positive weights, types and attributes.

    Nodes have positions if the family reads them.
    """
    nodes = 1 + _integer(9, generator)
    count = _integer(4 * nodes, generator)
    edge_index = torch.randint(nodes, (2, count), generator=generator)
    weight = torch.rand(count, dtype=torch.float64, generator=generator) + 0.1
    counts = _relations(family)
    kinds = torch.randint(min(counts), (count,), generator=generator) if counts else None
    size = (nodes, nodes)
    attributes = _normal(generator, count, 2) if family.makes_use_of("edge_attr") else None
    place = _normal(generator, nodes, 2) if family.makes_use_of("pos") else None
    return Graph.read(edge_index, weight, kinds, size=size, edge_attr=attributes, pos=place)


def draw_cells(family: Family, generator: torch.Generator) -> Cells:
    """A random grid with a few cells along each axis, complete or with holes."""
    shape = tuple(4 + _integer(4, generator) for _ in range(max(_axes(family), default=2)))
    if _integer(2, generator):
        return Cells.of_shape(shape)
    return Cells.of_mask(torch.rand(shape, generator=generator) < 0.6)


def draw_assignment(family: Family, generator: torch.Generator) -> Assignment:
    """A random assignment of nodes to clusters of at most three."""
    nodes = torch.randperm(3 * (1 + _integer(4, generator)), generator=generator)
    members = nodes[: 1 + _integer(len(nodes), generator)] // 3
    return Assignment.read(members)


def draw(family: Family, generator: torch.Generator) -> Structure:
    """A random structure of the kind that the family reads."""
    if issubclass(Cells, family.reads) and _axes(family):
        return draw_cells(family, generator)
    if family.reads is Assignment:
        return draw_assignment(family, generator)
    return draw_edges(family, generator)


# Laws --------------------------------------------------------------------------------------------


def _of_basis(law: Callable[[Basis], None]) -> Law:
    def check(family: Family, generator: torch.Generator) -> None:
        structure = draw(family, generator)
        if not family.makes_use_of("x"):
            return law(family.basis(structure, dtype=torch.float64))
        x = _normal(generator, structure.size[0], CHANNELS)
        return law(family.basis_with(structure, torch.float64, Content(x, x)))

    return check


def _permutation(family: Family, generator: torch.Generator) -> None:
    edges = draw_edges(family, generator)
    conv = OuterConv(CHANNELS, 2, family).double()
    assert_permutation_equivariant(conv, _normal(generator, edges.size[0], CHANNELS), edges)


def _translation(family: Family, generator: torch.Generator) -> None:
    assert isinstance(family, Windows)
    # Wide enough for outputs away from both ends before and after; strides divide circular axes.
    moves, shape = [], []
    for window in family.windows:
        reach = max(window.shifts) - min(window.shifts)
        least = 2 * (reach + window.front + window.behind + 4) + _integer(3, generator)
        shape.append(window.stride * -(-least // window.stride))
        moves.append(_integer(5, generator) - 2)
    cells = Cells.of_shape(tuple(shape))
    x = _normal(generator, cells.num_cells, 3)
    assert_translation_equivariant(OuterConv(3, 2, family).double(), x, cells, moves)


LAWS: dict[str, Law] = {
    "adjoint": _of_basis(assert_adjoint),
    "transposable": _of_basis(assert_transpose),
    "the same when explicit": _of_basis(assert_lazy_equals_explicit),
    "permutation-equivariant": _permutation,
    "translation-equivariant": _translation,
}
