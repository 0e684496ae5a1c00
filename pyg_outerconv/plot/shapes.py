"""What a picture asks of a basis: its labels, the grids whose cells its nodes are, a cell."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..basis.algebra import Compound, Transposed
from ..basis.base import Basis
from ..basis.grid_shift import GridShift
from ..basis.products import BinaryProduct, Composed, Restricted
from ..errors import RefusedIndex, RefusedType, RefusedValue
from ..graph.cells import Cells
from ..graph.checks import Labels, chosen_labels

MAX_PANELS = 16
PARTS = "labels= for fewer, or a part of the basis (restrict, or a smaller structure)"
Shape = tuple[int, ...]
Grids = tuple[Shape, Shape]
"""The shapes of the input grid and of the output grid."""


def node_at(cell: int | Sequence[int], shape: Shape) -> int:
    """The number of the node at a cell: one coordinate per axis, or that number itself."""
    at = (cell,) if isinstance(cell, int) else tuple(cell)
    bounds = (prod(shape),) if isinstance(cell, int) else shape
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in at):
        raise RefusedType("a cell is given by integers", "one for each axis", repr(cell))
    if len(at) != len(bounds):
        raise RefusedValue(
            "a cell has a coordinate for each axis", f"{len(bounds)} of {bounds}", at
        )
    if not all(0 <= number < count for number, count in zip(at, bounds, strict=True)):
        raise RefusedIndex("a cell must be in its grid", f"below {bounds}", at)
    return int(np.ravel_multi_index(at, bounds))


def grids(basis: Basis, inputs: Any, outputs: Any) -> Grids | None:
    """The grids of the sources and of the targets of a basis; None if it has no grids.

    Args:
        basis: a basis.
        inputs: the shape of the grid of the sources; None to ask the basis.
        outputs: the shape of the grid of the targets; None for that of ``inputs``.
    """
    if inputs is None:
        if outputs is not None:
            raise RefusedValue("outputs= needs inputs=", "inputs= too", "none")
        return grids_of(basis)
    shapes, (m, n) = [], basis.size
    targets = inputs if outputs is None else outputs
    for name, asked, count in (("inputs", inputs, m), ("outputs", targets, n)):
        cells = Cells.read(asked)
        if cells.shape is None or cells.index is not None or cells.num_cells != count:
            raise RefusedValue(f"{name} is one grid with a cell for each node", count, cells)
        shapes.append(cells.shape)
    return shapes[0], shapes[1]


def grids_of(basis: Basis) -> Grids | None:
    """The grids whose cells its nodes are; None if they are no full grids."""
    if isinstance(basis, GridShift):
        return basis.input_shape, basis.output_shape
    if isinstance(basis, Transposed):
        base_grids = grids_of(basis.base)
        return None if base_grids is None else (base_grids[1], base_grids[0])
    if isinstance(basis, BinaryProduct):
        first, second = grids_of(basis.first), grids_of(basis.second)
        if first is None or second is None:
            return None
        if isinstance(basis, Composed):
            return first[0], second[1]
        return first[0] + second[0], first[1] + second[1]  # the axes of the first, then others
    # Restricted nodes are not all cells, or have other numbers.
    if isinstance(basis, Restricted) or not isinstance(basis, Compound):
        return None
    return grids_of(basis.parts[0]) if basis.size == basis.parts[0].size else None


def labels_of(
    basis: Basis, labels: Labels | None, titles: Sequence[str] | None, max_panels: int
) -> tuple[list[int], list[str], str]:
    """The labels to draw, their titles, and how many are left out in words; '' for none."""
    count = basis.num_bases
    if titles is not None and len(titles) != count:
        raise RefusedValue("a basis has a title for each label", count, len(titles))
    if max_panels < 1:
        raise RefusedValue("a picture needs a panel", "max_panels >= 1", max_panels)
    chosen = chosen_labels(slice(max_panels) if labels is None else labels, count)
    if not chosen:
        raise RefusedValue("a picture needs a label", "at least one", "none")
    names = _names(basis) if titles is None else titles
    left_out = count - len(chosen) if labels is None else 0
    told = f"{len(chosen)} of {count} labels; {left_out} left out" if left_out else ""
    return chosen, [names[k] for k in chosen], told


def _names(basis: Basis) -> list[str]:
    """The name of each label: the shift of a grid, else its number."""
    if not isinstance(basis, GridShift):
        return [f"k = {k}" for k in range(basis.num_bases)]
    turned = ", transposed" if basis.is_transposed else ""
    return [f"shift ({', '.join(map(str, shift))}){turned}" for shift in basis.shifts]
