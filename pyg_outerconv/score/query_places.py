"""Where aligned queries stand: the source that each of them is, for what depends on order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Union
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..basis.any_structure import AnyStructure
from ..basis.base import Basis
from ..basis.cache import EACH, recall
from ..basis.checks import holds
from ..basis.edges import EdgeBasis
from ..basis.eye import Eye
from ..basis.on_demand import OnDemand
from ..basis.pattern import Pattern
from ..basis.structure import Structure
from ..basis.support.band import Band
from ..basis.support.cliques import Cliques
from ..basis.support.runs import spread_runs, unlabelled_edges
from ..basis.support.support import graphs_of
from ..basis.unstructured import Unstructured
from ..errors import RefusedValue, refusal
from ..position import positions_of

Places = Union[range, Tensor]  # noqa: UP007
"""(N,) the source that each query is."""

Edges = EdgeBasis | OnDemand

_narrowed: WeakKeyDictionary[Basis, dict[range, Edges]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Placed(AnyStructure):
    """Sources, and targets that are some of them: attention of all, of which these are kept.

    Attributes:
        whole: the structure of all sources, each of them a target.
        place: the source that each target is.
        pos: positions of sources and targets, or None.
    """

    noun: ClassVar[str] = "sources, of which some ask"

    whole: AnyStructure
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


def places_of(align: Basis) -> Places | None:
    """The source of each query of an alignment T, if each takes one; else None."""
    if isinstance(align, Eye):
        return range(align.size[1])
    if isinstance(align, Band) and align.left == align.right == 0:
        return range(align.offset, align.offset + align.size[1])
    if align.num_bases > 1 or not isinstance(align, EdgeBasis | OnDemand):
        return None
    pattern, count = align.edges().pattern, align.size[1]
    each = torch.arange(count, device=pattern.device)
    if pattern.num_edges != count or not holds((pattern.target == each).all()):
        return None
    return pattern.source.long()


def as_tensor(place: Places, device: torch.device) -> Tensor:
    """(N,) integers."""
    if isinstance(place, Tensor):
        return place
    return torch.arange(place.start, place.stop, device=device)


def placed(structure: AnyStructure, place: Places) -> Placed:
    """Some sources of a structure as its targets.

    Raises:
        ValueError: a target is said to be of another graph than the source that it is.
    """
    if not isinstance(structure, Unstructured | Structure):
        return Placed(structure, place)  # cells, which are on both ends what they are
    sources, device, graphs = structure.size[0], structure.device, graphs_of(structure)
    if graphs is not None and graphs[0] is not graphs[1]:
        own = graphs[0].index_select(0, as_tensor(place, device))
        if own.shape != graphs[1].shape or not holds((own == graphs[1]).all()):
            raise RefusedValue(
                refusal("a query is of the graph of the source that it is", own, graphs[1])
            )
    both, pos = None if graphs is None else (graphs[0], graphs[0]), structure.pos
    around = None if pos is None else (pos[0], pos[0])
    return Placed(Unstructured((sources, sources), device, both, around), place, pos)


def with_positions(
    structure: AnyStructure, sources: AnyStructure, place: Places | None, align: object
) -> AnyStructure:
    """The structure with positions of targets, which are those of the sources that they are.

    Args:
        structure: between sources and queries.
        sources: what says where sources are.
        place: the source that each query is.
        align: what makes the queries, to be named.

    Raises:
        ValueError: the alignment takes queries from no source of their own.
    """
    if place is None:
        raise RefusedValue(
            refusal(
                f"nobody said where the queries of {align} are",
                "pos=(of sources, of targets), or an alignment that takes each query from one "
                "source, such as Part(...)",
                "scores that read positions",
            )
        )
    source = positions_of(sources, torch.float64)[0]
    pos = source, source.index_select(0, as_tensor(place, source.device))
    if isinstance(structure, Placed | Structure | Unstructured):
        return replace(structure, pos=pos)
    return structure  # cells, whose targets are themselves


def narrowed(over: Edges, place: Places) -> Edges:
    """The edges of a square support that reach some targets, which are renumbered.

    Args:
        over: the support of all sources as targets.
        place: (N,) those that stay, in their new order; one may come twice.
    """
    if not isinstance(place, range) or torch.compiler.is_compiling():
        return _narrowed_to(over, place)
    known = _narrowed.setdefault(over, {})
    edges: Edges = recall(known, place, lambda: _narrowed_to(over, place), EACH)
    return edges


def _narrowed_to(over: Edges, place: Places) -> Edges:
    size = over.size[0], len(place)
    if isinstance(over, Band) and isinstance(place, range):
        offset = over.offset + place.start
        return replace(over, num_targets=len(place), offset=offset, kept={})
    at = as_tensor(place, over.device)
    if isinstance(over, Cliques):
        return Cliques(over.source_block, over.target_block.index_select(0, at))
    if isinstance(over, Band):
        return band_at(over, at)
    pattern = over.edges().pattern
    first, end = (
        torch.searchsorted(pattern.target.long(), at, right=right) for right in (False, True)
    )
    target, within = spread_runs(end - first)
    chosen = first[target] + within
    source, label = (x.index_select(0, chosen) for x in (pattern.source.long(), pattern.label))
    origin = None if pattern.origin is None else pattern.origin.index_select(0, chosen)
    ends = torch.stack([source, target])
    made = Pattern.build(ends, label, size=size, num_labels=pattern.num_labels, origin=origin)
    return EdgeBasis(made)


def band_at(band: Band, place: Tensor) -> EdgeBasis:
    """The edges of a band that reach targets at some places (N,)."""
    first, count = band.seen_from(place, band.num_sources)
    target, within = spread_runs(count)
    source = first[target] + band.dilation * within
    return unlabelled_edges(source, target, (band.num_sources, place.numel()))
