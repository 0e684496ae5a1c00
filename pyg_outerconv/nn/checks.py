"""What the options of a layer must be like."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from ..errors import RefusedType, RefusedValue, refusal, unknown

AGGREGATIONS = ("sum", "mean", "max", "min")


def check_channels(name: str, value: Any, least: int) -> None:
    """Refuse channels that are no whole number >= ``least``; ``in_channels`` may be a pair."""
    if isinstance(value, tuple) and name == "in_channels":
        if len(value) != 2:
            raise RefusedValue(
                refusal(f"{name} of sources and targets are a pair", "2 numbers", len(value))
            )
        for part in value:
            check_channels("each of in_channels", part, least)
    elif not isinstance(value, Integral) or isinstance(value, bool):
        raise RefusedType(
            refusal(f"{name} must be a number of channels", "an integer", repr(value))
        )
    elif value < least:
        raise RefusedValue(
            refusal(f"{name} must be a number of channels", f"an integer >= {least}", value)
        )


def check_share(name: str, value: Any) -> None:
    """Refuse a share that is no number from 0 on and below 1."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise RefusedType(refusal(f"{name} is a share", "a float", repr(value)))
    if not 0 <= float(value) < 1:
        raise RefusedValue(refusal(f"{name} is a share", "in [0, 1)", value))


def aggregation(name: str, value: str | None) -> str:
    """The reduction that PyG's word for it names. Raises ValueError if it is unknown."""
    value = "sum" if value == "add" else value
    if value not in AGGREGATIONS:
        raise RefusedValue(unknown(name, value, AGGREGATIONS))
    return value


def check_ends(in_channels: Any, out_channels: Any, theta: str) -> None:
    """Refuse channels of a layer that are no numbers; the identity has as many out as in."""
    check_channels("in_channels", in_channels, -1)
    check_channels("out_channels", out_channels, -1 if str(theta).strip() == "identity" else 0)


def check_known(out_channels: int, **options: bool) -> None:
    """Refuse options whose parameters have a size that is not known before the first input."""
    for name, wanted in options.items():
        if wanted and out_channels < 0:
            raise RefusedValue(
                refusal(f"{name} needs out_channels", "in_channels or out_channels >= 0", "both -1")
            )
