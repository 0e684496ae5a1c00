"""Positions of nodes: as they are given, checked, or places that nodes have if nobody says more."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .batches import graphs_of
from .cells import Cells
from .checks import check_batch, holds
from .structure import Structure


def as_coordinates(position: Tensor, axes: int | None = None) -> Tensor:
    """Positions (n,) or (n, D) as (n, D), a view.

    Args:
        position: integers or floating point.
        axes: D, or None for any.

    Raises:
        TypeError: it is no tensor of numbers.
        ValueError: it has another shape.
    """
    if not isinstance(position, Tensor) or position.dtype == torch.bool or position.is_complex():
        got = getattr(position, "dtype", type(position).__name__)
        raise RefusedType(refusal("positions are numbers", "integers or floating point", got))
    columns = position.unsqueeze(1) if position.dim() == 1 else position
    if columns.dim() != 2 or axes not in (None, columns.size(1)) or columns.size(1) == 0:
        wanted = "(n,) or (n, D)" if axes is None else f"(n, {axes})" if axes > 1 else "(n,)"
        raise RefusedValue(
            refusal("positions have a number on each axis", wanted, tuple(position.shape))
        )
    return columns


def as_whole(position: Tensor) -> Tensor:
    """Positions as int64, where they are whole numbers.

    Raises:
        ValueError: one is not.
    """
    if not position.is_floating_point():
        return position.long()
    whole = position.detach().round()
    if not torch.compiler.is_compiling() and not holds((whole == position.detach()).all()):
        away = (whole - position.detach()).abs().nan_to_num(1.0).argmax()
        raise RefusedValue(
            refusal(
                "tables have entries for whole numbers",
                "positions without fractions",
                float(position.detach().flatten()[away]),
            )
        )
    return whole.long()


def exact_type(*types: torch.dtype) -> torch.dtype:
    """The type to compute angles and distances in: the widest of some, and float32 at least."""
    widest = torch.float32
    for one in types:
        widest = torch.promote_types(widest, one)
    return widest


def positions_of(structure: Structure, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """The positions of sources and of targets that a structure says or implies.

    In this order: ``pos`` where edges or nodes came with it; the coordinates of the cells of a
    grid; the place of a node within its graph, from 0, where there is a batch vector; and else
    0, 1, 2, ….

    Args:
        structure: anything that was read by a family.
        dtype: of the result; by default that of ``pos`` if it is floating point, and else torch's
            default type.

    Returns:
        (M, D) and (N, D), floating point, where the structure is.

    Raises:
        TypeError: ``pos`` is no tensor of numbers.
        ValueError: it has no row for each node, the two ends have different numbers of axes, or
            there is one batch vector for a pair.

    >>> from pyg_outerconv import Cells
    >>> positions_of(Cells.of_shape((2, 2)))[0].tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    source, target = _found(structure)
    return _floating(source, dtype), _floating(target, dtype)


def _found(structure: Structure) -> tuple[Tensor, Tensor]:
    """Positions as they were given, or as integers."""
    pos = getattr(structure, "pos", None)
    if pos is not None:
        return _given(pos, structure.size)
    if isinstance(structure, Cells):
        index = structure.listed().index
        assert index is not None  # listed
        return index, index
    graphs = graphs_of(structure)
    if graphs is not None:
        place = places_within(graphs[0]).unsqueeze(1)
        same = graphs[1] is graphs[0]
        return place, place if same else places_within(graphs[1]).unsqueeze(1)
    sources, targets = structure.size
    return _numbered(sources, structure.device), _numbered(targets, structure.device)


def places_within(group: Tensor) -> Tensor:
    """(n,) how many nodes of its group come before each node; groups need not be sorted.

    Args:
        group: (n,) integers, as ``batch`` is in PyG.

    Raises:
        TypeError: it holds no integers.
        ValueError: it is no vector, or holds negative numbers.

    >>> places_within(torch.tensor([0, 0, 1, 0, 1])).tolist()
    [0, 1, 0, 2, 1]
    """
    check_batch(group, group.numel())
    order = group.argsort(stable=True)
    count = group.bincount()
    first = count.cumsum(0) - count
    place = torch.empty_like(order)
    place[order] = torch.arange(len(group), device=group.device) - first[group[order].long()]
    return place


def relative_positions(positions: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
    """(E, D) where the source of each edge lies as seen from its target, as index terms take it.

    Args:
        positions: (M, D) of sources and (N, D) of targets.
        edge_index: (2, E), sources then targets.
    """
    source, target = positions
    return source.index_select(0, edge_index[0]) - target.index_select(0, edge_index[1])


def _given(pos: tuple[Tensor, Tensor], size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    source, target = map(as_coordinates, pos)
    if (len(source), len(target)) != size:
        raise RefusedValue(
            refusal("pos has a row for each node", f"M, N = {size}", (len(source), len(target)))
        )
    if source.size(1) != target.size(1):
        axes = source.size(1), target.size(1)
        raise RefusedValue(refusal("both ends have positions on the same axes", "D = D", axes))
    return source, target


def _numbered(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device).unsqueeze(1)


def _floating(position: Tensor, dtype: torch.dtype | None) -> Tensor:
    if dtype is not None and not dtype.is_floating_point:
        raise RefusedType(refusal("positions become floating point", "torch.float32", dtype))
    if dtype is None:
        own = position.is_floating_point()
        dtype = position.dtype if own else torch.get_default_dtype()
    return position.to(dtype)
