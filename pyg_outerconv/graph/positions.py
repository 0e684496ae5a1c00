"""Positions of nodes, and the graph that each node belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..kernels.index_checks import has_numbers
from ..signatures import typed
from .cells import Cells
from .checks import check_batch, check_index, check_rows, holds, infer_size
from .graph import Graph
from .structure import Structure


def graphs_of(structure: Structure) -> tuple[Tensor, Tensor] | None:
    """The graph of each source (M,) and of each target (N,), or None without a batch vector."""
    batch = getattr(structure, "batch", None)
    if batch is None:
        return None
    if isinstance(batch, tuple):
        return batch
    if isinstance(structure, Graph) and structure.source_batch is not None:
        return structure.source_batch, batch
    if isinstance(structure, Graph):
        instead = "batch=(of sources, of targets)"
        structure.require_one_set("one batch vector for both ends", instead)
    return batch, batch


def graph_numbers(structure: Structure) -> tuple[Tensor, Tensor]:
    """The graph of each source (M,) and of each target (N,); zeros without a batch vector."""
    graphs, device = graphs_of(structure), structure.device
    sources, targets = structure.size
    if graphs is not None:
        return graphs
    return (
        torch.zeros(sources, dtype=torch.long, device=device),
        torch.zeros(targets, dtype=torch.long, device=device),
    )


def as_coordinates(position: Tensor, axes: int | None = None) -> Tensor:
    """Positions (n,) or (n, D) as (n, D), a view; ``axes`` is the required D, or None for any."""
    is_dense = isinstance(position, Tensor) and position.layout is torch.strided
    if not is_dense or position.dtype == torch.bool or position.is_complex():
        got = getattr(position, "dtype" if is_dense else "layout", type(position).__name__)
        raise RefusedType("positions are numbers", "integers or floating point", got)
    columns = position.unsqueeze(1) if position.dim() == 1 else position
    if columns.dim() != 2 or columns.size(1) != (axes or columns.size(1)) or columns.size(1) == 0:
        wanted = "(n,) or (n, D)" if axes is None else f"(n, {axes})" if axes > 1 else "(n,)"
        raise RefusedValue("positions have a number on each axis", wanted, tuple(position.shape))
    return columns


def as_whole(position: Tensor) -> Tensor:
    """Positions as int64; ValueError if one has a fraction."""
    if not position.is_floating_point():
        return position.long()
    whole = position.detach().round()
    if not torch.compiler.is_compiling() and not holds((whole == position.detach()).all()):
        away = (whole - position.detach()).abs().nan_to_num(1.0).argmax()
        raise RefusedValue(
            "tables are indexed by integer positions",
            "positions without fractions",
            float(position.detach().flatten()[away]),
        )
    return whole.long()


def exact_type(*types: torch.dtype) -> torch.dtype:
    """The dtype for angles and distances: the widest of the given ones, at least float32."""
    widest = torch.float32
    for one in types:
        widest = torch.promote_types(widest, one)
    return widest


@typed
def positions_of(structure: Structure, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """The positions of the sources and targets of a structure.

    The first of these that applies: ``pos``, if the structure has it; the coordinates of the cells
    of a grid; the place of each node within its graph, from 0, if there is a batch vector; the node
    number 0, 1, 2, ….

    Args:
        structure: any structure.
        dtype: the dtype of the result; by default that of ``pos`` if it is floating point, else
            torch's default.

    Returns:
        (M, D) and (N, D), floating point, on the structure's device.

    Raises:
        TypeError: ``pos`` is not a pair of numeric tensors.
        ValueError: ``pos`` does not have one row per node, sources and targets differ in D, or a
            bipartite structure has only one batch vector.

    >>> from pyg_outerconv import Cells
    >>> positions_of(Cells.of_shape((2, 2)))[0].tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    source, target = _positions(structure)
    return _floating(source, dtype), _floating(target, dtype)


def _positions(structure: Structure) -> tuple[Tensor, Tensor]:
    """The positions before conversion to floating point."""
    pos = getattr(structure, "pos", None)
    if pos is not None:
        source, target = map(as_coordinates, pos)
        check_rows((source, target), structure.size)
        return source, target
    if isinstance(structure, Cells):
        index = structure.listed().index
        assert index is not None  # listed() fills it
        return index, index
    graphs = graphs_of(structure)
    if graphs is not None:
        place = places_within(graphs[0]).unsqueeze(1)
        same = graphs[1] is graphs[0]
        return place, place if same else places_within(graphs[1]).unsqueeze(1)
    sources, targets = structure.size
    return _numbered(sources, structure.device), _numbered(targets, structure.device)


@typed
def places_within(group: Tensor) -> Tensor:
    """(n,) the place of each node within its group, from 0; groups need not be sorted.

    Args:
        group: (n,) integers, as ``batch`` is in PyG.

    Raises:
        TypeError: ``group`` is not of integers.
        ValueError: ``group`` is not a vector, or has negative entries.

    >>> places_within(torch.tensor([0, 0, 1, 0, 1])).tolist()
    [0, 1, 0, 2, 1]
    """
    check_batch(group, group.numel())
    if not has_numbers(group):
        raise RefusedValue("places are counted", "numbers in memory", group)
    return places(group)


def places(group: Tensor) -> Tensor:
    """As :func:`places_within`, of groups that are checked or have no numbers to look at."""
    ascending, order = group.long().sort(stable=True)
    begin = torch.searchsorted(ascending, ascending)
    within = torch.arange(group.numel(), device=group.device) - begin
    return torch.empty_like(within).index_copy_(0, order, within)


@typed
def relative_positions(positions: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
    """(E, D) the position of each edge's source minus that of its target.

    Args:
        positions: (M, D) of sources and (N, D) of targets.
        edge_index: (2, E), sources then targets.
    """
    check_index(edge_index)
    infer_size(edge_index, (positions[0].size(0), positions[1].size(0)), True)
    return differences(positions, edge_index)


def differences(positions: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
    """As :func:`relative_positions`, of edges that are checked."""
    source, target = positions
    return source.index_select(0, edge_index[0]) - target.index_select(0, edge_index[1])


def _numbered(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device).unsqueeze(1)


def _floating(position: Tensor, dtype: torch.dtype | None) -> Tensor:
    if dtype is not None and not dtype.is_floating_point:
        raise RefusedType("positions become floating point", "torch.float32", dtype)
    if dtype is None:
        own = position.is_floating_point()
        dtype = position.dtype if own else torch.get_default_dtype()
    return position.to(dtype)
