"""Checks of the options of layers."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from functools import cache
from numbers import Real
from typing import Any

from ..errors import RefusedType, RefusedValue, unknown
from ..signatures import LARGEST, is_integer

AGGREGATIONS = ("sum", "mean", "max", "min")
COMPARISONS = ("max", "min")


def check_channels(name: str, value: Any, least: int) -> None:
    """Check that channels are an integer >= ``least``; ``in_channels`` may be a pair of these."""
    if isinstance(value, tuple) and name == "in_channels":
        if len(value) != 2:
            raise RefusedValue(
                f"{name} of sources and targets must be a pair", "2 numbers", len(value)
            )
        for part in value:
            check_channels("each of in_channels", part, least)
    elif not is_integer(value):
        raise RefusedType(f"{name} must be a number of channels", "an integer", repr(value))
    elif not least <= value < LARGEST:
        expected = f"an integer >= {least}" if value < least else "below 2^63"
        raise RefusedValue(f"{name} must be a number of channels", expected, value)


def check_options(
    layer: Any, options: Iterable[str], *takers: type[Any], but: Collection[str] = ()
) -> None:
    """Check that each option of a layer is an argument of one of the classes, but for some."""
    argument_names = {name for kind in takers for name in _arguments(kind)}  # type: ignore[arg-type]
    argument_names -= {"kwargs", *but}
    for name in options:
        if name not in argument_names:
            raise RefusedType(unknown(f"option of {type(layer).__name__}", name, argument_names))


@cache
def _arguments(kind: type[Any]) -> tuple[str, ...]:
    """The names of the arguments that a class takes."""
    return tuple(inspect.signature(kind).parameters)


def check_share(name: str, value: Any) -> None:
    """Check that a share is a number in [0, 1). Raises TypeError or ValueError."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise RefusedType(f"{name} must be a share", "a float", repr(value))
    if not 0 <= float(value) < 1:
        raise RefusedValue(f"{name} must be a share", "a number in [0, 1)", value)


def aggregation(name: str, value: str | None) -> str:
    """The name of a reduction, ``'add'`` being ``'sum'``. Raises ValueError if it is unknown."""
    value = "sum" if value == "add" else value
    if value not in AGGREGATIONS:
        raise RefusedValue(unknown(name, value, AGGREGATIONS))
    return value


def message_aggregation(aggr: str, label_aggr: str) -> str:
    """The reduction over the inputs of a label that is left for the contraction.

    A mean is divided into the values of the basis and becomes a sum, unless labels are compared:
    so there is one way to add up, Φ exists, and each label has a mean of its own.
    """
    return "sum" if aggr == "mean" and label_aggr not in COMPARISONS else aggr


def check_ends(in_channels: Any, out_channels: Any, theta: str) -> None:
    """Check P and Q of a layer; -1 is derived from the input, Q only for ``theta='identity'``."""
    check_channels("in_channels", in_channels, -1)
    check_channels("out_channels", out_channels, -1 if str(theta).strip() == "identity" else 0)


def check_node_dim(node_dim: int) -> None:
    """Raise ValueError unless nodes are on the axis before channels, as features have them."""
    if node_dim != -2:
        raise RefusedValue(
            "features have nodes on the axis before channels",
            f"node_dim=-2, of x.movedim({node_dim}, -2)",
            f"node_dim={node_dim}",
        )


def check_known(out_channels: int, **options: bool) -> None:
    """Raise ValueError if an option needs Q before the first input, and Q is -1."""
    for name, wanted in options.items():
        if wanted and out_channels < 0:
            raise RefusedValue(
                f"{name} needs out_channels", "in_channels or out_channels >= 0", "both -1"
            )
