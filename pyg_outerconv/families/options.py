"""Options of families: their types, bounds, values for each axis, and families among them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, get_type_hints

import torch
from numpy import ndarray
from torch import Tensor

from ..errors import RefusedType, RefusedValue, unknown
from ..graph.cells import Cells
from ..graph.structure import Structure
from ..signatures import check_type, is_integer

if TYPE_CHECKING:
    from .family import Family


MOST_POWERS = 10_000  # each costs a sparse product at every call


def refuse_unknown(family: type[Any], names: Iterable[str]) -> None:
    """Refuse options that a family does not have."""
    options = getattr(family, "__dataclass_fields__", {})
    for name in [name for name in names if options and name not in options]:
        if name in inspect.signature(family).parameters:  # of a constructor of its own
            continue
        raise RefusedType(unknown(f"option of {family.__name__}", name, options))


def check_options(family: Any) -> None:
    """Refuse options that do not have the type of their field."""
    for name, hint in _hints(type(family)).items():  # type: ignore[arg-type]
        check_type(type(family).__name__, name, getattr(family, name), hint)


@cache
def _hints(family: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(family)
    return {name: hints[name] for name in getattr(family, "__dataclass_fields__", ())}


def check_powers(family: Any, **bounds: int) -> None:
    """:func:`check_least`, and refuse an option above ``MOST_POWERS``."""
    check_least(family, **bounds)
    for name in bounds:
        value = getattr(family, name)
        if value > MOST_POWERS:
            rule = f"{name} of {type(family).__name__} is bounded"
            raise RefusedValue(rule, f"<= {MOST_POWERS}", value)


MOST_AXES = 64  # as many as a tensor can have
MOST_PLACES = 100_000  # of a kernel, each a label with a matrix of parameters


def settle(family: Any, names: Sequence[str]) -> None:
    """Replace lists, tensors and integers of numpy's among the options by tuples and integers.

    A family must be hashable, and ``repr`` prints it as text that :func:`parse_family` reads.
    """
    for name in names:
        object.__setattr__(family, name, _settled(getattr(family, name)))


def _settled(value: Any) -> Any:
    if isinstance(value, Tensor | ndarray) and not getattr(value, "is_meta", False):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return tuple(map(_settled, value))
    return int(value) if is_integer(value) else value


def count_axes(family: Any, names: Sequence[str]) -> int:
    """D, by the options that have a value for each axis."""
    counts = {n: len(v) for n in names if isinstance(v := getattr(family, n), tuple)}
    if family.dim is not None:
        counts["dim"] = family.dim
    if getattr(family, "offsets", None):
        counts["offsets"] = len(family.offsets[0])
    who = type(family).__name__
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise RefusedValue(f"options of {who} have one value for each axis", "one D", said)
    if not counts:
        size = family.window
        raise RefusedValue(
            f"{who} needs its number of axes",
            f"dim=2, or window=({size}, {size}), for images",
            f"window={size} alone",
        )
    (num_axes,) = set(counts.values())
    if num_axes < 1:
        raise RefusedValue(f"{who} needs an axis", "dim >= 1", num_axes)
    if num_axes > MOST_AXES:
        raise RefusedValue(f"axes of {who} are bounded", f"dim <= {MOST_AXES}", num_axes)
    return num_axes


def spread(value: Any, num_axes: int) -> tuple[Any, ...]:
    """The value of an option for each axis."""
    return value if isinstance(value, tuple) else (value,) * num_axes


def check_places(family: Any, num_axes: int) -> None:
    """Refuse kernels of more than ``MOST_PLACES`` places."""
    places = prod(spread(family.window or 1, num_axes))
    if places > MOST_PLACES:
        raise RefusedValue(
            f"window of {type(family).__name__} is bounded",
            f"at most {MOST_PLACES} places in all",
            f"{places} of {family.window}",
        )


def check_least(family: Any, **bounds: int) -> None:
    """Refuse options with a number below their bound, on any axis; None and text are no numbers."""
    for name, least in bounds.items():
        value = getattr(family, name)
        numbers = () if value is None or isinstance(value, str) else spread(value, 1)
        if any(part < least for part in numbers):
            rule = f"{name} of {type(family).__name__} is bounded"
            raise RefusedValue(rule, f"{name} >= {least}", value)


def for_each_axis(
    family: Any, structure: Structure, *options: int | tuple[int, ...]
) -> tuple[int, list[tuple[int, ...]]]:
    """D of the structure, 1 unless it is a grid, and the values of each option on its axes."""
    axes = structure.num_axes if isinstance(structure, Cells) else 1
    values = [spread(option, axes) for option in options]
    if any(len(value) != axes for value in values):
        raise RefusedValue(f"{family} has a value for each axis", f"{axes} axes", structure)
    return axes, values


def nested(family: Family) -> list[Family]:
    """A family, its parts, and their parts, in depth-first order."""
    families = [family]  # no generator, which torch.compile cannot trace
    for part in family.parts:
        families += nested(part)
    return families


def functions_of(family: Family) -> list[torch.nn.Module]:
    """The modules among the options of a family and its parts, each once."""
    options = [option for part in nested(family) for option in _options(part)]
    modules = [option for option in options if isinstance(option, torch.nn.Module)]
    return list(dict.fromkeys(modules))


def _options(family: Family) -> list[Any]:
    option_fields = fields(family)  # type: ignore[arg-type]  # every family is a dataclass
    values = [getattr(family, option.name) for option in option_fields]
    return [
        part for option in values for part in (option if isinstance(option, tuple) else [option])
    ]
