"""Places of aligned queries: the source that each query is, for supports that know an order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Union
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.between import as_list
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..cache import EACH, recall
from ..errors import RefusedValue, refusal
from ..graph import positions_of
from ..graph.batches import graphs_of
from ..graph.checks import holds
from ..graph.edge_list import EdgeList
from ..graph.node_set import NodeSet
from ..graph.structure import Structure

Places = Union[range, Tensor]  # noqa: UP007
"""The source (N,) that each query is."""

Edges = EdgeBasis | ImplicitEdges

_narrowed: WeakKeyDictionary[Basis, dict[range, Edges]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Placed(Structure):
    """Sources, and targets that are a selection of them.

    Bases are made of all sources as targets, and the selected targets are kept.

    Attributes:
        whole: the structure of all sources, each of them a target.
        place: the source that each target is.
        pos: positions of sources and targets, or None.
    """

    noun: ClassVar[str] = "sources, of which some ask"

    whole: Structure
    place: Places
    pos: tuple[Tensor, Tensor] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return self.whole.size[0], len(self.place)

    @property
    def device(self) -> torch.device:
        """Where the sources are."""
        return self.whole.device

    def at(self, pos: tuple[Tensor, Tensor]) -> Placed:
        """The same sources and targets with positions (M, D) and (N, D)."""
        return replace(self, pos=pos)


def placed(structure: Structure, place: Places) -> Placed:
    """The structure whose targets are the sources at ``place``.

    Raises:
        ValueError: the batch vector puts a target into another graph than its source.
    """
    if not isinstance(structure, NodeSet | EdgeList):
        return Placed(structure, place)  # cells, the same at both ends
    sources, device, graphs = structure.size[0], structure.device, graphs_of(structure)
    if graphs is not None and graphs[0] is not graphs[1]:
        own = graphs[0].index_select(0, as_list(place, device))
        if own.shape != graphs[1].shape or not holds((own == graphs[1]).all()):
            raise RefusedValue(
                refusal("a query is of the graph of the source that it is", own, graphs[1])
            )
    both, pos = None if graphs is None else (graphs[0], graphs[0]), structure.pos
    around = None if pos is None else (pos[0], pos[0])
    return Placed(NodeSet((sources, sources), device, both, around), place, pos)


def with_positions(
    structure: Structure, sources: Structure, place: Places | None, align: object
) -> Structure:
    """The structure, with the positions of the sources at ``place`` for its targets.

    Args:
        structure: between sources and queries.
        sources: the structure with the positions of sources.
        place: (N,) the source that each query is, or None if there is no such source.
        align: the alignment, named in the error.

    Raises:
        ValueError: ``place`` is None.
    """
    if place is None:
        raise RefusedValue(
            refusal(
                f"the queries of {align} have no positions",
                "pos=(of sources, of targets), or an alignment that takes each query from one "
                "source, such as Part(...)",
                "scores that read positions",
            )
        )
    source = positions_of(sources, torch.float64)[0]
    pos = source, source.index_select(0, as_list(place, source.device))
    return structure.at(pos)


def narrowed(over: Edges, place: Places) -> Edges:
    """The edges of a square support that reach some of its targets, which are renumbered.

    Args:
        over: the support with all sources as targets.
        place: (N,) the targets to keep, in their new order; repeats are allowed.
    """
    if not isinstance(place, range) or torch.compiler.is_compiling():
        return over.narrowed(place)
    known = _narrowed.setdefault(over, {})
    edges: Edges = recall(known, place, lambda: over.narrowed(place), EACH)
    return edges
