"""What the options of a layer must be like."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from ..errors import RefusedType, RefusedValue, refusal, unknown

AGGREGATIONS = ("sum", "mean")
LATER_AGGREGATIONS = ("max", "min")


def check_channels(name: str, value: Any, least: int) -> None:
    """Refuse channels that are no whole number >= ``least``; ``in_channels`` may be a pair."""
    if isinstance(value, tuple) and name == "in_channels":
        if len(value) != 2:
            raise RefusedValue(
                refusal(f"{name} of sources and targets are a pair", "2 numbers", len(value))
            )
        for part in value:
            check_channels("each of in_channels", part, least)
    elif not isinstance(value, Integral):
        raise RefusedType(
            refusal(f"{name} must be a number of channels", "an integer", repr(value))
        )
    elif value < least:
        raise RefusedValue(
            refusal(f"{name} must be a number of channels", f"an integer >= {least}", value)
        )


def check_aggregation(name: str, value: str | None) -> None:
    """Refuse a reduction that is unknown, or known and not here yet."""
    if value in LATER_AGGREGATIONS:
        raise RefusedValue(
            refusal(f"{name}={value!r} is not supported yet", "'sum' or 'mean'", repr(value))
        )
    if value not in AGGREGATIONS:
        raise RefusedValue(unknown(name, value, AGGREGATIONS))
