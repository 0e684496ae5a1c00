"""Options of grids: one value for all axes, or one for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from numbers import Integral
from typing import Any

from numpy import ndarray
from torch import Tensor

from ..errors import RefusedValue, refusal
from ..graph.cells import Cells
from ..graph.structure import Structure

MOST_AXES = 64  # as many as a tensor can have
MOST_PLACES = 100_000  # of a kernel, each a label with a matrix of parameters


def settle(family: Any, names: Sequence[str]) -> None:
    """Replace lists, tensors and integers of numpy's among the options by tuples and integers.

    A family must be hashable, and ``repr`` prints it as text that :func:`parse_family` reads.
    """
    for name in names:
        object.__setattr__(family, name, _settled(getattr(family, name)))


def _settled(value: Any) -> Any:
    if isinstance(value, Tensor | ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return tuple(map(_settled, value))
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def count_axes(family: Any, names: Sequence[str]) -> int:
    """D, by the options that have a value for each axis.

    Raises:
        ValueError: two options disagree, or no option has a value for each axis.
    """
    counts = {n: len(v) for n in names if isinstance(v := getattr(family, n), tuple)}
    if family.dim is not None:
        counts["dim"] = family.dim
    if getattr(family, "offsets", None):
        counts["offsets"] = len(family.offsets[0])
    who = type(family).__name__
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise RefusedValue(refusal(f"options of {who} have one value for each axis", "one D", said))
    if not counts:
        size = family.window
        raise RefusedValue(
            refusal(
                f"{who} needs its number of axes",
                f"dim=2, or window=({size}, {size}), for images",
                f"window={size} alone",
            )
        )
    (num_axes,) = set(counts.values())
    if num_axes < 1:
        raise RefusedValue(refusal(f"{who} needs an axis", "dim >= 1", num_axes))
    if num_axes > MOST_AXES:
        raise RefusedValue(refusal(f"axes of {who} are bounded", f"dim <= {MOST_AXES}", num_axes))
    return num_axes


def spread(value: Any, num_axes: int) -> tuple[Any, ...]:
    """The value of an option for each axis."""
    return value if isinstance(value, tuple) else (value,) * num_axes


def check_places(family: Any, num_axes: int) -> None:
    """Refuse kernels of more than ``MOST_PLACES`` places.

    Raises:
        ValueError: the kernel is larger.
    """
    places = prod(spread(family.window or 1, num_axes))
    if places > MOST_PLACES:
        raise RefusedValue(
            refusal(
                f"window of {type(family).__name__} is bounded",
                f"at most {MOST_PLACES} places in all",
                f"{places} of {family.window}",
            )
        )


def check_least(family: Any, name: str, least: int) -> None:
    """Refuse an option with a value below ``least`` on any axis.

    Raises:
        ValueError: a value is smaller.
    """
    value = getattr(family, name)
    if any(part < least for part in spread(value, 1)):
        raise RefusedValue(
            refusal(f"{name} of {type(family).__name__} is bounded", f">= {least}", value)
        )


def num_axes_of(*options: int | tuple[int, ...]) -> int | None:
    """D, if one of the options has a value for each axis; else None."""
    tuples = [option for option in options if isinstance(option, tuple)]
    return len(tuples[0]) if tuples else None


def for_each_axis(
    family: Any, structure: Structure, *options: int | tuple[int, ...]
) -> tuple[int, list[tuple[int, ...]]]:
    """D of the structure, 1 unless it is a grid, and the values of each option on its axes.

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
