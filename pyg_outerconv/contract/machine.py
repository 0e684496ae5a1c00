"""How fast devices are, roughly: what tells orders of one rank apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

Table = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Constants:
    """How fast a device is in float32.

    Attributes:
        dense_flops: of products with tall matrices, a second.
        gather: pairs (bytes of an operand, seconds to read one of its bytes through an index),
            ascending; between them the logarithm of the size interpolates.
        move: pairs (bytes of an intermediate result, seconds to allocate, write and read one of its
            bytes), likewise.
        call_seconds: of calling a primitive, whatever its size.
        group_seconds: of each separate small product in a grouped one.
    """

    dense_flops: float
    gather: Table
    move: Table
    call_seconds: float
    group_seconds: float

    def gathering(self, operand: float) -> float:
        """Seconds to read a byte through an index from an operand of that many bytes."""
        return _between(self.gather, operand)

    def moving(self, whole: float) -> float:
        """Seconds to make a byte of an intermediate result of that many bytes."""
        return _between(self.move, whole)


def _between(table: Table, size: float) -> float:
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
    """Those of a device type; of one that is not known, a GPU's."""
    return _OF_DEVICES.get(device) or _OF_DEVICES["cuda"]
