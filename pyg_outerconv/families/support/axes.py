"""Options of supports that grids have for each axis, and sequences once."""

from __future__ import annotations

from typing import Any

from ...errors import RefusedValue, refusal
from ...graph.cells import Cells
from ...graph.structure import Structure
from ..per_axis import spread

PerAxis = int | tuple[int, ...]


def axes_told(*options: PerAxis) -> int | None:
    """D, where one of the options has a value for each axis."""
    tuples = [option for option in options if isinstance(option, tuple)]
    return len(tuples[0]) if tuples else None


def for_each_axis(
    family: Any, structure: Structure, *options: PerAxis
) -> tuple[int, list[tuple[int, ...]]]:
    """D of the structure, 1 if it is no grid, and the values of each option along its axes.

    Raises:
        ValueError: an option has values for another number of axes.
    """
    axes = structure.num_axes if isinstance(structure, Cells) else 1
    values = [spread(option, axes) for option in options]
    if any(len(value) != axes for value in values):
        raise RefusedValue(
            refusal(f"{family} has a value for each axis", f"{axes} axes", structure)
        )
    return axes, values
