"""Rough speeds of devices, from which the costs of orders of equal rank are predicted."""

from __future__ import annotations

import math
from dataclasses import dataclass

Table = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Constants:
    """The speed of a device in float32.

    Attributes:
        dense_flops: flops per second of products with tall matrices.
        gather: pairs (bytes of an operand, seconds to read one of its bytes through an index),
            ascending, interpolated linearly in the logarithm of the size.
        move: pairs (bytes of an intermediate result, seconds to allocate, write and read one of its
            bytes), ascending and interpolated likewise.
        call_seconds: seconds of a call of a primitive, independent of its size.
        group_seconds: seconds of each small product in a grouped product.
    """

    dense_flops: float
    gather: Table
    move: Table
    call_seconds: float
    group_seconds: float

    def gathering(self, operand: float) -> float:
        """Seconds to read one byte through an index from an operand of ``operand`` bytes."""
        return _interpolate(self.gather, operand)

    def moving(self, whole: float) -> float:
        """Seconds to make one byte of an intermediate result of ``whole`` bytes."""
        return _interpolate(self.move, whole)


def _interpolate(table: Table, size: float) -> float:
    below = table[0]
    if size <= below[0]:
        return below[1]
    for above in table[1:]:
        if size <= above[0]:
            share = math.log(size / below[0]) / math.log(above[0] / below[0])
            return below[1] + share * (above[1] - below[1])
        below = above
    return below[1]


# Orders of magnitude: a desktop processor, and a large GPU.
_OF_DEVICES = {
    "cpu": Constants(
        dense_flops=1.0e11,
        gather=((1e6, 1.2e-11), (8e6, 2.5e-11), (32e6, 6e-11), (256e6, 1.5e-10)),
        move=((16e6, 5e-11), (64e6, 4e-10)),
        call_seconds=5e-5,
        group_seconds=1e-5,
    ),
    "cuda": Constants(
        dense_flops=3.0e13,
        gather=((4e7, 3e-13), (1e9, 8e-13)),
        move=((4e7, 7e-13), (1e9, 7e-13)),
        call_seconds=3e-5,
        group_seconds=1e-5,
    ),
}


def constants(device: str) -> Constants:
    """The constants of a device type; those of a GPU if the type is unknown."""
    return _OF_DEVICES.get(device) or _OF_DEVICES["cuda"]
