"""Angles: positions times the frequencies of sinusoidal and of rotary encodings."""

from __future__ import annotations

from math import inf
from numbers import Real

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from ..graph.checks import check_positive


def angles(position: Tensor, channels: int, base: float) -> Tensor:
    r"""The angle of each position on each axis at each frequency.

    .. math:: \alpha_{n,d,i} = p_{n,d} \cdot b^{-2i/C}, \qquad i = 0, \dots, C/2 - 1

    with C the channels of one axis, an equal share of all channels. Wavelengths grow
    geometrically from 2π to 2π·b.

    Args:
        position: (n, D) floating point.
        channels: C·D.
        base: b.

    Returns:
        (n, D, C/2), in the dtype of ``position``.
    """
    of_axis = channels // position.size(1)
    step = torch.arange(0, of_axis, 2, dtype=position.dtype, device=position.device)
    return position.unsqueeze(-1) * float(base) ** (-step / of_axis)


def check_frequencies(channels: int, base: float, axes: int) -> None:
    """Refuse channels that do not split into pairs on each axis, and a base that is not positive.

    Raises:
        TypeError: ``channels`` or ``axes`` is not an integer, or ``base`` not a number.
        ValueError: ``channels`` is not a multiple of 2·axes, or a number is not positive.
    """
    check_positive("positions", channels=channels, axes=axes)
    if channels % (2 * axes):
        raise RefusedValue(
            refusal(
                "each axis takes pairs of channels, a sine and a cosine of each frequency",
                f"channels a multiple of {2 * axes}",
                channels,
            )
        )
    if not isinstance(base, Real) or isinstance(base, bool):
        raise RefusedType(refusal("the base of frequencies is a number", "> 0", repr(base)))
    if not 0 < base < inf:
        raise RefusedValue(refusal("the base of frequencies is positive", "finite, > 0", base))
